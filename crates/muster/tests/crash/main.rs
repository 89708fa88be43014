//! Kills the server with SIGKILL at random points under load, repeatedly, on both stores.
//!
//! No acknowledged job may be lost, no job may exist twice, and the journal must replay into a state without violated
//! laws. `KILLS=1000 cargo test -p muster --test crash` kills more often.

#![allow(clippy::expect_used, reason = "a test that cannot go on should say so and stop")]

mod client;
mod server_process;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use muster_core::{JobId, State};
use muster_store::StoreConfig;

use client::SubmissionLog;
use server_process::ServerProcess;

/// Kills per store without `KILLS`.
const KILLS_DEFAULT: usize = 200;

#[test]
fn sqlite_survives_being_killed() {
    let folder = server_process::TempDir::new("sqlite");
    let store = StoreConfig::Sqlite { path: folder.path().join("data/muster.db") };
    kill_repeatedly(folder.path(), None, &store);
}

#[test]
fn postgres_survives_being_killed() {
    let Some(server) = muster_store::testing::shared_postgres() else { return };
    let database = server.create_database().expect("a database");
    let url = format!("postgres://{}@/{}?host={}", database.user, database.database, database.host);
    let folder = server_process::TempDir::new("postgres");
    kill_repeatedly(folder.path(), Some(&url), &StoreConfig::Postgres(database));
}

/// The longest acceptable takeover with the default leader lease.
const TAKEOVER_MAX: Duration = Duration::from_secs(10);

/// A leader that is frozen under load is replaced by a standby, and is fenced when it continues.
#[test]
fn a_frozen_leader_is_replaced_by_a_standby_and_fenced() {
    let Some(server) = muster_store::testing::shared_postgres() else { return };
    let database = server.create_database().expect("a database");
    let url = format!("postgres://{}@/{}?host={}", database.user, database.database, database.host);
    let folders = [server_process::TempDir::new("frozen-1"), server_process::TempDir::new("frozen-2")];
    let leader = ServerProcess::start(folders[0].path(), Some(&url));
    let standby = ServerProcess::start_beside(folders[1].path(), &url);
    let submissions = SubmissionLog::default();
    let mut waited = Duration::ZERO;
    std::thread::scope(|scope| {
        // Clients of a frozen server wait until it continues.
        let (submissions, address) = (&submissions, leader.address());
        scope.spawn(move || submissions.submit_while(address, || std::thread::sleep(Duration::from_secs(2))));
        std::thread::sleep(Duration::from_millis(700));
        leader.signal("STOP");
        let begin = Instant::now();
        standby.wait_until_ready(folders[1].path());
        waited = begin.elapsed();
        leader.signal("CONT");
    });
    assert!(waited < TAKEOVER_MAX, "no leader for {waited:?}");
    assert!(submissions.acknowledged() > 0, "no submission was acknowledged");
    leader.kill();
    let jobs = submissions.resubmit_all(standby.address());
    standby.stop();
    assert_eq!(replay(&StoreConfig::Postgres(database)).len(), jobs.len());
    println!("takeover {waited:?} after the leader was frozen");
}

fn kill_repeatedly(folder: &Path, database: Option<&str>, store: &StoreConfig) {
    let kills = std::env::var("KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_DEFAULT);
    let mut random = server_process::SeededRandom::new(kills as u64);
    let submissions = SubmissionLog::default();
    for number in 0..kills {
        let server = ServerProcess::start(folder, database);
        submissions.submit_while(server.address(), || {
            std::thread::sleep(random.random_pause(120));
            server.kill();
        });
        if number % 50 == 49 {
            println!("{} kills, {} submissions acknowledged", number + 1, submissions.acknowledged());
        }
    }
    let server = ServerProcess::start(folder, database);
    let jobs = submissions.resubmit_all(server.address());
    server.stop();
    assert!(submissions.acknowledged() > kills / 2, "too few submissions were acknowledged");
    let journal = replay(store);
    assert_eq!(journal.len(), jobs.len(), "jobs in the journal, and keys that were submitted");
    for (key, job) in &jobs {
        assert!(journal.contains_key(job), "{key} was acknowledged as {job}, which the journal does not have");
    }
    println!("{kills} kills: {} jobs, 0 lost, 0 duplicated", jobs.len());
}

/// Every job of the journal, after checking that the journal replays into a state without violated laws.
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
        .expect("the journal is intact");
    assert_eq!(state.check(), Vec::new());
    jobs
}
