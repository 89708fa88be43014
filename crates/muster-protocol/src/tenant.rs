//! Tenants: quotas, guarantees, budgets, usage and fair share.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu_amount::GpuAmount;
use crate::input::double_option;

/// A new tenant, or a full replacement of the changeable fields of one. A quota that is not given is unlimited; 0 means
/// 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"name": "ml-team", "max_gpus": 10, "priority_tier": "high"}))]
pub struct TenantSpec {
    /// Permanent id, of a-z, 0-9, `-`, `_`, `.`; derived from `name` if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Contact address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Organization of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Parent tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,

    /// Quota: GPUs held at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus: Option<u64>,
    /// Quota: requested GPU memory at one time, over all GPUs, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_memory_mb: Option<u64>,
    /// Quota: CPU cores held at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_cores: Option<u64>,
    /// Quota: main memory held at one time, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    /// Quota: jobs running at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs: Option<u64>,
    /// User limit: GPUs that each user may hold at one time, in the tenant and its descendants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_per_user: Option<u64>,
    /// User limit: GPU memory that each user may request at one time, over all GPUs, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpu_memory_mb_per_user: Option<u64>,
    /// User limit: CPU cores that each user may hold at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_cpu_cores_per_user: Option<u64>,
    /// User limit: main memory that each user may hold at one time, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_memory_mb_per_user: Option<u64>,
    /// User limit: jobs that each user may have running at one time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_jobs_per_user: Option<u64>,
    /// Quotas of single GPU models, by model.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub max_gpus_by_model: BTreeMap<String, u64>,
    /// Guaranteed GPUs; further GPUs up to the quota are borrowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus: Option<u64>,
    /// Guaranteed GPU memory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpu_memory_mb: Option<u64>,
    /// Guaranteed CPU cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_cpu_cores: Option<u64>,
    /// Guaranteed main memory, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_memory_mb: Option<u64>,
    /// Guaranteed running jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_concurrent_jobs: Option<u64>,
    /// Guaranteed GPUs of single models, by model; further GPUs of the model are borrowed.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub guaranteed_gpus_by_model: BTreeMap<String, u64>,
    /// Budget: total GPU-hours of the tenant and its descendants. When it is used up, no further job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_gpu_hours: Option<f64>,
    /// Budget in kilowatt-hours, counted at the power limits of the GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_kwh: Option<f64>,
    /// Budget in money.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_cost: Option<f64>,

    /// Tier: default priority of its jobs and priority ceiling of its members. `low`, `medium`, `high` or `critical`,
    /// that is 100, 500, 1000 or 5000. Default: `medium`; the jobs then have the default priority of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<String>,
    /// Priority ceiling of its members; the number of the tier if that is higher or this is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<u32>,
    /// Fair-share weight relative to its siblings; usually 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share_weight: Option<f64>,
    /// Daily decay of its past usage and that of its users, 0 to 1; 0 for the half-life of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_decay: Option<f64>,
    /// True if its running jobs may be preempted by jobs of higher priority. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_preemption: Option<bool>,
    /// True if its jobs may preempt jobs of lower priority. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_preempt_others: Option<bool>,
    /// Maximum number of preemptions of one job. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_preemptions: Option<u32>,
    /// Preemption loss limit in GPU-hours per day. Default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage_gpu_hours_per_day: Option<f64>,

