//! Remaining time of the jobs of a state: the order of the objective `fast`, and which running jobs yield under it.

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::accounting::preemption_loss::saves;
use crate::estimate::gittins::Expected;
use crate::estimate::remaining::{Habits, gpu_ms, worth};
use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, JobSpec};
use crate::objects::settings::Objective;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// What is known of an owner's jobs that ask for so many GPUs.
    pub(crate) fn habits(&self, tenant: &TenantId, user: &str, gpu_milli: u64, now: Timestamp) -> Habits<'_> {
        let member = self.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let kin = member.and_then(|member| member.kin.get(&gpu_milli));
        let all = member.into_iter().flat_map(|member| member.kin.values());
        let used = member.and_then(|member| member.used.usual_and_longest());
        let lasted = member.and_then(|member| member.lasted.usual_and_longest());
        Habits {
            expected: Expected::new(kin, all, self.settings.default_runtime_ms, now),
            used_milli: used.map(|(usual, _)| usual.min(1_000)),
            usual_ms: lasted.map(|(usual, _)| usual),
            gpu_milli,
        }
    }

    /// The same for those of a bucket.
    pub(crate) fn habits_of(&self, bucket: &Bucket, now: Timestamp) -> Habits<'_> {
        self.habits(&bucket.tenant, &bucket.user, bucket.shape.gpu_milli(), now)
    }

    /// How much longer a job runs, as far as can be told.
    pub fn left_ms(&self, job: &Job, now: Timestamp) -> i64 {
        let began = job.attempt().and_then(|attempt| attempt.started_at);
        let ran_ms = job.ran_ms.saturating_add(began.map_or(0, |began| now.since(began)));
        let spec = &job.spec;
        let habits = self.habits(&spec.tenant, &spec.user, spec.demand().gpu_milli, now);
        habits.left_ms(spec.time_limit_ms, Some(job.number), ran_ms)
    }

    /// GPUs × milliseconds that are left of a job that waits.
    pub(crate) fn size(&self, job: &Job, now: Timestamp) -> u64 {
        gpu_ms(self.left_ms(job, now), job.spec.demand().gpu_milli)
    }

    /// GPUs × milliseconds that are left of a running job, if it may give way to others.
    pub(crate) fn left_of(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt()?;
        let waited_ms = attempt.placed_at.since(job.submitted_at);
        if self.settings.objective != Objective::Fast
            || (job.preemptions > 0 && !saves(job, attempt))
            || waited_ms > self.settings.max_wait_ms
        {
            return None;
        }
        Some(gpu_ms(self.left_ms(job, now), attempt.gpu_milli()))
    }

    /// Whether a job would give way to whoever is worth more if it started now; it may have come just now.
    pub(crate) fn yields(&self, spec: &JobSpec, job: JobId, now: Timestamp) -> bool {
        let Some(config) = self.tenants.get(&spec.tenant).map(|tenant| &tenant.config) else { return false };
        let waited_ms = self.jobs.get(&job).map_or(0, |job| now.since(job.submitted_at));
        self.settings.objective == Objective::Fast
            && self.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max.is_none()
            && spec.checkpoint.is_some()
            && waited_ms <= self.settings.max_wait_ms
    }

    /// What it is worth that a running job goes on, if it loses next to nothing by giving way.
    pub(crate) fn worth_of(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt().filter(|attempt| saves(job, attempt))?;
        let left = self.left_of(job, now).filter(|left| *left > 0)?;
        let lost = lost_gpu_ms(job, attempt, now);
        // What it would lose counts as if it had come that much nearer to its end.
        (lost < left / 8).then(|| worth(left - lost, attempt.gpu_milli()))
    }

    /// Whether a running job may give way to another, as far as the two are concerned.
    pub(crate) fn gives_way(&self, victim: &Job, to: &Job, now: Timestamp) -> bool {
        let size = self.size(to, now);
        let gently = |value: u64| value < worth(size, to.spec.demand().gpu_milli);
        victim.spec.priority <= to.spec.priority
            && (self.left_of(victim, now).is_some_and(|left| size < left)
                || self.worth_of(victim, now).is_some_and(gently))
    }
}
