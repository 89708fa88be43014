//! One leader at a time, and a deposed one cannot write.

use std::time::Duration;

use muster_core::{Event, Timestamp};
use muster_store::{Leadership, Store, StoreError};

use crate::bench::{Bench, PostgresBench, SqliteBench};
use crate::story::*;

contract!(
    a_second_server_stands_by,
    a_resigned_leader_is_followed_at_once,
    leading_again_is_a_new_epoch,
    nobody_writes_without_leading,
    a_deposed_leader_cannot_write,
    a_lost_leader_row_deposes,
    a_lease_that_ran_out_deposes,
    a_renewed_lease_lasts,
    entries_of_another_epoch_are_refused,
);

const NOTHING: Event = Event::Forgotten { before: Timestamp(0), trimmed_before: None };

fn lead(store: &mut Store, lease_ms: i64) -> (u64, u64) {
    match store.journal.lead("a", lease_ms).unwrap() {
        Leadership::Leading { epoch, nonce } => (epoch, nonce),
        standby => panic!("{standby:?}"),
    }
}

fn is_deposed(done: Result<(), StoreError>) -> bool {
    matches!(done, Err(StoreError::Deposed { .. }))
}

fn a_second_server_stands_by(bench: &dyn Bench) {
    let mut first = bench.open();
    lead(&mut first, LEASE_MS);
    let mut second = bench.open();
    let Leadership::Standby { holder, until_ms } = second.journal.lead("b", LEASE_MS).unwrap() else {
        panic!("two servers lead");
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert_eq!(holder, "a");
    assert!((now + LEASE_MS - until_ms).abs() < 60_000, "{until_ms}");
    // A standby reads the tables.
    assert_eq!(second.tables.counts().unwrap(), Vec::new());
}

fn a_resigned_leader_is_followed_at_once(bench: &dyn Bench) {
    let mut first = bench.open();
    let (epoch, nonce) = lead(&mut first, LEASE_MS);
    first.journal.resign().unwrap();
    let mut second = bench.open();
    let (next_epoch, next_nonce) = lead(&mut second, LEASE_MS);
    assert_eq!(next_epoch, epoch + 1);
    assert_ne!(next_nonce, nonce);
    assert!(is_deposed(first.journal.renew(LEASE_MS)));
}

fn leading_again_is_a_new_epoch(bench: &dyn Bench) {
    let mut store = bench.open();
    let epochs: Vec<u64> = (0..3).map(|_| lead(&mut store, LEASE_MS).0).collect();
    assert_eq!(epochs, vec![1, 2, 3]);
}

fn nobody_writes_without_leading(bench: &dyn Bench) {
    let mut book = Book { store: bench.open(), epoch: 1, seq: 0 };
    assert!(is_deposed(book.try_add(&[NOTHING])));
    assert!(is_deposed(book.store.journal.renew(LEASE_MS)));
    book.store.journal.resign().unwrap();
}

fn a_deposed_leader_cannot_write(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&[NOTHING]);
    // Another server took over: the epoch moves on.
    bench.sql("UPDATE leader SET epoch = epoch + 1, nonce = 5, holder = 'b'");
    let said = book.try_add(&[NOTHING]).unwrap_err();
    assert!(matches!(said, StoreError::Deposed { .. }) && said.to_string().contains("`b`"), "{said}");
    assert!(is_deposed(book.store.journal.renew(LEASE_MS)));
    // The same epoch with another nonce is another history.
    bench.sql("UPDATE leader SET epoch = epoch - 1");
    assert!(is_deposed(book.try_add(&[NOTHING])));
    assert_eq!(bench.sql("SELECT count(*) FROM journal"), "1");
}

fn a_lost_leader_row_deposes(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    bench.sql("DELETE FROM leader");
    assert!(is_deposed(book.try_add(&[NOTHING])));
}

fn a_lease_that_ran_out_deposes(bench: &dyn Bench) {
    let mut store = bench.open();
    let (epoch, _) = lead(&mut store, 1);
    std::thread::sleep(Duration::from_millis(20));
    let mut book = Book { store, epoch, seq: 0 };
    assert!(is_deposed(book.try_add(&[NOTHING])));
    assert!(is_deposed(book.store.journal.renew(LEASE_MS)));
    assert_eq!(bench.sql("SELECT count(*) FROM journal"), "0");
    book.epoch = lead(&mut book.store, LEASE_MS).0;
    book.add(&[NOTHING]);
}

fn a_renewed_lease_lasts(bench: &dyn Bench) {
    let mut store = bench.open();
    let (epoch, _) = lead(&mut store, 2_000);
    store.journal.renew(LEASE_MS).unwrap();
    std::thread::sleep(Duration::from_millis(2_100));
    Book { store, epoch, seq: 0 }.add(&[NOTHING]);
}

