//! The tables are made once, by the leader, and an older release keeps its hands off newer ones.

use muster_store::{Leadership, StoreError};

use crate::bench::Bench;
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
    assert!(matches!(error, StoreError::Newer { found: 99, known: 1 }), "{error}");
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
