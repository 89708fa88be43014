//! Adapter (Clock): the clock of one simulated machine, which may be wrong and run fast or slow.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::Timestamp;
use muster_server::clock::Clock;

/// The start of every run: a Tuesday in 2023.
pub const SIM_START_UNIX_MS: i64 = 1_700_000_000_000;

/// The true time: milliseconds since the start of the run. Clones share their state.
#[derive(Debug, Clone, Default)]
pub struct SimTime(Arc<AtomicI64>);

impl SimTime {
    pub fn ms(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, ms: i64) {
        self.0.store(ms, Ordering::Relaxed);
    }
}

/// The clock of one machine. Its wall time can be set, its monotonic time cannot; both run at the same rate.
#[derive(Debug, Clone)]
pub struct MachineClock {
    time: SimTime,
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    /// The milliseconds that the clock counts per true second.
    rate_per_mille: i64,
    /// The true time from which the rate applies; the clock is frozen before it.
    rate_since_ms: i64,
    /// The monotonic time at `rate_since_ms`.
    base_monotonic_ms: i64,
    /// From the monotonic to the wall time.
    wall_offset_ms: i64,
}

impl ClockState {
    fn monotonic_ms_at(&self, true_ms: i64) -> i64 {
        self.base_monotonic_ms + (true_ms - self.rate_since_ms).max(0) * self.rate_per_mille / 1_000
    }
}

impl MachineClock {
    /// An accurate clock.
    pub fn new(time: &SimTime) -> MachineClock {
        let state = ClockState { rate_per_mille: 1_000, rate_since_ms: 0, base_monotonic_ms: 0, wall_offset_ms: 0 };
        MachineClock { time: time.clone(), state: Arc::new(Mutex::new(state)) }
    }

    /// An accurate clock of a machine that was booted this long before the run.
    pub fn of_uptime(time: &SimTime, uptime_ms: i64) -> MachineClock {
        let clock = MachineClock::new(time);
        let mut state = clock.state();
        (state.base_monotonic_ms, state.wall_offset_ms) = (uptime_ms, -uptime_ms);
        drop(state);
        clock
    }

    /// Sets the wall time to the true time plus an offset.
    pub fn set_wall_offset_ms(&self, offset_ms: i64) {
        let mut state = self.state();
        state.wall_offset_ms = self.time.ms() + offset_ms - state.monotonic_ms_at(self.time.ms());
    }

    /// Changes the rate from now on, in milliseconds per true second.
    pub fn set_rate_per_mille(&self, rate_per_mille: i64) {
        let mut state = self.state();
        state.base_monotonic_ms = state.monotonic_ms_at(self.time.ms());
        (state.rate_since_ms, state.rate_per_mille) = (state.rate_since_ms.max(self.time.ms()), rate_per_mille);
    }

    /// Freezes the clock with its machine.
    pub fn freeze_until(&self, until_ms: i64) {
        let mut state = self.state();
        state.base_monotonic_ms = state.monotonic_ms_at(self.time.ms());
        state.rate_since_ms = state.rate_since_ms.max(until_ms);
    }

    /// Ends a freeze.
    pub fn unfreeze(&self) {
        let mut state = self.state();
        state.rate_since_ms = state.rate_since_ms.min(self.time.ms());
    }

    /// Makes the clock accurate again; monotonic time goes on from its current value.
    pub fn reset(&self) {
        self.unfreeze();
        self.set_rate_per_mille(1_000);
        self.set_wall_offset_ms(0);
    }

    /// The wall time in Unix milliseconds.
    pub fn wall_ms(&self) -> i64 {
        let state = self.state();
        SIM_START_UNIX_MS + state.monotonic_ms_at(self.time.ms()) + state.wall_offset_ms
    }

    /// The monotonic time; it never decreases.
    pub fn monotonic_ms(&self) -> i64 {
        self.state().monotonic_ms_at(self.time.ms())
    }

    /// The true time in which the clock counts `ms`.
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
        let time = SimTime::default();
        let clock = MachineClock::new(&time);
        time.set(1_000);
        clock.set_rate_per_mille(500);
        time.set(3_000);
        assert_eq!(
            (clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS, clock.true_duration_ms(10)),
            (2_000, 2_000, 20)
        );
        clock.set_wall_offset_ms(-5_000);
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (2_000, -2_000));
        clock.freeze_until(7_000);
        clock.set_rate_per_mille(2_000);
        time.set(8_000);
        assert_eq!(clock.monotonic_ms(), 4_000, "frozen until 7 s, then at twice the rate for one second");
        clock.freeze_until(20_000);
        clock.reset();
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (4_000, 8_000));
        time.set(9_000);
        assert_eq!((clock.monotonic_ms(), clock.wall_ms() - SIM_START_UNIX_MS), (5_000, 9_000));
    }
}
