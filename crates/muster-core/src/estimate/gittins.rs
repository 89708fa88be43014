//! Gittins index: the remaining time of a job, estimated from other jobs of its class (same owner, same number of
//! GPUs). SRPT orders and preempts by it under the objective `fast`.
//!
//! Users submit similar jobs in sequence, so the jobs submitted next to a job are the best evidence, weighted by
//! nearness. All other jobs of the class and all jobs of the owner have a small weight. An ended job contributes its
//! runtime; a job that has not ended is a censored sample: its runtime exceeds what it has run so far. Both give the
//! hazard of each span: the probability that a job which reaches the span ends in it.
//!
//! The estimate is not the mean remaining time: one job in a hundred that runs for months would make all jobs look
//! long. It is the least expected time per completion over all spans that the job could be given from now on (the
//! Gittins index). So the estimate of a job that has outlived similar jobs keeps growing.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// Neighbours that are used on each side of a job, in order of submission.
const NEIGHBOURS_EACH_SIDE: u64 = 8;
/// The most jobs recorded per class.
const RECORDS_MAX: usize = 4_096;
/// Number of time spans: two per doubling; the first is a second long, the last is beyond ten years.
const SPANS: usize = 60;
/// The hazard of a span without samples.
const UNKNOWN_HAZARD: f64 = 0.3;
/// Weight of all ended jobs of the class together, and of all of the owner together; the nearest neighbour has weight
/// 1.
const BACKGROUND_WEIGHT: f64 = 0.5;

/// A submitted job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct JobRecord {
    /// Runtime of earlier attempts whose work was saved, or the total runtime of an ended job.
    ran_ms: i64,
    /// Start of the running attempt.
    since: Option<Timestamp>,
    /// The job ended by itself.
    ended: bool,
}

impl JobRecord {
    fn ran_ms(self, now: Timestamp) -> i64 {
        self.ran_ms.saturating_add(self.since.map_or(0, |since| now.since(since)))
    }
}

/// Runtime history of one class of jobs: same owner, same number of GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClassHistory {
    /// The number of the first record.
    first: u64,
    /// Jobs in order of submission.
    records: VecDeque<JobRecord>,
    /// Number of jobs that ended by themselves, by span of their runtime.
    ended: Vec<u32>,
}

impl ClassHistory {
    /// Add a submitted job. Returns its number within the class.
    pub(crate) fn add_submitted(&mut self) -> u64 {
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
            self.first += 1;
        }
        self.records.push_back(JobRecord { ran_ms: 0, since: None, ended: false });
        self.next() - 1
    }

    /// The number of the next submitted job.
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    pub(crate) fn add_started(&mut self, number: u64, at: Timestamp) {
        if let Some(record) = self.record_mut(number) {
            record.since = Some(at);
        }
    }

    /// An attempt has stopped before the end of the job; `ran_ms` is the total runtime whose work is saved.
    pub(crate) fn add_stopped(&mut self, number: u64, ran_ms: i64) {
        if let Some(record) = self.record_mut(number) {
            *record = JobRecord { ran_ms, since: None, ended: false };
        }
    }

    /// The job has ended by itself; `ran_ms` is its total runtime.
    pub(crate) fn add_ended(&mut self, number: u64, ran_ms: i64) {
        self.ended.resize(SPANS, 0);
        self.ended[span(ran_ms)] = self.ended[span(ran_ms)].saturating_add(1);
        if let Some(record) = self.record_mut(number) {
            *record = JobRecord { ran_ms, since: None, ended: true };
        }
    }

    fn record_mut(&mut self, number: u64) -> Option<&mut JobRecord> {
        self.records.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The records next to a number, each with its distance.
    fn neighbours(&self, number: u64) -> impl Iterator<Item = (u64, JobRecord)> + '_ {
        let from = number.saturating_sub(NEIGHBOURS_EACH_SIDE).max(self.first);
        let to = (number + NEIGHBOURS_EACH_SIDE + 1).min(self.next()).max(from);
        let position = move |number: u64| (number - self.first) as usize;
        let near = self.records.range(position(from)..position(to)).copied().zip(from..);
        near.map(move |(record, other)| (other.abs_diff(number), record)).filter(|(distance, _)| *distance > 0)
    }
}