fn entries_of_another_epoch_are_refused(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.epoch += 1;
    assert!(is_deposed(book.try_add(&[NOTHING])));
    book.epoch -= 2;
    assert!(is_deposed(book.try_add(&[NOTHING])));
}

#[test]
fn postgres_is_taken_over_when_the_lease_has_run_out() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut first = bench.open();
    let (epoch, _) = lead(&mut first, 300);
    let mut book = Book { store: first, epoch, seq: 0 };
    book.add(&[NOTHING]);

    let mut second = bench.open();
    assert!(matches!(second.journal.lead("b", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    std::thread::sleep(Duration::from_millis(320));
    let Leadership::Leading { epoch, .. } = second.journal.lead("b", LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    assert_eq!(epoch, 2);

    assert!(is_deposed(book.try_add(&[NOTHING])));
    assert!(is_deposed(book.store.journal.renew(LEASE_MS)));
    let mut next = Book { store: second, epoch, seq: 1 };
    next.add(&[NOTHING]);
    assert_eq!(next.replay(0).unwrap().len(), 2);
}

/// A deposed leader whose append failed must not keep its transaction open: it holds a lock on the leader row.
#[test]
fn a_failed_append_leaves_no_lock_behind() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut book = Book::lead(bench.open());
    bench.sql("UPDATE leader SET epoch = epoch + 1");
    assert!(is_deposed(book.try_add(&[NOTHING])));
    bench.sql("SET lock_timeout = '5s'; UPDATE leader SET epoch = epoch + 1");
}

/// Many servers try at once; the lock around the migration keeps them apart and exactly one leads.
#[test]
fn one_of_many_postgres_servers_leads() {
    let Some(bench) = PostgresBench::new() else { return };
    let config = muster_store::StoreConfig::Postgres(bench.config.clone());
    let leads = &|name: String| {
        let mut store = muster_store::open(&config).unwrap();
        matches!(store.journal.lead(&name, LEASE_MS).unwrap(), Leadership::Leading { .. })
    };
    let leaders = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8).map(|n| scope.spawn(move || leads(format!("s{n}")))).collect();
        tries.into_iter().map(|attempt| attempt.join().unwrap()).filter(|leads| *leads).count()
    });
    assert_eq!(leaders, 1);
    assert_eq!(bench.sql("SELECT epoch FROM leader"), "1");
}

/// The lock file outlives the lease: while the first process lives, the second one waits.
#[test]
fn sqlite_waits_for_the_lock_file() {
    let bench = SqliteBench::new();
    let mut first = bench.open();
    lead(&mut first, 1);
    std::thread::sleep(Duration::from_millis(20));
    let mut second = bench.open();
    assert!(
        matches!(second.journal.lead("b", LEASE_MS).unwrap(), Leadership::Standby { holder, .. } if holder == "a")
    );
    drop(first);
    assert!(matches!(second.journal.lead("b", LEASE_MS).unwrap(), Leadership::Leading { epoch: 2, .. }));
}

/// A server that was killed leaves its lease behind; its successor need not wait for it.
#[test]
fn sqlite_is_taken_over_as_soon_as_the_process_is_gone() {
    let bench = SqliteBench::new();
    let mut first = bench.open();
    lead(&mut first, LEASE_MS);
    drop(first);
    assert_eq!(lead(&mut bench.open(), LEASE_MS).0, 2);
}

/// Two machines may have the host name and the folder path in common.
#[test]
fn two_postgres_servers_with_one_name_do_not_take_turns() {
    let Some(bench) = PostgresBench::new() else { return };
    let (mut first, mut second) = (bench.open(), bench.open());
    let (epoch, _) = lead(&mut first, LEASE_MS);
    assert!(matches!(second.journal.lead("a", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    Book { store: first, epoch, seq: 0 }.add(&[NOTHING]);
}

/// A server that knows that its former process has ended need not wait for the lease of that.
#[test]
fn a_restarted_postgres_server_need_not_wait_for_its_own_lease() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut first = bench.open();
    let (epoch, _) = lead(&mut first, LEASE_MS);
    let mut next = bench.open();
    next.journal.succeed("someone else");
    assert!(matches!(next.journal.lead("b", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    next.journal.succeed("a");
    assert!(matches!(next.journal.lead("b", LEASE_MS).unwrap(), Leadership::Leading { epoch: 2, .. }));
    assert!(is_deposed(Book { store: first, epoch, seq: 0 }.try_add(&[NOTHING])));
}
