//! What tenants can count on, and what they borrow.
//!
//! A tenant may use more than it is guaranteed while nobody else needs it; that part is borrowed. A job that stays
//! within a guarantee of its tenant, or of one above, may have borrowed space back, whatever the priorities. And
//! nobody is displaced by another tenant out of what they are guaranteed themselves, whatever the priorities: else
//! a strong borrower would take back what a weak owner has just reclaimed, and so on for ever.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::job::{Demand, Job};
use crate::state::State;
use crate::tenant::{Quota, Tenant};

/// What of all that tenants hold will be gone soon, each with all below it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaving(BTreeMap<TenantId, Demand>);

impl Leaving {
    /// Attempts that were told to stop. O(running attempts); nothing where nobody has a guarantee.
    pub fn of(state: &State) -> Leaving {
        let mut leaving = Leaving::default();
        if anyone_is_guaranteed(state) {
            let active = state.nodes.values().flat_map(|node| &node.jobs).filter_map(|id| state.jobs.get(id));
            let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
            let stopping: BTreeMap<_, _> = active.filter(stopping).map(|job| (job.id, job)).collect();
            stopping.values().for_each(|job| leaving.add(state, job));
        }
        leaving
    }

    /// One more will go.
    pub fn add(&mut self, state: &State, job: &Job) {
        for tenant in state.lineage(&job.spec.tenant) {
            let gone = self.0.entry(tenant.id.clone()).or_default();
            *gone = gone.plus(job.spec.demand());
        }
    }

    /// Whether everyone above a job keeps what they are guaranteed when it goes for one of `winner`. Who is above
    /// both loses nothing by it.
    pub fn keeps(
        &self,
        state: &State,
        victim: &Job,
        winner: &TenantId,
        held: impl Fn(&TenantId) -> Demand,
    ) -> bool {
        let above = |tenant: &Tenant| state.lineage(winner).any(|above| above.id == tenant.id);
        state.lineage(&victim.spec.tenant).filter(|tenant| !above(tenant)).all(|tenant| {
            let gone = self.0.get(&tenant.id).copied().unwrap_or_default().plus(victim.spec.demand());
            tenant.config.guaranteed.is_within(held(&tenant.id).less(gone))
        })
    }
}

/// Whether a tenant is another one, or below it.
pub(crate) fn is_below(state: &State, tenant: &TenantId, top: &TenantId) -> bool {
    state.lineage(tenant).any(|above| above.id == *top)
}

/// The tenant, itself or one above it, whose guarantee a demand stays within.
pub(crate) fn guarantor<'a>(
    state: &'a State,
    tenant: &TenantId,
    demand: Demand,
    held: impl Fn(&TenantId) -> Demand,
) -> Option<&'a TenantId> {
    let covers = |tenant: &&Tenant| {
        let guaranteed = &tenant.config.guaranteed;
        guaranteed.speaks_of(demand) && guaranteed.excess(held(&tenant.id).plus(demand)).is_empty()
    };
    state.lineage(tenant).find(covers).map(|tenant| &tenant.id)
}

/// Whether any tenant has a guarantee.
pub(crate) fn anyone_is_guaranteed(state: &State) -> bool {
    state.tenants.values().any(|tenant| tenant.config.guaranteed.is_set())
}

impl Quota {
    /// Whether it says anything.
    pub fn is_set(&self) -> bool {
        *self != Quota::default()
    }

    /// Whether it says anything about what is demanded. A guarantee of GPUs is none for a job without GPUs: such a
    /// job could reclaim, and be displaced again, without the guarantee ever being touched.
    fn speaks_of(&self, demand: Demand) -> bool {
        let speaks = |quota: Option<u64>, demand: u64| quota.is_some() && demand > 0;
        speaks(self.gpus, demand.gpus)
            || speaks(self.gpu_memory_mib, demand.gpu_memory_mib)
            || speaks(self.cpus, demand.cpus)
            || speaks(self.memory_mib, demand.memory_mib)
            || speaks(self.jobs, demand.jobs)
    }

    /// Whether all of it lies within what is held.
    fn is_within(&self, held: Demand) -> bool {
        let within = |quota: Option<u64>, held: u64| quota.is_none_or(|quota| quota <= held);
        within(self.gpus, held.gpus)
            && within(self.gpu_memory_mib, held.gpu_memory_mib)
            && within(self.cpus, held.cpus)
            && within(self.memory_mib, held.memory_mib)
            && within(self.jobs, held.jobs)
    }
}
