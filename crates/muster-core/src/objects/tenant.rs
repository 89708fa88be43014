//! What an administrator sets of a tenant: quotas, guarantees, budget, priority tier, prices.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::objects::budget::Budget;
use crate::objects::demand::Demand;

/// What an administrator may change of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantConfig {
    /// For people; the id is made from it.
    pub name: String,
    #[serde(default)]
    pub email: String,
    #[serde(default)]
    pub organization: String,
    /// The tenant above it in the tree.
    #[serde(default)]
    pub parent: Option<TenantId>,
    /// The most it may hold at one time.
    #[serde(default)]
    pub maximum: Quota,
    /// The most each of its users may hold at one time, here and in all below it together.
    #[serde(default)]
    pub maximum_per_user: Quota,
    /// What it can count on; the rest up to the maximum is borrowed.
    #[serde(default)]
    pub guaranteed: Quota,
    /// Most GPUs of one model, by canonical model name.
    #[serde(default)]
    pub maximum_by_model: BTreeMap<String, u64>,
    /// GPUs of one model it can count on, by canonical model name; the rest it has of them is borrowed.
    #[serde(default)]
    pub guaranteed_by_model: BTreeMap<String, u64>,
    /// The most it may use in all.
    #[serde(default)]
    pub budget: Budget,
    /// The default priority of its jobs, and the highest that its members may give.
    #[serde(default)]
    pub tier: Tier,
    /// Highest priority its members may give to a job, where that is above the number of the tier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<u32>,
    /// Share against its siblings.
    #[serde(default = "default_weight")]
    pub weight: u32,
    /// How much of the past usage of it and its members is forgotten, in thousandths a day; 0 is as in the cluster.
    #[serde(default)]
    pub decay_milli_per_day: u32,
    /// Its running jobs may be displaced by jobs of higher priority.
    #[serde(default = "yes")]
    pub may_be_preempted: bool,
    /// Its jobs may displace others of lower priority.
    #[serde(default = "yes")]
    pub may_preempt: bool,
    /// How often one of its jobs may be preempted; after that it is left alone.
    #[serde(default)]
    pub preemptions_per_job_max: Option<u32>,
    /// How much of its running work others may destroy within a day, in GPU-milliseconds.
    #[serde(default)]
    pub preemption_loss_gpu_ms_per_day: Option<u64>,
    /// Whether its usage is priced.
    #[serde(default)]
    pub billed: bool,
    /// Price of one GPU-hour in millionths of the currency.
    #[serde(default)]
    pub price_gpu_hour_micro: u64,
    /// Whether it may submit.
    #[serde(default = "yes")]
    pub active: bool,
    /// Which notices it wants: start, end, failure, quota.
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
    /// What a GPU-hour costs it, in millionths of the currency.
    pub fn price_micro(&self) -> u64 {
        if self.billed { self.price_gpu_hour_micro } else { 0 }
    }

    /// A tenant with no limits.
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

/// Limits; what is not set is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Quota {
    #[serde(default)]
    pub gpus: Option<u64>,
    /// GPU memory asked for, over all GPUs.
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

/// One limit that a demand would pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Excess {
    pub resource: QuotaResource,
    /// What is wanted in all.
    pub wanted: u64,
    pub limit: u64,
}

/// What a quota counts.
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
    /// As people read it after a number.
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
    /// Every limit that `wanted` would pass, in a fixed order.
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

/// The default priority of a tenant's jobs, by name.
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
    /// The number behind the name; job priorities accept the names too.
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