/// Estimator of the remaining time of jobs of one class at one time.
pub(crate) struct RemainingTime<'a> {
    class: Option<&'a ClassHistory>,
    now: Timestamp,
    /// Weight of ended jobs per span, over the class and all jobs of the owner.
    others: [f64; SPANS],
    /// The estimate without any history.
    default_ms: i64,
    /// The estimate for a job that has not run and whose neighbours have not run. Precomputed, because many jobs are
    /// like that.
    unstarted_ms: i64,
}

impl<'a> RemainingTime<'a> {
    /// From the class of the job, and from all classes of its owner.
    pub fn new(
        class: Option<&'a ClassHistory>,
        all: impl Iterator<Item = &'a ClassHistory>,
        default_ms: i64,
        now: Timestamp,
    ) -> RemainingTime<'a> {
        let mut others = [0.0; SPANS];
        let mut counts = [0u64; SPANS];
        for class in all {
            class.ended.iter().zip(&mut counts).for_each(|(ended, count)| *count += u64::from(*ended));
        }
        add(&mut others, &counts);
        if let Some(class) = class {
            let mut counts = [0u64; SPANS];
            class.ended.iter().zip(&mut counts).for_each(|(ended, count)| *count = u64::from(*ended));
            add(&mut others, &counts);
        }
        let unstarted_ms = remaining_ms(&others, &[0.0; SPANS], 0, default_ms);
        RemainingTime { class, now, others, default_ms, unstarted_ms }
    }

    /// The remaining time of a job that has run for `ran_ms`. Without a number, the job counts as the next submission.
    pub fn remaining_ms(&self, number: Option<u64>, ran_ms: i64) -> i64 {
        let number = number.or(self.class.map(ClassHistory::next)).unwrap_or_default();
        let near = || self.class.into_iter().flat_map(|class| class.neighbours(number));
        let has_run = |record: JobRecord| record.ended || record.ran_ms(self.now) > 0;
        if ran_ms == 0 && !near().any(|(_, record)| has_run(record)) {
            return self.unstarted_ms;
        }
        let (mut ends, mut stays) = (self.others, [0.0; SPANS]);
        for (distance, record) in near().filter(|(_, record)| has_run(*record)) {
            let spans = if record.ended { &mut ends } else { &mut stays };
            spans[span(record.ran_ms(self.now))] += 1.0 / distance as f64;
        }
        remaining_ms(&ends, &stays, ran_ms, self.default_ms)
    }
}

/// Add counts to the weights, scaled so that they sum to [`BACKGROUND_WEIGHT`].
fn add(others: &mut [f64; SPANS], counts: &[u64; SPANS]) {
    let all: u64 = counts.iter().sum();
    if all > 0 {
        others.iter_mut().zip(counts).for_each(|(sum, count)| *sum += BACKGROUND_WEIGHT * *count as f64 / all as f64);
    }
}

fn remaining_ms(ends: &[f64; SPANS], stays: &[f64; SPANS], ran_ms: i64, default_ms: i64) -> i64 {
    match ends.iter().any(|weight| *weight > 0.0) {
        true => gittins_rank_ms(ends, stays, ran_ms),
        false => ran_ms.max(default_ms),
    }
}

