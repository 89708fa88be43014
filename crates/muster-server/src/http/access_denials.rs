//! Denied requests: all are counted, few are logged.
//!
//! A log line for each would let anyone fill the disk. Each caller gets one line per interval, with the number of lines
//! suppressed since the one before.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines about one caller.
const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Callers with log lines of their own in one interval; all others share one.
const LOGGED_CALLERS_MAX: usize = 256;

/// Counts and logs denied requests.
#[derive(Default)]
pub struct AccessDenials {
    unauthenticated: AtomicU64,
    forbidden: AtomicU64,
    last_lines: Mutex<HashMap<String, LastLogLine>>,
}

/// The last line about a caller, and the number suppressed since.
struct LastLogLine {
    logged_at: Instant,
    suppressed: u64,
}

impl AccessDenials {
    /// Count a request without a valid token; `caller` is its address.
    pub fn count_unauthenticated(&self, caller: &str, reason: &str) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.start_log_line(caller, Instant::now()) {
            tracing::info!(caller, reason, suppressed, "denied: the caller is not authenticated");
        }
    }

    /// Count a request whose caller has too low a role.
    pub fn count_forbidden(&self, by: &str, role: &str, act: &str) {
        self.forbidden.fetch_add(1, Ordering::Relaxed);
        if let Some(suppressed) = self.start_log_line(by, Instant::now()) {
            tracing::warn!(by, role, act, suppressed, "denied: the caller's role is too low");
        }
    }

    /// Denied requests since the start, by reason.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("unauthenticated", count(&self.unauthenticated)), ("forbidden", count(&self.forbidden))]
    }

    /// The number of lines suppressed before this one, if a line about the caller may be written now.
    fn start_log_line(&self, caller: &str, now: Instant) -> Option<u64> {
        let mut lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |line: &LastLogLine| now.saturating_duration_since(line.logged_at) < LOG_INTERVAL;
        if lines.len() >= LOGGED_CALLERS_MAX {
            lines.retain(|_, line| is_open(line));
        }
        let caller = if lines.len() < LOGGED_CALLERS_MAX || lines.contains_key(caller) { caller } else { "others" };
        match lines.get_mut(caller) {
            Some(line) if is_open(line) => {
                line.suppressed += 1;
                None
            }
            Some(line) => {
                line.logged_at = now;
                Some(std::mem::take(&mut line.suppressed))
            }
            None => {
                lines.insert(caller.to_string(), LastLogLine { logged_at: now, suppressed: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_log_line_per_caller_and_interval() {
        let (denials, now) = (AccessDenials::default(), Instant::now());
        let lines: Vec<u64> = (0..1_000).filter_map(|_| denials.start_log_line("a", now)).collect();
        assert_eq!(lines, [0]);
        assert_eq!(denials.start_log_line("b", now), Some(0));
        assert_eq!(denials.start_log_line("a", now + LOG_INTERVAL), Some(999));
    }

    #[test]
    fn log_lines_are_bounded_however_many_callers() {
        let (denials, now) = (AccessDenials::default(), Instant::now());
        let lines = (0..10_000).filter_map(|caller| denials.start_log_line(&format!("10.0.{caller}"), now)).count();
        assert!(lines <= LOGGED_CALLERS_MAX + 1, "{lines}");
    }
}
