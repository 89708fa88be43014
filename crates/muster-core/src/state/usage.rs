//! Usage of quotas, guarantees, limits and budgets: what is held in the state, plus what a plan has taken so far.
//!
//! The planner (step 7) and adoption (step 8) share this type; each checks its plan against its own copy.

pub(crate) mod budgets;
pub(crate) mod guarantee;
pub(crate) mod model_guarantee;
pub(crate) mod model_limits;
pub(crate) mod policy_limits;
pub(crate) mod tenants;
pub(crate) mod user_limits;

use std::collections::BTreeMap;

use crate::accounting::tenant::Tenant;
use crate::ids::TenantId;
use crate::objects::budget::Spent;
use crate::objects::demand::Demand;
use crate::objects::job::{Job, PlacedTask, Resources};
use crate::objects::shape::Shape;
use crate::objects::tenant::Excess;
use crate::queue::Bucket;
use crate::state::State;
use crate::state::usage::budgets::BudgetUsage;
use crate::state::usage::guarantee::{GuaranteeCover, any_tenant_is_guaranteed, guarantor};
use crate::state::usage::model_guarantee::ModelGuaranteeUsage;
use crate::state::usage::model_limits::ModelLimitUsage;
use crate::state::usage::policy_limits::{PolicyLimitHeld, PolicyLimitUsage};
use crate::state::usage::tenants::TenantUsage;
use crate::state::usage::user_limits::UserLimitUsage;
use crate::time::Timestamp;

/// The tenant, user, pool and array that a gang counts against.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Consumer<'c> {
    pub tenant: &'c TenantId,
    pub user: &'c str,
    pub pool: Option<&'c str>,
    /// The array that the job is a task of. `None` for more tasks of a gang that is counted already.
    pub array: Option<u64>,
}

impl<'c> Consumer<'c> {
    pub fn of_bucket(bucket: &'c Bucket) -> Consumer<'c> {
        let pool = bucket.shape.pool.as_deref();
        Consumer { tenant: &bucket.tenant, user: &bucket.user, pool, array: bucket.array }
    }

    pub fn of_job(job: &'c Job) -> Consumer<'c> {
        let (spec, array) = (&job.spec, job.id.index.map(|_| job.id.number));
        Consumer { tenant: &spec.tenant, user: &spec.user, pool: spec.pool.as_deref(), array }
    }
}

/// A budget that does not cover a job.
pub(crate) struct BudgetExcess<'a> {
    pub tenant: &'a Tenant,
    pub spent: Spent,
    /// The least that the job uses up to its time limit.
    pub more: Spent,
}

/// Usage under a plan. A kind of limit that no tenant has costs nothing to track.
#[derive(Debug)]
pub(crate) struct Usage<'a> {
    state: &'a State,
    pub tenants: TenantUsage,
    /// Tasks of arrays that the plan adds to the running ones.
    arrays: BTreeMap<u64, u32>,
    /// GPUs of models whose number is limited.
    pub models: ModelLimitUsage<'a>,
    /// GPUs of models that some tenant is guaranteed.
    pub guaranteed: ModelGuaranteeUsage,
    users: UserLimitUsage<'a>,
    policy_limits: PolicyLimitUsage<'a>,
    budgets: BudgetUsage,
    /// Some tenant has a guarantee or limits its preemption loss, so eligible victims depend on the other victims.
    limits_victims: bool,
}

