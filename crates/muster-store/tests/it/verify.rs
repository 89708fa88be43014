//! Verification finds everything that was altered, deleted or reordered without the store.

use muster_store::verify::{Corruption, VerificationReport, verify_database};
use muster_store::{Entry, Record};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    an_untouched_database_passes_verification,
    a_changed_cell_is_reported,
    missing_and_extra_rows_are_reported,
    a_changed_record_is_reported,
    a_missing_record_is_reported,
    a_rewritten_record_with_a_valid_checksum_is_reported,
    swapped_records_are_reported,
    a_journal_of_an_older_release_passes_verification,
    tables_of_an_older_release_pass_verification_after_the_upgrade,
    events_are_checked_when_they_are_served,
    a_corrupt_savepoint_is_reported,
);

/// Jobs that ended, failed, run and wait, which fill most tables.
fn sample_events() -> Vec<muster_core::Event> {
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
fn write_with_two_leaders(database: &dyn TestDatabase) -> JournalWriter {
    let (first, second) = (sample_events()[..9].to_vec(), sample_events()[9..].to_vec());
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&first);
    writer.store.journal.resign().unwrap();
    let mut writer = JournalWriter::lead_from(database.open(), 9);
    writer.append(&second);
    writer
}

fn verify(database: &dyn TestDatabase) -> (Vec<Corruption>, VerificationReport) {
    let mut corruptions = Vec::new();
    let report =
        verify_database(&database.config(), &mut |_| {}, &mut |corruption| corruptions.push(corruption)).unwrap();
    (corruptions, report)
}

fn corruption_lines(database: &dyn TestDatabase) -> Vec<String> {
    verify(database).0.iter().map(|corruption| format!("{}: {}", corruption.location(), corruption.problem())).collect()
}

fn an_untouched_database_passes_verification(database: &dyn TestDatabase) {
    let mut writer = write_with_two_leaders(database);
    writer.store.savepoints.save(16, b"state").unwrap();
    let mut visited = 0;
    let mut corruptions = Vec::new();
    let report =
        verify_database(&database.config(), &mut |_| visited += 1, &mut |corruption| corruptions.push(corruption))
            .unwrap();
    assert_eq!(corruptions, Vec::new());
    assert_eq!((report.records, report.chained_records, visited), (16, 16, 16));
    assert!(report.tables_compared && report.rows_compared > 40, "{report:?}");
    // The verified database may be in use, and is not changed.
    writer.append(&[submit(5, "red", 1)]);
}

fn a_changed_cell_is_reported(database: &dyn TestDatabase) {
    let _writer = write_with_two_leaders(database);
    for (table, column, sql_key, key, to) in [
        ("usage", "gpu_ms", "number = 1", "(number 1, idx -1, attempt 1) gpu_ms", "901"),
        ("usage", "cost_micro", "number = 4", "(number 4, idx -1, attempt 1) cost_micro", "4"),
        ("usage", "tenant", "number = 1", "(number 1, idx -1, attempt 1) tenant", "'blue'"),
        ("attempts", "gpus", "number = 2", "(number 2, idx -1, attempt 1) gpus", "9"),
        ("leases", "to_ms", "number = 1 AND gpu = 0", "gpu 0", "1001"),
        ("leases", "from_ms", "number = 2", "(number 2, idx -1, attempt 1, rank 0, node `n1`, gpu 2) from_ms", "99"),
        ("tenants", "gpu_milli_used", "id = 'red'", "(id `red`) gpu_milli_used", "0"),
        ("specs", "spec", "number = 2", "(number 2) spec", "'{}'"),
        ("journal", "job_number", "seq = 9", "(seq 9) job_number", "2"),
        ("job_counts", "jobs", "tenant = 'blue' AND state = 'pending'", "(tenant `blue`, state `pending`) jobs", "9"),
    ] {
        let cell = format!("UPDATE {table} SET {column} = {{}} WHERE {sql_key}");
        let before = database.sql(&format!("SELECT {column} FROM {table} WHERE {sql_key}"));
        database.sql(&cell.replace("{}", to));
        let lines = corruption_lines(database);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with(table) && lines[0].contains(key), "{lines:?}");
        assert!(lines[0].contains("the journal says"), "{lines:?}");
        let quoted = if before.parse::<i64>().is_ok() { before } else { format!("'{}'", before.replace('\'', "''")) };
        database.sql(&cell.replace("{}", &quoted));
    }
    assert_eq!(corruption_lines(database), Vec::<String>::new());
}

fn missing_and_extra_rows_are_reported(database: &dyn TestDatabase) {
    let _writer = write_with_two_leaders(database);
    database.sql("DELETE FROM usage WHERE number = 4");
    database.sql("INSERT INTO settings (name, value, updated_at) VALUES ('made up', '1', 1)");
    database.sql("DELETE FROM leases WHERE number = 1 AND gpu = 1");
    assert_eq!(
        corruption_lines(database),
        [
            "leases (number 1, idx -1, attempt 1, rank 0, node `n1`, gpu 1): is missing, the journal says that it exists",
            "settings (name `made up`): is not in the journal",
            "usage (number 4, idx -1, attempt 1): is missing, the journal says that it exists",
        ]
    );
}

fn a_changed_record_is_reported(database: &dyn TestDatabase) {
    let _writer = write_with_two_leaders(database);
    database.sql("UPDATE journal SET payload = replace(payload, '900', '901') WHERE seq = 10");
    database.sql("UPDATE journal SET at_ms = at_ms + 1 WHERE seq = 3");
    let (corruptions, report) = verify(database);
    let seqs: Vec<String> = corruptions.iter().map(Corruption::location).collect();
    assert_eq!(seqs, ["journal record 3", "journal record 10"]);
    assert!(corruptions[0].problem().contains("checksum") && !report.tables_compared, "{corruptions:?}");
}