    /// True if its usage is billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_enabled: Option<bool>,
    /// Price of one GPU-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_gpu_hour: Option<f64>,
    /// True if it may submit jobs. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Notify when a job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_start: Option<bool>,
    /// Notify when a job completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_completion: Option<bool>,
    /// Notify when a job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_failure: Option<bool>,
    /// Notify when the quota is nearly used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_quota: Option<bool>,
    /// Labels of the tenant.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// Changes of a tenant. A field that is not sent stays unchanged; `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantChange {
    /// Display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Contact address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Organization of the tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization: Option<String>,
    /// Parent tenant; `null` for none.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub parent: Option<Option<String>>,
    /// Quota: GPUs held at one time.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpus: Option<Option<u64>>,
    /// Quota: requested GPU memory at one time, over all GPUs, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpu_memory_mb: Option<Option<u64>>,
    /// Quota: CPU cores held at one time.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_cpu_cores: Option<Option<u64>>,
    /// Quota: main memory held at one time, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_memory_mb: Option<Option<u64>>,
    /// Quota: jobs running at one time.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_concurrent_jobs: Option<Option<u64>>,
    /// User limit: GPUs that each user may hold at one time, in the tenant and its descendants.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpus_per_user: Option<Option<u64>>,
    /// User limit: GPU memory that each user may request at one time, over all GPUs, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_gpu_memory_mb_per_user: Option<Option<u64>>,
    /// User limit: CPU cores that each user may hold at one time.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_cpu_cores_per_user: Option<Option<u64>>,
    /// User limit: main memory that each user may hold at one time, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_memory_mb_per_user: Option<Option<u64>>,
    /// User limit: jobs that each user may have running at one time.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub max_concurrent_jobs_per_user: Option<Option<u64>>,
    /// Quotas of single GPU models, by model; they replace all such quotas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_gpus_by_model: Option<BTreeMap<String, u64>>,
    /// Guaranteed GPUs.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_gpus: Option<Option<u64>>,
    /// Guaranteed GPU memory, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_gpu_memory_mb: Option<Option<u64>>,
    /// Guaranteed CPU cores.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_cpu_cores: Option<Option<u64>>,
    /// Guaranteed main memory, in MiB.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_memory_mb: Option<Option<u64>>,
    /// Guaranteed running jobs.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    pub guaranteed_concurrent_jobs: Option<Option<u64>>,
    /// Guaranteed GPUs of single models, by model; they replace all such guarantees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guaranteed_gpus_by_model: Option<BTreeMap<String, u64>>,
    /// Budget: total GPU-hours of the tenant and its descendants.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_gpu_hours: Option<Option<f64>>,
    /// Budget in kilowatt-hours, counted at the power limits of the GPUs.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_kwh: Option<Option<f64>>,
    /// Budget in money.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub budget_cost: Option<Option<f64>>,
    /// `low`, `medium`, `high` or `critical`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_tier: Option<String>,
    /// Priority ceiling of its members; `null` removes it.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub max_priority: Option<Option<u32>>,
    /// Fair-share weight relative to its siblings; usually 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_share_weight: Option<f64>,
    /// Daily decay of its past usage and that of its users, 0 to 1; 0 for the half-life of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority_decay: Option<f64>,
    /// True if its running jobs may be preempted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_preemption: Option<bool>,
    /// True if its jobs may preempt others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub can_preempt_others: Option<bool>,
    /// Maximum number of preemptions of one job.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>)]
    pub max_preemptions: Option<Option<u32>>,
    /// Preemption loss limit in GPU-hours per day.
    #[serde(deserialize_with = "double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub damage_gpu_hours_per_day: Option<Option<f64>>,
    /// True if its usage is billed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub billing_enabled: Option<bool>,
    /// Price of one GPU-hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_per_gpu_hour: Option<f64>,
    /// True if it may submit jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<bool>,
    /// Notify when a job starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_start: Option<bool>,
    /// Notify when a job completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_completion: Option<bool>,
    /// Notify when a job fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_failure: Option<bool>,
    /// Notify when the quota is nearly used up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_on_quota: Option<bool>,
    /// Labels of the tenant; they replace all labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// A tenant: its quotas, current holdings and past usage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Tenant {
    /// Permanent id.
    #[schema(example = "ml-team")]
    pub id: String,
    /// The same as `id`.
    pub tenant_id: String,
    /// Display name.
    pub name: String,
    /// Contact address.
    pub email: String,
    /// Organization of the tenant.
    pub organization: String,
    /// Parent tenant.
    pub parent: Option<String>,

    /// Quota: GPUs held at one time; absent is unlimited.
    pub max_gpus: Option<u64>,
    /// Quota: requested GPU memory at one time, over all GPUs, in MiB; absent is unlimited.
    pub max_gpu_memory_mb: Option<u64>,
    /// Quota: CPU cores held at one time; absent is unlimited.
    pub max_cpu_cores: Option<u64>,
    /// Quota: main memory held at one time in MiB; absent is unlimited.
    pub max_memory_mb: Option<u64>,
    /// Quota: jobs running at one time; absent is unlimited.
    pub max_concurrent_jobs: Option<u64>,
    /// User limit: GPUs that each user may hold at one time, in the tenant and its descendants; absent is unlimited.
    pub max_gpus_per_user: Option<u64>,
    /// User limit: GPU memory that each user may request at one time, over all GPUs, in MiB; absent is unlimited.
    pub max_gpu_memory_mb_per_user: Option<u64>,
    /// User limit: CPU cores that each user may hold at one time; absent is unlimited.
    pub max_cpu_cores_per_user: Option<u64>,
    /// User limit: main memory that each user may hold at one time in MiB; absent is unlimited.
    pub max_memory_mb_per_user: Option<u64>,
    /// User limit: jobs that each user may have running at one time; absent is unlimited.
    pub max_concurrent_jobs_per_user: Option<u64>,
    /// Quotas of single GPU models, by model.
    pub max_gpus_by_model: BTreeMap<String, u64>,
    /// Guaranteed GPUs.
    pub guaranteed_gpus: Option<u64>,
    /// Guaranteed GPU memory, in MiB.
    #[serde(default)]
    pub guaranteed_gpu_memory_mb: Option<u64>,
    /// Guaranteed CPU cores.
    #[serde(default)]
    pub guaranteed_cpu_cores: Option<u64>,
    /// Guaranteed main memory, in MiB.
    #[serde(default)]
    pub guaranteed_memory_mb: Option<u64>,
    /// Guaranteed running jobs.
    #[serde(default)]
    pub guaranteed_concurrent_jobs: Option<u64>,
    /// GPUs that it and its descendants hold beyond the guarantee; absent without a guarantee.
    #[serde(default)]
    #[schema(value_type = Option<f64>)]
    pub borrowed_gpus: Option<GpuAmount>,
    /// Guaranteed GPUs of single models, by model.
    #[serde(default)]
    pub guaranteed_gpus_by_model: BTreeMap<String, u64>,
    /// Budget: total GPU-hours of the tenant and its descendants; absent is unlimited.
    pub budget_gpu_hours: Option<f64>,
    /// Budget in kilowatt-hours, counted at the power limits of the GPUs.
    #[serde(default)]
    pub budget_kwh: Option<f64>,
    /// Budget in money.
    pub budget_cost: Option<f64>,
    /// Used part of the budget in GPU-hours, including running attempts.
    pub spent_gpu_hours: f64,
    /// Used part of the budget in kilowatt-hours, counted at the power limits of the GPUs.
    #[serde(default)]
    pub spent_kwh: f64,
    /// Used part of the budget in money.
    pub spent_cost: f64,

