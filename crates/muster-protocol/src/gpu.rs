//! GPUs: status, health and partitioning.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu_share::Holder;

/// Current status of a GPU. A value that cannot be read is null, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Gpu {
    /// Node and index.
    #[schema(example = "gpu01/gpu-3")]
    pub id: String,
    /// Node of the GPU.
    pub node_id: String,
    /// Index on its node, from 0.
    pub index: u8,
    /// Globally unique id of the device.
    pub uuid: String,
    /// Model name as the driver reports it.
    pub model: String,
    /// CUDA compute capability, if the model is known.
    #[schema(example = "9.0")]
    #[serde(default)]
    pub compute_capability: Option<String>,
    /// CUDA cores, if the model is known.
    #[serde(default)]
    pub cuda_cores: Option<u32>,
    /// Tensor cores, if the model is known.
    #[serde(default)]
    pub tensor_cores: Option<u32>,
    /// `free`, `held`, `shared` (held in part), `partitioned` (no MIG instance is held), `claimed` (held for a
    /// preemptor whose victims are stopping), `cooling` or `out` (unhealthy, or its node takes no jobs).
    #[schema(example = "free")]
    pub state: String,
    /// Memory of the device in MiB.
    pub memory_total_mb: u64,
    /// Memory in use in MiB. Always null in this version: it is not measured yet.
    pub memory_used_mb: Option<u64>,
    /// Memory free in MiB. Always null in this version: it is not measured yet.
    pub memory_free_mb: Option<u64>,
    /// True if a job holds it or a part of it.
    pub allocated: bool,
    /// Compute in use by leases, in thousandths.
    #[serde(default)]
    pub used_milli: u32,
    /// Attempt that holds the whole GPU; absent if the caller may not see it.
    pub allocation_id: Option<String>,
    /// Job that holds the whole GPU; absent if the caller may not see it.
    pub job_id: Option<String>,
    /// Tenant that holds the whole GPU; absent if the caller may not see it.
    pub tenant_id: Option<String>,
    /// Jobs that hold it or parts of it, if visible to the caller.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    #[schema(example = "healthy")]
    pub health: String,
    /// Reason of the health level, in a sentence; empty if healthy.
    pub health_why: String,
    /// The operator who declared it `warning` or worse, until an operator declares it `healthy`.
    #[serde(default)]
    pub health_declared_by: Option<String>,
    /// Start of the current health level, RFC 3339.
    pub health_since: String,
    /// End of the cooling period; the GPU gets no job before.
    pub cooling_until: Option<String>,
    /// True if the GPU is too hot for a new job.
    pub thermal_throttle: bool,
    /// Temperature threshold in °C; above it the GPU cools before it gets another job.
    pub max_temperature: i32,
    /// Length of the cooling period in seconds.
    pub cooling_period: i64,
    /// Utilisation, 0 to 1. Always null in this version: it is not measured yet.
    pub utilization: Option<f64>,
    /// Temperature in °C at the newest reading; absent until this server has one.
    pub temperature: Option<f64>,
    /// Errors counted by the device at the newest reading; absent until this server has one.
    #[serde(default)]
    pub error_count: Option<u32>,
    /// Newest error that the agent has reported since this server started.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Time of the newest reading on this server, RFC 3339.
    #[serde(default)]
    pub last_health_check: Option<String>,
    /// Last message from the agent of its node to this server, RFC 3339.
    #[serde(default)]
    pub last_heartbeat: Option<String>,
    /// Power drawn in watts. Always null in this version: it is not measured yet.
    pub power_usage: Option<f64>,
    /// Power limit in watts, if known.
    pub power_limit_w: Option<f64>,
    /// NUMA node that it is attached to, if known.
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs that are connected by NVLink.
    pub nvlink: Vec<u8>,
    /// Processor socket that it is attached to, if known.
    #[serde(default)]
    pub socket: Option<u32>,
    /// PCIe switch that it is attached to, if there is one and it is known; numbered within the node.
    #[serde(default)]
    pub pcie_switch: Option<u32>,
    /// MIG instances, by first memory slice; empty if the GPU is not partitioned.
    #[serde(default)]
    pub mig: Vec<GpuInstance>,
    /// MIG profiles of the model, smallest first; empty if the model has no MIG or is not known.
    #[serde(default)]
    #[schema(example = json!(["1g.18gb", "3g.71gb"]))]
    pub mig_profiles: Vec<String>,
}

/// A MIG instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuInstance {
    /// MIG profile.
    #[schema(example = "3g.71gb")]
    pub profile: String,
    /// First memory slice of the instance.
    pub start: u8,
    /// True if a job holds it.
    pub held: bool,
}

/// GPUs that match the filters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuList {
    /// In order of node and index.
    pub gpus: Vec<Gpu>,
    /// Number of GPUs.
    pub total: u64,
}

/// Changes of a GPU. A field that is not sent stays unchanged. Hardware properties come from the agent of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GpuChange {
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<String>,
    /// MIG profiles to partition it into; an empty list removes the partitioning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles: Option<Vec<String>>,
    /// Reason; may be empty.
    pub why: String,
}

/// Health of a GPU as declared by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuHealthChange {
    /// `healthy`, `warning`, `degraded` or `unhealthy`.
    pub health: String,
    /// Reason; may be empty.
    #[serde(default)]
    pub why: String,
    /// Jobs on the GPU: `keep` leaves them running, `requeue` stops and requeues them, `stop` ends them. Default:
    /// `keep`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "requeue")]
    pub jobs: Option<String>,
}

/// A GPU whose health was declared, and the jobs on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GpuHealthDeclared {
    /// The GPU after the declaration.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// Rule for the jobs on the GPU: `keep`, `requeue` or `stop`.
    pub jobs_rule: String,
    /// Jobs that held the GPU or a part of it.
    pub jobs: Vec<String>,
}

/// New partitioning of an idle GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuPartition {
    /// MIG profiles of the instances, each placed where it blocks the fewest other profiles; an empty list removes the
    /// partitioning.
    #[schema(example = json!(["3g.71gb", "4g.71gb"]))]
    pub profiles: Vec<String>,
    /// Reason; may be empty.
    #[serde(default)]
    pub why: String,
}