fn a_missing_record_is_reported(database: &dyn TestDatabase) {
    let _writer = write_with_two_leaders(database);
    database.sql("DELETE FROM journal WHERE seq IN (4, 5)");
    assert_eq!(corruption_lines(database), ["journal record 4: records 4 to 5 are missing"]);
    database.sql("DELETE FROM journal WHERE seq < 4");
    assert_eq!(corruption_lines(database), ["journal record 1: records 1 to 5 are missing"]);
}

/// Rewrite a record and its checksum: only the chain detects that.
fn rewrite_with_valid_checksum(database: &dyn TestDatabase, entry: &Entry) {
    let record = Record::from_entry(entry);
    database.sql(&format!(
        "UPDATE journal SET epoch = {}, at_ms = {}, kind = '{}', payload = '{}', crc = {} WHERE seq = {}",
        record.epoch,
        record.at_ms,
        record.kind,
        record.payload.replace('\'', "''"),
        record.crc,
        record.seq
    ));
}

fn a_rewritten_record_with_a_valid_checksum_is_reported(database: &dyn TestDatabase) {
    let mut writer = write_with_two_leaders(database);
    let entries = writer.replay(0).unwrap();
    let mut changed = entries[4].clone();
    changed.at = muster_core::Timestamp(changed.at.0 + 1);
    rewrite_with_valid_checksum(database, &changed);
    let lines = corruption_lines(database);
    assert!(!lines.is_empty() && lines[0].starts_with("journal record 5: does not follow record 4"), "{lines:?}");
    // A replay that reads the record refuses it as well.
    let message = writer.replay(3).unwrap_err().to_string();
    assert!(message.contains("record 5") && message.contains("does not follow"), "{message}");
    let message = writer.replay(0).unwrap_err().to_string();
    assert!(message.contains("record 5"), "{message}");
}

fn swapped_records_are_reported(database: &dyn TestDatabase) {
    let mut writer = write_with_two_leaders(database);
    let entries = writer.replay(0).unwrap();
    let (mut one, mut other) = (entries[5].clone(), entries[6].clone());
    std::mem::swap(&mut one.event, &mut other.event);
    rewrite_with_valid_checksum(database, &one);
    rewrite_with_valid_checksum(database, &other);
    let lines = corruption_lines(database);
    assert!(lines.iter().any(|line| line.starts_with("journal record 6: does not follow")), "{lines:?}");
}

/// Records of older releases have no chain checksum. After the first record with one, all must have one.
fn a_journal_of_an_older_release_passes_verification(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&sample_events()[..9]);
    database.sql("UPDATE journal SET chain = NULL");
    writer.append(&sample_events()[9..]);
    let (corruptions, report) = verify(database);
    assert_eq!((corruptions, report.chained_records), (Vec::new(), 7));
    writer.replay(0).unwrap();
    database.sql("UPDATE journal SET chain = NULL WHERE seq = 12");
    assert!(
        corruption_lines(database)[0].starts_with("journal record 12: has no chain checksum"),
        "{:?}",
        corruption_lines(database)
    );
    assert!(writer.replay(11).is_err());
}

fn events_are_checked_when_they_are_served(database: &dyn TestDatabase) {
    let writer = write_with_two_leaders(database);
    let tables = &writer.store.tables;
    assert_eq!(tables.events(0, 100, None).unwrap().len(), 16);
    assert_eq!(tables.events(10, 3, None).unwrap().len(), 3);
    database.sql("UPDATE journal SET payload = replace(payload, '900', '901') WHERE seq = 10");
    for served in [tables.events(0, 100, None), tables.events(0, 100, Some(job(1)))] {
        let message = served.unwrap_err().to_string();
        assert!(message.contains("record 10") && message.contains("checksum"), "{message}");
    }
    database.sql("DELETE FROM journal WHERE seq = 10");
    let message = tables.events(5, 100, None).unwrap_err().to_string();
    assert!(message.contains("record 10") && message.contains("missing"), "{message}");
    assert_eq!(tables.events(10, 100, None).unwrap().len(), 6);
}

fn a_corrupt_savepoint_is_reported(database: &dyn TestDatabase) {
    let writer = write_with_two_leaders(database);
    writer.store.savepoints.save(12, b"old state").unwrap();
    writer.store.savepoints.save(16, b"new state").unwrap();
    database.sql("UPDATE savepoint_chunks SET crc = crc + 1 WHERE seq = 12");
    assert_eq!(corruption_lines(database), ["savepoint 12: a chunk does not match its checksum"]);
}

/// A database of schema version 7, before the tables of idempotency keys and the column `charged_until`.
const TABLES_V7: &str = include_str!("../golden/tables_v7.sql");

fn tables_of_an_older_release_pass_verification_after_the_upgrade(database: &dyn TestDatabase) {
    database.migrate_to_version(7);
    database.sql(&format!("{TABLES_V7} SELECT 1"));
    let writer = JournalWriter::lead(database.open());
    let (corruptions, report) = verify(database);
    assert_eq!(corruptions, vec![]);
    assert_eq!((report.records, report.chained_records, report.tables_compared), (25, 0, true));
    let job_of = |key: &str| writer.store.tables.idempotency_key_use("default", key).unwrap().map(|used| used.job);
    assert_eq!(job_of("KEY1"), Some(job(1)));
    assert_eq!(job_of("KEY2"), Some(job(2)));
    assert_eq!(job_of("KEY3"), None);
}
