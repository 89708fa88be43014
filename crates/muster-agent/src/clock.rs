//! The two clocks of a node: the wall clock, which may be set, and the monotonic clock, which only grows.

use std::time::{SystemTime, UNIX_EPOCH};

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// In Unix milliseconds. The wall clock may be set, also backwards.
    pub wall_ms: i64,
    /// Milliseconds since an arbitrary start. For deadlines.
    pub monotonic_ms: i64,
}

/// The wall clock, in Unix milliseconds.
pub(crate) fn unix_now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
