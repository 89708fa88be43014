//! How long jobs last: what their limits say, and what is known from the past where there is no limit.
//!
//! A limit is a bound: who passes it is stopped. Without one the runtimes of the same person's last jobs are all
//! there is, and it is no bound. The planner asks here and nowhere else, so a better estimate has one place to go.

use serde::{Deserialize, Serialize};

use crate::job::{Attempt, Job};
use crate::time::{DAY, HOUR, MINUTE, Timestamp};

/// When an attempt will be over, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ending {
    /// The moment.
    pub at: Timestamp,
    /// How much that can be relied on.
    pub word: Word,
    /// It gives way before that to whoever is worth more, and loses next to nothing by it.
    pub yields: bool,
    /// Windows that are open to the job, as bits in the order of their names.
    pub windows: u64,
}

/// How much an ending can be relied on; the greater the more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// An estimate, and nothing can be done if it is wrong.
    Estimate,
    /// An estimate, but if it is wrong the job may be asked to leave: it can have space on loan.
    Loan,
    /// A bound.
    Bound,
}

impl Ending {
    /// Never, as far as anyone knows.
    pub const NEVER: Ending =
        Ending { at: Timestamp(i64::MAX), word: Word::Estimate, yields: false, windows: 0 };

    /// At once, for sure.
    pub const NOW: Ending =
        Ending { at: Timestamp(i64::MIN), word: Word::Bound, yields: true, windows: u64::MAX };

    /// The same for who takes nothing on loan.
    pub fn outright(self) -> Ending {
        let word = if self.is_bound() { self.word } else { Word::Estimate };
        Ending { word, yields: false, ..self }
    }

    /// Whether it is a bound and not an estimate.
    pub fn is_bound(self) -> bool {
        self.word == Word::Bound
    }

    /// Whether whatever is in the way of the other is in the way of this one.
    pub fn is_no_easier_than(self, other: Ending) -> bool {
        self.at >= other.at
            && self.word <= other.word
            && self.yields <= other.yields
            && self.windows & !other.windows == 0
    }
}

/// Limits are rounded up to the next of these, so that jobs with about the same limit are planned alike.
pub(crate) const STEPS: [i64; 18] = [
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    4 * HOUR,
    6 * HOUR,
    8 * HOUR,
    12 * HOUR,
    18 * HOUR,
    DAY,
    2 * DAY,
    4 * DAY,
    7 * DAY,
];

/// A time limit, rounded up: to a step, or to whole weeks beyond the last.
pub fn rounded(limit_ms: i64) -> i64 {
    let step = STEPS.iter().find(|step| limit_ms <= **step).copied();
    step.unwrap_or_else(|| (limit_ms.saturating_add(7 * DAY - 1) / (7 * DAY)).saturating_mul(7 * DAY))
}

/// The moment from which a running attempt is on its way out: its time is up, or it was told to stop. It may take
/// the grace time from then on.
pub fn planned_end(job: &Job, attempt: &Attempt) -> Timestamp {
    if let Some(stopping) = &attempt.stopping {
        return stopping.since;
    }
    match job.spec.time_limit_ms {
        Some(limit) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
        None => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
    }
}

/// When an attempt will end that should have ended: it has been late for so long, and will be as long again.
pub fn overdue_end(end: Timestamp, now: Timestamp) -> Timestamp {
    now.plus(now.since(end).max(MINUTE))
}

/// How long the last jobs of someone ran, in milliseconds; the newest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lasted {
    newest: [i64; Lasted::KEPT],
    count: u8,
}

impl Lasted {
    const KEPT: usize = 8;

    /// One more has ended.
    pub fn add(&mut self, ms: i64) {
        self.newest.rotate_left(1);
        self.newest[Lasted::KEPT - 1] = ms.max(0);
        self.count = (self.count + 1).min(Lasted::KEPT as u8);
    }

    /// The one in the middle, and the longest; nothing while too few are known.
    pub fn usual_and_longest(&self) -> Option<(i64, i64)> {
        let mut known = self.newest[Lasted::KEPT - usize::from(self.count)..].to_vec();
        known.sort_unstable();
        let longest = *known.last().filter(|_| known.len() >= 3)?;
        Some((known[known.len() / 2], longest))
    }

    /// The same from one or two: they tell the order of magnitude, so the longest is taken to be four times as long.
    pub fn of_few(&self) -> Option<(i64, i64)> {
        let known = &self.newest[Lasted::KEPT - usize::from(self.count)..];
        let longest = *known.iter().max()?;
        Some((known[known.len() / 2], longest.saturating_mul(4)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rounded_up_to_a_step() {
        let cases = [
            (1, MINUTE),
            (MINUTE, MINUTE),
            (MINUTE + 1, 2 * MINUTE),
            (5 * HOUR, 6 * HOUR),
            (8 * DAY, 14 * DAY),
        ];
        for (limit, expected) in cases {
            assert_eq!(rounded(limit), expected, "{limit}");
        }
    }

    #[test]
    fn the_past_is_told_by_the_middle_and_the_longest() {
        let mut lasted = Lasted::default();
        [50, 10].into_iter().for_each(|ms| lasted.add(ms));
        assert_eq!(lasted.usual_and_longest(), None, "two are too few");
        lasted.add(30);
        assert_eq!(lasted.usual_and_longest(), Some((30, 50)));
        (0..Lasted::KEPT).for_each(|_| lasted.add(7));
        assert_eq!(lasted.usual_and_longest(), Some((7, 7)), "only the newest are kept");
    }
}
