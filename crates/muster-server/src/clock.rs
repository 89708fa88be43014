//! Port: the time. The simulator has its own.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// The time of day, which may be set: milliseconds since the Unix epoch.
    fn now(&self) -> Timestamp;

    /// Time since a moment that stays the same; it never goes back and cannot be set.
    fn elapsed(&self) -> Duration;
}

/// Adapter (Clock): the clock of this machine.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGIN.elapsed()
    }
}
