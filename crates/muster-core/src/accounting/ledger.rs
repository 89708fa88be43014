//! Step 12, settle: the ledger, the sum of all charges per tenant. An attempt is charged once, when its leases end, and
//! the charges add up exactly.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::objects::charge::Charge;
use crate::objects::charge::HeldResources;
use crate::objects::job::{Attempt, JobSpec};
use crate::objects::tenant::TenantConfig;
use crate::time::{HOUR, Timestamp};

/// When the leases of an attempt end: usage is charged until the processes of the attempt were gone, and the slots are
/// released when the server knows that they are gone.
#[derive(Debug, Clone, Copy)]
pub struct LeaseEnd {
    pub charged_until: Timestamp,
    /// Never before `charged_until`.
    pub released_at: Timestamp,
}

/// Totals of one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    /// Sum of all charges.
    pub used: Charge,
    pub submitted: u64,
    /// Jobs that ended successfully.
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
}

/// Totals of every tenant that was ever charged; they outlive the tenant.
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

    /// All accounts, by tenant.
    pub fn accounts(&self) -> impl Iterator<Item = (&TenantId, &Account)> {
        self.accounts.iter()
    }

    /// The account of a tenant, created if it has none yet.
    pub(crate) fn account_mut(&mut self, tenant: &TenantId) -> &mut Account {
        if !self.accounts.contains_key(tenant) {
            self.accounts.insert(tenant.clone(), Account::default());
        }
        self.accounts.get_mut(tenant).unwrap_or_else(|| unreachable!("inserted above"))
    }
}

/// The charge of an attempt until `end`.
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

/// The resources that an attempt holds, and their cost per hour.
pub fn held(spec: &JobSpec, attempt: &Attempt, tenant: &TenantConfig) -> HeldResources {
    let demand = spec.demand_of(&attempt.tasks);
    let price = if tenant.billed { tenant.price_gpu_hour_micro } else { 0 };
    HeldResources {
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

/// The cost of GPU time. Rounded half up once per attempt, so that the costs of the attempts add up to the displayed
/// sum.
pub(crate) fn price(gpu_ms: u64, gpu_hour_micro: u64) -> u64 {
    let hour = HOUR as u128;
    let micro = (u128::from(gpu_ms) * u128::from(gpu_hour_micro) + hour / 2) / hour;
    u64::try_from(micro).unwrap_or(u64::MAX)
}
