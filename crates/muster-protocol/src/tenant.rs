//! Who pays, and how much of the cluster they may hold.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Amount;
use crate::written::sent;

/// A tenant to make, or all of what may change of one. A quota that is not given is unlimited; 0 is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"name": "ml-team", "max_gpus": 10, "priority_tier": "high"}))]
pub struct TenantSpec {
    /// Its name for ever, a-z, 0-9, `-`, `_`, `.`; made from `name` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Contact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Where it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// The tenant above it in the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,

    /// Most GPUs held at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u64>,
    /// Most GPU memory asked for at one time, over all GPUs, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_memory_mb: Option<u64>,
    /// Most CPU cores held at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_cores: Option<u64>,
    /// Most main memory held at one time, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    /// Most jobs running at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs: Option<u64>,
    /// Most GPUs that each user may hold at one time, in it and all below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_per_user: Option<u64>,
    /// Most GPU memory that each user may ask for at one time, over all GPUs, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_memory_mb_per_user: Option<u64>,
    /// Most CPU cores that each user may hold at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_cores_per_user: Option<u64>,
    /// Most main memory that each user may hold at one time, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_mb_per_user: Option<u64>,
    /// Most jobs that each user may have running at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs_per_user: Option<u64>,
    /// Most GPUs of one model, by model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_gpus_by_model: BTreeMap<String, u64>,
    /// GPUs it can count on; the rest up to the maximum is borrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u64>,
    /// GPU memory in MiB it can count on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpu_memory_mb: Option<u64>,
    /// CPU cores it can count on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_cpu_cores: Option<u64>,
    /// Main memory in MiB it can count on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_memory_mb: Option<u64>,
    /// Running jobs it can count on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_concurrent_jobs: Option<u64>,
    /// GPUs of one model it can count on, by model; the rest it has of them is borrowed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed_gpus_by_model: BTreeMap<String, u64>,
    /// GPU-hours that it and all below it may use in all. When they are used up nothing new starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_gpu_hours: Option<f64>,
    /// The same in kilowatt-hours, as if the GPUs drew all that their power limits allow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_kwh: Option<f64>,
    /// The same in money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_cost: Option<f64>,

    /// The default priority of its jobs and the highest its members may give: `low`, `medium`, `high` or `critical`,
    /// that is 100, 500, 1000 or 5000. `medium` when not given; its jobs then have the cluster's default priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<String>,
    /// Highest priority its members may give to a job; the number of the tier when that is higher or this is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<u32>,
    /// Share against its siblings; 1 is the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share_weight: Option<f64>,
    /// Part of its past usage, and that of its users, that is forgotten each day, 0 to 1; 0 is as usual in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_decay: Option<f64>,
    /// Its running jobs may be displaced by jobs of higher priority; true when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_preemption: Option<bool>,
    /// Its jobs may displace others of lower priority; true when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_preempt_others: Option<bool>,
    /// How often one of its jobs may be preempted; without limit when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_preemptions: Option<u32>,
    /// GPU-hours of its running work that others may destroy within a day; without limit when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage_gpu_hours_per_day: Option<f64>,

