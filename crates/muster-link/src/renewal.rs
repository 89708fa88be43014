//! When an agent renews its certificate. Pure: the driver and the simulator run it.

/// Pause after a renewal that failed.
const RETRY_MS: i64 = 60_000;
/// Shortest pause after a renewal, whatever the server says.
const PAUSE_MS_MIN: i64 = 1_000;

/// Due at the start, because the certificate may be nearly expired and the clock of the node may be wrong; then as the
/// server says, and at once if a server calls the certificate expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewalTimer {
    /// `None` while a renewal runs.
    due_ms: Option<i64>,
    has_failed: bool,
}

impl RenewalTimer {
    pub fn new(now_ms: i64) -> RenewalTimer {
        RenewalTimer { due_ms: Some(now_ms), has_failed: false }
    }

    /// When the next renewal begins; `None` while one runs.
    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    pub fn begin(&mut self) {
        self.due_ms = None;
    }

    /// A renewal has ended. `renew_after_ms` is what the server said, `None` if the renewal failed.
    pub fn end(&mut self, now_ms: i64, renew_after_ms: Option<i64>) {
        self.has_failed = renew_after_ms.is_none();
        let pause_ms = renew_after_ms.map_or(RETRY_MS, |after_ms| after_ms.max(PAUSE_MS_MIN));
        self.due_ms = Some(now_ms.saturating_add(pause_ms));
    }

    /// A server wants a newer certificate. A renewal that runs, or that failed a moment ago, is not hurried.
    pub fn hurry(&mut self, now_ms: i64) {
        if !self.has_failed && self.due_ms.is_some() {
            self.due_ms = Some(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_at_the_start_then_as_the_server_says_and_at_once_if_it_has_expired() {
        let mut timer = RenewalTimer::new(5);
        assert_eq!(timer.due_ms(), Some(5));
        timer.begin();
        timer.hurry(6);
        assert_eq!(timer.due_ms(), None, "one at a time");
        timer.end(7, Some(50_000));
        assert_eq!(timer.due_ms(), Some(50_007));
        timer.hurry(9);
        assert_eq!(timer.due_ms(), Some(9));
        timer.begin();
        timer.end(10, None);
        timer.hurry(11);
        assert_eq!(timer.due_ms(), Some(60_010), "a failed renewal is not hurried");
        timer.begin();
        timer.end(70_000, Some(0));
        assert_eq!(timer.due_ms(), Some(71_000));
    }
}
