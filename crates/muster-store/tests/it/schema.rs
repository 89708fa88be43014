//! The tables are made once, by the leader, and an older release keeps its hands off newer ones.

use muster_store::{Leadership, StoreConfig, StoreError, open};

use crate::bench::{Bench, SqliteBench};
use crate::story::*;

contract!(
    tables_exist_once_someone_has_led,
    leading_again_changes_no_tables,
    a_newer_database_is_refused,
    a_changed_migration_is_refused,
);

fn tables_exist_once_someone_has_led(bench: &dyn Bench) {
    let mut store = bench.open();
    let error = store.tables.counts().unwrap_err();
    assert!(error.heals_by_reload(), "{error}");
    store.journal.lead("a", LEASE_MS).unwrap();
    store.tables.ping().unwrap();
    assert_eq!(store.tables.counts().unwrap(), Vec::new());
}

fn leading_again_changes_no_tables(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    let history = "SELECT count(*) FROM refinery_schema_history";
    let before = bench.sql(history);
    book.store.journal.resign().unwrap();
    let mut book = Book::lead_from(bench.open(), 2);
    assert_eq!(bench.sql(history), before);
    assert_eq!(book.replay(0).unwrap().len(), 2);
    assert!(book.store.tables.job(job(1)).unwrap().is_some());
}

fn a_newer_database_is_refused(bench: &dyn Bench) {
    let mut store = bench.open();
    store.journal.lead("a", LEASE_MS).unwrap();
    store.journal.resign().unwrap();
    bench.sql(
        "INSERT INTO refinery_schema_history (version, name, applied_on, checksum) \
         SELECT 99, 'from_the_future', applied_on, checksum FROM refinery_schema_history LIMIT 1",
    );
    let error = bench.open().journal.lead("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 5 }), "{error}");
    assert!(error.to_string().contains("start the release that wrote it"), "{error}");
}

fn a_changed_migration_is_refused(bench: &dyn Bench) {
    let mut store = bench.open();
    assert!(matches!(store.journal.lead("a", LEASE_MS).unwrap(), Leadership::Leading { .. }));
    store.journal.resign().unwrap();
    bench.sql("UPDATE refinery_schema_history SET checksum = '1'");
    let error = bench.open().journal.lead("b", LEASE_MS).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
}

#[test]
fn a_throwaway_database_vanishes() {
    let mut book = Book::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    book.store.savepoints.save(2, b"state").unwrap();
    assert_eq!(book.store.tables.counts().unwrap().len(), 1);
    assert_eq!(book.replay(0).unwrap().len(), 2);
    // Another one is another one.
    let mut other = Book::lead(open(&StoreConfig::Sqlite { path: ":memory:".into() }).unwrap());
    assert_eq!(other.replay(0).unwrap().len(), 0);
}

/// The log lets readers see what was committed last while someone writes.
#[test]
fn sqlite_readers_do_not_wait_for_the_writer() {
    let bench = SqliteBench::new();
    let mut book = Book::lead(bench.open());
    book.add(&[tenant("red", None), submit(1, "red", 1)]);
    let writer = rusqlite::Connection::open(bench.path()).unwrap();
    writer.execute_batch("BEGIN IMMEDIATE; DELETE FROM jobs").unwrap();
    let begin = std::time::Instant::now();
    assert!(book.store.tables.job(job(1)).unwrap().is_some());
    assert!(begin.elapsed() < std::time::Duration::from_secs(5), "the reader waited for the writer");
}