    /// Whether its usage is priced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_enabled: Option<bool>,
    /// Price of one GPU-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_gpu_hour: Option<f64>,
    /// Whether it may submit; true when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// It wants to hear when a job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_start: Option<bool>,
    /// It wants to hear when a job ends well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_completion: Option<bool>,
    /// It wants to hear when a job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_failure: Option<bool>,
    /// It wants to hear when its quota runs short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_quota: Option<bool>,
    /// Free words.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// What to change of a tenant. What is not sent stays; `null` lifts a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantChange {
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Contact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Where it belongs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// The tenant above it in the tree; `null` for none.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parent: Option<Option<String>>,
    /// Most GPUs held at one time.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpus: Option<Option<u64>>,
    /// Most GPU memory asked for at one time, over all GPUs, in MiB.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpu_memory_mb: Option<Option<u64>>,
    /// Most CPU cores held at one time.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_cpu_cores: Option<Option<u64>>,
    /// Most main memory held at one time, in MiB.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_memory_mb: Option<Option<u64>>,
    /// Most jobs running at one time.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_concurrent_jobs: Option<Option<u64>>,
    /// Most GPUs that each user may hold at one time, in it and all below it.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpus_per_user: Option<Option<u64>>,
    /// Most GPU memory that each user may ask for at one time, over all GPUs, in MiB.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpu_memory_mb_per_user: Option<Option<u64>>,
    /// Most CPU cores that each user may hold at one time.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_cpu_cores_per_user: Option<Option<u64>>,
    /// Most main memory that each user may hold at one time, in MiB.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_memory_mb_per_user: Option<Option<u64>>,
    /// Most jobs that each user may have running at one time.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_concurrent_jobs_per_user: Option<Option<u64>>,
    /// Most GPUs of one model, by model; all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_by_model: Option<BTreeMap<String, u64>>,
    /// GPUs it can count on.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_gpus: Option<Option<u64>>,
    /// GPU memory in MiB it can count on.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_gpu_memory_mb: Option<Option<u64>>,
    /// CPU cores it can count on.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_cpu_cores: Option<Option<u64>>,
    /// Main memory in MiB it can count on.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_memory_mb: Option<Option<u64>>,
    /// Running jobs it can count on.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_concurrent_jobs: Option<Option<u64>>,
    /// GPUs of one model it can count on, by model; all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus_by_model: Option<BTreeMap<String, u64>>,
    /// GPU-hours that it and all below it may use in all.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_gpu_hours: Option<Option<f64>>,
    /// The same in kilowatt-hours at the power limits of the GPUs.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_kwh: Option<Option<f64>>,
    /// The same in money.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_cost: Option<Option<f64>>,
    /// `low`, `medium`, `high` or `critical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<String>,
    /// Highest priority its members may give to a job; null takes the grant away.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub max_priority: Option<Option<u32>>,
    /// Share against its siblings; 1 is the usual one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share_weight: Option<f64>,
    /// Part of its past usage, and that of its users, that is forgotten each day, 0 to 1; 0 is as usual in the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_decay: Option<f64>,
    /// Its running jobs may be displaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_preemption: Option<bool>,
    /// Its jobs may displace others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_preempt_others: Option<bool>,
    /// How often one of its jobs may be preempted.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub max_preemptions: Option<Option<u32>>,
    /// GPU-hours of its running work that others may destroy within a day.
    #[serde(deserialize_with = "sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub damage_gpu_hours_per_day: Option<Option<f64>>,
    /// Whether its usage is priced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_enabled: Option<bool>,
    /// Price of one GPU-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_gpu_hour: Option<f64>,
    /// Whether it may submit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// It wants to hear when a job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_start: Option<bool>,
    /// It wants to hear when a job ends well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_completion: Option<bool>,
    /// It wants to hear when a job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_failure: Option<bool>,
    /// It wants to hear when its quota runs short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_quota: Option<bool>,
    /// Free words, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// A tenant: what it may hold, what it holds, and what it used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Its name for ever.
    #[schema(example = "ml-team")]
    pub id: String,
    /// The same as `id`.
    pub tenant_id: String,
    /// For people.
    pub name: String,
    /// Contact.
    pub email: String,
    /// Where it belongs.
    pub organization: String,
    /// The tenant above it in the tree.
    pub parent: Option<String>,

    /// Most GPUs held at one time; absent is unlimited.
    pub max_gpus: Option<u64>,
    /// Most GPU memory asked for at one time in MiB; absent is unlimited.
    pub max_gpu_memory_mb: Option<u64>,
    /// Most CPU cores held at one time; absent is unlimited.
    pub max_cpu_cores: Option<u64>,
    /// Most main memory held at one time in MiB; absent is unlimited.
    pub max_memory_mb: Option<u64>,
    /// Most jobs running at one time; absent is unlimited.
    pub max_concurrent_jobs: Option<u64>,
    /// Most GPUs that each user may hold at one time, in it and all below it; absent is unlimited.
    pub max_gpus_per_user: Option<u64>,
    /// Most GPU memory that each user may ask for at one time, over all GPUs in MiB; absent is unlimited.
    pub max_gpu_memory_mb_per_user: Option<u64>,
    /// Most CPU cores that each user may hold at one time; absent is unlimited.
    pub max_cpu_cores_per_user: Option<u64>,
    /// Most main memory that each user may hold at one time in MiB; absent is unlimited.
    pub max_memory_mb_per_user: Option<u64>,
    /// Most jobs that each user may have running at one time; absent is unlimited.
    pub max_concurrent_jobs_per_user: Option<u64>,
    /// Most GPUs of one model, by model.
    pub max_gpus_by_model: BTreeMap<String, u64>,
    /// GPUs it can count on.
    pub guaranteed_gpus: Option<u64>,
    /// GPU memory in MiB it can count on.
    #[serde(default)]
    pub guaranteed_gpu_memory_mb: Option<u64>,
    /// CPU cores it can count on.
    #[serde(default)]
    pub guaranteed_cpu_cores: Option<u64>,
    /// Main memory in MiB it can count on.
    #[serde(default)]
    pub guaranteed_memory_mb: Option<u64>,
    /// Running jobs it can count on.
    #[serde(default)]
    pub guaranteed_concurrent_jobs: Option<u64>,
    /// GPUs it holds with all below it beyond what it can count on; absent where nothing is guaranteed.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub borrowed_gpus: Option<Amount>,
    /// GPUs of one model it can count on, by model.
    #[serde(default)]
    pub guaranteed_gpus_by_model: BTreeMap<String, u64>,
    /// GPU-hours that it and all below it may use in all; absent is unlimited.
    pub budget_gpu_hours: Option<f64>,
    /// The same in kilowatt-hours at the power limits of the GPUs.
    #[serde(default)]
    pub budget_kwh: Option<f64>,
    /// The same in money.
    pub budget_cost: Option<f64>,
    /// GPU-hours that it and all below it have used, with what runs now.
    pub spent_gpu_hours: f64,
    /// The same in kilowatt-hours at the power limits of the GPUs.
    #[serde(default)]
    pub spent_kwh: f64,
    /// The same in money.
    pub spent_cost: f64,

