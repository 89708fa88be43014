//! Port: the time of day. The simulator has its own.

use std::time::{SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Milliseconds since the Unix epoch.
    fn now(&self) -> Timestamp;
}

/// Adapter (Clock): the clock of this machine.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
