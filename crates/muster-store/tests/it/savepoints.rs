//! Savepoints: the newest complete one is returned, or the one before it if it is unreadable.

use muster_store::{Savepoint, StoreError};

use crate::fixtures::*;
use crate::test_database::TestDatabase;

contract!(
    a_saved_state_comes_back,
    the_newest_two_are_kept,
    a_torn_savepoint_is_skipped,
    a_corrupt_savepoint_is_skipped,
    a_savepoint_ahead_of_the_journal_is_refused,
    an_interrupted_save_can_be_repeated,
    saving_does_not_keep_the_writer_waiting,
);

/// Two and a half chunks of varying bytes.
fn state(seed: u8) -> Vec<u8> {
    (0..2_621_440_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect()
}

fn begin(database: &dyn TestDatabase, entries: u64) -> JournalWriter {
    let mut writer = JournalWriter::lead(database.open());
    for _ in 0..entries {
        writer.append(&[NOOP_EVENT]);
    }
    writer
}

fn newest(writer: &JournalWriter) -> Option<(u64, Vec<u8>)> {
    writer.store.savepoints.newest(None).unwrap().map(|Savepoint { seq, bytes }| (seq, bytes))
}

fn a_saved_state_comes_back(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    assert!(newest(&writer).is_none());
    writer.store.savepoints.save(3, &state(1)).unwrap();
    assert_eq!(newest(&writer), Some((3, state(1))));
    writer.store.savepoints.save(5, b"").unwrap();
    assert_eq!(newest(&writer), Some((5, Vec::new())));
    let before = writer.store.savepoints.newest(Some(5)).unwrap().unwrap();
    assert_eq!(before, Savepoint { seq: 3, bytes: state(1) });
    assert!(writer.store.savepoints.newest(Some(3)).unwrap().is_none());
}

fn the_newest_two_are_kept(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    for seq in 1..=5 {
        writer.store.savepoints.save(seq, &state(seq as u8)).unwrap();
    }
    assert_eq!(newest(&writer), Some((5, state(5))));
    assert_eq!(database.sql("SELECT min(seq) FROM savepoints"), "4");
    assert_eq!(database.sql("SELECT count(*) FROM savepoint_chunks"), "6");
}

fn a_torn_savepoint_is_skipped(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    writer.store.savepoints.save(3, &state(3)).unwrap();
    writer.store.savepoints.save(5, &state(5)).unwrap();
    // Never finished.
    database.sql("UPDATE savepoints SET complete = (1 = 0) WHERE seq = 5");
    assert_eq!(newest(&writer), Some((3, state(3))));
    // Marked as complete, but without one of its chunks.
    database.sql("UPDATE savepoints SET complete = (1 = 1) WHERE seq = 5; DELETE FROM savepoint_chunks WHERE seq = 5 AND chunk = 1");
    assert_eq!(newest(&writer), Some((3, state(3))));
}

fn a_corrupt_savepoint_is_skipped(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    writer.store.savepoints.save(3, &state(3)).unwrap();
    writer.store.savepoints.save(5, &state(5)).unwrap();
    database.sql("UPDATE savepoint_chunks SET crc = crc + 1 WHERE seq = 5 AND chunk = 2");
    assert_eq!(newest(&writer), Some((3, state(3))));
    database.sql("UPDATE savepoints SET bytes = bytes - 1 WHERE seq = 3");
    assert!(newest(&writer).is_none());
}

fn a_savepoint_ahead_of_the_journal_is_refused(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    let error = writer.store.savepoints.save(6, &state(6)).unwrap_err();
    assert!(matches!(error, StoreError::InvariantViolated { .. }) && error.to_string().contains("entry 6"), "{error}");
    assert!(newest(&writer).is_none());
}

fn an_interrupted_save_can_be_repeated(database: &dyn TestDatabase) {
    let writer = begin(database, 5);
    writer.store.savepoints.save(3, &state(3)).unwrap();
    database
        .sql("UPDATE savepoints SET complete = (1 = 0) WHERE seq = 3; DELETE FROM savepoint_chunks WHERE chunk = 2");
    assert!(newest(&writer).is_none());
    writer.store.savepoints.save(3, &state(4)).unwrap();
    assert_eq!(newest(&writer), Some((3, state(4))));
}

/// A state of forty chunks is saved while the journal is appended to: both succeed.
fn saving_does_not_keep_the_writer_waiting(database: &dyn TestDatabase) {
    let mut writer = begin(database, 5);
    let large: Vec<u8> = state(7).into_iter().cycle().take(40 * 1024 * 1024).collect();
    let savepoints = writer.store.savepoints.clone();
    let mut batches = 0;
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| savepoints.save(5, &large).unwrap());
        while !saving.is_finished() {
            writer.append(&[NOOP_EVENT]);
            batches += 1;
        }
    });
    assert!(batches > 3, "only {batches} batches while saving");
    assert_eq!(newest(&writer), Some((5, large)));
    assert_eq!(writer.replay(0).unwrap().len() as u64, 5 + batches);
}
