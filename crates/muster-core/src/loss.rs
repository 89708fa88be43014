//! What displacing a running job costs, who may be displaced at all, and how much of it a tenant has to bear.
//!
//! The loss is the work since the job last saved itself: as it reported, or as often as it said it would, or since it
//! was placed. A tenant may limit how much of its work others destroy: the limit is a vessel that fills with every
//! loss and empties evenly within a day.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, TenantId};
use crate::job::{Attempt, Job};
use crate::lasting::planned_end;
use crate::queue::waiting_since;
use crate::state::State;
use crate::tenant::Tenant;
use crate::time::{DAY, Timestamp};

/// GPUs × milliseconds of work that would be lost if a job stopped now.
pub fn lost_gpu_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> u64 {
    (now.since(saved_at(job, attempt, now)) as u64).saturating_mul(attempt.gpu_milli()) / 1_000
}

/// How long an attempt has run, as far as its work is saved.
pub(crate) fn kept_ms(job: &Job, attempt: &Attempt, now: Timestamp) -> i64 {
    attempt.started_at.map_or(0, |started| saved_at(job, attempt, now).since(started))
}

/// When an attempt last saved its work, as far as is known; before that, when it was placed.
fn saved_at(job: &Job, attempt: &Attempt, now: Timestamp) -> Timestamp {
    let every_ms = job.spec.checkpoint.as_ref().and_then(|rule| rule.every_ms).filter(|every| *every > 0);
    match (attempt.saved_at, attempt.started_at, every_ms) {
        (Some(saved), _, _) => saved,
        (None, Some(started), Some(every_ms)) => started.plus(now.since(started) / every_ms * every_ms),
        _ => attempt.placed_at,
    }
}

/// Whether a job was waiting already when another was placed.
pub(crate) fn was_passed(job: &Job, placed_at: Timestamp) -> bool {
    waiting_since(job).is_some_and(|since| since <= placed_at)
}

impl State {
    /// Whether a job of a tenant may have space on loan: it can be asked to leave, and was not asked before.
    pub(crate) fn may_borrow(&self, tenant: &TenantId, job: JobId) -> bool {
        let displaced = self.jobs.get(&job).is_some_and(|job| job.preemptions > 0);
        let Some(config) = self.tenants.get(tenant).map(|tenant| &tenant.config) else { return false };
        let limits_damage = |tenant: &Tenant| tenant.config.damage_gpu_ms_per_day.is_some();
        self.settings.preemption
            && config.may_be_preempted
            && config.preemptions_per_job_max != Some(0)
            && !displaced
            && !self.lineage(tenant).any(limits_damage)
    }

    /// When an attempt was placed that has its space on loan, whose time is over, and who was not told to stop yet: to
    /// ask once more would not make it leave.
    pub(crate) fn overstays(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let attempt = job.attempt().filter(|attempt| attempt.lent && attempt.stopping.is_none())?;
        (planned_end(job, attempt) <= now).then_some(attempt.placed_at)
    }

    /// Whether the rules of the cluster and of its tenant let a running job be displaced.
    pub fn may_be_displaced(&self, victim: &Job, now: Timestamp) -> bool {
        let Some(attempt) = victim.attempt() else { return false };
        let Some(tenant) = self.tenants.get(&victim.spec.tenant) else { return false };
        let ran_ms = now.since(attempt.placed_at);
        let young = ran_ms < self.settings.preemption_min_runtime_ms;
        let shaken = victim.preemptions > 0 && ran_ms < self.settings.preemption_cooldown_ms;
        let spared = tenant.config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        let stopping = attempt.stopping.is_some();
        let by_rule = self.policies.spares(&self.settings, &victim.spec);
        tenant.config.may_be_preempted && !(stopping || young || shaken || spared || by_rule)
    }

    /// Whether any tenant limits how much of its work others destroy.
    pub(crate) fn anyone_limits_damage(&self) -> bool {
        self.tenants.values().any(|tenant| tenant.config.damage_gpu_ms_per_day.is_some())
    }
}

/// What a tenant has lost to others, less what is forgiven by now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Damage {
    gpu_ms: u64,
    at: Timestamp,
}

impl Damage {
    /// What counts at a moment, for someone who bears so much a day.
    pub fn gpu_ms(self, per_day: u64, now: Timestamp) -> u64 {
        let forgiven = u128::from(per_day) * now.since(self.at) as u128 / DAY as u128;
        self.gpu_ms.saturating_sub(u64::try_from(forgiven).unwrap_or(u64::MAX))
    }

    /// More was lost.
    pub(crate) fn add(&mut self, lost_gpu_ms: u64, per_day: u64, now: Timestamp) {
        *self = Damage { gpu_ms: self.gpu_ms(per_day, now).saturating_add(lost_gpu_ms), at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_forgiven_evenly_within_a_day() {
        let mut damage = Damage::default();
        damage.add(1_000, 2_000, Timestamp(0));
        let cases = [(0, 1_000), (DAY / 4, 500), (DAY / 2, 0), (DAY, 0)];
        for (at, expected) in cases {
            assert_eq!(damage.gpu_ms(2_000, Timestamp(at)), expected, "after {at}");
        }
        damage.add(100, 2_000, Timestamp(DAY / 4));
        assert_eq!(damage.gpu_ms(2_000, Timestamp(DAY / 4)), 600);
    }
}
