//! Budgets: the total that a tenant may use, against its past charges and the accrued usage of its running attempts.
//!
//! A budget counts from the first day; an administrator who grants more raises it. When it is used up, no further job
//! starts. A job with a time limit starts only if the budget covers that limit in GPU time, money and energy. Running
//! jobs run to their end. Past usage stays with its tenant: a parent no longer pays for a tenant that was moved or
//! deleted.

use std::collections::{BTreeMap, BTreeSet};

use crate::accounting::ledger::{charge, energy_mj, price};
use crate::accounting::tenant::Tenant;
use crate::gpu::model;
use crate::ids::TenantId;
use crate::objects::budget::Spent;
use crate::objects::charge::Charge;
use crate::objects::job::{Job, Resources};
use crate::state::State;
use crate::time::Timestamp;

impl State {
    /// The accrued charge of a job's attempt; `None` if it has no attempt.
    pub fn accrued(&self, job: &Job, now: Timestamp) -> Option<Charge> {
        let tenant = self.tenants.get(&job.spec.tenant)?;
        Some(charge(&job.spec, job.attempt()?, &tenant.config, now))
    }

    /// What a tenant itself has used until now, without the energy of its running attempts.
    pub fn spent(&self, tenant: &Tenant, now: Timestamp) -> Spent {
        let charged = self.ledger.account(&tenant.id).used;
        let running_ms = tenant.running_gpu_ms(now);
        let price_micro = tenant.config.price_micro();
        let Charge { gpu_ms, cost_micro, energy_mj, .. } = charged;
        let running = Spent { gpu_ms: running_ms, cost_micro: price(running_ms, price_micro), energy_mj: 0 };
        Spent { gpu_ms, cost_micro, energy_mj }.plus(running)
    }

    /// What each tenant and its descendants have used until now. O(tenants × depth + running attempts).
    pub fn spent_below(&self, now: Timestamp) -> BTreeMap<&TenantId, Spent> {
        let running = self.energy_of_running(now);
        self.summed_over_descendants(|tenant| {
            let energy_mj = running.get(&tenant.id).copied().unwrap_or_default();
            self.spent(tenant, now).plus(Spent { energy_mj, ..Spent::default() })
        })
    }

    /// The energy that the running attempts of each tenant have used until now.
    fn energy_of_running(&self, now: Timestamp) -> BTreeMap<&TenantId, u64> {
        let mut sums: BTreeMap<&TenantId, u64> = BTreeMap::new();
        for job in self.ends.iter().filter_map(|(_, id)| self.jobs.get(id)) {
            let energy = job.attempt().map_or(0, |attempt| energy_mj(attempt, now));
            let sum = sums.entry(&job.spec.tenant).or_default();
            *sum = sum.saturating_add(energy);
        }
        sums
    }

    /// Sum of a figure over each tenant and its descendants.
    fn summed_over_descendants(&self, figure: impl Fn(&Tenant) -> Spent) -> BTreeMap<&TenantId, Spent> {
        let mut sums: BTreeMap<&TenantId, Spent> = BTreeMap::new();
        for tenant in self.tenants.values() {
            let own = figure(tenant);
            for ancestor in self.lineage(&tenant.id) {
                let sum = sums.entry(&ancestor.id).or_default();
                *sum = sum.plus(own);
            }
        }
        sums
    }
}

/// Usage of the tenants that have a budget, and the power limits of GPU models. Empty if no tenant has a budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetUsage {
    /// Usage of each tenant that has a budget, with its descendants.
    spent: BTreeMap<TenantId, Spent>,
    /// The lowest power limit of the registered GPUs of each model and memory size. Empty unless a budget limits
    /// energy.
    power_limits: BTreeMap<(String, u64), u64>,
}

