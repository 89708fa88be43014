//! How much longer a job runs, by what is known of others of its kind: the same owner, as many GPUs.
//!
//! Who submits a job often submits more like it: what was submitted next to it tells the most, and the nearer the more.
//! All others of the kind, and all others of the owner, count a little. Who has ended tells how long it ran; who has not
//! tells that it takes longer than it has run until now. From both follows, for each span of time, how likely it is that
//! a job ends in it that has come that far.
//!
//! What is told is not the mean of what is left: one job in a hundred that runs for months would make all look long. It
//! is the least time per end: of all spans that one could give to the job from now on, the one in which an end is
//! cheapest (Gittins' index). A job that has run for long among short ones so becomes longer and longer.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// How many on each side are looked at.
const NEAR: u64 = 8;
/// How many are remembered of a kind.
const SEEN_MAX: usize = 4_096;
/// Spans of time: two to each doubling, the first a second long, the last beyond ten years.
const SPANS: usize = 60;
/// How likely a job ends in a span of which nothing is known.
const UNKNOWN: f64 = 0.3;
/// What all of the kind together count, and all of the owner: a neighbour counts one.
const OTHERS: f64 = 0.5;

/// One who came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    /// How long it ran in earlier attempts that were not lost, or in all if it has ended.
    ran_ms: i64,
    /// Since when it runs.
    since: Option<Timestamp>,
    /// It came to its end by itself.
    ended: bool,
}

impl Seen {
    fn ran_ms(self, now: Timestamp) -> i64 {
        self.ran_ms.saturating_add(self.since.map_or(0, |since| now.since(since)))
    }
}

/// What is known of jobs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Kin {
    /// The number of the first that is remembered.
    first: u64,
    /// Those who came, in order.
    seen: VecDeque<Seen>,
    /// How many have ended by themselves, by the span.
    ended: Vec<u32>,
}

impl Kin {
    /// One more has come; its number among them.
    pub(crate) fn come(&mut self) -> u64 {
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
            self.first += 1;
        }
        self.seen.push_back(Seen { ran_ms: 0, since: None, ended: false });
        self.next() - 1
    }

    /// The number that the next will have.
    fn next(&self) -> u64 {
        self.first + self.seen.len() as u64
    }

    /// One runs.
    pub(crate) fn run(&mut self, number: u64, at: Timestamp) {
        if let Some(seen) = self.seen_mut(number) {
            seen.since = Some(at);
        }
    }

    /// One has stopped, with so much done in all.
    pub(crate) fn stop(&mut self, number: u64, ran_ms: i64) {
        if let Some(seen) = self.seen_mut(number) {
            *seen = Seen { ran_ms, since: None, ended: false };
        }
    }

    /// One came to its end by itself.
    pub(crate) fn end(&mut self, number: u64, ran_ms: i64) {
        self.ended.resize(SPANS, 0);
        self.ended[span(ran_ms)] = self.ended[span(ran_ms)].saturating_add(1);
        if let Some(seen) = self.seen_mut(number) {
            *seen = Seen { ran_ms, since: None, ended: true };
        }
    }

    fn seen_mut(&mut self, number: u64) -> Option<&mut Seen> {
        self.seen.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// Those next to a number, each with how far away it is.
    fn near(&self, number: u64) -> impl Iterator<Item = (u64, Seen)> + '_ {
        let from = number.saturating_sub(NEAR).max(self.first);
        let to = (number + NEAR + 1).min(self.next()).max(from);
        let place = move |number: u64| (number - self.first) as usize;
        let near = self.seen.range(place(from)..place(to)).copied().zip(from..);
        near.map(move |(seen, other)| (other.abs_diff(number), seen)).filter(|(away, _)| *away > 0)
    }
}

/// What is to be expected of jobs of one kind at a moment.
pub(crate) struct Expected<'a> {
    kin: Option<&'a Kin>,
    now: Timestamp,
    /// How many end in each span, of all others together.
    others: [f64; SPANS],
    /// What is expected while nothing is known.
    default_ms: i64,
    /// What is left of a job that has not run and of whose neighbours nothing is known: many are like that.
    at_first_ms: i64,
}

impl<'a> Expected<'a> {
    /// From those of the kind, and all kinds of the owner.
    pub fn new(
        kin: Option<&'a Kin>,
        all: impl Iterator<Item = &'a Kin>,
        default_ms: i64,
        now: Timestamp,
    ) -> Expected<'a> {
        let mut others = [0.0; SPANS];
        let mut counts = [0u64; SPANS];
        for kin in all {
            kin.ended.iter().zip(&mut counts).for_each(|(ended, count)| *count += u64::from(*ended));
        }
        add(&mut others, &counts);
        if let Some(kin) = kin {
            let mut counts = [0u64; SPANS];
            kin.ended.iter().zip(&mut counts).for_each(|(ended, count)| *count = u64::from(*ended));
            add(&mut others, &counts);
        }
        let at_first_ms = left_ms(&others, &[0.0; SPANS], 0, default_ms);
        Expected { kin, now, others, default_ms, at_first_ms }
    }

    /// How much longer a job runs that has run for so long; by its number, or the next one that comes.
    pub fn left_ms(&self, number: Option<u64>, ran_ms: i64) -> i64 {
        let number = number.or(self.kin.map(Kin::next)).unwrap_or_default();
        let near = || self.kin.into_iter().flat_map(|kin| kin.near(number));
        let tells = |seen: Seen| seen.ended || seen.ran_ms(self.now) > 0;
        if ran_ms == 0 && !near().any(|(_, seen)| tells(seen)) {
            return self.at_first_ms;
        }
        let (mut ends, mut stays) = (self.others, [0.0; SPANS]);
        for (away, seen) in near().filter(|(_, seen)| tells(*seen)) {
            let spans = if seen.ended { &mut ends } else { &mut stays };
            spans[span(seen.ran_ms(self.now))] += 1.0 / away as f64;
        }
        left_ms(&ends, &stays, ran_ms, self.default_ms)
    }
}

