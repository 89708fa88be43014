//! The two clocks of a node: the wall clock, which may be set, and the boot clock, which only grows.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, Timespec};

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    /// In Unix milliseconds. The wall clock may be set, also backwards.
    pub wall_ms: i64,
    /// Milliseconds since boot, with the time in which the machine was suspended (CLOCK_BOOTTIME). For deadlines.
    pub monotonic_ms: i64,
}

/// The boot clock. All processes of a node read the same one, so agent and shims can exchange its readings.
pub(crate) fn boot_now_ms() -> i64 {
    timespec_ms(rustix::time::clock_gettime(ClockId::Boottime))
}

fn timespec_ms(time: Timespec) -> i64 {
    time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000)
}

/// The wall clock, in Unix milliseconds.
pub(crate) fn unix_now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX)
}