    /// GPUs held now; half a GPU is 0.5.
    #[schema(value_type = f64)]
    pub current_gpus: GpuAmount,
    /// GPU memory requested by its running jobs, in MiB.
    pub current_gpu_memory: u64,
    /// CPU cores held now.
    pub current_cpu_cores: u64,
    /// Main memory held now, in MiB.
    pub current_memory: u64,
    /// Sum of the known power limits of the GPUs held now, in watts.
    #[serde(default)]
    pub current_power_w: f64,
    /// Number of jobs that hold resources now.
    pub current_jobs: u64,
    /// Number of jobs that wait or run.
    pub live_jobs: u64,

    /// GPU-hours of all attempts; running attempts count until now.
    pub total_gpu_hours: f64,
    /// Number of accepted jobs.
    pub total_jobs: u64,
    /// Number of completed jobs.
    pub successful_jobs: u64,
    /// Number of failed jobs.
    pub failed_jobs: u64,
    /// Number of cancelled jobs.
    pub cancelled_jobs: u64,
    /// Cost of all attempts; running attempts count until now.
    pub total_cost: f64,

    /// Tier: default priority of its jobs and priority ceiling of its members, by name.
    pub priority_tier: String,
    /// Priority ceiling granted to its members; absent if the tier is the ceiling.
    pub max_priority: Option<u32>,
    /// Fair-share weight relative to its siblings; usually 1.
    pub fair_share_weight: f64,
    /// Fair-share factor: 1 without usage, 0.5 at exactly the fair share, towards 0 above it; 1 if no other tenant
    /// competes.
    pub fair_share_factor: f64,
    /// Fair share: part of the cluster that it should have among all tenants with jobs, 0 to 1.
    pub fair_share: f64,
    /// Part of the cluster that it and its descendants use, as the mean of current and decayed usage, 0 to 1.
    pub fair_share_used: f64,
    /// Decayed usage in GPUs: an average in which the past counts half after each half-life.
    pub recent_gpus: f64,
    /// Half-life of its past usage in milliseconds: by its `priority_decay`, otherwise that of the cluster.
    pub usage_half_life_ms: i64,
    /// Daily decay of its past usage and that of its users, 0 to 1; 0 for the half-life of the cluster.
    pub priority_decay: f64,
    /// True if its running jobs may be preempted by jobs of higher priority.
    pub allow_preemption: bool,
    /// True if its jobs may preempt jobs of lower priority.
    pub can_preempt_others: bool,
    /// Maximum number of preemptions of one job; absent is unlimited.
    pub max_preemptions: Option<u32>,
    /// Preemption loss limit in GPU-hours per day; absent is unlimited.
    pub damage_gpu_hours_per_day: Option<f64>,
    /// GPU-hours lost to preemption, decayed; absent without a preemption loss limit.
    pub damage_gpu_hours: Option<f64>,
    /// True if its usage is billed.
    pub billing_enabled: bool,
    /// Price of one GPU-hour.
    pub cost_per_gpu_hour: f64,
    /// True if it may submit jobs.
    pub active: bool,
    /// Notify when a job starts.
    pub notify_on_start: bool,
    /// Notify when a job completes.
    pub notify_on_completion: bool,
    /// Notify when a job fails.
    pub notify_on_failure: bool,
    /// Notify when the quota is nearly used up.
    pub notify_on_quota: bool,
    /// Labels of the tenant.
    pub labels: BTreeMap<String, String>,
    /// Warnings, for example about guarantees beyond the capacity of the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Tenants that are visible to the caller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TenantList {
    /// In order of id.
    pub tenants: Vec<Tenant>,
    /// Number of tenants.
    pub total: u64,
}
