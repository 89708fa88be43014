//! The time share, backoff and suspension of one tenant's bundle.

use std::time::{Duration, Instant};

use super::{WorkerPoolSettings, unavailable};
use crate::error::PolicyError;

/// How often the backoff is doubled.
const BACKOFF_DOUBLINGS_MAX: u32 = 6;

/// Time used and failures of one tenant.
#[derive(Debug, Default)]
pub struct TimeAccount {
    /// Time charged to the tenant; it decays at the rate of the tenant's share.
    used: Duration,
    /// When the decay was last applied.
    updated_at: Option<Instant>,
    /// The end of the backoff, and the error until then.
    backoff: Option<(Instant, PolicyError)>,
    consecutive_failures: u32,
    /// Process failures within the period of the suspension rule.
    failure_times: Vec<Instant>,
    /// Set while the bundle is suspended; the next success clears it.
    suspension: Option<PolicyError>,
}

impl TimeAccount {
    /// An error if the tenant may not be called now: during the backoff the failure that caused it, else because the
    /// tenant has used up its part of the time share.
    pub fn check_callable(
        &mut self,
        settings: &WorkerPoolSettings,
        tenants: u32,
        now: Instant,
    ) -> Result<(), PolicyError> {
        if let Some((_, error)) = self.backoff.as_ref().filter(|(end, _)| now < *end) {
            return Err(error.clone());
        }
        let share = settings.time_share / tenants.max(1);
        let passed = self.updated_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let periods = passed.as_secs_f64() / settings.share_period.as_secs_f64();
        let decayed = Duration::try_from_secs_f64(share.as_secs_f64() * periods).unwrap_or(Duration::MAX);
        (self.used, self.updated_at) = (self.used.saturating_sub(decayed), Some(now));
        match self.used < share {
            true => Ok(()),
            false => {
                let message = "the tenant has used up its share of policy time; the call will be retried";
                Err(unavailable(message))
            }
        }
    }

    pub fn charge(&mut self, time: Duration) {
        self.used += time;
    }

    /// A success ends a suspension. Earlier failures still count: one more within the period suspends the bundle again.
    pub fn record_success(&mut self) {
        (self.consecutive_failures, self.suspension) = (0, None);
    }

    /// Start a backoff after the process failed, and suspend the bundle after repeated failures.
    pub fn record_failure(&mut self, settings: &WorkerPoolSettings, now: Instant, error: PolicyError) {
        let rule = &settings.suspension;
        self.failure_times.retain(|at| now.saturating_duration_since(*at) < rule.period);
        self.failure_times.push(now);
        let backoff = settings.backoff * 2_u32.pow(self.consecutive_failures.min(BACKOFF_DOUBLINGS_MAX));
        self.consecutive_failures = self.consecutive_failures.saturating_add(1);
        if self.failure_times.len() < rule.failures_max {
            self.backoff = Some((now + backoff, error));
            return;
        }
        let error = rule.suspension_error(&error);
        self.suspension = Some(error.clone());
        self.backoff = Some((now + backoff.max(rule.retry_after), error));
    }

    /// The error of a suspended bundle; `None` if it is not suspended.
    pub fn suspension(&self) -> Option<&PolicyError> {
        self.suspension.as_ref()
    }

    /// Forget the failures of a bundle that was replaced. The used time stays charged.
    pub fn reset_failures(&mut self) {
        let (used, updated_at) = (self.used, self.updated_at);
        *self = TimeAccount { used, updated_at, ..TimeAccount::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::SuspensionRule;
    use super::*;

    fn settings() -> WorkerPoolSettings {
        let ms = Duration::from_millis;
        let suspension = SuspensionRule { failures_max: usize::MAX, ..SuspensionRule::default() };
        WorkerPoolSettings {
            time_share: ms(30),
            share_period: ms(1_000),
            backoff: ms(100),
            suspension,
            ..WorkerPoolSettings::default()
        }
    }

    #[test]
    fn a_bundle_is_suspended_after_repeated_worker_failures() {
        let (mut account, start) = (TimeAccount::default(), Instant::now());
        let settings = WorkerPoolSettings { suspension: SuspensionRule::default(), ..settings() };
        let after = |seconds| start + Duration::from_secs(seconds);
        for seconds in [0, 10] {
            account.record_failure(&settings, after(seconds), unavailable("it was killed"));
            assert_eq!(account.suspension(), None);
        }
        // A success in between does not reset the count.
        account.record_success();
        account.record_failure(&settings, after(20), unavailable("it was killed"));
        let error = account.suspension().cloned().unwrap();
        assert!(error.to_string().contains("failed 3 times within 10 minutes"), "{error}");
        assert!(error.to_string().ends_with("last failure: it was killed"), "{error}");
        assert_eq!(account.check_callable(&settings, 1, after(79)), Err(error.clone()), "the same error");
        assert_eq!(account.check_callable(&settings, 1, after(80)), Ok(()), "one try a minute");
        account.record_success();
        assert_eq!(account.suspension(), None);
        account.record_failure(&settings, after(90), unavailable("it was killed"));
        assert_eq!(account.suspension(), Some(&error));
        account.reset_failures();
        assert_eq!(account.suspension(), None);
        assert_eq!(account.check_callable(&settings, 1, after(91)), Ok(()));
        // Failures before the period do not count.
        account.record_failure(&settings, after(100), unavailable("it was killed"));
        account.record_failure(&settings, after(800), unavailable("it was killed"));
        account.record_failure(&settings, after(801), unavailable("it was killed"));
        assert_eq!(account.suspension(), None);
    }

    #[test]
    fn a_tenant_is_limited_to_its_time_share_which_refills() {
        let (mut account, start) = (TimeAccount::default(), Instant::now());
        let after = |ms| start + Duration::from_millis(ms);
        assert_eq!(account.check_callable(&settings(), 1, start), Ok(()));
        account.charge(Duration::from_millis(29));
        assert_eq!(account.check_callable(&settings(), 1, start), Ok(()));
        assert!(account.check_callable(&settings(), 2, start).is_err(), "two tenants have half of it each");
        // Time beyond the share is paid back in later periods.
        account.charge(Duration::from_millis(61));
        account.reset_failures();
        for (ms, callable) in [(1_000, false), (1_990, false), (2_010, true)] {
            assert_eq!(account.check_callable(&settings(), 1, after(ms)).is_ok(), callable, "after {ms} ms");
        }
    }

    #[test]
    fn backoff_doubles_with_each_consecutive_failure() {
        let (mut account, mut now) = (TimeAccount::default(), Instant::now());
        for backoff_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400] {
            account.record_failure(&settings(), now, unavailable("reason"));
            let last = now + Duration::from_millis(backoff_ms - 1);
            assert_eq!(account.check_callable(&settings(), 1, last), Err(unavailable("reason")), "{backoff_ms}");
            now += Duration::from_millis(backoff_ms);
            assert_eq!(account.check_callable(&settings(), 1, now), Ok(()), "{backoff_ms}");
        }
        account.record_success();
        account.record_failure(&settings(), now, unavailable("reason"));
        assert_eq!(account.check_callable(&settings(), 1, now + Duration::from_millis(100)), Ok(()));
        account.record_failure(&settings(), now, unavailable("reason"));
        account.reset_failures();
        assert_eq!(account.check_callable(&settings(), 1, now), Ok(()));
    }
}
