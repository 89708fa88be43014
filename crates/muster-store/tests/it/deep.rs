//! Whatever is altered, deleted or reordered behind the store's back is found and named.

use muster_store::deep::{Damage, Examined, examine};
use muster_store::{Entry, Record};

use crate::bench::Bench;
use crate::story::*;

contract!(
    an_untouched_database_is_whole,
    a_changed_cell_is_named,
    rows_that_come_or_go_are_named,
    a_changed_record_is_named,
    a_record_that_is_gone_is_named,
    a_record_written_again_with_a_right_checksum_is_named,
    records_that_changed_places_are_named,
    a_journal_of_an_older_release_is_whole,
    tables_of_an_older_release_are_whole_after_the_upgrade,
    events_are_checked_when_they_are_served,
    a_damaged_savepoint_is_named,
);

/// Jobs that ended, failed, run and wait, with everything that this leaves in the tables.
fn story() -> Vec<muster_core::Event> {
    vec![
        tenant("red", Some(8)),
        tenant("blue", None),
        node("n1", 8),
        token("t-1"),
        submit(1, "red", 2),
        submit(2, "red", 1),
        submit_array(3, "blue", 4),
        placed(job(1), 1, "n1", &[0, 1]),
        started(job(1), 1, "n1"),
        done(job(1), 1),
        placed(job(2), 1, "n1", &[2]),
        started(job(2), 1, "n1"),
        cancelled(muster_core::JobId::of_array(3, 1)),
        submit(4, "blue", 1),
        placed(job(4), 1, "n1", &[0]),
        failed(job(4), 1),
    ]
}

/// In two batches, by two leaders.
fn written(bench: &dyn Bench) -> Book {
    let (first, second) = (story()[..9].to_vec(), story()[9..].to_vec());
    let mut book = Book::lead(bench.open());
    book.add(&first);
    book.store.journal.resign().unwrap();
    let mut book = Book::lead_from(bench.open(), 9);
    book.add(&second);
    book
}

fn found(bench: &dyn Bench) -> (Vec<Damage>, Examined) {
    let mut damages = Vec::new();
    let examined = examine(&bench.config(), &mut |_| {}, &mut |damage| damages.push(damage)).unwrap();
    (damages, examined)
}

fn places(bench: &dyn Bench) -> Vec<String> {
    found(bench).0.iter().map(|damage| format!("{}: {}", damage.place(), damage.problem())).collect()
}

fn an_untouched_database_is_whole(bench: &dyn Bench) {
    let mut book = written(bench);
    book.store.savepoints.save(16, b"state").unwrap();
    let mut visited = 0;
    let mut damages = Vec::new();
    let examined =
        examine(&bench.config(), &mut |_| visited += 1, &mut |damage| damages.push(damage)).unwrap();
    assert_eq!(damages, Vec::new());
    assert_eq!((examined.records, examined.chained, visited), (16, 16, 16));
    assert!(examined.compared && examined.rows > 40, "{examined:?}");
    // It may be in use meanwhile, and is not changed by the look.
    book.add(&[submit(5, "red", 1)]);
}

fn a_changed_cell_is_named(bench: &dyn Bench) {
    let _book = written(bench);
    for (table, column, sql_key, key, to) in [
        ("usage", "gpu_ms", "number = 1", "(number 1, idx -1, attempt 1) gpu_ms", "901"),
        ("usage", "cost_micro", "number = 4", "(number 4, idx -1, attempt 1) cost_micro", "4"),
        ("usage", "tenant", "number = 1", "(number 1, idx -1, attempt 1) tenant", "'blue'"),
        ("attempts", "gpus", "number = 2", "(number 2, idx -1, attempt 1) gpus", "9"),
        ("leases", "to_ms", "number = 1 AND gpu = 0", "gpu 0", "1001"),
        (
            "leases",
            "from_ms",
            "number = 2",
            "(number 2, idx -1, attempt 1, rank 0, node `n1`, gpu 2) from_ms",
            "99",
        ),
        ("tenants", "gpu_milli_used", "id = 'red'", "(id `red`) gpu_milli_used", "0"),
        ("specs", "spec", "number = 2", "(number 2) spec", "'{}'"),
        ("journal", "job_number", "seq = 9", "(seq 9) job_number", "2"),
        (
            "job_counts",
            "jobs",
            "tenant = 'blue' AND state = 'pending'",
            "(tenant `blue`, state `pending`) jobs",
            "9",
        ),
    ] {
        let cell = format!("UPDATE {table} SET {column} = {{}} WHERE {sql_key}");
        let before = bench.sql(&format!("SELECT {column} FROM {table} WHERE {sql_key}"));
        bench.sql(&cell.replace("{}", to));
        let places = places(bench);
        assert_eq!(places.len(), 1, "{places:?}");
        assert!(places[0].starts_with(table) && places[0].contains(key), "{places:?}");
        assert!(places[0].contains("the journal says"), "{places:?}");
        let quoted =
            if before.parse::<i64>().is_ok() { before } else { format!("'{}'", before.replace('\'', "''")) };
        bench.sql(&cell.replace("{}", &quoted));
    }
    assert_eq!(places(bench), Vec::<String>::new());
}

fn rows_that_come_or_go_are_named(bench: &dyn Bench) {
    let _book = written(bench);
    bench.sql("DELETE FROM usage WHERE number = 4");
    bench.sql("INSERT INTO settings (name, value, updated_at) VALUES ('made up', '1', 1)");
    bench.sql("DELETE FROM leases WHERE number = 1 AND gpu = 1");
    assert_eq!(
        places(bench),
        [
            "leases (number 1, idx -1, attempt 1, rank 0, node `n1`, gpu 1): is missing, the journal says that it exists",
            "settings (name `made up`): is not in the journal",
            "usage (number 4, idx -1, attempt 1): is missing, the journal says that it exists",
        ]
    );
}

