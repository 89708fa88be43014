//! Leader election and fencing: one leader at a time, and a former leader cannot write.

use std::time::Duration;

use muster_store::{Leadership, Store, StoreError};

use crate::fixtures::*;
use crate::test_database::{PostgresTestDatabase, SqliteTestDatabase, TestDatabase};

contract!(
    a_second_server_stands_by,
    a_standby_takes_over_at_once_after_a_resignation,
    leading_again_is_a_new_epoch,
    a_server_that_never_led_cannot_write,
    a_replaced_leader_cannot_write,
    a_leader_whose_row_is_gone_cannot_write,
    a_leader_whose_lease_expired_cannot_write,
    a_renewed_lease_outlives_its_first_expiry,
    an_expired_lease_is_resumed_unless_another_server_leads,
    entries_of_another_epoch_are_refused,
);

fn lead(store: &mut Store, lease_ms: i64) -> (u64, u64) {
    match store.journal.acquire_leadership("a", lease_ms).unwrap() {
        Leadership::Leading { epoch, nonce } => (epoch, nonce),
        standby => panic!("{standby:?}"),
    }
}

fn is_not_leader(result: Result<(), StoreError>) -> bool {
    matches!(result, Err(StoreError::NotLeader { .. }))
}

fn a_second_server_stands_by(database: &dyn TestDatabase) {
    let mut first = database.open();
    lead(&mut first, LEASE_MS);
    let mut second = database.open();
    let Leadership::Standby { holder, until_ms } = second.journal.acquire_leadership("b", LEASE_MS).unwrap() else {
        panic!("two servers lead");
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as i64;
    assert_eq!(holder, "a");
    assert!((now + LEASE_MS - until_ms).abs() < 60_000, "{until_ms}");
    // A standby reads the tables.
    assert_eq!(second.tables.job_counts().unwrap(), Vec::new());
}

fn a_standby_takes_over_at_once_after_a_resignation(database: &dyn TestDatabase) {
    let mut first = database.open();
    let (epoch, nonce) = lead(&mut first, LEASE_MS);
    first.journal.resign().unwrap();
    let mut second = database.open();
    let (next_epoch, next_nonce) = lead(&mut second, LEASE_MS);
    assert_eq!(next_epoch, epoch + 1);
    assert_ne!(next_nonce, nonce);
    assert!(is_not_leader(first.journal.renew_lease(LEASE_MS)));
}

fn leading_again_is_a_new_epoch(database: &dyn TestDatabase) {
    let mut store = database.open();
    let epochs: Vec<u64> = (0..3).map(|_| lead(&mut store, LEASE_MS).0).collect();
    assert_eq!(epochs, vec![1, 2, 3]);
}

fn a_server_that_never_led_cannot_write(database: &dyn TestDatabase) {
    let mut writer = JournalWriter { store: database.open(), epoch: 1, seq: 0 };
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    assert!(is_not_leader(writer.store.journal.renew_lease(LEASE_MS)));
    writer.store.journal.resign().unwrap();
}

fn a_replaced_leader_cannot_write(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[NOOP_EVENT]);
    // Another server took over: the epoch is incremented.
    database.sql("UPDATE leader SET epoch = epoch + 1, nonce = 5, holder = 'b'");
    let message = writer.try_append(&[NOOP_EVENT]).unwrap_err();
    assert!(matches!(message, StoreError::NotLeader { .. }) && message.to_string().contains("`b`"), "{message}");
    assert!(is_not_leader(writer.store.journal.renew_lease(LEASE_MS)));
    // The same epoch with another nonce belongs to another history.
    database.sql("UPDATE leader SET epoch = epoch - 1");
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    assert_eq!(database.sql("SELECT count(*) FROM journal"), "1");
}

fn a_leader_whose_row_is_gone_cannot_write(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    database.sql("DELETE FROM leader");
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
}

fn a_leader_whose_lease_expired_cannot_write(database: &dyn TestDatabase) {
    let mut store = database.open();
    let (epoch, _) = lead(&mut store, 1);
    std::thread::sleep(Duration::from_millis(20));
    let mut writer = JournalWriter { store, epoch, seq: 0 };
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    assert!(is_not_leader(writer.store.journal.renew_lease(LEASE_MS)));
    assert_eq!(database.sql("SELECT count(*) FROM journal"), "0");
    writer.epoch = lead(&mut writer.store, LEASE_MS).0;
    writer.append(&[NOOP_EVENT]);
}

fn a_renewed_lease_outlives_its_first_expiry(database: &dyn TestDatabase) {
    let mut store = database.open();
    let (epoch, _) = lead(&mut store, 2_000);
    store.journal.renew_lease(LEASE_MS).unwrap();
    std::thread::sleep(Duration::from_millis(2_100));
    JournalWriter { store, epoch, seq: 0 }.append(&[NOOP_EVENT]);
}

