//! Callers that are turned away: counted each, logged now and then.
//!
//! A log line for each would let anyone fill the disk. One caller gets one line in an interval, with the number of those
//! that were left out.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines about one caller.
const INTERVAL: Duration = Duration::from_secs(10);
/// Callers told apart in one interval; all others share their lines.
const CALLERS_MAX: usize = 256;

/// Counts and logs refusals.
#[derive(Default)]
pub struct Refusals {
    unauthenticated: AtomicU64,
    forbidden: AtomicU64,
    lines: Mutex<HashMap<String, Line>>,
}

/// The last line about a caller, and how many were left out since.
struct Line {
    at: Instant,
    left_out: u64,
}

impl Refusals {
    /// A caller without a valid token, known by its address.
    pub fn unauthenticated(&self, caller: &str, reason: &str) {
        self.unauthenticated.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.line(caller, Instant::now()) {
            tracing::info!(caller, reason, left_out, "refused: the caller is not authenticated");
        }
    }

    /// A caller whose role is too low.
    pub fn forbidden(&self, by: &str, role: &str, act: &str) {
        self.forbidden.fetch_add(1, Ordering::Relaxed);
        if let Some(left_out) = self.line(by, Instant::now()) {
            tracing::warn!(by, role, act, left_out, "refused: the role is too low");
        }
    }

    /// Refusals since the start, by their reason.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("unauthenticated", count(&self.unauthenticated)), ("forbidden", count(&self.forbidden))]
    }

    /// Whether a line may be written about a caller now, and how many were left out before it.
    fn line(&self, caller: &str, now: Instant) -> Option<u64> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = |line: &Line| now.saturating_duration_since(line.at) < INTERVAL;
        if lines.len() >= CALLERS_MAX {
            lines.retain(|_, line| is_open(line));
        }
        let caller = if lines.len() < CALLERS_MAX || lines.contains_key(caller) { caller } else { "others" };
        match lines.get_mut(caller) {
            Some(line) if is_open(line) => {
                line.left_out += 1;
                None
            }
            Some(line) => {
                line.at = now;
                Some(std::mem::take(&mut line.left_out))
            }
            None => {
                lines.insert(caller.to_string(), Line { at: now, left_out: 0 });
                Some(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_has_one_line_in_an_interval() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let lines: Vec<u64> = (0..1_000).filter_map(|_| refusals.line("a", now)).collect();
        assert_eq!(lines, [0]);
        assert_eq!(refusals.line("b", now), Some(0));
        assert_eq!(refusals.line("a", now + INTERVAL), Some(999));
    }

    #[test]
    fn many_callers_share_their_lines() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let lines = (0..10_000).filter_map(|caller| refusals.line(&format!("10.0.{caller}"), now)).count();
        assert!(lines <= CALLERS_MAX + 1, "{lines}");
    }
}
