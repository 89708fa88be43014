//! What tenants hold where a policy limits it. A limit counts for all tenants below its own together, and one below what is
//! held already only forbids adding.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::job::Demand;
use crate::state::State;

/// Limits of policies, with what is held of the pools that they limit. Free of charge where no policy limits anything.
#[derive(Debug, Clone)]
pub(crate) struct LimitUse<'a> {
    state: &'a State,
    /// Thousandths of GPUs held by jobs that named a pool, by tenant and pool.
    pools: BTreeMap<&'a TenantId, BTreeMap<&'a str, u64>>,
}

/// A limit and what is held of it, in thousandths of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfLimit<'a> {
    pub tenant: &'a TenantId,
    /// Nothing where all GPUs are limited.
    pub pool: Option<&'a str>,
    pub held: u64,
    pub limit: u64,
}

impl<'a> LimitUse<'a> {
    /// As it is in the state. O(running jobs) where a policy limits a pool.
    pub fn of(state: &'a State) -> LimitUse<'a> {
        let limits = state.policies.limits.iter().filter(|(_, one)| !one.limit.pools.is_empty());
        let pools = limits.map(|(tenant, one)| {
            (tenant, one.limit.pools.keys().map(|pool| (pool.as_str(), 0)).collect::<BTreeMap<_, _>>())
        });
        let mut held = LimitUse { state, pools: pools.collect() };
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

    /// Count what jobs of a tenant take that named a pool, or none.
    pub fn take(&mut self, tenant: &TenantId, pool: Option<&str>, gpu_milli: u64) {
        let Some(pool) = pool.filter(|_| !self.pools.is_empty()) else { return };
        for above in self.state.lineage(tenant) {
            if let Some(held) = self.pools.get_mut(&above.id).and_then(|pools| pools.get_mut(pool)) {
                *held += gpu_milli;
            }
        }
    }

    /// Every limit that a tenant, or one of its ancestors, would exceed by taking more, in a pool if the job names one.
    /// `held` gives the GPUs that a tenant holds in all pools.
    pub fn over(
        &self,
        (tenant, pool): (&TenantId, Option<&str>),
        more: Demand,
        held: impl Fn(&TenantId) -> Demand,
    ) -> Vec<OfLimit<'a>> {
        if more.gpu_milli == 0 {
            return Vec::new();
        }
        let mut passed = self.uses((tenant, pool), held);
        passed.retain(|of| of.held + more.gpu_milli > of.limit);
        passed
    }

    /// What the limits of a tenant, and of all above it, leave to jobs that named a pool, or none, in thousandths of GPUs.
    pub fn left_milli(&self, whose: (&TenantId, Option<&str>), held: impl Fn(&TenantId) -> Demand) -> u64 {
        let left = self.uses(whose, held).into_iter().map(|of| of.limit.saturating_sub(of.held));
        left.min().unwrap_or(u64::MAX)
    }

    /// Each limit on a tenant, or on one above it, with what is held of it.
    fn uses(
        &self,
        (tenant, pool): (&TenantId, Option<&str>),
        held: impl Fn(&TenantId) -> Demand,
    ) -> Vec<OfLimit<'a>> {
        let mut found = Vec::new();
        let limits = &self.state.policies.limits;
        if limits.is_empty() {
            return found;
        }
        for (tenant, limited) in self.state.lineage(tenant).filter_map(|one| limits.get_key_value(&one.id)) {
            let of_all = limited.limit.gpu_milli.map(|limit| (None, held(tenant).gpu_milli, limit));
            let of_pool = pool.and_then(|pool| {
                let (pool, limit) = limited.limit.pools.get_key_value(pool)?;
                let held = *self.pools.get(tenant)?.get(pool.as_str())?;
                Some((Some(pool.as_str()), held, *limit))
            });
            let both = of_all.into_iter().chain(of_pool);
            found.extend(both.map(|(pool, held, limit)| OfLimit { tenant, pool, held, limit }));
        }
        found
    }
}
