//! Lost connections and unreachable PostgreSQL servers.

use muster_store::{PostgresConfig, StoreConfig, StoreError};

use crate::fixtures::*;
use crate::test_database::{PostgresTestDatabase, TestDatabase};

/// Terminate all other connections to this database.
fn terminate_connections(database: &PostgresTestDatabase) {
    database.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

#[test]
fn a_terminated_connection_is_reopened() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None)]);
    writer.store.savepoints.save(1, b"state").unwrap();
    writer.store.tables.ping().unwrap();
    for round in 0..3 {
        terminate_connections(&database);
        let error = writer.try_append(&[NOOP_EVENT]).unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.is_recoverable_by_reload());
        // The leader continues over a new connection.
        writer.append(&[NOOP_EVENT]);
        assert_eq!(writer.replay(0).unwrap().len(), 2 + round);
        terminate_connections(&database);
        assert!(writer.store.savepoints.save(1, b"state").is_err());
        writer.store.savepoints.save(1, b"state").unwrap();
    }
    terminate_connections(&database);
    // A reader may fail once for each dead connection of the pool.
    let tries = (0..10).filter(|_| writer.store.tables.ping().is_err()).count();
    assert!(tries <= 2, "{tries} readers failed");
    writer.store.tables.ping().unwrap();
    terminate_connections(&database);
    assert!(writer.store.journal.renew_lease(LEASE_MS).is_err());
    writer.store.journal.renew_lease(LEASE_MS).unwrap();
}

/// Connections are terminated at random times during appends: each batch is stored whole or not at all, and no
/// acknowledged batch is missing.
#[test]
fn no_acknowledged_batch_is_lost_when_connections_die() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut writer = JournalWriter::lead(database.open());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut faults = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                terminate_connections(&database);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        for _ in 0..300 {
            match writer.try_append(&vec![NOOP_EVENT; 10]) {
                Ok(()) => {}
                Err(error) => {
                    faults += 1;
                    assert!(error.is_recoverable_by_reload(), "{error}");
                    writer.seq = reload(&mut writer);
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(faults > 0, "no connection was terminated");
    assert_eq!(reload(&mut writer), writer.seq);
    assert_eq!(writer.seq % 10, 0);
}

/// Number of entries in the journal, once the database answers. All acknowledged entries must be there.
fn reload(writer: &mut JournalWriter) -> u64 {
    loop {
        if let Ok(entries) = writer.replay(0) {
            let last = entries.len() as u64;
            assert!(last >= writer.seq, "{} acknowledged, {last} there", writer.seq);
            assert_eq!(last % 10, 0, "a batch is stored in part");
            return last;
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    for change in [
        |config: &mut PostgresConfig| config.host = "/nonexistent".to_string(),
        |config: &mut PostgresConfig| config.database = "no_such_database".to_string(),
        |config: &mut PostgresConfig| config.user = "no_such_user".to_string(),
    ] {
        let mut config = database.config.clone();
        change(&mut config);
        let mut store = muster_store::open(&StoreConfig::Postgres(config)).unwrap();
        for error in [
            store.journal.acquire_leadership("a", LEASE_MS).unwrap_err(),
            store.tables.ping().unwrap_err(),
            store.savepoints.newest(None).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            let message = error.to_string();
            assert!(message.contains("no_such") || message.contains("/nonexistent"), "{message}");
        }
    }
}

/// The handles may be dropped within an async runtime, where blocking is not allowed.
#[test]
fn a_store_may_be_dropped_inside_of_a_runtime() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[NOOP_EVENT]);
    writer.store.tables.ping().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(writer) });
}

#[test]
fn readers_are_many_at_once_and_cannot_write() {
    let Some(database) = PostgresTestDatabase::new() else { return };
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[tenant("red", None), submit_array(1, "red", 100)]);
    let tables = &writer.store.tables;
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let page = tables.jobs(&Default::default(), &muster_store::queries::PageRequest::first(10)).unwrap();
                assert_eq!(page.total, 100);
            });
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'muster reads'";
    assert!(database.sql(open).parse::<usize>().unwrap() <= 6, "idle connections stay open");
}
