//! How long jobs last: what their limits say, and what is known from the past where there is no limit.
//!
//! A limit is a bound: who passes it is stopped. Without one the runtimes of the same person's last jobs are all
//! there is, and it is no bound. The planner asks here and nowhere else, so a better estimate has one place to go.

use crate::objects::job::{Attempt, Job};
use crate::time::{DAY, HOUR, MINUTE, Timestamp};

/// When an attempt will be over, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedEnd {
    pub at: Timestamp,
    /// How much that can be relied on.
    pub certainty: Certainty,
    /// It gives way before that to whoever is worth more, and loses next to nothing by it.
    pub yields: bool,
    /// Windows that are open to the job, as bits in the order of their names.
    pub windows: u64,
}

/// How much an ending can be relied on; the greater the more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// An estimate, and nothing can be done if it is wrong.
    Estimate,
    /// An estimate, but if it is wrong the job may be asked to leave: it can have space on loan.
    Revocable,
    Bound,
}

impl ExpectedEnd {
    /// Never, as far as anyone knows.
    pub const NEVER: ExpectedEnd =
        ExpectedEnd { at: Timestamp(i64::MAX), certainty: Certainty::Estimate, yields: false, windows: 0 };

    /// At once, for sure.
    pub const NOW: ExpectedEnd =
        ExpectedEnd { at: Timestamp(i64::MIN), certainty: Certainty::Bound, yields: true, windows: u64::MAX };

    /// The same for who takes nothing on loan.
    pub fn never_revocable(self) -> ExpectedEnd {
        let word = if self.is_bound() { self.certainty } else { Certainty::Estimate };
        ExpectedEnd { certainty: word, yields: false, ..self }
    }

    /// Whether it is a bound and not an estimate.
    pub fn is_bound(self) -> bool {
        self.certainty == Certainty::Bound
    }

    /// Whether whatever is in the way of the other is in the way of this one.
    pub fn is_blocked_wherever(self, other: ExpectedEnd) -> bool {
        self.at >= other.at
            && self.certainty <= other.certainty
            && self.yields <= other.yields
            && self.windows & !other.windows == 0
    }
}

/// Limits are rounded up to the next of these, so that jobs with about the same limit are planned alike.
pub(crate) const LIMIT_STEPS_MS: [i64; 18] = [
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
pub fn rounded_limit_ms(limit_ms: i64) -> i64 {
    let step = LIMIT_STEPS_MS.iter().find(|step| limit_ms <= **step).copied();
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
            assert_eq!(rounded_limit_ms(limit), expected, "{limit}");
        }
    }
}
