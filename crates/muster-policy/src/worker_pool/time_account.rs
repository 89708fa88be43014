//! What a bundle has taken of the time of others, and whether it is asked at all.

use std::time::{Duration, Instant};

use super::{WorkerPoolSettings, unavailable};
use crate::error::PolicyError;

/// A rest is doubled so often and no more.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// The time of one tenant.
#[derive(Debug, Default)]
pub struct TimeAccount {
    /// What it has taken and others have not got back yet, at a moment. It becomes less by itself.
    used: Duration,
    updated_at: Option<Instant>,
    /// Until when nobody is asked, and why.
    backoff: Option<(Instant, PolicyError)>,
    /// How often in a row its process was ended.
    consecutive_failures: u32,
    /// When its process was ended, of late.
    failure_times: Vec<Instant>,
    /// Why it is suspended, until it has answered again.
    suspension: Option<PolicyError>,
}

impl TimeAccount {
    /// Whether it is asked now, as one of several tenants. While it rests, the answer is what it rests for.
    pub fn check_callable(&mut self, patience: &WorkerPoolSettings, tenants: u32, now: Instant) -> Result<(), PolicyError> {
        if let Some((_, why)) = self.backoff.as_ref().filter(|(until, _)| now < *until) {
            return Err(why.clone());
        }
        let part = patience.time_share / tenants.max(1);
        let passed = self.updated_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let spans = passed.as_secs_f64() / patience.share_period.as_secs_f64();
        let given_back = Duration::try_from_secs_f64(part.as_secs_f64() * spans).unwrap_or(Duration::MAX);
        (self.used, self.updated_at) = (self.used.saturating_sub(given_back), Some(now));
        match self.used < part {
            true => Ok(()),
            false => Err(unavailable("its tenant has had all the time there is for it; it is asked again")),
        }
    }

    /// So much was taken.
    pub fn charge(&mut self, time: Duration) {
        self.used += time;
    }

    /// It answered. That ends a suspension; the next end of its process within the span begins another.
    pub fn record_success(&mut self) {
        (self.consecutive_failures, self.suspension) = (0, None);
    }

    /// Its process was ended, for a reason.
    pub fn record_failure(&mut self, patience: &WorkerPoolSettings, now: Instant, why: PolicyError) {
        let suspend = &patience.suspension;
        self.failure_times.retain(|at| now.saturating_duration_since(*at) < suspend.period);
        self.failure_times.push(now);
        let rest = patience.backoff * 2_u32.pow(self.consecutive_failures.min(BACKOFF_DOUBLINGS_MAX));
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        if self.failure_times.len() < suspend.failures_max {
            self.backoff = Some((now + rest, why));
            return;
        }
        let why = suspend.suspension_error(&why);
        self.suspension = Some(why.clone());
        self.backoff = Some((now + rest.max(suspend.retry_after), why));
    }

    /// Why it is suspended, if it is.
    pub fn suspension(&self) -> Option<&PolicyError> {
        self.suspension.as_ref()
    }

    /// It has other policies. What was taken stays taken.
    pub fn reset_failures(&mut self) {
        let (taken, at) = (self.used, self.updated_at);
        *self = TimeAccount { used: taken, updated_at: at, ..TimeAccount::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::SuspensionRule;
    use super::*;

    fn settings() -> WorkerPoolSettings {
        let ms = Duration::from_millis;
        let suspend = SuspensionRule { failures_max: usize::MAX, ..SuspensionRule::default() };
        WorkerPoolSettings { time_share: ms(30), share_period: ms(1_000), backoff: ms(100), suspension: suspend, ..WorkerPoolSettings::default() }
    }

    #[test]
    fn a_bundle_is_suspended_after_repeated_worker_failures() {
        let (mut account, began) = (TimeAccount::default(), Instant::now());
        let patience = WorkerPoolSettings { suspension: SuspensionRule::default(), ..settings() };
        let after = |seconds| began + Duration::from_secs(seconds);
        for seconds in [0, 10] {
            account.record_failure(&patience, after(seconds), unavailable("it was ended"));
            assert_eq!(account.suspension(), None);
        }
        // Answers in between do not hide that the worker is ended again and again.
        account.record_success();
        account.record_failure(&patience, after(20), unavailable("it was ended"));
        let why = account.suspension().cloned().unwrap();
        assert!(why.to_string().contains("ended 3 times within 10 minutes"), "{why}");
        assert!(why.to_string().ends_with("the last time it was ended"), "{why}");
        assert_eq!(account.check_callable(&patience, 1, after(79)), Err(why.clone()), "in the same words");
        assert_eq!(account.check_callable(&patience, 1, after(80)), Ok(()), "it is tried once a minute");
        account.record_success();
        assert_eq!(account.suspension(), None);
        account.record_failure(&patience, after(90), unavailable("it was ended"));
        assert_eq!(account.suspension(), Some(&why));
        account.reset_failures();
        assert_eq!(account.suspension(), None);
        assert_eq!(account.check_callable(&patience, 1, after(91)), Ok(()));
        // What is long past does not count.
        account.record_failure(&patience, after(100), unavailable("it was ended"));
        account.record_failure(&patience, after(800), unavailable("it was ended"));
        account.record_failure(&patience, after(801), unavailable("it was ended"));
        assert_eq!(account.suspension(), None);
    }

    #[test]
    fn a_tenant_is_limited_to_its_time_share_which_refills() {
        let (mut account, began) = (TimeAccount::default(), Instant::now());
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(account.check_callable(&settings(), 1, began), Ok(()));
        account.charge(Duration::from_millis(29));
        assert_eq!(account.check_callable(&settings(), 1, began), Ok(()));
        assert!(account.check_callable(&settings(), 2, began).is_err(), "two have half of it each");
        // Far beyond its part: what is too much is missing later.
        account.charge(Duration::from_millis(61));
        account.reset_failures();
        for (ms, asked) in [(1_000, false), (1_990, false), (2_010, true)] {
            assert_eq!(account.check_callable(&settings(), 1, after(ms)).is_ok(), asked, "after {ms} ms");
        }
    }

    #[test]
    fn backoff_doubles_with_each_consecutive_failure() {
        let (mut account, mut now) = (TimeAccount::default(), Instant::now());
        for rest_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400] {
            account.record_failure(&settings(), now, unavailable("why"));
            let last = now + Duration::from_millis(rest_ms - 1);
            assert_eq!(account.check_callable(&settings(), 1, last), Err(unavailable("why")), "{rest_ms}");
            now += Duration::from_millis(rest_ms);
            assert_eq!(account.check_callable(&settings(), 1, now), Ok(()), "{rest_ms}");
        }
        account.record_success();
        account.record_failure(&settings(), now, unavailable("why"));
        assert_eq!(account.check_callable(&settings(), 1, now + Duration::from_millis(100)), Ok(()));
        account.record_failure(&settings(), now, unavailable("why"));
        account.reset_failures();
        assert_eq!(account.check_callable(&settings(), 1, now), Ok(()));
    }
}