/// The recovery of a new leader may take longer than its lease.
fn an_expired_lease_is_resumed_unless_another_server_leads(database: &dyn TestDatabase) {
    let mut store = database.open();
    let (epoch, _) = lead(&mut store, 1);
    std::thread::sleep(Duration::from_millis(20));
    assert!(is_not_leader(store.journal.renew_lease(LEASE_MS)));
    store.journal.resume_lease(LEASE_MS).unwrap();
    let mut writer = JournalWriter { store, epoch, seq: 0 };
    writer.append(&[NOOP_EVENT]);
    database.sql("UPDATE leader SET epoch = epoch + 1, nonce = 5, holder = 'b'");
    assert!(is_not_leader(writer.store.journal.resume_lease(LEASE_MS)));
    database.sql("DELETE FROM leader");
    assert!(is_not_leader(writer.store.journal.resume_lease(LEASE_MS)));
}

fn entries_of_another_epoch_are_refused(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.epoch += 1;
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    writer.epoch -= 2;
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
}

#[test]
fn postgres_is_taken_over_when_the_lease_has_run_out() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut first = database.open();
    let (epoch, _) = lead(&mut first, 300);
    let mut writer = JournalWriter { store: first, epoch, seq: 0 };
    writer.append(&[NOOP_EVENT]);

    let mut second = database.open();
    assert!(matches!(second.journal.acquire_leadership("b", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    std::thread::sleep(Duration::from_millis(320));
    let Leadership::Leading { epoch, .. } = second.journal.acquire_leadership("b", LEASE_MS).unwrap() else {
        panic!("nobody leads")
    };
    assert_eq!(epoch, 2);

    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    assert!(is_not_leader(writer.store.journal.renew_lease(LEASE_MS)));
    let mut next = JournalWriter { store: second, epoch, seq: 1 };
    next.append(&[NOOP_EVENT]);
    assert_eq!(next.replay(0).unwrap().len(), 2);
}

/// A former leader whose append failed must not keep its transaction open, because that locks the leader row.
#[test]
fn a_failed_append_leaves_no_lock_behind() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut writer = JournalWriter::lead(database.open());
    database.sql("UPDATE leader SET epoch = epoch + 1");
    assert!(is_not_leader(writer.try_append(&[NOOP_EVENT])));
    database.sql("SET lock_timeout = '5s'; UPDATE leader SET epoch = epoch + 1");
}

/// Of many servers that try at once exactly one leads: the advisory lock serialises takeover and migration.
#[test]
fn one_of_many_postgres_servers_leads() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let config = muster_store::StoreConfig::Postgres(database.config.clone());
    let leads = &|name: String| {
        let mut store = muster_store::open(&config).unwrap();
        matches!(store.journal.acquire_leadership(&name, LEASE_MS).unwrap(), Leadership::Leading { .. })
    };
    let leaders = std::thread::scope(|scope| {
        let tries: Vec<_> = (0..8).map(|n| scope.spawn(move || leads(format!("s{n}")))).collect();
        tries.into_iter().map(|attempt| attempt.join().unwrap()).filter(|leads| *leads).count()
    });
    assert_eq!(leaders, 1);
    assert_eq!(database.sql("SELECT epoch FROM leader"), "1");
}

/// The lock file outlives the lease: the second server stands by while the first process lives.
#[test]
fn sqlite_waits_for_the_lock_file() {
    let database = SqliteTestDatabase::new();
    let mut first = database.open();
    lead(&mut first, 1);
    std::thread::sleep(Duration::from_millis(20));
    let mut second = database.open();
    assert!(
        matches!(second.journal.acquire_leadership("b", LEASE_MS).unwrap(), Leadership::Standby { holder, .. } if holder == "a")
    );
    drop(first);
    assert!(matches!(second.journal.acquire_leadership("b", LEASE_MS).unwrap(), Leadership::Leading { epoch: 2, .. }));
}

/// A killed server leaves an unexpired lease behind; its successor need not wait for the end of that lease.
#[test]
fn sqlite_is_taken_over_as_soon_as_the_process_is_gone() {
    let database = SqliteTestDatabase::new();
    let mut first = database.open();
    lead(&mut first, LEASE_MS);
    drop(first);
    assert_eq!(lead(&mut database.open(), LEASE_MS).0, 2);
}

/// Two machines may have the same host name and folder path.
#[test]
fn two_postgres_servers_with_the_same_holder_name_do_not_replace_each_other() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let (mut first, mut second) = (database.open(), database.open());
    let (epoch, _) = lead(&mut first, LEASE_MS);
    assert!(matches!(second.journal.acquire_leadership("a", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    JournalWriter { store: first, epoch, seq: 0 }.append(&[NOOP_EVENT]);
}

/// A server that declares its own former process dead need not wait for the lease of that process.
#[test]
fn a_restarted_postgres_server_need_not_wait_for_its_own_lease() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut first = database.open();
    let (epoch, _) = lead(&mut first, LEASE_MS);
    let mut next = database.open();
    next.journal.declare_holder_dead("someone else");
    assert!(matches!(next.journal.acquire_leadership("b", LEASE_MS).unwrap(), Leadership::Standby { .. }));
    next.journal.declare_holder_dead("a");
    assert!(matches!(next.journal.acquire_leadership("b", LEASE_MS).unwrap(), Leadership::Leading { epoch: 2, .. }));
    assert!(is_not_leader(JournalWriter { store: first, epoch, seq: 0 }.try_append(&[NOOP_EVENT])));
}
