//! What a tenant may use in all, and what it has used: what was charged, and what its attempts have run up since.
//!
//! A budget counts from the first day. Who grants more raises the number. When it is used up nothing new starts, and
//! a job with a time limit starts only if the budget covers that limit; what runs goes on to its end. What a tenant has used goes with it: a department no longer pays for a team that
//! was moved away or deleted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::job::{Demand, Job};
use crate::ledger::{Charge, charge, energy_mj, price};
use crate::state::State;
use crate::tenant::Tenant;
use crate::time::Timestamp;

/// Limits on what is used in all; what is not set is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    /// GPUs × milliseconds.
    #[serde(default)]
    pub gpu_ms: Option<u64>,
    /// In millionths of the currency.
    #[serde(default)]
    pub cost_micro: Option<u64>,
    /// Energy in millijoules, at the power limits of the GPUs.
    #[serde(default)]
    pub energy_mj: Option<u64>,
}

/// What was used in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    /// GPUs × milliseconds.
    pub gpu_ms: u64,
    /// In millionths of the currency.
    pub cost_micro: u64,
    /// Energy in millijoules, at the power limits of the GPUs.
    #[serde(default)]
    pub energy_mj: u64,
}

impl Budget {
    /// Whether it says anything.
    pub fn is_set(&self) -> bool {
        *self != Budget::default()
    }

    /// Whether something of it is left, and as much as a job may still use.
    pub fn allows(&self, spent: Spent, more: Spent) -> bool {
        let within = |limit: Option<u64>, spent: u64, more: u64| {
            limit.is_none_or(|limit| spent < limit && spent.saturating_add(more) <= limit)
        };
        within(self.gpu_ms, spent.gpu_ms, more.gpu_ms)
            && within(self.cost_micro, spent.cost_micro, more.cost_micro)
            && within(self.energy_mj, spent.energy_mj, more.energy_mj)
    }
}

impl Spent {
    /// Both together.
    pub fn plus(self, more: Spent) -> Spent {
        Spent {
            gpu_ms: self.gpu_ms.saturating_add(more.gpu_ms),
            cost_micro: self.cost_micro.saturating_add(more.cost_micro),
            energy_mj: self.energy_mj.saturating_add(more.energy_mj),
        }
    }
}

impl State {
    /// What the attempt of a job has used until now; nothing where it has none.
    pub fn accrued(&self, job: &Job, now: Timestamp) -> Option<Charge> {
        let tenant = self.tenants.get(&job.spec.tenant)?;
        Some(charge(&job.spec, job.attempt()?, &tenant.config, now))
    }

    /// What a tenant itself has used until now, but for the energy of what runs.
    pub fn spent(&self, tenant: &Tenant, now: Timestamp) -> Spent {
        let charged = self.ledger.account(&tenant.id).used;
        let running_ms = tenant.running_gpu_ms(now);
        let price_micro = tenant.config.price_micro();
        let Charge { gpu_ms, cost_micro, energy_mj, .. } = charged;
        let running = Spent { gpu_ms: running_ms, cost_micro: price(running_ms, price_micro), energy_mj: 0 };
        Spent { gpu_ms, cost_micro, energy_mj }.plus(running)
    }

    /// What every tenant has used with all below it until now. O(tenants × depth + running attempts).
    pub fn spent_below(&self, now: Timestamp) -> BTreeMap<&TenantId, Spent> {
        let running = self.energy_of_running(now);
        self.summed_up(|tenant| {
            let energy_mj = running.get(&tenant.id).copied().unwrap_or_default();
            self.spent(tenant, now).plus(Spent { energy_mj, ..Spent::default() })
        })
    }

    /// What the attempts of each tenant have run up until now.
    fn energy_of_running(&self, now: Timestamp) -> BTreeMap<&TenantId, u64> {
        let mut sums: BTreeMap<&TenantId, u64> = BTreeMap::new();
        for job in self.ends.iter().filter_map(|(_, id)| self.jobs.get(id)) {
            let energy = job.attempt().map_or(0, |attempt| energy_mj(attempt, now));
            let sum = sums.entry(&job.spec.tenant).or_default();
            *sum = sum.saturating_add(energy);
        }
        sums
    }

    /// A figure of each tenant, with those of all below it.
    fn summed_up(&self, figure: impl Fn(&Tenant) -> Spent) -> BTreeMap<&TenantId, Spent> {
        let mut sums: BTreeMap<&TenantId, Spent> = BTreeMap::new();
        for tenant in self.tenants.values() {
            let own = figure(tenant);
            for above in self.lineage(&tenant.id) {
                let sum = sums.entry(&above.id).or_default();
                *sum = sum.plus(own);
            }
        }
        sums
    }
}

/// What tenants with a budget have used, with all below them. Free of charge where nobody has one.
pub(crate) fn spent_of_budgets(state: &State, now: Timestamp) -> BTreeMap<TenantId, Spent> {
    if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
        return BTreeMap::new();
    }
    // Attempts are looked at one by one only where someone has a budget of energy.
    let in_energy = state.tenants.values().any(|tenant| tenant.config.budget.energy_mj.is_some());
    let spent = match in_energy {
        true => state.spent_below(now),
        false => state.summed_up(|tenant| state.spent(tenant, now)),
    };
    let has_budget = |id: &TenantId| state.tenants.get(id).is_some_and(|one| one.config.budget.is_set());
    let spent = spent.into_iter().filter(|(id, _)| has_budget(id));
    spent.map(|(id, spent)| (id.clone(), spent)).collect()
}

/// The first tenant, itself or above, whose budget does not allow so much more, and what it has used.
pub(crate) fn over_budget<'a>(
    state: &'a State,
    spent: &BTreeMap<TenantId, Spent>,
    tenant: &TenantId,
    more: Spent,
) -> Option<(&'a Tenant, Spent)> {
    if spent.is_empty() {
        return None;
    }
    let with_budget = |tenant: &'a Tenant| Some((tenant, *spent.get(&tenant.id)?));
    state
        .lineage(tenant)
        .filter_map(with_budget)
        .find(|(tenant, spent)| !tenant.config.budget.allows(*spent, more))
}

/// What a job uses up to its time limit; nothing is known of one without. Its energy depends on the GPUs it is given,
/// so that is not in it.
pub(crate) fn used_up_to(state: &State, tenant: &TenantId, demand: Demand, limit_ms: Option<i64>) -> Spent {
    let limit_ms = limit_ms.map_or(0, |limit| limit.max(0) as u128);
    let gpu_ms = u64::try_from(u128::from(demand.gpu_milli) * limit_ms / 1_000).unwrap_or(u64::MAX);
    let price_micro = state.tenants.get(tenant).map_or(0, |tenant| tenant.config.price_micro());
    Spent { gpu_ms, cost_micro: price(gpu_ms, price_micro), energy_mj: 0 }
}

/// Tenants that a budget applies to, their own or one above. Their jobs are told apart by their exact time limit.
pub(crate) fn budgeted(state: &State) -> BTreeSet<TenantId> {
    let applies = |id: &&TenantId| state.lineage(id).any(|tenant| tenant.config.budget.is_set());
    if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
        return BTreeSet::new();
    }
    state.tenants.keys().filter(applies).cloned().collect()
}