/// Let counts have their part, whatever their sum.
fn add(others: &mut [f64; SPANS], counts: &[u64; SPANS]) {
    let all: u64 = counts.iter().sum();
    if all > 0 {
        others.iter_mut().zip(counts).for_each(|(sum, count)| *sum += OTHERS * *count as f64 / all as f64);
    }
}

fn left_ms(ends: &[f64; SPANS], stays: &[f64; SPANS], ran_ms: i64, default_ms: i64) -> i64 {
    match ends.iter().any(|weight| *weight > 0.0) {
        true => cheapest_end_ms(ends, stays, ran_ms),
        false => ran_ms.max(default_ms),
    }
}

/// The least time per end, over all spans that a job could be given that has run for so long.
fn cheapest_end_ms(ends: &[f64; SPANS], stays: &[f64; SPANS], ran_ms: i64) -> i64 {
    let mut comes_as_far = [0.0; SPANS + 1];
    for at in (0..SPANS).rev() {
        comes_as_far[at] = comes_as_far[at + 1] + ends[at] + stays[at];
    }
    let enough = comes_as_far[0] * 1e-6;
    let (mut alive, mut spent_ms, mut best) = (1.0, 0.0, f64::INFINITY);
    for at in span(ran_ms)..SPANS {
        let (begins, over) = (begin_ms(at), begin_ms(at + 1));
        let from = begins.max(ran_ms);
        let lasts_ms = (over - from) as f64;
        let whole = if comes_as_far[at] > enough { ends[at] / comes_as_far[at] } else { UNKNOWN };
        // Who is in the midst of a span has a part of it before it.
        let likely = whole * lasts_ms / (over - begins) as f64;
        spent_ms += alive * lasts_ms * (1.0 - likely / 2.0);
        alive *= 1.0 - likely;
        if alive < 1.0 {
            best = f64::min(best, spent_ms / (1.0 - alive));
        }
    }
    if best.is_finite() { best as i64 } else { ran_ms.max(1) }
}

/// The first span ends at two to this power, in milliseconds.
const FIRST: u32 = 10;

/// The span in which a time lies.
fn span(ms: i64) -> usize {
    let ms = ms.max(0) as u64;
    match ms.checked_ilog2().filter(|log| *log >= FIRST) {
        None => 0,
        Some(log) => {
            let half = ms >> (log - 1) & 1;
            (1 + 2 * (log - FIRST) as usize + half as usize).min(SPANS - 1)
        }
    }
}

/// When a span begins.
fn begin_ms(at: usize) -> i64 {
    match at.checked_sub(1) {
        None => 0,
        Some(at) => (2 + at as i64 % 2) << (at / 2) << FIRST >> 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DAY, HOUR, MINUTE, SECOND};

    #[test]
    fn spans_are_two_to_a_doubling() {
        for at in 0..SPANS {
            assert_eq!(span(begin_ms(at)), at, "the begin of {at}");
            assert!(at == 0 || span(begin_ms(at) - 1) == at - 1, "just before {at}");
        }
        assert_eq!(span(i64::MAX), SPANS - 1);
        assert_eq!(span(-1), 0);
    }

    fn expected(kin: &Kin, now: Timestamp) -> Expected<'_> {
        Expected::new(Some(kin), std::iter::once(kin), HOUR, now)
    }

    #[test]
    fn nothing_known_is_as_long_as_is_usual_or_as_long_again() {
        let kin = Kin::default();
        assert_eq!(expected(&kin, Timestamp(0)).left_ms(None, 0), HOUR);
        assert_eq!(expected(&kin, Timestamp(0)).left_ms(None, DAY), DAY);
    }

    #[test]
    fn the_nearest_tell_the_most() {
        let mut kin = Kin::default();
        for number in 0..40 {
            kin.come();
            if number != 10 && number != 30 {
                kin.end(number, if number < 20 { MINUTE } else { DAY });
            }
        }
        let expected = expected(&kin, Timestamp(0));
        let (among_short, among_long) = (expected.left_ms(Some(10), 0), expected.left_ms(Some(30), 0));
        assert!((30 * SECOND..3 * MINUTE).contains(&among_short), "{among_short}");
        assert!(among_long > 10 * among_short, "{among_long}");
        assert!(expected.left_ms(Some(10), HOUR) > HOUR, "who outlives all like it is long");
    }

    #[test]
    fn who_still_runs_tells_that_it_takes_longer() {
        let mut kin = Kin::default();
        for number in 0..9 {
            kin.come();
            match number {
                0 | 8 => kin.end(number, MINUTE),
                4 => {}
                number => kin.run(number, Timestamp(0)),
            }
        }
        let at_first = expected(&kin, Timestamp(SECOND)).left_ms(Some(4), 0);
        let later = expected(&kin, Timestamp(DAY)).left_ms(Some(4), 0);
        assert!(later > 3 * at_first, "{at_first}, then {later}");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut kin = Kin::default();
        (0..SEEN_MAX + 10).for_each(|_| assert!(kin.come() < u64::MAX));
        assert_eq!((kin.first, kin.seen.len()), (10, SEEN_MAX));
        kin.end(3, HOUR);
        kin.end(20, HOUR);
        assert_eq!(
            kin.near(12).filter(|(_, seen)| seen.ended).map(|(away, _)| away).collect::<Vec<_>>(),
            [8]
        );
    }
}
