//! What is written comes back, whole and in order, or the reader stops loudly.

use muster_core::{Event, Timestamp};
use muster_store::{Entry, StoreError};

use crate::bench::Bench;
use crate::story::*;

contract!(
    entries_come_back_as_they_were_written,
    a_replay_begins_where_it_is_told,
    many_pages_come_back_in_order,
    a_batch_is_written_whole_or_not_at_all,
    an_empty_batch_writes_nothing,
    a_gap_is_refused_and_named,
    an_entry_is_never_written_over,
    a_visitor_may_end_the_reading,
    a_changed_payload_stops_the_reading,
    a_changed_checksum_stops_the_reading,
    a_missing_record_stops_the_reading,
    an_unknown_kind_stops_the_reading,
    a_journal_behind_its_savepoint_stops_the_reading,
    odd_texts_survive,
);

fn small_story() -> Vec<Event> {
    vec![tenant("red", Some(4)), node("n1", 8), submit(1, "red", 2), submit_array(2, "red", 3)]
}

fn forgotten(count: u64) -> Vec<Event> {
    (0..count)
        .map(|moment| Event::Forgotten { before: Timestamp(moment as i64), trimmed_before: None })
        .collect()
}

fn entries_come_back_as_they_were_written(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    let first = book.batch(&small_story());
    book.add(&small_story());
    let second = book.batch(&[placed(job(1), 1, "n1", &[0, 1])]);
    book.add(&[placed(job(1), 1, "n1", &[0, 1])]);
    let wanted: Vec<Entry> = [first, second].concat();
    assert_eq!(book.replay(0).unwrap(), wanted);

    book.store.journal.resign().unwrap();
    let mut book = Book::lead_from(bench.open(), 5);
    assert_eq!(book.replay(0).unwrap(), wanted);
}

fn a_replay_begins_where_it_is_told(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    assert_eq!(book.replay(0).unwrap(), Vec::new());
    book.add(&forgotten(5));
    let seqs = |entries: Vec<Entry>| entries.into_iter().map(|entry| entry.seq).collect::<Vec<u64>>();
    assert_eq!(seqs(book.replay(3).unwrap()), vec![4, 5]);
    assert_eq!(seqs(book.replay(5).unwrap()), Vec::<u64>::new());
}

fn many_pages_come_back_in_order(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    for _ in 0..5 {
        book.add(&forgotten(500));
    }
    let entries = book.replay(0).unwrap();
    assert_eq!(entries.len(), 2_500);
    assert_eq!(book.replay(999).unwrap().len(), 1_501);
    assert_eq!(book.replay(1_000).unwrap().len(), 1_500);
}

fn a_batch_is_written_whole_or_not_at_all(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&small_story());
    // The last event places a job on a GPU that the one before has just taken.
    let batch = [
        submit(3, "red", 1),
        placed(job(1), 1, "n1", &[0, 1]),
        started(job(1), 1, "n1"),
        submit(4, "red", 1),
        placed(job(3), 1, "n1", &[1]),
    ];
    let error = book.try_add(&batch).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
    assert_eq!(book.replay(0).unwrap().len(), 4);
    for table in ["jobs WHERE number > 2", "attempts", "leases", "specs WHERE number > 2"] {
        assert_eq!(bench.sql(&format!("SELECT count(*) FROM {table}")), "0", "{table}");
    }
    assert_eq!(bench.sql("SELECT gpu_milli_used FROM tenants WHERE id = 'red'"), "0");
    // What was right of it can still happen.
    book.add(&batch[..4]);
    assert_eq!(book.replay(0).unwrap().len(), 8);
}

fn an_empty_batch_writes_nothing(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&[]);
    assert_eq!(book.replay(0).unwrap(), Vec::new());
}

