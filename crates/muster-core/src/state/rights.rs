//! Rights of actors over jobs: which jobs an actor may change, and its priority ceiling (step 4).
//!
//! The API layer checks roles. The rules here need the state, so they are guards of `decide`.

use crate::facts::command::{Actor, ActorKind};
use crate::facts::refusal::Refusal;
use crate::ids::{JobId, TenantId};
use crate::objects::job::{Job, JobSpec};
use crate::objects::priority::CeilingSource;
use crate::objects::priority::PriorityCeiling;
use crate::objects::settings::PRIORITY_MAX;
use crate::objects::token::Role;
use crate::state::State;

impl Actor {
    /// True if the actor may change a job: its owner, the tenant-admin of its tenant, an operator or an admin.
    pub fn may_change(&self, job: &JobSpec) -> bool {
        match &self.kind {
            ActorKind::System | ActorKind::Local => true,
            ActorKind::Token { role, .. } if role.is_cluster_wide() => true,
            ActorKind::Token { role: Role::TenantAdmin, tenant, .. } => tenant.as_ref() == Some(&job.tenant),
            ActorKind::Token { role, .. } => *role >= Role::Member && self.owns(job.tenant.as_str(), &job.user),
        }
    }

    /// True if a job of this tenant and user is the actor's own. Without a token every actor is the owner.
    pub fn owns(&self, job_tenant: &str, user: &str) -> bool {
        match &self.kind {
            ActorKind::System | ActorKind::Local => true,
            ActorKind::Token { tenant, .. } => {
                self.name == user && tenant.as_ref().is_none_or(|own| own.as_str() == job_tenant)
            }
        }
    }
}

impl State {
    /// The highest priority that an actor may give to a job of a tenant.
    pub fn priority_ceiling(&self, by: &Actor, tenant: &TenantId) -> PriorityCeiling {
        let ActorKind::Token { role, priority_max: token_grant, .. } = &by.kind else {
            return PriorityCeiling { priority: PRIORITY_MAX, source: CeilingSource::Unlimited };
        };
        if role.is_cluster_wide() {
            return PriorityCeiling { priority: PRIORITY_MAX, source: CeilingSource::Unlimited };
        }
        let config = self.tenants.get(tenant).map(|tenant| &tenant.config);
        let tier = config.map(|config| config.tier).unwrap_or_default();
        let mut ceiling = PriorityCeiling { priority: tier.priority(), source: CeilingSource::Tier(tier) };
        let grants = [
            (config.and_then(|config| config.priority_max), CeilingSource::Tenant),
            (*token_grant, CeilingSource::Token),
        ];
        for (grant, source) in grants {
            if let Some(priority) = grant.filter(|grant| *grant > ceiling.priority) {
                ceiling = PriorityCeiling { priority, source };
            }
        }
        ceiling
    }

    pub(super) fn check_priority(&self, by: &Actor, tenant: &TenantId, requested: u32) -> Result<(), Refusal> {
        let ceiling = self.priority_ceiling(by, tenant);
        match requested <= ceiling.priority {
            true => Ok(()),
            false => Err(Refusal::OverPriorityCeiling { requested, ceiling, tenant: tenant.clone() }),
        }
    }

    /// The guard of every command that changes a job.
    pub(super) fn check_may_change(&self, by: &Actor, job: &Job) -> Result<(), Refusal> {
        match by.may_change(&job.spec) {
            true => Ok(()),
            false => Err(Refusal::NotOwner { job: job.id, owner: job.spec.user.clone() }),
        }
    }

    /// The same guard for a job that may be unknown; an unknown job is refused by another guard.
    pub(super) fn check_may_change_if_known(&self, by: &Actor, job: JobId) -> Result<(), Refusal> {
        self.jobs.get(&job).map_or(Ok(()), |job| self.check_may_change(by, job))
    }
}
