//! Charges: the usage of one attempt, as the ledger books it to its tenant (step 12, settle).

use serde::{Deserialize, Serialize};

/// The usage of one attempt, from placement to the end of its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Charge {
    pub gpu_ms: u64,
    /// CPU cores × milliseconds.
    pub cpu_ms: u64,
    /// GiB of main memory × milliseconds, rounded down once per attempt.
    pub memory_gib_ms: u64,
    /// In millionths of the currency.
    pub cost_micro: u64,
    /// Energy in millijoules, as if the GPUs had run at their power limits all the time. Rounded down once per attempt.
    #[serde(default)]
    pub energy_mj: u64,
}

impl std::ops::AddAssign for Charge {
    fn add_assign(&mut self, other: Charge) {
        self.gpu_ms += other.gpu_ms;
        self.cpu_ms += other.cpu_ms;
        self.memory_gib_ms += other.memory_gib_ms;
        self.cost_micro = self.cost_micro.saturating_add(other.cost_micro);
        self.energy_mj = self.energy_mj.saturating_add(other.energy_mj);
    }
}

/// The resources that an attempt held until it ended, for the allocation record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldResources {
    pub cpus: u64,
    pub memory_mib: u64,
    /// The time limit, or else the runtime that the planner expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_ms: Option<i64>,
    /// Cost per hour, in millionths of the currency.
    #[serde(default)]
    pub cost_per_hour_micro: u64,
}
