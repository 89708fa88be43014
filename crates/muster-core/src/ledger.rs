//! Step 12, settle: who used what. Charges are made once, when leases end, and add up exactly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::Held;
use crate::ids::TenantId;
use crate::job::{Attempt, JobSpec};
use crate::tenant::TenantConfig;
use crate::time::{HOUR, Timestamp};

/// What one attempt used, from placement to the end of its leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Charge {
    /// GPUs × milliseconds.
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

/// When the leases of an attempt end: usage counts until its processes were gone, and the space is free when the server
/// knows that.
#[derive(Debug, Clone, Copy)]
pub struct LeaseEnd {
    /// Until when its usage counts.
    pub charged_until: Timestamp,
    /// When its slots are free again; never before the former.
    pub released_at: Timestamp,
}

/// Totals of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// Sum of all charges.
    pub used: Charge,
    /// Jobs accepted.
    pub submitted: u64,
    /// Jobs that ended well.
    pub done: u64,
    /// Jobs that failed.
    pub failed: u64,
    /// Jobs that were cancelled.
    pub cancelled: u64,
}

/// Totals of every tenant that ever used anything; they outlive the tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ledger {
    accounts: BTreeMap<TenantId, Account>,
}

impl Ledger {
    /// The account of a tenant; zeros if it has none yet.
    pub fn account(&self, tenant: &TenantId) -> Account {
        self.accounts.get(tenant).copied().unwrap_or_default()
    }

    /// All accounts in order of tenant.
    pub fn accounts(&self) -> impl Iterator<Item = (&TenantId, &Account)> {
        self.accounts.iter()
    }

    /// The account to write to.
    pub(crate) fn account_mut(&mut self, tenant: &TenantId) -> &mut Account {
        if !self.accounts.contains_key(tenant) {
            self.accounts.insert(tenant.clone(), Account::default());
        }
        self.accounts.get_mut(tenant).unwrap_or_else(|| unreachable!("inserted above"))
    }
}

/// What an attempt used until `end`.
pub fn charge(spec: &JobSpec, attempt: &Attempt, tenant: &TenantConfig, end: Timestamp) -> Charge {
    let ms = end.since(attempt.placed_at) as u64;
    let held = spec.demand_of(&attempt.tasks);
    // Rounded down once per attempt.
    let gpu_ms = held.gpu_milli * ms / 1_000;
    Charge {
        gpu_ms,
        cpu_ms: held.cpus * ms,
        memory_gib_ms: held.memory_mib * ms / 1024,
        cost_micro: price(gpu_ms, tenant.price_micro()),
        energy_mj: energy_mj(attempt, end),
    }
}

/// What an attempt holds and what that costs an hour.
pub fn held(spec: &JobSpec, attempt: &Attempt, tenant: &TenantConfig) -> Held {
    let demand = spec.demand_of(&attempt.tasks);
    let price = if tenant.billed { tenant.price_gpu_hour_micro } else { 0 };
    Held {
        cpus: demand.cpus,
        memory_mib: demand.memory_mib,
        planned_ms: spec.time_limit_ms.or(attempt.expected_ms),
        cost_per_hour_micro: price.saturating_mul(demand.gpu_milli) / 1_000,
    }
}

/// The energy of an attempt until `end`, at the power limits of its GPUs.
pub(crate) fn energy_mj(attempt: &Attempt, end: Timestamp) -> u64 {
    let microjoules = u128::from(attempt.milliwatts) * end.since(attempt.placed_at).max(0) as u128;
    u64::try_from(microjoules / 1_000).unwrap_or(u64::MAX)
}

/// Rounded half up once per attempt, so that the sum over attempts is the sum people see.
pub(crate) fn price(gpu_ms: u64, gpu_hour_micro: u64) -> u64 {
    let hour = HOUR as u128;
    let micro = (u128::from(gpu_ms) * u128::from(gpu_hour_micro) + hour / 2) / hour;
    u64::try_from(micro).unwrap_or(u64::MAX)
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
