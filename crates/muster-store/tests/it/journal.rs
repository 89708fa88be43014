//! Append and replay: entries come back complete and in order, or the replay stops with an error.

use muster_core::{Event, Timestamp};
use muster_store::{Entry, StoreError};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    entries_come_back_as_they_were_written,
    a_replay_begins_after_the_given_entry,
    a_journal_of_many_pages_replays_in_order,
    a_batch_is_written_whole_or_not_at_all,
    an_empty_batch_writes_nothing,
    a_gap_in_a_batch_is_refused,
    an_entry_is_never_written_over,
    an_error_of_the_visitor_ends_the_replay,
    a_changed_payload_stops_the_replay,
    a_changed_checksum_stops_the_replay,
    a_missing_record_stops_the_replay,
    an_unknown_kind_stops_the_replay,
    a_journal_behind_its_savepoint_stops_the_replay,
    texts_with_nul_and_quotes_are_stored,
);

fn sample_events() -> Vec<Event> {
    vec![tenant("red", Some(4)), node("n1", 8), submit(1, "red", 2), submit_array(2, "red", 3)]
}

fn forgotten_events(count: u64) -> Vec<Event> {
    (0..count).map(|moment| Event::Forgotten { before: Timestamp(moment as i64), trimmed_before: None }).collect()
}

fn entries_come_back_as_they_were_written(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    let first = writer.batch(&sample_events());
    writer.append(&sample_events());
    let second = writer.batch(&[placed(job(1), 1, "n1", &[0, 1])]);
    writer.append(&[placed(job(1), 1, "n1", &[0, 1])]);
    let wanted: Vec<Entry> = [first, second].concat();
    assert_eq!(writer.replay(0).unwrap(), wanted);

    writer.store.journal.resign().unwrap();
    let mut writer = JournalWriter::lead_from(database.open(), 5);
    assert_eq!(writer.replay(0).unwrap(), wanted);
}

fn a_replay_begins_after_the_given_entry(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    assert_eq!(writer.replay(0).unwrap(), Vec::new());
    writer.append(&forgotten_events(5));
    let seqs = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.seq).collect::<Vec<u64>>();
    assert_eq!(seqs(writer.replay(3).unwrap()), vec![4, 5]);
    assert_eq!(seqs(writer.replay(5).unwrap()), Vec::<u64>::new());
}

fn a_journal_of_many_pages_replays_in_order(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    for _ in 0..5 {
        writer.append(&forgotten_events(500));
    }
    let entries = writer.replay(0).unwrap();
    assert_eq!(entries.len(), 2_500);
    assert_eq!(writer.replay(999).unwrap().len(), 1_501);
    assert_eq!(writer.replay(1_000).unwrap().len(), 1_500);
}

fn a_batch_is_written_whole_or_not_at_all(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&sample_events());
    // The last event places a job on a GPU that an earlier event of the batch has taken.
    let batch = [
        submit(3, "red", 1),
        placed(job(1), 1, "n1", &[0, 1]),
        started(job(1), 1, "n1"),
        submit(4, "red", 1),
        placed(job(3), 1, "n1", &[1]),
    ];
    let error = writer.try_append(&batch).unwrap_err();
    assert!(matches!(error, StoreError::InvariantViolated { .. }), "{error}");
    assert_eq!(writer.replay(0).unwrap().len(), 4);
    for table in ["jobs WHERE number > 2", "attempts", "leases", "specs WHERE number > 2"] {
        assert_eq!(database.sql(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
    assert_eq!(database.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "0");
    // The valid events can still be appended.
    writer.append(&batch[..4]);
    assert_eq!(writer.replay(0).unwrap().len(), 8);
}

fn an_empty_batch_writes_nothing(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&[]);
    assert_eq!(writer.replay(0).unwrap(), Vec::new());
}

fn a_gap_in_a_batch_is_refused(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&forgotten_events(2));
    writer.seq += 1;
    let message = writer.try_append(&forgotten_events(1)).unwrap_err().to_string();
    assert!(message.contains("entry 4") && message.contains('3'), "{message}");
    writer.seq -= 1;
    let mut batch = writer.batch(&forgotten_events(3));
    batch[2].seq = 7;
    assert!(matches!(writer.store.journal.append(&batch), Err(StoreError::InvariantViolated { .. })));
    writer.append(&forgotten_events(1));
    assert_eq!(writer.replay(0).unwrap().len(), 3);
}