    /// GPUs held now; half a GPU is 0.5.
    #[schema(value_type = f64)]
    pub current_gpus: Amount,
    /// GPU memory asked for by what runs now, in MiB.
    pub current_gpu_memory: u64,
    /// CPU cores held now.
    pub current_cpu_cores: u64,
    /// Main memory held now, in MiB.
    pub current_memory: u64,
    /// The power limits of the GPUs held now, in watts, as far as they are known.
    #[serde(default)]
    pub current_power_w: f64,
    /// Jobs that hold something now.
    pub current_jobs: u64,
    /// Jobs that wait or run.
    pub live_jobs: u64,

    /// GPU-hours of all attempts, of those that run until now.
    pub total_gpu_hours: f64,
    /// Jobs accepted.
    pub total_jobs: u64,
    /// Jobs that ended well.
    pub successful_jobs: u64,
    /// Jobs that failed.
    pub failed_jobs: u64,
    /// Jobs that were cancelled.
    pub cancelled_jobs: u64,
    /// What all attempts cost, those that run until now.
    pub total_cost: f64,

    /// The default priority of its jobs and the ceiling of its members, by name.
    pub priority_tier: String,
    /// Highest priority granted to its members; absent where the tier alone is the ceiling.
    pub max_priority: Option<u32>,
    /// Share against its siblings; 1 is the usual one.
    pub fair_share_weight: f64,
    /// 1 for who has nothing, one half for who has just their share, towards 0; 1 where nobody competes.
    pub fair_share_factor: f64,
    /// What part of the cluster it should have, among all tenants that have work, 0 to 1.
    pub fair_share: f64,
    /// What part it has, with all below it, as the mean of now and of late, 0 to 1.
    pub fair_share_used: f64,
    /// GPUs it held of late: an average in which the past counts half after each half-life.
    pub recent_gpus: f64,
    /// The half-life of its past usage in milliseconds: by its own `priority_decay`, or as usual in the cluster.
    pub usage_half_life_ms: i64,
    /// Part of its past usage, and that of its users, that is forgotten each day, 0 to 1; 0 is as usual in the cluster.
    pub priority_decay: f64,
    /// Its running jobs may be displaced by jobs of higher priority.
    pub allow_preemption: bool,
    /// Its jobs may displace others of lower priority.
    pub can_preempt_others: bool,
    /// How often one of its jobs may be preempted; absent is without limit.
    pub max_preemptions: Option<u32>,
    /// GPU-hours of its running work that others may destroy within a day; absent is without limit.
    pub damage_gpu_hours_per_day: Option<f64>,
    /// GPU-hours that it has lost to others, less what is forgiven by now; absent without such a limit.
    pub damage_gpu_hours: Option<f64>,
    /// Whether its usage is priced.
    pub billing_enabled: bool,
    /// Price of one GPU-hour.
    pub cost_per_gpu_hour: f64,
    /// Whether it may submit.
    pub active: bool,
    /// It wants to hear when a job starts.
    pub notify_on_start: bool,
    /// It wants to hear when a job ends well.
    pub notify_on_completion: bool,
    /// It wants to hear when a job fails.
    pub notify_on_failure: bool,
    /// It wants to hear when its quota runs short.
    pub notify_on_quota: bool,
    /// Free words.
    pub labels: BTreeMap<String, String>,
    /// What cannot be kept as it is, in sentences: for example guarantees beyond what the cluster has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The tenants the caller may see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// In order of id.
    pub tenants: Vec<Tenant>,
    /// How many there are.
    pub total: u64,
}
