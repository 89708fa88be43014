//! Short work first: what the objective `fast` orders jobs by, and who gives way to whom.
//!
//! The size of a job is the GPU time it is expected to take: its GPUs × how long its owner's jobs usually run, and no
//! longer than its limit. Whoever runs may give way to a job that is smaller than what is left of it, once in its life,
//! and not to one of a lower priority. Who has outlived the estimate is expected to end any moment and is left alone,
//! and so is who had to wait so long that its turn came by right: the bound on every wait is the same as in `fair`.

use crate::ids::TenantId;
use crate::job::{Job, JobSpec};
use crate::lasting::rounded;
use crate::queue::Bucket;
use crate::settings::Objective;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// How long a job usually runs, with a limit if it has one.
    pub(crate) fn usual_ms(&self, tenant: &TenantId, user: &str, limit_ms: Option<i64>) -> i64 {
        let member = self.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let known = member.and_then(|member| member.lasted.usual_and_longest()).map(|(usual, _)| usual);
        match (known, limit_ms) {
            (Some(usual), limit) => usual.min(limit.unwrap_or(i64::MAX)),
            (None, limit) => limit.unwrap_or(self.settings.default_runtime_ms),
        }
    }

    /// GPUs × milliseconds that each job of a bucket is expected to take.
    pub(crate) fn size(&self, bucket: &Bucket) -> u64 {
        let usual_ms = self.usual_ms(&bucket.tenant, &bucket.user, bucket.limit_ms).max(0) as u64;
        bucket.shape.gpu_milli().saturating_mul(usual_ms) / 1_000
    }

    /// GPUs × milliseconds that are left of a running job, if it may give way to smaller ones.
    pub(crate) fn left_of(&self, job: &Job, now: Timestamp) -> Option<u64> {
        let attempt = job.attempt()?;
        let waited_ms = attempt.placed_at.since(job.submitted_at);
        if self.settings.objective != Objective::Fast
            || job.preemptions > 0
            || waited_ms > self.settings.max_wait_ms
        {
            return None;
        }
        let left_ms = self.usual_end(job)?.since(now) as u64;
        Some(left_ms.saturating_mul(attempt.gpu_milli()) / 1_000)
    }

    /// When a running job would be over if it ran as long as is usual.
    pub(crate) fn usual_end(&self, job: &Job) -> Option<Timestamp> {
        let attempt = job.attempt()?;
        let began = attempt.started_at.unwrap_or(attempt.placed_at);
        let limit_ms = job.spec.time_limit_ms.map(rounded);
        Some(began.plus(self.usual_ms(&job.spec.tenant, &job.spec.user, limit_ms)))
    }

    /// Whether a running job may give way to a smaller one.
    pub(crate) fn gives_way(&self, victim: &Job, to: &JobSpec, now: Timestamp) -> bool {
        let smaller = |left: u64| self.size(&Bucket::of_spec(to, None)) < left;
        victim.spec.priority <= to.priority && self.left_of(victim, now).is_some_and(smaller)
    }
}
