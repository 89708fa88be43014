//! Remaining time of the jobs of a state: the order of the objective `fast`, and which running jobs yield under it.

use crate::accounting::preemption_loss::checkpoints;
use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::estimate::gittins::RemainingTime;
use crate::estimate::remaining::{RuntimeModel, gpu_ms, srpt_index};
use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, JobSpec};
use crate::objects::settings::Objective;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// What is known of an owner's jobs that ask for so many GPUs.
    pub(crate) fn runtime_model(
        &self,
        tenant: &TenantId,
        user: &str,
        gpu_milli: u64,
        now: Timestamp,
    ) -> RuntimeModel<'_> {
        let member = self.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let kin = member.and_then(|member| member.class_histories.get(&gpu_milli));
        let all = member.into_iter().flat_map(|member| member.class_histories.values());
        let used = member.and_then(|member| member.limit_use_milli.median_and_longest_ms());
        let lasted = member.and_then(|member| member.recent_runtimes.median_and_longest_ms());
        RuntimeModel {
            expected: RemainingTime::new(kin, all, self.settings.default_runtime_ms, now),
            used_milli: used.map(|(usual, _)| usual.min(1_000)),
            usual_ms: lasted.map(|(usual, _)| usual),
            gpu_milli,
        }
    }

    /// The same for those of a bucket.
    pub(crate) fn runtime_model_of(&self, bucket: &Bucket, now: Timestamp) -> RuntimeModel<'_> {
        self.runtime_model(&bucket.tenant, &bucket.user, bucket.shape.gpu_milli(), now)
    }

    /// How much longer a job runs, as far as can be told.
    pub fn remaining_ms(&self, job: &Job, now: Timestamp) -> i64 {
        let began = job.attempt().and_then(|attempt| attempt.started_at);
        let ran_ms = job.ran_ms.saturating_add(began.map_or(0, |began| now.since(began)));
        let spec = &job.spec;
        let habits = self.runtime_model(&spec.tenant, &spec.user, spec.demand().gpu_milli, now);
        habits.remaining_ms(spec.time_limit_ms, Some(job.class_number), ran_ms)
    }

    /// GPUs × milliseconds that are left of a job that waits.
    pub(crate) fn size_gpu_ms(&self, job: &Job, now: Timestamp) -> u64 {
        gpu_ms(self.remaining_ms(job, now), job.spec.demand().gpu_milli)
    }

    /// GPUs × milliseconds that are left of a running job, if it may give way to others.
    pub(crate) fn remaining_gpu_ms_of_victim(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt()?;
        let waited_ms = attempt.placed_at.since(job.submitted_at);
        if self.settings.objective != Objective::Fast
            || (job.preemptions > 0 && !checkpoints(job, attempt))
            || waited_ms > self.settings.max_wait_ms
        {
            return None;
        }
        Some(gpu_ms(self.remaining_ms(job, now), attempt.gpu_milli()))
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
    pub(crate) fn srpt_index_of_victim(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt().filter(|attempt| checkpoints(job, attempt))?;
        let left = self.remaining_gpu_ms_of_victim(job, now).filter(|left| *left > 0)?;
        let lost = lost_gpu_ms(job, attempt, now);
        // What it would lose counts as if it had come that much nearer to its end.
        (lost < left / 8).then(|| srpt_index(left - lost, attempt.gpu_milli()))
    }

    /// Whether a running job may give way to another, as far as the two are concerned.
    pub(crate) fn yields_to(&self, victim: &Job, to: &Job, now: Timestamp) -> bool {
        let size = self.size_gpu_ms(to, now);
        let gently = |value: u64| value < srpt_index(size, to.spec.demand().gpu_milli);
        victim.spec.priority <= to.spec.priority
            && (self.remaining_gpu_ms_of_victim(victim, now).is_some_and(|left| size < left)
                || self.srpt_index_of_victim(victim, now).is_some_and(gently))
    }
}