impl BudgetUsage {
    /// O(tenants × depth); where a budget limits energy, O(running attempts + GPUs) more.
    pub fn of(state: &State, now: Timestamp) -> BudgetUsage {
        if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
            return BudgetUsage::default();
        }
        let limits_energy = state.tenants.values().any(|tenant| tenant.config.budget.energy_mj.is_some());
        let (spent, power_limits) = match limits_energy {
            true => (state.spent_below(now), lowest_power_limits(state)),
            false => (state.summed_over_descendants(|tenant| state.spent(tenant, now)), BTreeMap::new()),
        };
        let has_budget = |id: &TenantId| state.tenants.get(id).is_some_and(|tenant| tenant.config.budget.is_set());
        let spent = spent.into_iter().filter(|(id, _)| has_budget(id));
        BudgetUsage { spent: spent.map(|(id, spent)| (id.clone(), spent)).collect(), power_limits }
    }

    /// True if no tenant has a budget.
    pub fn is_empty(&self) -> bool {
        self.spent.is_empty()
    }

    /// The first tenant of the lineage whose budget does not allow `more`, and its usage.
    pub fn over<'a>(&self, state: &'a State, tenant: &TenantId, more: Spent) -> Option<(&'a Tenant, Spent)> {
        let with_budget = |tenant: &'a Tenant| Some((tenant, *self.spent.get(&tenant.id)?));
        state.lineage(tenant).filter_map(with_budget).find(|(tenant, spent)| !tenant.config.budget.allows(*spent, more))
    }

    /// The least that a gang uses up to its time limit, wherever it is placed; zero for a job without a time limit.
    pub fn least_until<'a>(
        &self,
        state: &State,
        tenant: &TenantId,
        groups: impl Iterator<Item = (u32, &'a Resources)>,
        limit_ms: Option<i64>,
    ) -> Spent {
        let Some(limit_ms) = limit_ms else { return Spent::default() };
        let (mut gpu_milli, mut milliwatts) = (0, 0);
        for (count, each) in groups {
            let least_milli = state.resources.least_demand_of(each).gpu_milli;
            gpu_milli += u64::from(count) * least_milli;
            milliwatts += u64::from(count) * self.lowest_power_limit(each) * least_milli / 1_000;
        }
        let until_limit = |per_second: u64| {
            u64::try_from(u128::from(per_second) * limit_ms.max(0) as u128 / 1_000).unwrap_or(u64::MAX)
        };
        let gpu_ms = until_limit(gpu_milli);
        let price_micro = state.tenants.get(tenant).map_or(0, |tenant| tenant.config.price_micro());
        Spent { gpu_ms, cost_micro: price(gpu_ms, price_micro), energy_mj: until_limit(milliwatts) }
    }

    /// The lowest power limit among the GPUs that a task could be given.
    fn lowest_power_limit(&self, each: &Resources) -> u64 {
        let is_eligible = |model: &str, memory_mib: u64| {
            let is_requested = |requested: &String| model::matches(requested, model);
            memory_mib >= each.gpu_memory_mib
                && (each.gpu_models.is_empty() || each.gpu_models.iter().any(is_requested))
        };
        let eligible = self.power_limits.iter().filter(|((model, memory), _)| is_eligible(model, *memory));
        eligible.map(|(_, milliwatts)| *milliwatts).min().unwrap_or(0)
    }
}

/// The lowest power limit by model and memory size. A GPU with an unknown limit is charged no energy, so it counts as
/// 0.
fn lowest_power_limits(state: &State) -> BTreeMap<(String, u64), u64> {
    let mut lowest = BTreeMap::new();
    for gpu in state.nodes.values().filter(|node| !node.declared).flat_map(|node| &node.facts.gpus) {
        let limit = lowest.entry((gpu.model.clone(), gpu.memory_mib)).or_insert(u64::MAX);
        *limit = gpu.milliwatts().min(*limit);
    }
    lowest
}

/// Tenants with a budget, their own or of an ancestor. Their jobs are grouped into buckets by exact time limit.
pub(crate) fn budgeted(state: &State) -> BTreeSet<TenantId> {
    let applies = |id: &&TenantId| state.lineage(id).any(|tenant| tenant.config.budget.is_set());
    if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
        return BTreeSet::new();
    }
    state.tenants.keys().filter(applies).cloned().collect()
}
