//! Port: the clock. The simulator supplies simulated time.

use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;

pub trait Clock: Send + Sync {
    /// Wall-clock time in milliseconds since the Unix epoch; it may jump when the clock is set.
    fn now(&self) -> Timestamp;

    /// Monotonic time since a fixed moment.
    fn elapsed(&self) -> Duration;
}

/// Adapter (Clock): the clocks of this machine.
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