/// The Gittins index of a job that has run for `ran_ms`: the least expected time per completion, over all spans that
/// the job could be given. `ends` are the weights of ended jobs by span, `stays` those of jobs that have not ended.
fn gittins_rank_ms(ends: &[f64; SPANS], stays: &[f64; SPANS], ran_ms: i64) -> i64 {
    let mut reaches = [0.0; SPANS + 1];
    for at in (0..SPANS).rev() {
        reaches[at] = reaches[at + 1] + ends[at] + stays[at];
    }
    let enough = reaches[0] * 1e-6;
    let (mut alive, mut spent_ms, mut best) = (1.0, 0.0, f64::INFINITY);
    for at in span(ran_ms)..SPANS {
        let (begins, over) = (begin_ms(at), begin_ms(at + 1));
        let from = begins.max(ran_ms);
        let lasts_ms = (over - from) as f64;
        let whole = if reaches[at] > enough { ends[at] / reaches[at] } else { UNKNOWN_HAZARD };
        // A job in the middle of a span has only the rest of the span before it.
        let hazard = whole * lasts_ms / (over - begins) as f64;
        spent_ms += alive * lasts_ms * (1.0 - hazard / 2.0);
        alive *= 1.0 - hazard;
        if alive < 1.0 {
            best = f64::min(best, spent_ms / (1.0 - alive));
        }
    }
    if best.is_finite() { best as i64 } else { ran_ms.max(1) }
}

/// The first span ends at 2^FIRST milliseconds.
const FIRST: u32 = 10;

/// The span that contains a runtime.
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

/// The begin of a span.
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
    fn each_doubling_of_runtime_has_two_spans() {
        for at in 0..SPANS {
            assert_eq!(span(begin_ms(at)), at, "the begin of {at}");
            assert!(at == 0 || span(begin_ms(at) - 1) == at - 1, "just before {at}");
        }
        assert_eq!(span(i64::MAX), SPANS - 1);
        assert_eq!(span(-1), 0);
    }

    fn expected(history: &ClassHistory, now: Timestamp) -> RemainingTime<'_> {
        RemainingTime::new(Some(history), std::iter::once(history), HOUR, now)
    }

    #[test]
    fn no_history_gives_the_default_or_the_elapsed_runtime() {
        let history = ClassHistory::default();
        assert_eq!(expected(&history, Timestamp(0)).remaining_ms(None, 0), HOUR);
        assert_eq!(expected(&history, Timestamp(0)).remaining_ms(None, DAY), DAY);
    }

    #[test]
    fn the_nearest_neighbours_weigh_most() {
        let mut history = ClassHistory::default();
        for number in 0..40 {
            history.add_submitted();
            if number != 10 && number != 30 {
                history.add_ended(number, if number < 20 { MINUTE } else { DAY });
            }
        }
        let expected = expected(&history, Timestamp(0));
        let (among_short, among_long) = (expected.remaining_ms(Some(10), 0), expected.remaining_ms(Some(30), 0));
        assert!((30 * SECOND..3 * MINUTE).contains(&among_short), "{among_short}");
        assert!(among_long > 10 * among_short, "{among_long}");
        assert!(expected.remaining_ms(Some(10), HOUR) > HOUR, "the estimate grows for a job that outlived its class");
    }

    #[test]
    fn running_jobs_raise_the_estimate() {
        let mut history = ClassHistory::default();
        for number in 0..9 {
            history.add_submitted();
            match number {
                0 | 8 => history.add_ended(number, MINUTE),
                4 => {}
                number => history.add_started(number, Timestamp(0)),
            }
        }
        let early = expected(&history, Timestamp(SECOND)).remaining_ms(Some(4), 0);
        let later = expected(&history, Timestamp(DAY)).remaining_ms(Some(4), 0);
        assert!(later > 3 * early, "{early}, then {later}");
    }

    #[test]
    fn history_is_bounded() {
        let mut history = ClassHistory::default();
        (0..RECORDS_MAX + 10).for_each(|_| assert!(history.add_submitted() < u64::MAX));
        assert_eq!((history.first, history.records.len()), (10, RECORDS_MAX));
        history.add_ended(3, HOUR);
        history.add_ended(20, HOUR);
        assert_eq!(
            history.neighbours(12).filter(|(_, record)| record.ended).map(|(distance, _)| distance).collect::<Vec<_>>(),
            [8]
        );
    }
}
