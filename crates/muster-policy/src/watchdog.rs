//! Step limit and time limit of one evaluation. The interpreter consults the watchdog between its steps.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::error::PolicyError;

/// Instructions between two checks, as the interpreter has it (`INFREQUENT_INSTRUCTION_CHECK_PERIOD`).
const TICKS_PER_CHECK: u64 = 1_000;

/// Stops the current call once it exceeds its steps or its time.
#[derive(Clone)]
pub struct Watchdog(Rc<WatchdogState>);

struct WatchdogState {
    steps: u64,
    time: Duration,
    check_count: Cell<u64>,
    started_at: Cell<Instant>,
    /// The interpreter also checks at the end of a call; that time is reused as the start of the next call, which saves
    /// one clock read.
    last_check_at: Cell<Option<Instant>>,
    /// Which limit the call exceeded, as a message.
    exceeded: Cell<Option<&'static str>>,
}

impl Watchdog {
    pub fn new(steps: u64, time: Duration) -> Watchdog {
        Watchdog(Rc::new(WatchdogState {
            steps,
            time,
            check_count: Cell::new(0),
            started_at: Cell::new(Instant::now()),
            last_check_at: Cell::new(None),
            exceeded: Cell::new(None),
        }))
    }

    /// Start the limits of the next call from zero.
    pub fn start_call(&self) {
        self.0.check_count.set(0);
        self.0.exceeded.set(None);
        self.0.started_at.set(self.0.last_check_at.take().unwrap_or_else(Instant::now));
    }

    /// True if the current call has exceeded a limit.
    pub fn must_stop(&self) -> bool {
        let checks = self.0.check_count.get() + 1;
        self.0.check_count.set(checks);
        let now = Instant::now();
        self.0.last_check_at.set(Some(now));
        if checks > self.0.steps / TICKS_PER_CHECK + 1 {
            self.0.exceeded.set(Some("it exceeded the step limit"));
        } else if now.duration_since(self.0.started_at.get()) > self.0.time {
            self.0.exceeded.set(Some("it exceeded the time limit"));
        }
        self.0.exceeded.get().is_some()
    }

    /// The error of a call; it names the exceeded limit if the watchdog stopped the call.
    pub fn with_exceeded_limit(&self, error: PolicyError) -> PolicyError {
        match self.0.exceeded.get() {
            Some(message) => error.with_message(message),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn each_call_gets_the_full_time_limit() {
        let time = Duration::from_secs(1);
        let watchdog = Watchdog::new(u64::MAX, time);
        let exceed = || sleep(time + time / 10);
        exceed();
        watchdog.start_call();
        assert!(!watchdog.must_stop(), "time before the first call does not count");
        exceed();
        assert!(watchdog.must_stop());
        watchdog.start_call();
        assert!(!watchdog.must_stop(), "the next call starts when the previous one has ended");
    }
}
