//! Kill the server with SIGKILL at random points under load, over and over, on both stores.
//!
//! Nothing that was acknowledged may be lost, nothing may exist twice, and the journal must replay into a
//! lawful state. `KILLS=1000 cargo test -p muster --test crash` kills more often.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say so and stop")]

mod client;
mod life;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::{JobId, State};
use muster_store::StoreConfig;

use client::Ledger;
use life::Life;

/// Kills per store in an ordinary run.
const KILLS: usize = 200;

#[test]
fn sqlite_survives_being_killed() {
    let folder = life::Folder::new("sqlite");
    let store = StoreConfig::Sqlite { path: folder.path().join("data/muster.db") };
    campaign(folder.path(), None, &store);
}

#[test]
fn postgres_survives_being_killed() {
    let Some(server) = muster_store::testing::postgres() else { return };
    let database = server.database().expect("a database");
    let url = format!("postgres://{}@/{}?host={}", database.user, database.database, database.host);
    let folder = life::Folder::new("postgres");
    campaign(folder.path(), Some(&url), &StoreConfig::Postgres(database));
}

/// As long as a person should have to wait, with the lease that servers use.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);

/// A leader that is frozen under load is replaced by a standby, and is not obeyed when it wakes up.
#[test]
fn a_frozen_leader_is_replaced() {
    let Some(server) = muster_store::testing::postgres() else { return };
    let database = server.database().expect("a database");
    let url = format!("postgres://{}@/{}?host={}", database.user, database.database, database.host);
    let folders = [life::Folder::new("frozen-1"), life::Folder::new("frozen-2")];
    let leader = Life::start(folders[0].path(), Some(&url));
    let standby = Life::start_beside(folders[1].path(), &url);
    let ledger = Ledger::default();
    let mut waited = Duration::ZERO;
    std::thread::scope(|scope| {
        // Clients of a frozen server wait until it wakes up.
        let (ledger, address) = (&ledger, leader.address());
        scope.spawn(move || ledger.submit_while(address, || std::thread::sleep(Duration::from_secs(2))));
        std::thread::sleep(Duration::from_millis(700));
        leader.signal("STOP");
        let begin = Instant::now();
        standby.wait_until_ready(folders[1].path());
        waited = begin.elapsed();
        leader.signal("CONT");
    });
    assert!(waited < TAKEOVER_MAX, "nobody led for {waited:?}");
    assert!(ledger.acknowledged() > 0, "the load never got through");
    leader.kill();
    let jobs = ledger.settle(standby.address());
    standby.stop();
    assert_eq!(replay(&StoreConfig::Postgres(database)).len(), jobs.len());
    println!("took over {waited:?} after the leader was frozen");
}

fn campaign(folder: &Path, database: Option<&str>, store: &StoreConfig) {
    let kills = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let mut chance = life::Chance::new(kills as u64);
    let ledger = Ledger::default();
    for number in 0..kills {
        let life = Life::start(folder, database);
        ledger.submit_while(life.address(), || {
            std::thread::sleep(chance.up_to_ms(120));
            life.kill();
        });
        if number % 50 == 49 {
            println!("{} kills, {} submissions acknowledged", number + 1, ledger.acknowledged());
        }
    }
    let life = Life::start(folder, database);
    let jobs = ledger.settle(life.address());
    life.stop();
    assert!(ledger.acknowledged() > kills / 2, "the load never got through");
    let journal = replay(store);
    assert_eq!(journal.len(), jobs.len(), "jobs in the journal, and keys that were submitted");
    for (key, job) in &jobs {
        assert!(
            journal.contains_key(job),
            "{key} was acknowledged as {job}, which the journal does not have"
        );
    }
    println!("{kills} kills: {} jobs, lost 0, doubled 0", jobs.len());
}

/// Every job the journal ever accepted, after checking that it replays into a lawful state.
fn replay(store: &StoreConfig) -> BTreeMap<JobId, String> {
    let mut store = muster_store::open(store).expect("the store opens");
    let mut state = State::empty();
    let mut jobs = BTreeMap::new();
    store
        .journal
        .replay(0, &mut |entry| {
            if let muster_core::Event::JobSubmitted { job, spec, .. } = &entry.event {
                let former = jobs.insert(*job, spec.name.clone());
                assert_eq!(former, None, "{job} was accepted twice");
            }
            state.apply(&entry.event);
            Ok(())
        })
        .expect("the journal is whole");
    assert_eq!(state.check(), Vec::new());
    jobs
}
