//! Preemption loss: the GPU time that a preemption destroys, and a tenant's limit on it.
//!
//! The loss is the work since the last checkpoint of the job: the last one reported, else the last one due by the
//! checkpoint interval of the job, else its placement. A tenant may limit how much of its work preemptors destroy. The
//! limit is a leaky bucket: each loss fills it, and it drains evenly within a day.

use serde::{Deserialize, Serialize};

use crate::objects::job::{Attempt, Job};
use crate::time::{DAY, Timestamp};

/// GPU-milliseconds of work that the job loses if it stops now.
pub fn lost_gpu_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> u64 {
    (now.since(last_saved_at(job, attempt, now)) as u64).saturating_mul(attempt.gpu_milli()) / 1_000
}

/// The runtime of an attempt up to its last checkpoint.
pub(crate) fn kept_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> i64 {
    attempt.started_at.map_or(0, |started| last_saved_at(job, attempt, now).since(started))
}

/// The last checkpoint of an attempt, reported or due by its interval; without one, the placement.
fn last_saved_at(job: &Job, attempt: &Attempt, now: Timestamp) -> Timestamp {
    let every_ms = job.spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    match (attempt.saved_at, attempt.started_at, every_ms) {
        (Some(saved), _, _) => saved,
        (None, Some(started), Some(every_ms)) => started.plus(now.since(started) / every_ms * every_ms),
        _ => attempt.placed_at,
    }
}

/// The recent preemption loss of a tenant, which drains over a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PreemptionLoss {
    gpu_ms: u64,
    at: Timestamp,
}

impl PreemptionLoss {
    /// The loss that still counts at `now`, with a limit of `per_day` GPU-milliseconds a day.
    pub fn gpu_ms(self, per_day: u64, now: Timestamp) -> u64 {
        let drained = u128::from(per_day) * now.since(self.at) as u128 / DAY as u128;
        self.gpu_ms.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX))
    }

    pub(crate) fn add(&mut self, lost_gpu_ms: u64, per_day: u64, now: Timestamp) {
        *self = PreemptionLoss { gpu_ms: self.gpu_ms(per_day, now).saturating_add(lost_gpu_ms), at: now };
    }
}

/// Whether a running job takes checkpoints.
pub(crate) fn checkpoints(job: &Job, attempt: &Attempt) -> bool {
    job.spec.checkpoint.is_some() || attempt.saved_at.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_loss_drains_linearly_at_the_daily_limit() {
        let mut loss = PreemptionLoss::default();
        loss.add(1_000, 2_000, Timestamp(0));
        let cases = [(0, 1_000), (DAY / 4, 500), (DAY / 2, 0), (DAY, 0)];
        for (at, expected) in cases {
            assert_eq!(loss.gpu_ms(2_000, Timestamp(at)), expected, "after {at}");
        }
        loss.add(100, 2_000, Timestamp(DAY / 4));
        assert_eq!(loss.gpu_ms(2_000, Timestamp(DAY / 4)), 600);
    }
}
