//! Devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::share::Holder;

/// A GPU, as it stands now. What cannot be read is absent: an unknown GPU is not a cold GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// Node and index.
    #[schema(example = "gpu01/gpu-3")]
    pub id: String,
    /// Its node.
    pub node_id: String,
    /// Its place in the node, from 0.
    pub index: u8,
    /// Unique in the world.
    pub uuid: String,
    /// As the driver spells it.
    pub model: String,
    /// What CUDA calls its generation, where the model is known.
    #[schema(example = "9.0")]
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// CUDA cores, where the model is known.
    #[serde(default)]
    pub cuda_cores: Option<u32>,
    /// Tensor cores, where the model is known.
    #[serde(default)]
    pub tensor_cores: Option<u32>,
    /// `free`, `held`, `shared` (held in part), `partitioned` (nobody holds an instance of it), `claimed` (kept for a job
    /// that others make room for), `cooling` or `out` (unhealthy, or its node takes no work).
    #[schema(example = "free")]
    pub state: String,
    /// Memory of the device in MiB.
    pub memory_total_mb: u64,
    /// Memory in use in MiB. Always null in this version: it is not measured yet.
    pub memory_used_mb: Option<u64>,
    /// Memory free in MiB. Always null in this version: it is not measured yet.
    pub memory_free_mb: Option<u64>,
    /// Somebody holds it or a part of it.
    pub allocated: bool,
    /// Thousandths of its compute that are held.
    #[serde(default)]
    pub used_milli: u32,
    /// The attempt that holds all of it; absent for callers who may not see it.
    pub allocation_id: Option<String>,
    /// The job that holds all of it; absent for callers who may not see it.
    pub job_id: Option<String>,
    /// The tenant that holds all of it; absent for callers who may not see it.
    pub tenant_id: Option<String>,
    /// Who holds it or parts of it, as far as the caller may see them.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    #[schema(example = "healthy")]
    pub health: String,
    /// Why, in a sentence; empty when healthy.
    pub health_why: String,
    /// The operator who declared it `warning` or worse, until an operator declares it `healthy`.
    #[serde(default)]
    pub health_declared_by: Option<String>,
    /// Since when, RFC 3339.
    pub health_since: String,
    /// It cools and is not given out before this moment.
    pub cooling_until: Option<String>,
    /// It is too hot to be given out.
    pub thermal_throttle: bool,
    /// Above this temperature in °C it cools before it is given out again.
    pub max_temperature: i32,
    /// How long it cools, in seconds.
    pub cooling_period: i64,
    /// Utilisation, 0 to 1. Always null in this version: it is not measured yet.
    pub utilization: Option<f64>,
    /// Temperature in °C at the newest reading; absent until this server has one.
    pub temperature: Option<f64>,
    /// Errors counted by the device at the newest reading; absent until this server has one.
    #[serde(default)]
    pub error_count: Option<u32>,
    /// The newest error that the agent reported, where there was one since this server started.
    #[serde(default)]
    pub last_error: Option<String>,
    /// When this server last had a reading of it, RFC 3339.
    #[serde(default)]
    pub last_health_check: Option<String>,
    /// When this server last heard from the agent of its node, RFC 3339.
    #[serde(default)]
    pub last_heartbeat: Option<String>,
    /// Power drawn in watts. Always null in this version: it is not measured yet.
    pub power_usage: Option<f64>,
    /// Power limit in watts, where known.
    pub power_limit_w: Option<f64>,
    /// NUMA node it hangs on, where known.
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs it reaches by NVLink.
    pub nvlink: Vec<u8>,
    /// Processor socket it hangs on, where known.
    #[serde(default)]
    pub socket: Option<u32>,
    /// PCIe switch it hangs on, where it hangs on one and that is known; numbered within the node.
    #[serde(default)]
    pub pcie_switch: Option<u32>,
    /// What it is partitioned into, by place; empty if it is whole.
    #[serde(default)]
    pub mig: Vec<GpuInstance>,
    /// What it could be partitioned into, from the smallest; empty if its model cannot be, or is not known.
    #[serde(default)]
    #[schema(example = json!(["1g.18gb", "3g.71gb"]))]
    pub mig_profiles: Vec<String>,
}

/// An instance of a partitioned GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuInstance {
    /// As the driver names it.
    #[schema(example = "3g.71gb")]
    pub profile: String,
    /// Where on the device it begins.
    pub start: u8,
    /// Somebody holds it.
    pub held: bool,
}

/// GPUs that match the filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuList {
    /// In order of node and index.
    pub gpus: Vec<Gpu>,
    /// How many there are.
    pub total: u64,
}

/// What to change of a GPU. What is not sent stays. Its hardware is what the agent of its node reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuChange {
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// Profiles to partition it into; an empty list makes it whole again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Why.
    pub why: String,
}

/// An operator's word about the health of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuHealthChange {
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    pub health: String,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// What happens to the jobs on it: `keep` lets them run on, `requeue` stops them and queues them again, `stop`
    /// ends them. `keep` when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "requeue")]
    pub jobs: Option<String>,
}

/// A GPU whose health was declared, and the jobs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuHealthDeclared {
    /// The GPU as it is now.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// What happens to the jobs: `keep`, `requeue` or `stop`.
    pub jobs_rule: String,
    /// The jobs that held something of it.
    pub jobs: Vec<String>,
}

/// What a GPU that nobody uses is to be partitioned into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPartition {
    /// Instances of these profiles, each where it spoils least; none make it whole again.
    #[schema(example = json!(["3g.71gb", "4g.71gb"]))]
    pub profiles: Vec<String>,
    /// Why.
    #[serde(default)]
    pub why: String,
}
