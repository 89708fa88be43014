//! PostgreSQL goes away at the worst moments.

use muster_core::{Event, Timestamp};
use muster_store::{PostgresConfig, StoreConfig, StoreError};

use crate::bench::{Bench, PostgresBench};
use crate::story::*;

const NOTHING: Event = Event::Forgotten { before: Timestamp(0), trimmed_before: None };

/// End every connection of ours to this database.
fn cut_off(bench: &PostgresBench) {
    bench.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    );
}

#[test]
fn a_killed_connection_is_made_anew() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None)]);
    book.store.savepoints.save(1, b"state").unwrap();
    book.store.tables.ping().unwrap();
    for round in 0..3 {
        cut_off(&bench);
        let error = book.try_add(&[NOTHING]).unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.heals_by_reload());
        // The same leader goes on over a new connection.
        book.add(&[NOTHING]);
        assert_eq!(book.replay(0).unwrap().len(), 2 + round);
        cut_off(&bench);
        assert!(book.store.savepoints.save(1, b"state").is_err());
        book.store.savepoints.save(1, b"state").unwrap();
    }
    cut_off(&bench);
    // A reader may meet a dead connection once for each that the pool held.
    let tries = (0..10).filter(|_| book.store.tables.ping().is_err()).count();
    assert!(tries <= 2, "{tries} readers failed");
    book.store.tables.ping().unwrap();
    cut_off(&bench);
    assert!(book.store.journal.renew(LEASE_MS).is_err());
    book.store.journal.renew(LEASE_MS).unwrap();
}

/// Cut off at random moments while batches are written: every batch is there whole or not at all, and every one
/// that was acknowledged is there.
#[test]
fn no_acknowledged_batch_is_lost_when_connections_die() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut book = Book::lead(bench.open());
    let stop = std::sync::atomic::AtomicBool::new(false);
    let mut faults = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                cut_off(&bench);
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        for _ in 0..300 {
            match book.try_add(&vec![NOTHING; 10]) {
                Ok(()) => {}
                Err(error) => {
                    faults += 1;
                    assert!(error.heals_by_reload(), "{error}");
                    book.seq = reload(&mut book);
                }
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(faults > 0, "nothing was cut off");
    assert_eq!(reload(&mut book), book.seq);
    assert_eq!(book.seq % 10, 0);
}

/// What is in the journal, once the database answers again. Acknowledged entries must all be there.
fn reload(book: &mut Book) -> u64 {
    loop {
        if let Ok(entries) = book.replay(0) {
            let last = entries.len() as u64;
            assert!(last >= book.seq, "{} acknowledged, {last} there", book.seq);
            assert_eq!(last % 10, 0, "a batch is there in part");
            return last;
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    let Some(bench) = PostgresBench::new() else { return };
    for change in [
        |config: &mut PostgresConfig| config.host = "/nonexistent".to_string(),
        |config: &mut PostgresConfig| config.database = "no_such_database".to_string(),
        |config: &mut PostgresConfig| config.user = "no_such_user".to_string(),
    ] {
        let mut config = bench.config.clone();
        change(&mut config);
        let mut store = muster_store::open(&StoreConfig::Postgres(config)).unwrap();
        for error in [
            store.journal.lead("a", LEASE_MS).unwrap_err(),
            store.tables.ping().unwrap_err(),
            store.savepoints.newest(None).unwrap_err(),
        ] {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            let said = error.to_string();
            assert!(said.contains("no_such") || said.contains("/nonexistent"), "{said}");
        }
    }
}

/// The handles may be dropped inside of an async program, where blocking is not allowed.
#[test]
fn a_store_may_be_dropped_inside_of_a_runtime() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut book = Book::lead(bench.open());
    book.add(&[NOTHING]);
    book.store.tables.ping().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(book) });
}

#[test]
fn readers_are_many_at_once_and_cannot_write() {
    let Some(bench) = PostgresBench::new() else { return };
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), submit_array(1, "red", 100)]);
    let tables = &book.store.tables;
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                let page = tables.jobs(&Default::default(), &muster_store::queries::Page::first(10)).unwrap();
                assert_eq!(page.total, 100);
            });
        }
    });
    std::thread::sleep(std::time::Duration::from_millis(50));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                AND application_name = 'muster reads'";
    assert!(bench.sql(open).parse::<usize>().unwrap() <= 6, "idle connections stay open");
}
