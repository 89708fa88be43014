//! What a tenant may use in all, and what it has used: what was charged, and what its attempts have run up since.
//!
//! A budget counts from the first day. Who grants more raises the number. When it is used up nothing new starts, and
//! a job with a time limit starts only if the budget covers that limit, in GPU time, money and energy; what runs goes on
//! to its end. What a tenant has used goes with it: a department no longer pays for a team that was moved away or deleted.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::job::{Job, Resources};
use crate::ledger::{Charge, charge, energy_mj, price};
use crate::model;
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

/// What budgets are checked against: usage of the tenants that have one, and the power limits of GPU models.
/// Empty where no tenant has a budget.
#[derive(Debug, Clone, Default)]
pub(crate) struct BudgetUse {
    /// Usage of each tenant that has a budget, with all tenants below it.
    spent: BTreeMap<TenantId, Spent>,
    /// The lowest power limit of the registered GPUs of each model and memory size. Empty unless a budget limits energy.
    power_limits: BTreeMap<(String, u64), u64>,
}

impl BudgetUse {
    /// O(tenants × depth); where a budget limits energy, O(running attempts + GPUs) more.
    pub fn of(state: &State, now: Timestamp) -> BudgetUse {
        if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
            return BudgetUse::default();
        }
        let limits_energy = state.tenants.values().any(|tenant| tenant.config.budget.energy_mj.is_some());
        let (spent, power_limits) = match limits_energy {
            true => (state.spent_below(now), lowest_power_limits(state)),
            false => (state.summed_up(|tenant| state.spent(tenant, now)), BTreeMap::new()),
        };
        let has_budget = |id: &TenantId| state.tenants.get(id).is_some_and(|one| one.config.budget.is_set());
        let spent = spent.into_iter().filter(|(id, _)| has_budget(id));
        BudgetUse { spent: spent.map(|(id, spent)| (id.clone(), spent)).collect(), power_limits }
    }

    /// Whether no tenant has a budget.
    pub fn is_empty(&self) -> bool {
        self.spent.is_empty()
    }

    /// The first tenant, itself or above, whose budget does not allow so much more, and its usage.
    pub fn over<'a>(&self, state: &'a State, tenant: &TenantId, more: Spent) -> Option<(&'a Tenant, Spent)> {
        let with_budget = |tenant: &'a Tenant| Some((tenant, *self.spent.get(&tenant.id)?));
        state
            .lineage(tenant)
            .filter_map(with_budget)
            .find(|(tenant, spent)| !tenant.config.budget.allows(*spent, more))
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
            let least_milli = state.capacity.least_demand_of(each).gpu_milli;
            gpu_milli += u64::from(count) * least_milli;
            milliwatts += u64::from(count) * self.lowest_power_limit(each) * least_milli / 1_000;
        }
        let until = |each_second: u64| {
            u64::try_from(u128::from(each_second) * limit_ms.max(0) as u128 / 1_000).unwrap_or(u64::MAX)
        };
        let gpu_ms = until(gpu_milli);
        let price_micro = state.tenants.get(tenant).map_or(0, |tenant| tenant.config.price_micro());
        Spent { gpu_ms, cost_micro: price(gpu_ms, price_micro), energy_mj: until(milliwatts) }
    }

    /// The lowest power limit among the GPUs that a task could be given.
    fn lowest_power_limit(&self, each: &Resources) -> u64 {
        let is_eligible = |model: &str, memory_mib: u64| {
            let is_of = |wish: &String| model::matches(wish, model);
            memory_mib >= each.gpu_memory_mib
                && (each.gpu_models.is_empty() || each.gpu_models.iter().any(is_of))
        };
        let eligible = self.power_limits.iter().filter(|((model, memory), _)| is_eligible(model, *memory));
        eligible.map(|(_, milliwatts)| *milliwatts).min().unwrap_or(0)
    }
}

/// By model and memory size. A GPU whose limit is unknown is charged no energy, so it counts as zero here too.
fn lowest_power_limits(state: &State) -> BTreeMap<(String, u64), u64> {
    let mut lowest = BTreeMap::new();
    for gpu in state.nodes.values().filter(|node| !node.declared).flat_map(|node| &node.facts.gpus) {
        let limit = lowest.entry((gpu.model.clone(), gpu.memory_mib)).or_insert(u64::MAX);
        *limit = gpu.milliwatts().min(*limit);
    }
    lowest
}

/// Tenants that a budget applies to, their own or one above. Their jobs are told apart by their exact time limit.
pub(crate) fn budgeted(state: &State) -> BTreeSet<TenantId> {
    let applies = |id: &&TenantId| state.lineage(id).any(|tenant| tenant.config.budget.is_set());
    if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
        return BTreeSet::new();
    }
    state.tenants.keys().filter(applies).cloned().collect()
}
