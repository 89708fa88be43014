//! Expected ends of jobs, and revocable backfill.

use muster_core::Timestamp;
use muster_core::estimate::expected_end::{Certainty, rounded_limit_ms};
use muster_core::objects::job::{Job, Phase};
use muster_core::time::HOUR;

use crate::naive_planner::NaivePlanner;

pub(super) const NO_KNOWN_END: ExpectedEnd = (Timestamp(i64::MAX), Certainty::Estimate, false);

/// When a job ends, how certain that is, and whether the job may yield before.
pub(super) type ExpectedEnd = (Timestamp, Certainty, bool);

impl<'a> NaivePlanner<'a> {
    /// The expected end of a job that starts now.
    pub(super) fn expected_end(&self, job: &Job) -> ExpectedEnd {
        let settings = &self.state.settings;
        let member = self.state.tenants[&job.spec.tenant].members.get(&job.spec.user);
        let known = member.and_then(|member| member.runtimes.recent.median_and_longest_ms());
        let expected = known.map_or(settings.default_runtime_ms, |(_, longest)| longest);
        let lasts = job.spec.time_limit_ms.map_or(expected, rounded_limit_ms);
        let certainty = match job.spec.time_limit_ms {
            Some(_) => Certainty::Bound,
            None if self.may_backfill_revocably(job) => Certainty::Revocable,
            None => Certainty::Estimate,
        };
        (self.now.plus(lasts + settings.stop_grace_ms), certainty, self.may_yield(job))
    }

    /// True if a job that starts now yields to jobs with a higher SRPT index.
    pub(super) fn may_yield(&self, job: &Job) -> bool {
        let config = &self.state.tenants[&job.spec.tenant].config;
        self.is_fast()
            && self.state.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max.is_none()
            && job.spec.checkpoint.is_some()
            && self.now.since(job.submitted_at) <= self.state.settings.max_wait_ms
    }

    pub(super) fn may_backfill_revocably(&self, job: &Job) -> bool {
        let config = &self.state.tenants[&job.spec.tenant].config;
        let mut above = self.state.lineage(&job.spec.tenant);
        self.state.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max != Some(0)
            && job.preemptions == 0
            && above.all(|tenant| tenant.config.preemption_loss_gpu_ms_per_day.is_none())
    }

    /// True if a revocable job has overrun its estimate and `passed` was waiting when it started.
    pub(super) fn overran(&self, victim: &Job, passed: &Job) -> bool {
        let attempt = victim.attempt().unwrap();
        let end = match victim.spec.time_limit_ms {
            Some(limit) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
            None => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
        };
        let Phase::Queued { since, .. } = passed.phase else { return false };
        attempt.revocable && attempt.stopping.is_none() && end <= self.now && since <= attempt.placed_at
    }
}

/// The same end for a job that does not backfill revocably.
pub(super) fn irrevocable((at, certainty, _): ExpectedEnd) -> ExpectedEnd {
    (at, if certainty == Certainty::Bound { certainty } else { Certainty::Estimate }, false)
}
