//! A timer for repeated reports and warnings.

/// Due at once, and then after each interval.
#[derive(Debug, Default)]
pub(crate) struct RepeatTimer {
    next_due_ms: Option<i64>,
}

impl RepeatTimer {
    /// True if the timer is due; it is then due again after `interval_ms`. A due time further away than
    /// `interval_ms` was set before the clock was set back, and counts as due.
    pub fn is_due(&mut self, now_ms: i64, interval_ms: i64) -> bool {
        let rearmed_ms = now_ms.saturating_add(interval_ms);
        let is_due = self.next_due_ms.is_none_or(|next_ms| next_ms <= now_ms || next_ms > rearmed_ms);
        if is_due {
            self.next_due_ms = Some(rearmed_ms);
        }
        is_due
    }

    /// True if the timer was due at least once.
    pub fn has_fired(&self) -> bool {
        self.next_due_ms.is_some()
    }

    /// The next due time; `i64::MIN` if the timer has not fired.
    pub fn next_due_ms(&self) -> i64 {
        self.next_due_ms.unwrap_or(i64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_is_due_at_once_and_then_after_each_interval() {
        let mut timer = RepeatTimer::default();
        assert!(!timer.has_fired());
        assert!(timer.is_due(5, 100));
        assert!(!timer.is_due(104, 100));
        assert!(timer.is_due(105, 100));
        assert_eq!(timer.next_due_ms(), 205);
        assert!(timer.is_due(3, 100), "the clock was set back");
    }
}