fn a_gap_is_refused_and_named(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&forgotten(2));
    book.seq += 1;
    let said = book.try_add(&forgotten(1)).unwrap_err().to_string();
    assert!(said.contains("entry 4") && said.contains('3'), "{said}");
    book.seq -= 1;
    let mut batch = book.batch(&forgotten(3));
    batch[2].seq = 7;
    assert!(matches!(book.store.journal.append(&batch), Err(StoreError::Broken { .. })));
    book.add(&forgotten(1));
    assert_eq!(book.replay(0).unwrap().len(), 3);
}

fn an_entry_is_never_written_over(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&forgotten(2));
    book.seq = 1;
    let error = book.try_add(&forgotten(1)).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }), "{error}");
}

fn a_visitor_may_end_the_reading(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&forgotten(5));
    let mut seen = 0;
    let ended = book.store.journal.replay(0, &mut |entry| {
        seen = entry.seq;
        if seen < 3 { Ok(()) } else { Err(StoreError::Misconfigured("enough".to_string())) }
    });
    assert_eq!((seen, ended.unwrap_err().to_string().as_str()), (3, "enough"));
    assert_eq!(book.replay(0).unwrap().len(), 5);
}

/// Spoil a journal of five and see what the reader says.
fn spoiled(bench: &dyn Bench, sql: &str) -> (StoreError, usize) {
    let mut book = Book::lead(bench.open());
    book.add(&forgotten(5));
    bench.sql(sql);
    let mut seen = 0;
    let error = book.store.journal.replay(0, &mut |_| {
        seen += 1;
        Ok(())
    });
    (error.unwrap_err(), seen)
}

fn check_loud(bench: &dyn Bench, sql: &str, words: &[&str]) {
    let (error, seen) = spoiled(bench, sql);
    let said = error.to_string();
    assert!(matches!(error, StoreError::Unreadable { seq: 3, .. }) && !error.heals_by_reload(), "{said}");
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert_eq!(seen, 2);
}

fn a_changed_payload_stops_the_reading(bench: &dyn Bench) {
    let sql = "UPDATE journal SET payload = replace(payload, '2', '4') WHERE seq = 3";
    check_loud(bench, sql, &["record 3", "checksum", "backup"]);
}

fn a_changed_checksum_stops_the_reading(bench: &dyn Bench) {
    check_loud(bench, "UPDATE journal SET crc = 7 WHERE seq = 3", &["record 3", "checksum"]);
}

fn a_missing_record_stops_the_reading(bench: &dyn Bench) {
    check_loud(bench, "DELETE FROM journal WHERE seq = 3", &["record 3", "missing", "next is 4"]);
}

fn an_unknown_kind_stops_the_reading(bench: &dyn Bench) {
    let mut record = muster_store::Record::of(&Entry {
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
    check_loud(bench, &sql, &["record 3", "JobTeleported"]);
}

fn a_journal_behind_its_savepoint_stops_the_reading(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    book.add(&forgotten(5));
    let said = book.replay(9).unwrap_err().to_string();
    assert!(said.contains("record 9") && said.contains("savepoint"), "{said}");
}

/// A zero character, which PostgreSQL cannot store in a text, must not stop the server.
fn odd_texts_survive(bench: &dyn Bench) {
    let mut book = Book::lead(bench.open());
    let mut odd = spec("red", "a\0b 'quoted' \u{1f980} \\ $1 ?1", 1);
    odd.labels.insert("k\0".to_string(), "v\0\"'".to_string());
    let events = [tenant("red", None), submitted(1, odd)];
    let wanted = book.batch(&events);
    book.add(&events);
    assert_eq!(book.replay(0).unwrap(), wanted);
    let detail = book.store.tables.job(job(1)).unwrap().unwrap();
    assert_eq!(detail.row.name, "a\u{fffd}b 'quoted' \u{1f980} \\ $1 ?1");
    let filter = muster_store::queries::JobFilter {
        label: Some(("k\0".to_string(), "v\0\"'".to_string())),
        name_contains: Some("\\ $1".to_string()),
        ..Default::default()
    };
    let found = book.store.tables.jobs(&filter, &muster_store::queries::Page::first(5)).unwrap();
    assert_eq!((found.rows.len(), found.total), (1, 1));
}
