//! Adapter (Clock): the time of one machine in the simulated world, which may be wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use muster_core::Timestamp;
use muster_server::clock::Clock;

/// When every story begins: a Tuesday in 2023.
pub const BEGIN_MS: i64 = 1_700_000_000_000;

/// True time: milliseconds since the beginning of the story. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Sun(Arc<AtomicI64>);

impl Sun {
    /// How late it is.
    pub fn ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// It is later now.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

/// The clock of one machine: its time of day is off by something and can be set, its time since start is not.
#[derive(Debug, Clone, Default)]
pub struct MachineClock {
    sun: Sun,
    off_ms: Arc<AtomicI64>,
}

impl MachineClock {
    /// A clock that is off by so much.
    pub fn new(sun: &Sun, off_ms: i64) -> MachineClock {
        let clock = MachineClock { sun: sun.clone(), off_ms: Arc::default() };
        clock.set_off(off_ms);
        clock
    }

    /// Someone sets it.
    pub fn set_off(&self, off_ms: i64) {
        self.off_ms.store(off_ms, Ordering::Relaxed);
    }

    /// The time of day in Unix milliseconds.
    pub fn wall_ms(&self) -> i64 {
        BEGIN_MS + self.sun.ms() + self.off_ms.load(Ordering::Relaxed)
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_ms())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.sun.ms().unsigned_abs())
    }
}