fn an_entry_is_never_written_over(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&forgotten_events(2));
    writer.seq = 1;
    let error = writer.try_append(&forgotten_events(1)).unwrap_err();
    assert!(matches!(error, StoreError::InvariantViolated { .. }), "{error}");
}

fn an_error_of_the_visitor_ends_the_replay(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&forgotten_events(5));
    let mut seen = 0;
    let ended = writer.store.journal.replay(0, &mut |entry| {
        seen = entry.seq;
        if seen < 3 { Ok(()) } else { Err(StoreError::Misconfigured("enough".to_string())) }
    });
    assert_eq!((seen, ended.unwrap_err().to_string().as_str()), (3, "enough"));
    assert_eq!(writer.replay(0).unwrap().len(), 5);
}

/// Run SQL on a journal of five records; returns the error of the replay and the number of entries before it.
fn replay_after_tampering(database: &dyn TestDatabase, sql: &str) -> (StoreError, usize) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&forgotten_events(5));
    database.sql(sql);
    let mut seen = 0;
    let error = writer.store.journal.replay(0, &mut |_| {
        seen += 1;
        Ok(())
    });
    (error.unwrap_err(), seen)
}

fn check_replay_stops_at_record_3(database: &dyn TestDatabase, sql: &str, parts: &[&str]) {
    let (error, seen) = replay_after_tampering(database, sql);
    let message = error.to_string();
    assert!(
        matches!(error, StoreError::UnreadableRecord { seq: 3, .. }) && !error.is_recoverable_by_reload(),
        "{message}"
    );
    assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    assert_eq!(seen, 2);
}

fn a_changed_payload_stops_the_replay(database: &dyn TestDatabase) {
    let sql = "UPDATE journal SET payload = replace(payload, '2', '4') WHERE seq = 3";
    check_replay_stops_at_record_3(database, sql, &["record 3", "checksum", "backup"]);
}

fn a_changed_checksum_stops_the_replay(database: &dyn TestDatabase) {
    check_replay_stops_at_record_3(database, "UPDATE journal SET crc = 7 WHERE seq = 3", &["record 3", "checksum"]);
}

fn a_missing_record_stops_the_replay(database: &dyn TestDatabase) {
    check_replay_stops_at_record_3(
        database,
        "DELETE FROM journal WHERE seq = 3",
        &["record 3", "missing", "next is 4"],
    );
}

fn an_unknown_kind_stops_the_replay(database: &dyn TestDatabase) {
    let mut record = muster_store::Record::from_entry(&Entry {
        seq: 3,
        epoch: 1,
        at: Timestamp(3_000),
        event: Event::Forgotten { before: Timestamp(2), trimmed_before: None },
    });
    record.kind = "JobTeleported".to_string();
    record.payload = r#"{"kind":"JobTeleported"}"#.to_string();
    let sql = format!(
        "UPDATE journal SET kind = '{}', payload = '{}', crc = {} WHERE seq = 3",
        record.kind,
        record.payload,
        record.checksum()
    );
    check_replay_stops_at_record_3(database, &sql, &["record 3", "JobTeleported"]);
}

fn a_journal_behind_its_savepoint_stops_the_replay(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    writer.append(&forgotten_events(5));
    let message = writer.replay(9).unwrap_err().to_string();
    assert!(message.contains("record 9") && message.contains("savepoint"), "{message}");
}

/// PostgreSQL cannot store NUL in a text, which must not stop the server.
fn texts_with_nul_and_quotes_are_stored(database: &dyn TestDatabase) {
    let mut writer = JournalWriter::lead(database.open());
    let mut odd = spec("red", "a\0b 'quoted' \u{1f980} \\ $1 ?1", 1);
    odd.labels.insert("k\0".to_string(), "v\0\"'".to_string());
    let events = [tenant("red", None), submitted(1, odd)];
    let wanted = writer.batch(&events);
    writer.append(&events);
    assert_eq!(writer.replay(0).unwrap(), wanted);
    let detail = writer.store.tables.job(job(1)).unwrap().unwrap();
    assert_eq!(detail.row.name, "a\u{fffd}b 'quoted' \u{1f980} \\ $1 ?1");
    let filter = muster_store::queries::JobFilter {
        label: Some(("k\0".to_string(), "v\0\"'".to_string())),
        name_contains: Some("\\ $1".to_string()),
        ..Default::default()
    };
    let found = writer.store.tables.jobs(&filter, &muster_store::queries::PageRequest::first(5)).unwrap();
    assert_eq!((found.rows.len(), found.total), (1, 1));
}
