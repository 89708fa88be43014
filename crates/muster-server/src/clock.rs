//! Port: the clock. The simulator supplies simulated time.
//!
//! Everything that the server decides uses one time, [`SteadyClock`]: a step of the wall clock must neither end jobs with
//! a time limit nor stop time until the wall clock has caught up.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use tracing::{info, warn};

pub trait Clock: Send + Sync {
    /// Time in milliseconds since the Unix epoch.
    fn now(&self) -> Timestamp;

    /// Monotonic time since a fixed moment, with the time in which the machine was suspended.
    fn elapsed(&self) -> Duration;

    /// This server leads now, after events up to `after`: `now` is not before that.
    fn begin_term(&self, after: Timestamp) {
        let _ = after;
    }

    /// How far the wall clock of the machine is ahead of `now`.
    fn wall_clock_ahead_ms(&self) -> i64 {
        0
    }
}

/// Adapter (Clock): the clocks of this machine. The wall clock may step.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self) -> Duration {
        let since_boot = clock_gettime(ClockId::Boottime);
        Duration::new(since_boot.tv_sec.unsigned_abs(), since_boot.tv_nsec.unsigned_abs() as u32)
    }
}

/// Part of the passed time by which steady time is faster or slower while it approaches the wall clock.
const SLEW_DIVISOR: i128 = 200;
/// Differences to the wall clock up to this are followed at once: so much does NTP correct without a step.
const FOLLOWED_AT_ONCE_NS: i128 = 1_000_000_000;
/// A difference that an operator should know.
const REPORTED_NS: i128 = 5_000_000_000;
const NS_PER_MS: i128 = 1_000_000;

/// A clock whose time never decreases and never steps: it runs with the monotonic clock from the first term of this
/// server, and approaches the wall clock at half a percent. Before that, it is the wall clock.
pub struct SteadyClock<C> {
    machine: C,
    steady: Mutex<Option<SteadyTime>>,
}

struct SteadyTime {
    /// Nanoseconds since the Unix epoch.
    ns: i128,
    /// Monotonic time of `ns`.
    read_at: Duration,
    /// Of the wall clock.
    ahead_ns: i128,
    is_reported: bool,
}

