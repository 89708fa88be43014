//! Expected ends of attempts, from the time limit or the runtime estimate, and how reliable they are.
//!
//! Backfill (step 7) compares them with reservations.
//!
//! A time limit is a bound: the server stops an attempt that exceeds it. A runtime estimate (`runtime_model.rs`), used
//! without a time limit, is not a bound.

use crate::objects::job::{Attempt, Job};
use crate::time::{DAY, HOUR, MINUTE, Timestamp};

/// The expected end of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedEnd {
    pub at: Timestamp,
    pub certainty: Certainty,
    /// Until then the job yields to any job of a higher SRPT index, at almost no loss.
    pub yields: bool,
    /// Windows that are open to the job, as bits in order of name.
    pub windows: u64,
    /// The job is a gang, which needs a port on the node of its first task.
    pub needs_master_port: bool,
}

/// The certainty of an expected end, in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// A runtime estimate of a job that may not be revoked if it overruns.
    Estimate,
    /// A runtime estimate of a job that may backfill revocably: if it overruns, it may be preempted.
    Revocable,
    /// A time limit.
    Bound,
}

impl ExpectedEnd {
    /// No expected end.
    pub const NEVER: ExpectedEnd =
        ExpectedEnd { windows: 0, ..ExpectedEnd::bare(i64::MAX, Certainty::Estimate, false) };

    /// An immediate end, with certainty.
    pub const NOW: ExpectedEnd =
        ExpectedEnd { windows: u64::MAX, ..ExpectedEnd::bare(i64::MIN, Certainty::Bound, true) };

    const fn bare(at_ms: i64, certainty: Certainty, yields: bool) -> ExpectedEnd {
        ExpectedEnd { at: Timestamp(at_ms), certainty, yields, windows: 0, needs_master_port: false }
    }

    /// The same end for a job that neither backfills revocably nor yields.
    pub fn never_revocable(self) -> ExpectedEnd {
        let certainty = if self.is_bound() { self.certainty } else { Certainty::Estimate };
        ExpectedEnd { certainty, yields: false, ..self }
    }

    /// True for a bound, false for an estimate.
    pub fn is_bound(self) -> bool {
        self.certainty == Certainty::Bound
    }

    /// True if everything that blocks `other` also blocks `self`.
    pub fn is_blocked_wherever(self, other: ExpectedEnd) -> bool {
        self.at >= other.at
            && self.certainty <= other.certainty
            && self.yields <= other.yields
            && self.windows & !other.windows == 0
            && self.needs_master_port >= other.needs_master_port
    }
}

/// Time limits are rounded up to one of these steps, so that jobs with similar limits share a bucket.
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

/// A time limit, rounded up to a step, or to whole weeks beyond the last step.
pub fn rounded_limit_ms(limit_ms: i64) -> i64 {
    let step = LIMIT_STEPS_MS.iter().find(|step| limit_ms <= **step).copied();
    step.unwrap_or_else(|| (limit_ms.saturating_add(7 * DAY - 1) / (7 * DAY)).saturating_mul(7 * DAY))
}

/// When a running attempt starts to end: its time limit or runtime estimate has passed, or it is ordered to stop. It
/// may use the grace after that.
pub fn planned_end(job: &Job, attempt: &Attempt) -> Timestamp {
    if let Some(stopping) = &attempt.stopping {
        return stopping.since;
    }
    match job.spec.time_limit_ms {
        Some(limit) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
        None => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
    }
}

/// The expected end of an attempt past its planned end: it overruns by as much again, and by at least a minute.
pub fn overdue_end(end: Timestamp, now: Timestamp) -> Timestamp {
    now.plus(now.since(end).max(MINUTE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_rounded_up_to_a_step() {
        let cases =
            [(1, MINUTE), (MINUTE, MINUTE), (MINUTE + 1, 2 * MINUTE), (5 * HOUR, 6 * HOUR), (8 * DAY, 14 * DAY)];
        for (limit, expected) in cases {
            assert_eq!(rounded_limit_ms(limit), expected, "{limit}");
        }
    }
}
