//! What an actor may do to jobs: which jobs it may change, and the highest priority it may give.
//!
//! Roles are checked where requests arrive. The rules here need the state, so they are guards of `decide`.

use crate::command::{Actor, ActorKind};
use crate::ids::{JobId, TenantId};
use crate::job::{Job, JobSpec};
use crate::refusal::Refusal;
use crate::settings::PRIORITY_MAX;
use crate::state::State;
use crate::tenant::Tier;
use crate::token::Role;

/// The highest priority that an actor may give to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceiling {
    /// The priority.
    pub priority: u32,
    /// Where the ceiling comes from.
    pub source: CeilingSource,
}

/// Where a ceiling comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CeilingSource {
    /// The actor is an operator, an admin, local or the server: only the highest priority there is limits it.
    Unlimited,
    /// The tier of the tenant.
    Tier(Tier),
    /// A grant to the tenant.
    Tenant,
    /// A grant to the token.
    Token,
}

impl Actor {
    /// True if the actor may change a job: its owner, the tenant-admin of its tenant, an operator or an admin.
    pub fn may_change(&self, job: &JobSpec) -> bool {
        match &self.kind {
            ActorKind::System | ActorKind::Local => true,
            ActorKind::Token { role, .. } if role.is_cluster_wide() => true,
            ActorKind::Token { role: Role::TenantAdmin, tenant, .. } => tenant.as_ref() == Some(&job.tenant),
            ActorKind::Token { role, .. } => {
                *role >= Role::Member && self.owns(job.tenant.as_str(), &job.user)
            }
        }
    }

    /// True if a job of this tenant and user is the actor's own. Without tokens everyone is the owner.
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
    pub fn priority_ceiling(&self, by: &Actor, tenant: &TenantId) -> Ceiling {
        let ActorKind::Token { role, priority_max: token_grant, .. } = &by.kind else {
            return Ceiling { priority: PRIORITY_MAX, source: CeilingSource::Unlimited };
        };
        if role.is_cluster_wide() {
            return Ceiling { priority: PRIORITY_MAX, source: CeilingSource::Unlimited };
        }
        let config = self.tenants.get(tenant).map(|tenant| &tenant.config);
        let tier = config.map(|config| config.tier).unwrap_or_default();
        let mut ceiling = Ceiling { priority: tier.priority(), source: CeilingSource::Tier(tier) };
        let grants = [
            (config.and_then(|config| config.priority_max), CeilingSource::Tenant),
            (*token_grant, CeilingSource::Token),
        ];
        for (grant, source) in grants {
            if let Some(priority) = grant.filter(|grant| *grant > ceiling.priority) {
                ceiling = Ceiling { priority, source };
            }
        }
        ceiling
    }

    pub(super) fn check_priority(&self, by: &Actor, tenant: &TenantId, asked: u32) -> Result<(), Refusal> {
        let ceiling = self.priority_ceiling(by, tenant);
        match asked <= ceiling.priority {
            true => Ok(()),
            false => Err(Refusal::OverPriorityCeiling { asked, ceiling, tenant: tenant.clone() }),
        }
    }

    /// The guard of every command that changes a job.
    pub(super) fn check_may_change(&self, by: &Actor, job: &Job) -> Result<(), Refusal> {
        match by.may_change(&job.spec) {
            true => Ok(()),
            false => Err(Refusal::NotOwner { job: job.id, owner: job.spec.user.clone() }),
        }
    }

    /// The same for a job that may not be known; then another guard answers.
    pub(super) fn check_may_change_if_known(&self, by: &Actor, job: JobId) -> Result<(), Refusal> {
        self.jobs.get(&job).map_or(Ok(()), |job| self.check_may_change(by, job))
    }
}