impl<C: Clock> SteadyClock<C> {
    pub fn new(machine: C) -> SteadyClock<C> {
        SteadyClock { machine, steady: Mutex::new(None) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<SteadyTime>> {
        self.steady.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wall_ns(&self) -> i128 {
        i128::from(self.machine.now().0) * NS_PER_MS
    }
}

impl<C: Clock> Clock for SteadyClock<C> {
    fn now(&self) -> Timestamp {
        let mut steady = self.lock();
        let Some(time) = &mut *steady else { return self.machine.now() };
        time.advance(self.wall_ns(), self.machine.elapsed());
        time.report_difference();
        time.timestamp()
    }

    fn elapsed(&self) -> Duration {
        self.machine.elapsed()
    }

    /// A later term of this server continues its time: a step of the wall clock may be why the former term ended.
    fn begin_term(&self, after: Timestamp) {
        let (wall_ns, elapsed) = (self.wall_ns(), self.machine.elapsed());
        let mut steady = self.lock();
        let time = steady.get_or_insert(SteadyTime { ns: wall_ns, read_at: elapsed, ahead_ns: 0, is_reported: false });
        time.advance(wall_ns, elapsed);
        time.ns = time.ns.max(i128::from(after.0) * NS_PER_MS);
        time.ahead_ns = wall_ns - time.ns;
    }

    fn wall_clock_ahead_ms(&self) -> i64 {
        self.now();
        self.lock().as_ref().map_or(0, |time| clamp_to_i64(time.ahead_ns / NS_PER_MS))
    }
}

impl SteadyTime {
    fn advance(&mut self, wall_ns: i128, elapsed: Duration) {
        let passed_ns = elapsed.saturating_sub(self.read_at).as_nanos() as i128;
        let steady_ns = self.ns + passed_ns;
        let (ahead_ns, slew_max_ns) = (wall_ns - steady_ns, passed_ns / SLEW_DIVISOR);
        self.ns = match ahead_ns.abs() <= FOLLOWED_AT_ONCE_NS {
            true => wall_ns.max(self.ns),
            false => steady_ns + ahead_ns.clamp(-slew_max_ns, slew_max_ns),
        };
        self.read_at = self.read_at.max(elapsed);
        self.ahead_ns = wall_ns - self.ns;
    }

    /// Logs once that the wall clock has stepped, and once that its time is reached.
    fn report_difference(&mut self) {
        let ahead_s = (self.ahead_ns / (1_000 * NS_PER_MS)) as i64;
        if self.ahead_ns.abs() > REPORTED_NS && !self.is_reported {
            self.is_reported = true;
            warn!(
                ahead_s,
                "the wall clock of this machine differs from the time of the cluster; time limits follow the time of the \
                 cluster, which approaches the wall clock by 18 s an hour; check NTP"
            );
        }
        if self.ahead_ns.abs() <= FOLLOWED_AT_ONCE_NS && self.is_reported {
            self.is_reported = false;
            info!("the time of the cluster is that of the wall clock again");
        }
    }

    fn timestamp(&self) -> Timestamp {
        Timestamp(clamp_to_i64(self.ns / NS_PER_MS))
    }
}

fn clamp_to_i64(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    /// Wall clock and monotonic clock in milliseconds.
    #[derive(Default)]
    struct MachineClocks(AtomicI64, AtomicI64);

    impl Clock for Arc<MachineClocks> {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }

        fn elapsed(&self) -> Duration {
            Duration::from_millis(self.1.load(Ordering::Relaxed).unsigned_abs())
        }
    }

    impl MachineClocks {
        fn pass_ms(&self, ms: i64) {
            self.0.fetch_add(ms, Ordering::Relaxed);
            self.1.fetch_add(ms, Ordering::Relaxed);
        }

        fn step_wall_clock_ms(&self, ms: i64) {
            self.0.fetch_add(ms, Ordering::Relaxed);
        }
    }

    const HOUR_MS: i64 = 3_600_000;

    fn leading_at(wall_ms: i64) -> (Arc<MachineClocks>, SteadyClock<Arc<MachineClocks>>) {
        let machine = Arc::new(MachineClocks::default());
        machine.step_wall_clock_ms(wall_ms);
        let clock = SteadyClock::new(machine.clone());
        assert_eq!(clock.now(), Timestamp(wall_ms), "before the first term");
        clock.begin_term(Timestamp(0));
        (machine, clock)
    }

    /// The time after this many minutes, read every second as ticks do; it never decreases.
    fn after_minutes(machine: &MachineClocks, clock: &impl Clock, minutes: i64) -> i64 {
        for _ in 0..minutes * 60 {
            let before = clock.now();
            machine.pass_ms(1_000);
            assert!(clock.now() >= before);
        }
        clock.now().0
    }

    #[test]
    fn steps_of_the_wall_clock_are_approached_at_half_a_percent() {
        let (machine, clock) = leading_at(100 * HOUR_MS);
        machine.step_wall_clock_ms(HOUR_MS);
        assert_eq!(clock.now(), Timestamp(100 * HOUR_MS), "forward");
        assert_eq!(after_minutes(&machine, &clock, 60), 101 * HOUR_MS + 18_000);
        assert_eq!(clock.wall_clock_ahead_ms(), HOUR_MS - 18_000);
        machine.step_wall_clock_ms(-2 * HOUR_MS);
        assert_eq!(after_minutes(&machine, &clock, 60), 102 * HOUR_MS, "and time passes after a step back");
        machine.step_wall_clock_ms(HOUR_MS - 20_000);
        after_minutes(&machine, &clock, 120);
        assert_eq!((clock.now(), clock.wall_clock_ahead_ms()), (machine.now(), 0), "until the times are equal");
    }

    #[test]
    fn small_corrections_are_followed_at_once_and_time_never_decreases() {
        let (machine, clock) = leading_at(HOUR_MS);
        machine.step_wall_clock_ms(900);
        assert_eq!(clock.now(), Timestamp(HOUR_MS + 900));
        machine.step_wall_clock_ms(-500);
        assert_eq!(clock.now(), Timestamp(HOUR_MS + 900));
        machine.pass_ms(600);
        assert_eq!(clock.now(), Timestamp(HOUR_MS + 1_000));
    }

    #[test]
    fn a_term_begins_after_the_events_before_it_and_a_step_that_ends_a_term_ends_no_jobs() {
        let (machine, clock) = leading_at(100 * HOUR_MS);
        clock.begin_term(Timestamp(101 * HOUR_MS));
        assert_eq!(clock.now(), Timestamp(101 * HOUR_MS), "the wall clock of the former leader was ahead");
        assert_eq!(after_minutes(&machine, &clock, 60), 102 * HOUR_MS - 18_000, "time passes nevertheless");
        // The lease in a database on this machine expires at such a step.
        machine.step_wall_clock_ms(5 * HOUR_MS);
        clock.begin_term(clock.now());
        assert_eq!(clock.now(), Timestamp(102 * HOUR_MS - 18_000));
    }
}
