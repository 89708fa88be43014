//! What a tenant may use in all, and what it has used: what was charged, and what its attempts have run up since.
//!
//! A budget counts from the first day. Who grants more raises the number. When it is used up nothing new starts;
//! what runs goes on to its end. What a tenant has used goes with it: a department no longer pays for a team that
//! was moved away or deleted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::ledger::{Charge, energy_mj, price};
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

    /// Whether something of it is left.
    pub fn allows(&self, spent: Spent) -> bool {
        self.gpu_ms.is_none_or(|limit| spent.gpu_ms < limit)
            && self.cost_micro.is_none_or(|limit| spent.cost_micro < limit)
            && self.energy_mj.is_none_or(|limit| spent.energy_mj < limit)
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
    /// What a tenant itself has used until now, but for the energy of what runs.
    fn spent(&self, tenant: &Tenant, now: Timestamp) -> Spent {
        let charged = self.ledger.account(&tenant.id).used;
        let running_ms = tenant.running_gpu_ms(now);
        let price_micro = if tenant.config.billed { tenant.config.price_gpu_hour_micro } else { 0 };
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

/// Tenants whose budget is used up by themselves and all below them. Free of charge where nobody has one.
pub(crate) fn out_of_budget(state: &State, now: Timestamp) -> BTreeMap<TenantId, Spent> {
    if !state.tenants.values().any(|tenant| tenant.config.budget.is_set()) {
        return BTreeMap::new();
    }
    // Attempts are looked at one by one only where someone has a budget of energy.
    let in_energy = state.tenants.values().any(|tenant| tenant.config.budget.energy_mj.is_some());
    let spent = match in_energy {
        true => state.spent_below(now),
        false => state.summed_up(|tenant| state.spent(tenant, now)),
    };
    let spent = spent.into_iter();
    let broke = spent.filter(|(id, spent)| {
        state.tenants.get(*id).is_some_and(|tenant| !tenant.config.budget.allows(*spent))
    });
    broke.map(|(id, spent)| (id.clone(), spent)).collect()
}
