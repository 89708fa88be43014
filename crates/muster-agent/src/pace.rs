//! Saying the same thing again, but not all the time.

/// When to say it next. Due at once until it was said.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    next_ms: Option<i64>,
}

impl Pace {
    /// Whether it is time; if so, the next time is `every_ms` later. A next time further away than that was set
    /// before the clock was put back, and does not count.
    pub fn is_due(&mut self, now_ms: i64, every_ms: i64) -> bool {
        let later_ms = now_ms.saturating_add(every_ms);
        let due = self.next_ms.is_none_or(|next_ms| next_ms <= now_ms || next_ms > later_ms);
        if due {
            self.next_ms = Some(later_ms);
        }
        due
    }

    /// Whether it was ever said.
    pub fn has_begun(&self) -> bool {
        self.next_ms.is_some()
    }

    /// When it will be due, or at once.
    pub fn next_ms(&self) -> i64 {
        self.next_ms.unwrap_or(i64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_at_once_and_then_in_step() {
        let mut pace = Pace::default();
        assert!(!pace.has_begun());
        assert!(pace.is_due(5, 100));
        assert!(!pace.is_due(104, 100));
        assert!(pace.is_due(105, 100));
        assert_eq!(pace.next_ms(), 205);
        assert!(pace.is_due(3, 100), "the clock was put back");
    }
}
