//! Preemption rules: which running jobs may be evicted, moved or revoked. The planner (step 7) and adoption (step 8)
//! share them.

use crate::accounting::tenant::Tenant;
use crate::estimate::expected_end::planned_end;
use crate::ids::{JobId, TenantId};
use crate::objects::job::Job;
use crate::queue::waiting_since;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// True if a job may backfill revocably: it may be preempted, and was not preempted before.
    pub(crate) fn may_backfill_revocably(&self, tenant: &TenantId, job: JobId) -> bool {
        let preempted = self.jobs.get(&job).is_some_and(|job| job.preemptions > 0);
        let Some(config) = self.tenants.get(tenant).map(|tenant| &tenant.config) else { return false };
        let limits_loss = |tenant: &Tenant| tenant.config.preemption_loss_gpu_ms_per_day.is_some();
        self.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max != Some(0)
            && !preempted
            && !self.lineage(tenant).any(limits_loss)
    }

    /// When a revocable attempt that overran its runtime estimate was placed. `None` if the attempt is stopping: a
    /// second eviction would free nothing.
    pub(crate) fn overran(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let attempt = job.attempt().filter(|attempt| attempt.revocable && attempt.stopping.is_none())?;
        (planned_end(job, attempt) <= now).then_some(attempt.placed_at)
    }

    /// True if the settings, the policies and the victim's tenant allow its eviction.
    pub fn may_be_evicted(&self, victim: &Job, now: Timestamp) -> bool {
        let Some(attempt) = victim.attempt() else { return false };
        let Some(tenant) = self.tenants.get(&victim.spec.tenant) else { return false };
        let ran_ms = now.since(attempt.placed_at);
        let below_min_runtime = ran_ms < self.settings.preemption_min_runtime_ms;
        let in_cooldown = victim.preemptions > 0 && ran_ms < self.settings.preemption_cooldown_ms;
        let preempted_often = tenant.config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        let stopping = attempt.stopping.is_some();
        let exempt = self.policies.exempts_from_preemption(&self.settings, &victim.spec);
        let protected = stopping || below_min_runtime || in_cooldown || preempted_often || exempt;
        tenant.config.may_be_preempted && !protected
    }

    /// True if any tenant has a preemption loss limit.
    pub(crate) fn any_tenant_limits_loss(&self) -> bool {
        self.tenants.values().any(|tenant| tenant.config.preemption_loss_gpu_ms_per_day.is_some())
    }
}

/// True if a job was already waiting when another one was placed.
pub(crate) fn was_waiting_at(job: &Job, placed_at: Timestamp) -> bool {
    waiting_since(job).is_some_and(|since| since <= placed_at)
}

impl State {
    /// True if defragmentation may move a running job for a job of `priority`: the victim checkpoints, was not
    /// preempted before, and has no higher priority.
    pub(crate) fn may_be_moved(&self, victim: &Job, priority: u32) -> bool {
        let saves =
            victim.spec.checkpoint.is_some() || victim.attempt().is_some_and(|attempt| attempt.saved_at.is_some());
        saves && victim.preemptions == 0 && victim.spec.priority <= priority
    }
}
