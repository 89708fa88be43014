//! Characters and last lines, over a source that counts what is read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::log_source::LogFuture;

/// Lines of `x` that end every `line_bytes`; the head up to `removed` is gone.
struct LargeLog {
    size: u64,
    line_bytes: u64,
    removed: u64,
    bytes_read: AtomicU64,
}

impl LargeLog {
    fn new(size: u64, line_bytes: u64) -> LargeLog {
        LargeLog { size, line_bytes, removed: 0, bytes_read: AtomicU64::new(0) }
    }

    /// The start of the last `lines` lines, and the bytes that were read to find it.
    async fn tail_offset(&self, lines: u32) -> (u64, u64) {
        let node = Placement::OneNode("n1".parse().unwrap());
        let output = TaskOutput::new(JobId::single(1), 1, 0, Stream::Stdout, &node);
        let offset = output.tail_offset(self, lines).await.unwrap();
        (offset, self.bytes_read.swap(0, Ordering::Relaxed))
    }
}

impl LogSource for LargeLog {
    fn serves(&self, _: &NodeId) -> bool {
        true
    }

    fn read(&self, request: LogRequest) -> LogFuture<'_> {
        let offset = request.offset.max(self.removed).min(self.size);
        let end = (offset + request.bytes_max as u64).min(self.size);
        let byte = |at: u64| if (at + 1).is_multiple_of(self.line_bytes) { b'\n' } else { b'x' };
        let bytes: Vec<u8> = (offset..end).map(byte).collect();
        self.bytes_read.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Box::pin(async move { Ok(LogBytes { bytes, offset, size: self.size }) })
    }
}

#[tokio::test]
async fn the_last_lines_of_a_large_log_are_found_without_reading_it() {
    let log = LargeLog::new(10 << 30, 128);
    assert_eq!(log.tail_offset(20).await, (log.size - 20 * 128, TAIL_STEP_BYTES));
    assert_eq!(log.tail_offset(1_000).await, (log.size - 128_000, 2 * TAIL_STEP_BYTES));
    assert_eq!(log.tail_offset(0).await, (log.size, 0));
    let endless = LargeLog::new(10 << 30, u64::MAX);
    assert_eq!(endless.tail_offset(5).await, (endless.size - TAIL_BYTES_MAX, TAIL_BYTES_MAX), "the search is bounded");
}

#[tokio::test]
async fn the_last_lines_of_a_small_log_start_at_its_start() {
    let log = LargeLog::new(1_000, 100);
    assert_eq!(log.tail_offset(9).await.0, 100);
    assert_eq!(log.tail_offset(10).await.0, 0);
    assert_eq!(log.tail_offset(11).await.0, 0);
    assert_eq!(LargeLog::new(0, 100).tail_offset(3).await.0, 0);
    let removed = LargeLog { removed: 950, ..LargeLog::new(1_000, 100) };
    assert_eq!(removed.tail_offset(3).await.0, 950, "not before the removed head");
}

#[test]
fn the_start_of_the_last_lines_is_found() {
    let found = |bytes: &[u8], at_end, mut wanted| nth_last_line(bytes, at_end, &mut wanted).ok_or(wanted);
    assert_eq!(found(b"one\ntwo\n", true, 1), Ok(4));
    assert_eq!(found(b"one\ntwo", true, 1), Ok(4), "a last line without newline counts");
    assert_eq!(found(b"one\ntwo\n", true, 2), Err(1), "the first line starts at or before these bytes");
    assert_eq!(found(b"\n\n\n", true, 2), Ok(1));
    assert_eq!(found(b"two\n", false, 1), Ok(4), "the line starts at the next byte");
    assert_eq!(found(b"", true, 1), Err(1));
}

#[test]
fn an_incomplete_character_is_left_for_the_next_part() {
    assert_eq!(complete_utf8_len("aä".as_bytes()), 3);
    assert_eq!(complete_utf8_len(&[b'a', 0xc3]), 1);
    assert_eq!(complete_utf8_len(&[0xff, b'a']), 2, "bytes that are not UTF-8 are complete");
    assert_eq!(complete_utf8_len(&[0xc3]), 1, "alone, it is sent: it may never be completed");
}