fn a_changed_record_is_named(bench: &dyn Bench) {
    let _book = written(bench);
    bench.sql("UPDATE journal SET payload = replace(payload, '900', '901') WHERE seq = 10");
    bench.sql("UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 3");
    let (damages, examined) = found(bench);
    let seqs: Vec<String> = damages.iter().map(Damage::place).collect();
    assert_eq!(seqs, ["journal record 3", "journal record 10"]);
    assert!(damages[0].problem().contains("checksum") && !examined.compared, "{damages:?}");
}

fn a_record_that_is_gone_is_named(bench: &dyn Bench) {
    let _book = written(bench);
    bench.sql("DELETE FROM journal WHERE seq IN (4, 5)");
    assert_eq!(places(bench), ["journal record 4: records 4 to 5 are gone"]);
    bench.sql("DELETE FROM journal WHERE seq < 4");
    assert_eq!(places(bench), ["journal record 1: records 1 to 5 are gone"]);
}

/// As a person would who knows the checksum: only the chain notices.
fn rewrite(bench: &dyn Bench, entry: &Entry) {
    let record = Record::of(entry);
    bench.sql(&format!(
        "UPDATE journal SET epoch = {}, at_ms = {}, kind = '{}', payload = '{}', crc = {} WHERE seq = {}",
        record.epoch,
        record.at_ms,
        record.kind,
        record.payload.replace('\'', "''"),
        record.crc,
        record.seq
    ));
}

fn a_record_written_again_with_a_right_checksum_is_named(bench: &dyn Bench) {
    let mut book = written(bench);
    let entries = book.replay(0).unwrap();
    let mut changed = entries[4].clone();
    changed.at = muster_core::Timestamp(changed.at.0 + 1);
    rewrite(bench, &changed);
    let places = places(bench);
    assert!(
        !places.is_empty() && places[0].starts_with("journal record 5: does not follow record 4"),
        "{places:?}"
    );
    // A start that reads the record refuses it as well.
    let said = book.replay(3).unwrap_err().to_string();
    assert!(said.contains("record 5") && said.contains("does not follow"), "{said}");
    let said = book.replay(0).unwrap_err().to_string();
    assert!(said.contains("record 5"), "{said}");
}

fn records_that_changed_places_are_named(bench: &dyn Bench) {
    let mut book = written(bench);
    let entries = book.replay(0).unwrap();
    let (mut one, mut other) = (entries[5].clone(), entries[6].clone());
    std::mem::swap(&mut one.event, &mut other.event);
    rewrite(bench, &one);
    rewrite(bench, &other);
    let places = places(bench);
    assert!(places.iter().any(|place| place.starts_with("journal record 6: does not follow")), "{places:?}");
}

/// Its records have no chain. From the first chained one on, all must be.
fn a_journal_of_an_older_release_is_whole(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&story()[..9]);
    bench.sql("UPDATE journal SET chain = NULL");
    book.add(&story()[9..]);
    let (damages, examined) = found(bench);
    assert_eq!((damages, examined.chained), (Vec::new(), 7));
    book.replay(0).unwrap();
    bench.sql("UPDATE journal SET chain = NULL WHERE seq = 12");
    assert!(places(bench)[0].starts_with("journal record 12: has lost"), "{:?}", places(bench));
    assert!(book.replay(11).is_err());
}

fn events_are_checked_when_they_are_served(bench: &dyn Bench) {
    let book = written(bench);
    let tables = &book.store.tables;
    assert_eq!(tables.events(0, 100, None).unwrap().len(), 16);
    assert_eq!(tables.events(10, 3, None).unwrap().len(), 3);
    bench.sql("UPDATE journal SET payload = replace(payload, '900', '901') WHERE seq = 10");
    for served in [tables.events(0, 100, None), tables.events(0, 100, Some(job(1)))] {
        let said = served.unwrap_err().to_string();
        assert!(said.contains("record 10") && said.contains("checksum"), "{said}");
    }
    bench.sql("DELETE FROM journal WHERE seq = 10");
    let said = tables.events(5, 100, None).unwrap_err().to_string();
    assert!(said.contains("record 10") && said.contains("missing"), "{said}");
    assert_eq!(tables.events(10, 100, None).unwrap().len(), 6);
}

fn a_damaged_savepoint_is_named(bench: &dyn Bench) {
    let book = written(bench);
    book.store.savepoints.save(12, b"old state").unwrap();
    book.store.savepoints.save(16, b"new state").unwrap();
    bench.sql("UPDATE savepoint_chunks SET crc = crc + 1 WHERE seq = 12");
    assert_eq!(places(bench), ["savepoint 12: a chunk does not match its checksum"]);
}

/// What the release before the tables of idempotency keys and of charged moments left.
const TABLES_V7: &str = include_str!("../golden/tables_v7.sql");

fn tables_of_an_older_release_are_whole_after_the_upgrade(bench: &dyn Bench) {
    bench.bring_to(7);
    bench.sql(&format!("{TABLES_V7} SELECT 1"));
    let book = Book::lead(bench.open());
    let (damages, examined) = found(bench);
    assert_eq!(damages, vec![]);
    assert_eq!((examined.records, examined.chained, examined.compared), (25, 0, true));
    let job_of = |key: &str| book.store.tables.key_use("default", key).unwrap().map(|used| used.job);
    assert_eq!(job_of("KEY1"), Some(job(1)));
    assert_eq!(job_of("KEY2"), Some(job(2)));
    assert_eq!(job_of("KEY3"), None);
}
