//! Status of the cluster, health of the server, and identity of the caller.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counters of the cluster, and the role of the server that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// GPUs of all nodes.
    pub total_gpus: u64,
    /// GPUs free for placement now.
    pub available_gpus: u64,
    /// Number of nodes.
    pub total_nodes: u64,
    /// Nodes whose agent is connected.
    pub online_nodes: u64,
    /// Jobs accepted so far; each task of an array counts.
    pub total_jobs: u64,
    /// Waiting jobs without preempted ones, which `jobs_by_state` counts.
    pub pending_jobs: u64,
    /// Running jobs.
    pub running_jobs: u64,

    /// GPUs with a lease.
    pub allocated_gpus: u64,
    /// GPUs by model.
    pub gpus_by_model: BTreeMap<String, GpuCount>,
    /// Nodes by state.
    pub nodes_by_state: BTreeMap<String, u64>,
    /// Jobs by state.
    pub jobs_by_state: BTreeMap<String, u64>,
    /// Held jobs.
    pub held_jobs: u64,
    /// Number of tenants.
    pub tenants: u64,
    /// True if all GPUs are simulated.
    pub simulated: bool,
    /// Role of this server: `leading`, `standby`, `starting` or `away`.
    #[schema(example = "leading")]
    pub role: String,
    /// Name of the leader, if this server is a standby.
    pub leader: Option<String>,
    /// Epoch of the leader; absent on a standby.
    pub epoch: Option<u64>,
    /// Number of the newest journal entry that this answer includes.
    pub seq: u64,
    /// Version of the server.
    pub version: String,
    /// Current time of the server, RFC 3339.
    pub time: String,
    /// The same in Unix milliseconds.
    pub time_ms: i64,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuCount {
    /// All GPUs of the model.
    pub total: u64,
    /// GPUs free for placement now.
    pub available: u64,
    /// GPUs with a lease.
    pub allocated: u64,
}

/// Health of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `healthy` or `unhealthy`.
    #[schema(example = "healthy")]
    pub status: String,
    /// Role of this server: `leading`, `standby`, `starting` or `away`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Why the server cannot serve requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Name, role and tenant of the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerIdentity {
    /// Name under which acts are recorded in the audit log.
    pub name: String,
    /// `viewer`, `member`, `tenant-admin`, `operator` or `admin`.
    pub role: String,
    /// Tenant of the caller; absent for roles with access to all tenants.
    pub tenant_id: Option<String>,
}
