//! What the policies of a tenant have taken of the time of others, and whether they are asked at all.

use std::time::{Duration, Instant};

use super::{Patience, no_answer};
use crate::error::PolicyError;

/// A rest is doubled so often and no more.
const DOUBLED_MAX: u32 = 6;

/// The time of one tenant.
#[derive(Debug, Default)]
pub struct Account {
    /// What it has taken and others have not got back yet, at a moment. It becomes less by itself.
    taken: Duration,
    at: Option<Instant>,
    /// Until when nobody is asked, and why.
    rest: Option<(Instant, PolicyError)>,
    /// How often in a row its process was ended.
    ends: u32,
}

impl Account {
    /// Whether it is asked now, as one of several tenants. While it rests, the answer is what it rests for.
    pub fn may_ask(&mut self, patience: &Patience, tenants: u32, now: Instant) -> Result<(), PolicyError> {
        if let Some((_, why)) = self.rest.as_ref().filter(|(until, _)| now < *until) {
            return Err(why.clone());
        }
        let part = patience.share / tenants.max(1);
        let passed = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let spans = passed.as_secs_f64() / patience.span.as_secs_f64();
        let given_back = Duration::try_from_secs_f64(part.as_secs_f64() * spans).unwrap_or(Duration::MAX);
        (self.taken, self.at) = (self.taken.saturating_sub(given_back), Some(now));
        match self.taken < part {
            true => Ok(()),
            false => Err(no_answer("its tenant has had all the time there is for it; it is asked again")),
        }
    }

    /// So much was taken.
    pub fn take(&mut self, time: Duration) {
        self.taken += time;
    }

    /// It answered.
    pub fn praise(&mut self) {
        self.ends = 0;
    }

    /// Its process was ended, for a reason.
    pub fn put_to_rest(&mut self, patience: &Patience, now: Instant, why: PolicyError) {
        let rest = patience.rest * 2_u32.pow(self.ends.min(DOUBLED_MAX));
        self.rest = Some((now + rest, why));
        self.ends = self.ends.saturating_add(1);
    }

    /// It has other policies. What was taken stays taken.
    pub fn begin_anew(&mut self) {
        (self.rest, self.ends) = (None, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience() -> Patience {
        let ms = Duration::from_millis;
        Patience { share: ms(30), span: ms(1_000), rest: ms(100), ..Patience::default() }
    }

    #[test]
    fn a_tenant_has_its_part_of_the_time_and_what_it_took_comes_back() {
        let (mut account, began) = (Account::default(), Instant::now());
        let after = |ms| began + Duration::from_millis(ms);
        assert_eq!(account.may_ask(&patience(), 1, began), Ok(()));
        account.take(Duration::from_millis(29));
        assert_eq!(account.may_ask(&patience(), 1, began), Ok(()));
        assert!(account.may_ask(&patience(), 2, began).is_err(), "two have half of it each");
        // Far beyond its part: what is too much is missing later.
        account.take(Duration::from_millis(61));
        account.begin_anew();
        for (ms, asked) in [(1_000, false), (1_990, false), (2_010, true)] {
            assert_eq!(account.may_ask(&patience(), 1, after(ms)).is_ok(), asked, "after {ms} ms");
        }
    }

    #[test]
    fn who_is_ended_again_and_again_rests_longer() {
        let (mut account, mut now) = (Account::default(), Instant::now());
        for rest_ms in [100, 200, 400, 800, 1_600, 3_200, 6_400, 6_400] {
            account.put_to_rest(&patience(), now, no_answer("why"));
            let last = now + Duration::from_millis(rest_ms - 1);
            assert_eq!(account.may_ask(&patience(), 1, last), Err(no_answer("why")), "{rest_ms}");
            now += Duration::from_millis(rest_ms);
            assert_eq!(account.may_ask(&patience(), 1, now), Ok(()), "{rest_ms}");
        }
        account.praise();
        account.put_to_rest(&patience(), now, no_answer("why"));
        assert_eq!(account.may_ask(&patience(), 1, now + Duration::from_millis(100)), Ok(()));
        account.put_to_rest(&patience(), now, no_answer("why"));
        account.begin_anew();
        assert_eq!(account.may_ask(&patience(), 1, now), Ok(()));
    }
}
