//! Policy limits (hook `limit`): GPUs that limited tenants hold, in all and by pool. A limit covers its tenant and all
//! descendants together. A limit below what is held already only prevents further starts.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::state::State;
use crate::state::usage::tenants::TenantUsage;

/// Policy limits, with what is held of the limited pools. Costs nothing to track without a policy limit.
#[derive(Debug, Clone)]
pub(crate) struct PolicyLimitUsage<'a> {
    state: &'a State,
    /// Thousandths of GPUs held by jobs that named a pool, by tenant and pool.
    pools: BTreeMap<&'a TenantId, BTreeMap<&'a str, u64>>,
}

/// A limit and what is held of it, in thousandths of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PolicyLimitHeld<'a> {
    pub tenant: &'a TenantId,
    /// `None` if the limit is on all GPUs.
    pub pool: Option<&'a str>,
    pub held: u64,
    pub limit: u64,
}

impl<'a> PolicyLimitUsage<'a> {
    /// Usage in the state. O(running jobs) if a policy limits a pool.
    pub fn of(state: &'a State) -> PolicyLimitUsage<'a> {
        let limits = state.policies.limits.iter().filter(|(_, limited)| !limited.limit.pools.is_empty());
        let pools = limits.map(|(tenant, limited)| {
            (tenant, limited.limit.pools.keys().map(|pool| (pool.as_str(), 0)).collect::<BTreeMap<_, _>>())
        });
        let mut held = PolicyLimitUsage { state, pools: pools.collect() };
        if !held.pools.is_empty() {
            held.count_all();
        }
        held
    }

    fn count_all(&mut self) {
        let state = self.state;
        for node in state.nodes.values() {
            let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
            for (job, attempt) in jobs.filter_map(|job| Some((job, job.attempt()?))) {
                // A gang over several nodes counts once, on its first.
                if attempt.tasks.first().is_some_and(|first| first.node == node.id) {
                    let gpu_milli = attempt.demand(&job.spec).gpu_milli;
                    self.take(&job.spec.tenant, job.spec.pool.as_deref(), gpu_milli);
                }
            }
        }
    }

    /// Count a gang of a tenant that names a pool, or none.
    pub fn take(&mut self, tenant: &TenantId, pool: Option<&str>, gpu_milli: u64) {
        let Some(pool) = pool.filter(|_| !self.pools.is_empty()) else { return };
        for ancestor in self.state.lineage(tenant) {
            if let Some(held) = self.pools.get_mut(&ancestor.id).and_then(|pools| pools.get_mut(pool)) {
                *held += gpu_milli;
            }
        }
    }

    /// Every limit that a tenant or an ancestor exceeds by holding more, in a pool if the job names one.
    pub fn over(
        &self,
        tenants: &TenantUsage,
        tenant: &TenantId,
        pool: Option<&str>,
        more: Demand,
    ) -> Vec<PolicyLimitHeld<'a>> {
        if more.gpu_milli == 0 {
            return Vec::new();
        }
        let mut exceeded = self.uses(tenants, tenant, pool);
        exceeded.retain(|limit| limit.held + more.gpu_milli > limit.limit);
        exceeded
    }

    /// What the limits of a tenant and its ancestors leave to jobs that name a pool, or none, in thousandths of GPUs.
    pub fn left_milli(&self, tenants: &TenantUsage, tenant: &TenantId, pool: Option<&str>) -> u64 {
        let limits = self.uses(tenants, tenant, pool).into_iter();
        limits.map(|limit| limit.limit.saturating_sub(limit.held)).min().unwrap_or(u64::MAX)
    }

    /// Each limit of a tenant and its ancestors, with what is held of it.
    fn uses(&self, tenants: &TenantUsage, tenant: &TenantId, pool: Option<&str>) -> Vec<PolicyLimitHeld<'a>> {
        let mut found = Vec::new();
        let limits = &self.state.policies.limits;
        if limits.is_empty() {
            return found;
        }
        let lineage = self.state.lineage(tenant);
        for (tenant, limited) in lineage.filter_map(|tenant| limits.get_key_value(&tenant.id)) {
            let of_all = limited.limit.gpu_milli.map(|limit| (None, tenants.held(tenant).gpu_milli, limit));
            let of_pool = pool.and_then(|pool| {
                let (pool, limit) = limited.limit.pools.get_key_value(pool)?;
                let held = *self.pools.get(tenant)?.get(pool.as_str())?;
                Some((Some(pool.as_str()), held, *limit))
            });
            let both = of_all.into_iter().chain(of_pool);
            found.extend(both.map(|(pool, held, limit)| PolicyLimitHeld { tenant, pool, held, limit }));
        }
        found
    }
}
