//! Tenant configuration: quotas, guarantees, budget, priority tier, preemption rules, prices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::objects::budget::Budget;
use crate::objects::demand::Demand;

/// The configuration of a tenant, as an administrator sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantConfig {
    /// For people; the id is derived from it.
    pub name: String,
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub organization: String,
    /// Parent in the tenant tree.
    #[serde(default)]
    pub parent: Option<TenantId>,
    /// Quota: the most it may hold at one time.
    #[serde(default)]
    pub maximum: Quota,
    /// User limit: the most that each of its users may hold at one time, in it and its descendants together.
    #[serde(default)]
    pub maximum_per_user: Quota,
    /// Guarantee; usage above it, up to the quota, is borrowed.
    #[serde(default)]
    pub guaranteed: Quota,
    /// Quota of GPUs of one model, by canonical model name.
    #[serde(default)]
    pub maximum_by_model: BTreeMap<String, u64>,
    /// Guarantee of GPUs of one model, by canonical model name; usage above it is borrowed.
    #[serde(default)]
    pub guaranteed_by_model: BTreeMap<String, u64>,
    /// The most it may use over all time.
    #[serde(default)]
    pub budget: Budget,
    /// Default priority of its jobs, and the priority ceiling of its members.
    #[serde(default)]
    pub tier: Tier,
    /// Priority ceiling of its members, if above the priority of the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<u32>,
    /// Fair-share weight relative to its siblings.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// Decay of past usage of the tenant and its users, in thousandths per day; 0 uses the half-life of the cluster.
    #[serde(default)]
    pub decay_milli_per_day: u32,
    /// Its running jobs may be preempted by jobs of higher priority.
    #[serde(default = "yes")]
    pub may_be_preempted: bool,
    /// Its jobs may preempt jobs of lower priority.
    #[serde(default = "yes")]
    pub may_preempt: bool,
    /// Most preemptions of one job; after that the job is not a victim again.
    #[serde(default)]
    pub preemptions_per_job_max: Option<u32>,
    /// Preemption loss limit: the most work that preemptors may cost it within a day, in GPU-milliseconds.
    #[serde(default)]
    pub preemption_loss_gpu_ms_per_day: Option<u64>,
    #[serde(default)]
    pub billed: bool,
    /// Price of one GPU-hour in millionths of the currency.
    #[serde(default)]
    pub price_gpu_hour_micro: u64,
    /// Whether its jobs are accepted.
    #[serde(default = "yes")]
    pub active: bool,
    /// Enabled notifications: start, end, failure, quota.
    #[serde(default)]
    pub notify: BTreeMap<String, bool>,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

fn default_weight() -> u32 {
    100
}

fn yes() -> bool {
    true
}

impl TenantConfig {
    /// Price of one GPU-hour in millionths of the currency; 0 if usage is not billed.
    pub fn price_micro(&self) -> u64 {
        if self.billed { self.price_gpu_hour_micro } else { 0 }
    }

    pub fn unlimited(name: &str) -> TenantConfig {
        TenantConfig {
            name: name.to_string(),
            email: String::new(),
            organization: String::new(),
            parent: None,
            maximum: Quota::default(),
            maximum_per_user: Quota::default(),
            guaranteed: Quota::default(),
            maximum_by_model: BTreeMap::new(),
            guaranteed_by_model: BTreeMap::new(),
            budget: Budget::default(),
            tier: Tier::default(),
            priority_max: None,
            weight: default_weight(),
            decay_milli_per_day: 0,
            may_be_preempted: true,
            may_preempt: true,
            preemptions_per_job_max: None,
            preemption_loss_gpu_ms_per_day: None,
            billed: false,
            price_gpu_hour_micro: 0,
            active: true,
            notify: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

/// Limits per resource; `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    #[serde(default)]
    pub gpus: Option<u64>,
    /// Requested GPU memory, summed over all GPUs.
    #[serde(default)]
    pub gpu_memory_mib: Option<u64>,
    #[serde(default)]
    pub cpus: Option<u64>,
    #[serde(default)]
    pub memory_mib: Option<u64>,
    /// Jobs running at once.
    #[serde(default)]
    pub jobs: Option<u64>,
}

/// One limit that a demand exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Excess {
    pub resource: QuotaResource,
    /// Total demand.
    pub wanted: u64,
    pub limit: u64,
}

/// A resource that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum QuotaResource {
    Gpus,
    /// MiB of GPU memory.
    GpuMemory,
    Cpus,
    /// MiB of main memory.
    Memory,
    Jobs,
}

impl QuotaResource {
    /// The unit for messages, after a number.
    pub fn phrase(self) -> &'static str {
        match self {
            QuotaResource::Gpus => "GPUs",
            QuotaResource::GpuMemory => "MiB of GPU memory",
            QuotaResource::Cpus => "CPU cores",
            QuotaResource::Memory => "MiB of memory",
            QuotaResource::Jobs => "running jobs",
        }
    }
}

impl Quota {
    /// Every limit that `wanted` exceeds, in a fixed order.
    pub fn excess(&self, wanted: Demand) -> Vec<Excess> {
        [
            (QuotaResource::Gpus, wanted.gpus(), self.gpus),
            (QuotaResource::GpuMemory, wanted.gpu_memory_mib, self.gpu_memory_mib),
            (QuotaResource::Cpus, wanted.cpus, self.cpus),
            (QuotaResource::Memory, wanted.memory_mib, self.memory_mib),
            (QuotaResource::Jobs, wanted.jobs, self.jobs),
        ]
        .into_iter()
        .filter_map(|(resource, wanted, limit)| {
            let limit = limit?;
            (wanted > limit).then_some(Excess { resource, wanted, limit })
        })
        .collect()
    }
}

/// The tier of a tenant: the default priority of its jobs, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    Low,
    #[default]
    Medium,
    High,
    Critical,
}

impl Tier {
    /// The priority of the tier; job priorities accept the tier names, too.
    pub fn priority(self) -> u32 {
        match self {
            Tier::Low => 100,
            Tier::Medium => 500,
            Tier::High => 1_000,
            Tier::Critical => 5_000,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Low => "low",
            Tier::Medium => "medium",
            Tier::High => "high",
            Tier::Critical => "critical",
        }
    }
}
