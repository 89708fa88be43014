//! What displacing a running job costs, who may be displaced at all, and how much of it a tenant has to bear.
//!
//! The loss is the work since the job last saved itself: as it reported, or as often as it said it would, or since it
//! was placed. A tenant may limit how much of its work others destroy: the limit is a vessel that fills with every
//! loss and empties evenly within a day.

use serde::{Deserialize, Serialize};

use crate::objects::job::{Attempt, Job};
use crate::time::{DAY, Timestamp};

/// GPUs × milliseconds of work that would be lost if a job stopped now.
pub fn lost_gpu_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> u64 {
    (now.since(last_saved_at(job, attempt, now)) as u64).saturating_mul(attempt.gpu_milli()) / 1_000
}

/// How long an attempt has run, as far as its work is saved.
pub(crate) fn kept_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> i64 {
    attempt.started_at.map_or(0, |started| last_saved_at(job, attempt, now).since(started))
}

/// When an attempt last saved its work, as far as is known; before that, when it was placed.
fn last_saved_at(job: &Job, attempt: &Attempt, now: Timestamp) -> Timestamp {
    let every_ms = job.spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    match (attempt.saved_at, attempt.started_at, every_ms) {
        (Some(saved), _, _) => saved,
        (None, Some(started), Some(every_ms)) => started.plus(now.since(started) / every_ms * every_ms),
        _ => attempt.placed_at,
    }
}

/// What a tenant has lost to others, less what is forgiven by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PreemptionLoss {
    gpu_ms: u64,
    at: Timestamp,
}

impl PreemptionLoss {
    /// What counts at a moment, for someone who bears so much a day.
    pub fn gpu_ms(self, per_day: u64, now: Timestamp) -> u64 {
        let forgiven = u128::from(per_day) * now.since(self.at) as u128 / DAY as u128;
        self.gpu_ms.saturating_sub(u64::try_from(forgiven).unwrap_or(u64::MAX))
    }

    pub(crate) fn add(&mut self, lost_gpu_ms: u64, per_day: u64, now: Timestamp) {
        *self = PreemptionLoss { gpu_ms: self.gpu_ms(per_day, now).saturating_add(lost_gpu_ms), at: now };
    }
}

/// Whether a running job saves its work.
pub(crate) fn checkpoints(job: &Job, attempt: &Attempt) -> bool {
    job.spec.checkpoint.is_some() || attempt.saved_at.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_forgiven_evenly_within_a_day() {
        let mut damage = PreemptionLoss::default();
        damage.add(1_000, 2_000, Timestamp(0));
        let cases = [(0, 1_000), (DAY / 4, 500), (DAY / 2, 0), (DAY, 0)];
        for (at, expected) in cases {
            assert_eq!(damage.gpu_ms(2_000, Timestamp(at)), expected, "after {at}");
        }
        damage.add(100, 2_000, Timestamp(DAY / 4));
        assert_eq!(damage.gpu_ms(2_000, Timestamp(DAY / 4)), 600);
    }
}
