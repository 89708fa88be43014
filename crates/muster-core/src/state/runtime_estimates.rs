//! Runtime estimates of the jobs of a state, and which running jobs yield under the objective `fast`.
//!
//! A job that checkpoints yields to a preemptor whose SRPT index exceeds the sum of the indexes of all its victims. It
//! may yield any number of times: it loses little work, and the work that it has saved shortens its remaining time. A
//! job that does not checkpoint yields at most once in its life, and only if the preemptor gains more time than all
//! victims lose (`planner/preempt/srpt.rs`). No job yields to a preemptor of a lower priority. A job that waited longer
//! than `max_wait_ms` before its start does not yield: the bound on every wait is the same as under `fair`.

use crate::accounting::preemption_loss::{checkpoints, lost_gpu_ms};
use crate::estimate::remaining::{RemainingModel, gpu_ms, srpt_index};
use crate::estimate::runtime_model::{RuntimeModel, cluster_median_and_longest_ms};
use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, JobSpec};
use crate::objects::settings::Objective;
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// The runtime model of a user's jobs.
    pub fn runtime_model(&self, tenant: &TenantId, user: &str) -> RuntimeModel<'_> {
        let tenant = self.tenants.get(tenant);
        let member = tenant.and_then(|tenant| tenant.members.get(user));
        RuntimeModel {
            user: member.map(|member| &member.runtimes),
            tenant: tenant.map(|tenant| &tenant.runtimes),
            cluster: &self.recent_runtimes,
            default_ms: self.settings.default_runtime_ms,
        }
    }

    /// Remaining time of the jobs of a bucket.
    pub(crate) fn remaining_model(&self, bucket: &Bucket, now: Timestamp) -> RemainingModel<'_> {
        self.runtime_model(&bucket.tenant, &bucket.user).remaining(bucket.shape.gpu_milli(), now)
    }

    /// Median and longest runtime to expect of a job. `None` while no job of the cluster has ended.
    pub fn median_and_longest_ms(&self, spec: &JobSpec) -> Option<(i64, i64)> {
        self.runtime_model(&spec.tenant, &spec.user).median_and_longest_ms(&spec.name)
    }

    /// True if the forecast of a waiting job rests on the configured default runtime: no job of the cluster has ended
    /// yet, and some other job has no time limit.
    pub fn guesses_runtimes(&self, waiting: JobId) -> bool {
        let unlimited = |job: &Job| job.id != waiting && job.spec.time_limit_ms.is_none();
        cluster_median_and_longest_ms(&self.recent_runtimes).is_none() && self.jobs.values().any(unlimited)
    }

    /// Expected remaining runtime of a job.
    pub fn remaining_ms(&self, job: &Job, now: Timestamp) -> i64 {
        let began = job.attempt().and_then(|attempt| attempt.started_at);
        let ran_ms = job.ran_ms.saturating_add(began.map_or(0, |began| now.since(began)));
        let spec = &job.spec;
        let model = self.runtime_model(&spec.tenant, &spec.user).remaining(spec.demand().gpu_milli, now);
        model.remaining_ms(spec.time_limit_ms, Some(job.class_number), ran_ms)
    }

    /// Expected remaining GPU-milliseconds of a waiting job.
    pub(crate) fn size_gpu_ms(&self, job: &Job, now: Timestamp) -> u64 {
        gpu_ms(self.remaining_ms(job, now), job.spec.demand().gpu_milli)
    }

    /// Expected remaining GPU-milliseconds of a running job. `None` if it does not yield under the objective `fast`.
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

    /// True if a job that starts now would yield to any job of a higher SRPT index. The job may not be in the state
    /// yet.
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

    /// SRPT index of a running job whose preemption loss is below an eighth of its remaining GPU time.
    pub(crate) fn srpt_index_of_victim(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt().filter(|attempt| checkpoints(job, attempt))?;
        let remaining = self.remaining_gpu_ms_of_victim(job, now).filter(|remaining| *remaining > 0)?;
        let lost = lost_gpu_ms(job, attempt, now);
        // The loss raises the index as if the job were nearer to its end by that much.
        (lost < remaining / 8).then(|| srpt_index(remaining - lost, attempt.gpu_milli()))
    }

    /// True if a running job yields to a preemptor, judged by these two jobs alone.
    pub(crate) fn yields_to(&self, victim: &Job, preemptor: &Job, now: Timestamp) -> bool {
        let size = self.size_gpu_ms(preemptor, now);
        let is_lower = |index: u64| index < srpt_index(size, preemptor.spec.demand().gpu_milli);
        victim.spec.priority <= preemptor.spec.priority
            && (self.remaining_gpu_ms_of_victim(victim, now).is_some_and(|remaining| size < remaining)
                || self.srpt_index_of_victim(victim, now).is_some_and(is_lower))
    }
}