impl<'a> Usage<'a> {
    /// Usage in the state, before any part of a plan.
    pub fn of(state: &'a State, now: Timestamp) -> Usage<'a> {
        Usage {
            state,
            tenants: TenantUsage::of(state),
            arrays: BTreeMap::new(),
            models: ModelLimitUsage::of(state),
            guaranteed: ModelGuaranteeUsage::of(state),
            users: UserLimitUsage::of(state),
            policy_limits: PolicyLimitUsage::of(state),
            budgets: BudgetUsage::of(state, now),
            limits_victims: any_tenant_is_guaranteed(state) || state.any_tenant_limits_loss(),
        }
    }

    /// Count a gang as held, running or not: a claim holds quota as a start does.
    pub fn hold(&mut self, consumer: Consumer, demand: Demand, tasks: &[PlacedTask]) {
        self.tenants.hold(consumer.tenant, demand);
        self.guaranteed.take(self.state, consumer.tenant, tasks);
        self.users.take(consumer.tenant, consumer.user, demand);
        self.policy_limits.take(consumer.tenant, consumer.pool, demand.gpu_milli);
        if let Some(array) = consumer.array {
            *self.arrays.entry(array).or_default() += 1;
        }
    }

    /// Count a gang that is held already as running.
    pub fn run(&mut self, tenant: &TenantId, demand: Demand, tasks: &[PlacedTask]) {
        self.tenants.run(tenant, demand);
        self.guaranteed.start(self.state, tenant, tasks);
    }

    /// Count GPUs against the limits per model.
    pub fn take_models(&mut self, tenant: &TenantId, tasks: &[PlacedTask]) {
        tasks.iter().for_each(|task| self.models.take(tenant, task));
    }

    /// Tasks of an array that run, or would run after the plan so far.
    pub fn array_running(&self, array: u64) -> u32 {
        let active = self.state.arrays.get(&array).map_or(0, |array| array.active);
        active + self.arrays.get(&array).copied().unwrap_or_default()
    }

    /// Quotas that a tenant or one of its ancestors exceeds by holding more.
    pub fn quota_excess(&self, tenant: &TenantId, more: Demand) -> Vec<(&'a TenantId, Excess)> {
        let mut found = Vec::new();
        for tenant in self.state.lineage(tenant) {
            let excess = tenant.config.maximum.excess(self.tenants.held(&tenant.id).plus(more)).into_iter();
            found.extend(excess.map(|excess| (&tenant.id, excess)));
        }
        found
    }

    /// Quotas per user that a user exceeds by holding more, with the tenant that sets each.
    pub fn user_excess(&self, tenant: &TenantId, user: &str, more: Demand) -> Vec<(&'a TenantId, Excess)> {
        self.users.over(tenant, user, more)
    }

    /// Limits of policies that a tenant or one of its ancestors exceeds by holding more.
    pub fn policy_limit_excess(&self, tenant: &TenantId, pool: Option<&str>, more: Demand) -> Vec<PolicyLimitHeld<'a>> {
        self.policy_limits.over(&self.tenants, tenant, pool, more)
    }

    /// Each quota of a tenant, its ancestors and a user, with what is held of it.
    pub fn quotas(
        &self,
        tenant: &TenantId,
        user: &str,
    ) -> impl Iterator<Item = (&'a crate::objects::tenant::Quota, Demand)> {
        let tenants = self.state.lineage(tenant);
        let tenants = tenants.map(|tenant| (&tenant.config.maximum, self.tenants.held(&tenant.id)));
        tenants.chain(self.users.limits(tenant, user))
    }

    /// What the limits of policies leave to a tenant's jobs in a pool, or in none, in thousandths of GPUs.
    pub fn policy_limit_left_milli(&self, tenant: &TenantId, pool: Option<&str>) -> u64 {
        self.policy_limits.left_milli(&self.tenants, tenant, pool)
    }

    /// The first budget that does not cover a gang up to its time limit.
    pub fn budget_excess<'g>(
        &self,
        tenant: &TenantId,
        groups: impl Iterator<Item = (u32, &'g Resources)>,
        limit_ms: Option<i64>,
    ) -> Option<BudgetExcess<'a>> {
        if self.budgets.is_empty() {
            return None;
        }
        let more = self.budgets.least_until(self.state, tenant, groups, limit_ms);
        let (tenant, spent) = self.budgets.over(self.state, tenant, more)?;
        Some(BudgetExcess { tenant, spent, more })
    }

    /// True where the eligible victims of a preemptor depend on the other victims.
    pub fn limits_victims(&self) -> bool {
        self.limits_victims
    }

    /// The guarantees that jobs of a shape stay within.
    pub fn cover(&self, tenant: &TenantId, shape: &Shape) -> GuaranteeCover<'a> {
        if !self.limits_victims {
            return GuaranteeCover::default();
        }
        let groups = shape.groups.iter().map(|(count, each)| (*count, each));
        let demand = self.state.resources.least_demand(groups);
        GuaranteeCover {
            amounts: guarantor(self.state, tenant, demand, |tenant| self.tenants.held(tenant)),
            models: self.guaranteed.guarantors(self.state, tenant, shape),
        }
    }
}
