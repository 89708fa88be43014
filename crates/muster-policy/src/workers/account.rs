//! What a bundle has taken of the time of others, and whether it is asked at all.

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
    /// When its process was ended, of late.
    ended_at: Vec<Instant>,
    /// Why it is suspended, until it has answered again.
    suspension: Option<PolicyError>,
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

    /// It answered. That ends a suspension; the next end of its process within the span begins another.
    pub fn praise(&mut self) {
        (self.ends, self.suspension) = (0, None);
    }

    /// Its process was ended, for a reason.
    pub fn put_to_rest(&mut self, patience: &Patience, now: Instant, why: PolicyError) {
        let suspend = &patience.suspend;
        self.ended_at.retain(|at| now.saturating_duration_since(*at) < suspend.span);
        self.ended_at.push(now);
        let rest = patience.rest * 2_u32.pow(self.ends.min(DOUBLED_MAX));
        self.ends = self.ends.saturating_add(1);
        if self.ended_at.len() < suspend.ends {
            self.rest = Some((now + rest, why));
            return;
        }
        let why = suspend.told(&why);
        self.suspension = Some(why.clone());
        self.rest = Some((now + rest.max(suspend.rest), why));
    }

    /// Why it is suspended, if it is.
    pub fn suspension(&self) -> Option<&PolicyError> {
        self.suspension.as_ref()
    }

    /// It has other policies. What was taken stays taken.
    pub fn begin_anew(&mut self) {
        let (taken, at) = (self.taken, self.at);
        *self = Account { taken, at, ..Account::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Suspend;
    use super::*;

    fn patience() -> Patience {
        let ms = Duration::from_millis;
        let suspend = Suspend { ends: usize::MAX, ..Suspend::default() };
        Patience { share: ms(30), span: ms(1_000), rest: ms(100), suspend, ..Patience::default() }
    }

    #[test]
    fn a_bundle_that_ends_its_worker_again_and_again_is_suspended() {
        let (mut account, began) = (Account::default(), Instant::now());
        let patience = Patience { suspend: Suspend::default(), ..patience() };
        let after = |seconds| began + Duration::from_secs(seconds);
        for seconds in [0, 10] {
            account.put_to_rest(&patience, after(seconds), no_answer("it was ended"));
            assert_eq!(account.suspension(), None);
        }
        // Answers in between do not hide that the worker is ended again and again.
        account.praise();
        account.put_to_rest(&patience, after(20), no_answer("it was ended"));
        let why = account.suspension().cloned().unwrap();
        assert!(why.to_string().contains("ended 3 times within 10 minutes"), "{why}");
        assert!(why.to_string().ends_with("the last time it was ended"), "{why}");
        assert_eq!(account.may_ask(&patience, 1, after(79)), Err(why.clone()), "in the same words");
        assert_eq!(account.may_ask(&patience, 1, after(80)), Ok(()), "it is tried once a minute");
        account.praise();
        assert_eq!(account.suspension(), None);
        account.put_to_rest(&patience, after(90), no_answer("it was ended"));
        assert_eq!(account.suspension(), Some(&why));
        account.begin_anew();
        assert_eq!(account.suspension(), None);
        assert_eq!(account.may_ask(&patience, 1, after(91)), Ok(()));
        // What is long past does not count.
        account.put_to_rest(&patience, after(100), no_answer("it was ended"));
        account.put_to_rest(&patience, after(800), no_answer("it was ended"));
        account.put_to_rest(&patience, after(801), no_answer("it was ended"));
        assert_eq!(account.suspension(), None);
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
