//! Preemption rules: which running jobs may be evicted, moved or revoked.

use crate::accounting::tenant::Tenant;
use crate::estimate::expected_end::planned_end;
use crate::ids::{JobId, TenantId};
use crate::objects::job::Job;
use crate::queue::waiting_since;
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// Whether a job of a tenant may have space on loan: it can be asked to leave, and was not asked before.
    pub(crate) fn may_backfill_revocably(&self, tenant: &TenantId, job: JobId) -> bool {
        let displaced = self.jobs.get(&job).is_some_and(|job| job.preemptions > 0);
        let Some(config) = self.tenants.get(tenant).map(|tenant| &tenant.config) else { return false };
        let limits_damage = |tenant: &Tenant| tenant.config.preemption_loss_gpu_ms_per_day.is_some();
        self.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max != Some(0)
            && !displaced
            && !self.lineage(tenant).any(limits_damage)
    }

    /// When an attempt was placed that has its space on loan, whose time is over, and who was not told to stop yet: to
    /// ask once more would not make it leave.
    pub(crate) fn overran(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let attempt = job.attempt().filter(|attempt| attempt.revocable && attempt.stopping.is_none())?;
        (planned_end(job, attempt) <= now).then_some(attempt.placed_at)
    }

    /// Whether the rules of the cluster and of its tenant let a running job be displaced.
    pub fn may_be_evicted(&self, victim: &Job, now: Timestamp) -> bool {
        let Some(attempt) = victim.attempt() else { return false };
        let Some(tenant) = self.tenants.get(&victim.spec.tenant) else { return false };
        let ran_ms = now.since(attempt.placed_at);
        let young = ran_ms < self.settings.preemption_min_runtime_ms;
        let shaken = victim.preemptions > 0 && ran_ms < self.settings.preemption_cooldown_ms;
        let spared = tenant.config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        let stopping = attempt.stopping.is_some();
        let by_rule = self.policies.exempts_from_preemption(&self.settings, &victim.spec);
        tenant.config.may_be_preempted && !(stopping || young || shaken || spared || by_rule)
    }

    /// Whether any tenant limits how much of its work others destroy.
    pub(crate) fn any_tenant_limits_loss(&self) -> bool {
        self.tenants.values().any(|tenant| tenant.config.preemption_loss_gpu_ms_per_day.is_some())
    }
}

/// Whether a job was waiting already when another was placed.
pub(crate) fn was_waiting_at(job: &Job, placed_at: Timestamp) -> bool {
    waiting_since(job).is_some_and(|since| since <= placed_at)
}

impl State {
    /// Whether a running job may be moved for one of a priority: it saves its work, was not disturbed before, and is not
    /// worth more.
    pub(crate) fn may_be_moved(&self, victim: &Job, priority: u32) -> bool {
        let saves = victim.spec.checkpoint.is_some()
            || victim.attempt().is_some_and(|attempt| attempt.saved_at.is_some());
        saves && victim.preemptions == 0 && victim.spec.priority <= priority
    }
}
