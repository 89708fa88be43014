//! Budgets: limits on a tenant's total usage over all time, and the usage so far.

use serde::{Deserialize, Serialize};

/// Limits on total usage; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Budget {
    #[serde(default)]
    pub gpu_ms: Option<u64>,
    /// In millionths of the currency.
    #[serde(default)]
    pub cost_micro: Option<u64>,
    /// Energy in millijoules, at the power limits of the GPUs.
    #[serde(default)]
    pub energy_mj: Option<u64>,
}

/// Total usage so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Spent {
    pub gpu_ms: u64,
    /// In millionths of the currency.
    pub cost_micro: u64,
    /// Energy in millijoules, at the power limits of the GPUs.
    #[serde(default)]
    pub energy_mj: u64,
}

impl Budget {
    /// True if any limit is set.
    pub fn is_set(&self) -> bool {
        *self != Budget::default()
    }

    /// True if the budget is not used up and `more`, the most that a job may still use, fits into the rest.
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
    pub fn plus(self, more: Spent) -> Spent {
        Spent {
            gpu_ms: self.gpu_ms.saturating_add(more.gpu_ms),
            cost_micro: self.cost_micro.saturating_add(more.cost_micro),
            energy_mj: self.energy_mj.saturating_add(more.energy_mj),
        }
    }
}
