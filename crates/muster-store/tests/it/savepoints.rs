//! A saved state comes back as it was saved, or the one before it does.

use muster_core::{Event, Timestamp};
use muster_store::{Savepoint, StoreError};

use crate::bench::Bench;
use crate::story::*;

contract!(
    a_saved_state_comes_back,
    the_newest_two_are_kept,
    a_torn_savepoint_is_passed_over,
    a_spoiled_savepoint_is_passed_over,
    a_savepoint_ahead_of_the_journal_is_refused,
    an_interrupted_save_can_be_repeated,
    saving_does_not_keep_the_writer_waiting,
);

/// Two and a half chunks of bytes that are not all alike.
fn state(seed: u8) -> Vec<u8> {
    (0..2_621_440_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ seed).collect()
}

fn begin(bench: &dyn Bench, entries: u64) -> Book {
    let mut book = Book::lead(bench.open());
    for _ in 0..entries {
        book.add(&[Event::Forgotten { before: Timestamp(0), trimmed_before: None }]);
    }
    book
}

fn newest(book: &Book) -> Option<(u64, Vec<u8>)> {
    book.store.savepoints.newest(None).unwrap().map(|Savepoint { seq, bytes }| (seq, bytes))
}

fn a_saved_state_comes_back(bench: &dyn Bench) {
    let book = begin(bench, 5);
    assert!(newest(&book).is_none());
    book.store.savepoints.save(3, &state(1)).unwrap();
    assert_eq!(newest(&book), Some((3, state(1))));
    book.store.savepoints.save(5, b"").unwrap();
    assert_eq!(newest(&book), Some((5, Vec::new())));
    let before = book.store.savepoints.newest(Some(5)).unwrap().unwrap();
    assert_eq!(before, Savepoint { seq: 3, bytes: state(1) });
    assert!(book.store.savepoints.newest(Some(3)).unwrap().is_none());
}

fn the_newest_two_are_kept(bench: &dyn Bench) {
    let book = begin(bench, 5);
    for seq in 1..=5 {
        book.store.savepoints.save(seq, &state(seq as u8)).unwrap();
    }
    assert_eq!(newest(&book), Some((5, state(5))));
    assert_eq!(bench.sql("SELECT min(seq) FROM savepoints"), "4");
    assert_eq!(bench.sql("SELECT count(*) FROM savepoint_chunks"), "6");
}

fn a_torn_savepoint_is_passed_over(bench: &dyn Bench) {
    let book = begin(bench, 5);
    book.store.savepoints.save(3, &state(3)).unwrap();
    book.store.savepoints.save(5, &state(5)).unwrap();
    // Never finished.
    bench.sql("UPDATE savepoints SET complete = (1 = 0) WHERE seq = 5");
    assert_eq!(newest(&book), Some((3, state(3))));
    // Finished, it says, but a chunk is not there.
    bench.sql("UPDATE savepoints SET complete = (1 = 1) WHERE seq = 5; DELETE FROM savepoint_chunks WHERE seq = 5 AND chunk = 1");
    assert_eq!(newest(&book), Some((3, state(3))));
}

fn a_spoiled_savepoint_is_passed_over(bench: &dyn Bench) {
    let book = begin(bench, 5);
    book.store.savepoints.save(3, &state(3)).unwrap();
    book.store.savepoints.save(5, &state(5)).unwrap();
    bench.sql("UPDATE savepoint_chunks SET crc = crc + 1 WHERE seq = 5 AND chunk = 2");
    assert_eq!(newest(&book), Some((3, state(3))));
    bench.sql("UPDATE savepoints SET bytes = bytes - 1 WHERE seq = 3");
    assert!(newest(&book).is_none());
}

fn a_savepoint_ahead_of_the_journal_is_refused(bench: &dyn Bench) {
    let book = begin(bench, 5);
    let error = book.store.savepoints.save(6, &state(6)).unwrap_err();
    assert!(matches!(error, StoreError::Broken { .. }) && error.to_string().contains("entry 6"), "{error}");
    assert!(newest(&book).is_none());
}

fn an_interrupted_save_can_be_repeated(bench: &dyn Bench) {
    let book = begin(bench, 5);
    book.store.savepoints.save(3, &state(3)).unwrap();
    bench.sql("UPDATE savepoints SET complete = (1 = 0) WHERE seq = 3; DELETE FROM savepoint_chunks WHERE chunk = 2");
    assert!(newest(&book).is_none());
    book.store.savepoints.save(3, &state(4)).unwrap();
    assert_eq!(newest(&book), Some((3, state(4))));
}

/// A state of forty chunks is saved while the writer goes on; nobody fails and both are there at the end.
fn saving_does_not_keep_the_writer_waiting(bench: &dyn Bench) {
    let mut book = begin(bench, 5);
    let large: Vec<u8> = state(7).into_iter().cycle().take(40 * 1024 * 1024).collect();
    let savepoints = book.store.savepoints.clone();
    let mut between = 0;
    std::thread::scope(|scope| {
        let saving = scope.spawn(|| savepoints.save(5, &large).unwrap());
        while !saving.is_finished() {
            book.add(&[Event::Forgotten { before: Timestamp(0), trimmed_before: None }]);
            between += 1;
        }
    });
    assert!(between > 3, "only {between} batches while saving");
    assert_eq!(newest(&book), Some((5, large)));
    assert_eq!(book.replay(0).unwrap().len() as u64, 5 + between);
}
