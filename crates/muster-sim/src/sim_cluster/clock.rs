//! Adapter (Clock): the time of one machine in the simulated world, which may be wrong and run fast or slow.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::Timestamp;
use muster_server::clock::Clock;

/// When every story begins: a Tuesday in 2023.
pub const SIM_START_UNIX_MS: i64 = 1_700_000_000_000;

/// True time: milliseconds since the beginning of the story. Clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct SimTime(Arc<AtomicI64>);

impl SimTime {
    /// How late it is.
    pub fn ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// It is later now.
    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

/// The clock of one machine. Its time of day can be set, its time since start cannot; both run at the same pace.
#[derive(Debug, Clone)]
pub struct MachineClock {
    time: SimTime,
    state: Arc<Mutex<ClockState>>,
}

/// How it goes.
#[derive(Debug)]
struct ClockState {
    /// Milliseconds that it counts while a second passes.
    rate_per_mille: i64,
    /// When it got this pace, in true time; it stands still before.
    rate_since_ms: i64,
    /// What it had counted then.
    base_monotonic_ms: i64,
    /// What its time of day is ahead of what it has counted.
    wall_offset_ms: i64,
}

impl ClockState {
    fn monotonic_ms_at(&self, sun_ms: i64) -> i64 {
        self.base_monotonic_ms + (sun_ms - self.rate_since_ms).max(0) * self.rate_per_mille / 1_000
    }
}

impl MachineClock {
    /// A clock that is right.
    pub fn new(sun: &SimTime) -> MachineClock {
        let works = ClockState { rate_per_mille: 1_000, rate_since_ms: 0, base_monotonic_ms: 0, wall_offset_ms: 0 };
        MachineClock { time: sun.clone(), state: Arc::new(Mutex::new(works)) }
    }

    /// Someone sets its time of day, to so much more than what it is.
    pub fn set_wall_offset_ms(&self, off_ms: i64) {
        let mut works = self.state();
        works.wall_offset_ms = self.time.ms() + off_ms - works.monotonic_ms_at(self.time.ms());
    }

    /// From now on it counts so many milliseconds in a second.
    pub fn set_rate_per_mille(&self, pace: i64) {
        let mut works = self.state();
        works.base_monotonic_ms = works.monotonic_ms_at(self.time.ms());
        (works.rate_since_ms, works.rate_per_mille) = (works.rate_since_ms.max(self.time.ms()), pace);
    }

    /// It stands still until then, with the whole machine.
    pub fn freeze_until(&self, until_ms: i64) {
        let mut works = self.state();
        works.base_monotonic_ms = works.monotonic_ms_at(self.time.ms());
        works.rate_since_ms = works.rate_since_ms.max(until_ms);
    }

    /// If it stands still, it does so no longer.
    pub fn unfreeze(&self) {
        let mut works = self.state();
        works.rate_since_ms = works.rate_since_ms.min(self.time.ms());
    }

    /// It is right again, and goes on from what it has counted.
    pub fn reset(&self) {
        self.unfreeze();
        self.set_rate_per_mille(1_000);
        self.set_wall_offset_ms(0);
    }

    /// The time of day in Unix milliseconds.
    pub fn wall_ms(&self) -> i64 {
        let works = self.state();
        SIM_START_UNIX_MS + works.monotonic_ms_at(self.time.ms()) + works.wall_offset_ms
    }

    /// What it has counted; it never goes back.
    pub fn monotonic_ms(&self) -> i64 {
        self.state().monotonic_ms_at(self.time.ms())
    }

    /// How long it really takes until it has counted so much.
    pub fn true_duration_ms(&self, ms: i64) -> i64 {
        ms * 1_000 / self.state().rate_per_mille.max(1)
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_ms())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.monotonic_ms().unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_at_its_rate_and_monotonic_time_never_decreases() {
        let sun = SimTime::default();
        let clock = MachineClock::new(&sun);
        sun.set(1_000);
        clock.set_rate_per_mille(500);
        sun.set(3_000);
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS, clock.true_duration_ms(10)), (2_000, 2_000, 20));
        clock.set_wall_offset_ms(-5_000);
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (2_000, -2_000));
        clock.freeze_until(7_000);
        clock.set_rate_per_mille(2_000);
        sun.set(8_000);
        assert_eq!(clock.monotonic_ms(), 4_000, "it stood still until 7 s, and ran twice as fast for one");
        clock.freeze_until(20_000);
        clock.reset();
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (4_000, 8_000));
        sun.set(9_000);
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (5_000, 9_000));
    }
}
