//! Adapter (Clock): the time of one machine in the simulated world, which may be wrong and run fast or slow.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// The clock of one machine. Its time of day can be set, its time since start cannot; both run at the same pace.
#[derive(Debug, Clone)]
pub struct MachineClock {
    sun: Sun,
    works: Arc<Mutex<Works>>,
}

/// How it goes.
#[derive(Debug)]
struct Works {
    /// Milliseconds that it counts while a second passes.
    pace: i64,
    /// When it got this pace, in true time; it stands still before.
    since_ms: i64,
    /// What it had counted then.
    counted_ms: i64,
    /// What its time of day is ahead of what it has counted.
    ahead_ms: i64,
}

impl Works {
    fn counted_ms(&self, sun_ms: i64) -> i64 {
        self.counted_ms + (sun_ms - self.since_ms).max(0) * self.pace / 1_000
    }
}

impl MachineClock {
    /// A clock that is right.
    pub fn new(sun: &Sun) -> MachineClock {
        let works = Works { pace: 1_000, since_ms: 0, counted_ms: 0, ahead_ms: 0 };
        MachineClock { sun: sun.clone(), works: Arc::new(Mutex::new(works)) }
    }

    /// Someone sets its time of day, to so much more than what it is.
    pub fn set_off(&self, off_ms: i64) {
        let mut works = self.works();
        works.ahead_ms = self.sun.ms() + off_ms - works.counted_ms(self.sun.ms());
    }

    /// From now on it counts so many milliseconds in a second.
    pub fn set_pace(&self, pace: i64) {
        let mut works = self.works();
        works.counted_ms = works.counted_ms(self.sun.ms());
        (works.since_ms, works.pace) = (works.since_ms.max(self.sun.ms()), pace);
    }

    /// It stands still until then, with the whole machine.
    pub fn stand_still(&self, until_ms: i64) {
        let mut works = self.works();
        works.counted_ms = works.counted_ms(self.sun.ms());
        works.since_ms = works.since_ms.max(until_ms);
    }

    /// If it stands still, it does so no longer.
    pub fn go_on(&self) {
        let mut works = self.works();
        works.since_ms = works.since_ms.min(self.sun.ms());
    }

    /// It is right again, and goes on from what it has counted.
    pub fn repair(&self) {
        self.go_on();
        self.set_pace(1_000);
        self.set_off(0);
    }

    /// The time of day in Unix milliseconds.
    pub fn wall_ms(&self) -> i64 {
        let works = self.works();
        BEGIN_MS + works.counted_ms(self.sun.ms()) + works.ahead_ms
    }

    /// What it has counted; it never goes back.
    pub fn mono_ms(&self) -> i64 {
        self.works().counted_ms(self.sun.ms())
    }

    /// How long it really takes until it has counted so much.
    pub fn lasts_ms(&self, ms: i64) -> i64 {
        ms * 1_000 / self.works().pace.max(1)
    }

    fn works(&self) -> MutexGuard<'_, Works> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.wall_ms())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.mono_ms().unsigned_abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_runs_at_its_pace_and_what_it_counts_never_goes_back() {
        let sun = Sun::default();
        let clock = MachineClock::new(&sun);
        sun.set(1_000);
        clock.set_pace(500);
        sun.set(3_000);
        assert_eq!((clock.mono_ms(), clock.wall_ms() - BEGIN_MS, clock.lasts_ms(10)), (2_000, 2_000, 20));
        clock.set_off(-5_000);
        assert_eq!((clock.mono_ms(), clock.wall_ms() - BEGIN_MS), (2_000, -2_000));
        clock.stand_still(7_000);
        clock.set_pace(2_000);
        sun.set(8_000);
        assert_eq!(clock.mono_ms(), 4_000, "it stood still until 7 s, and ran twice as fast for one");
        clock.stand_still(20_000);
        clock.repair();
        assert_eq!((clock.mono_ms(), clock.wall_ms() - BEGIN_MS), (4_000, 8_000));
        sun.set(9_000);
        assert_eq!((clock.mono_ms(), clock.wall_ms() - BEGIN_MS), (5_000, 9_000));
    }
}
