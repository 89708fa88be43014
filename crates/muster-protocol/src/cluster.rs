//! The cluster as a whole.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counters of the cluster, and who answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterStatus {
    /// GPUs of all nodes.
    pub total_gpus: u64,
    /// GPUs that could be given out now.
    pub available_gpus: u64,
    /// Nodes.
    pub total_nodes: u64,
    /// Nodes that are heard from.
    pub online_nodes: u64,
    /// Jobs ever accepted; tasks of arrays count each.
    pub total_jobs: u64,
    /// Jobs that wait and were not preempted; those are counted in `jobs_by_state`.
    pub pending_jobs: u64,
    /// Jobs that run.
    pub running_jobs: u64,

    /// GPUs that somebody holds.
    pub allocated_gpus: u64,
    /// GPUs by model.
    pub gpus_by_model: BTreeMap<String, GpuCount>,
    /// Nodes by state.
    pub nodes_by_state: BTreeMap<String, u64>,
    /// Jobs by state.
    pub jobs_by_state: BTreeMap<String, u64>,
    /// Jobs that a person holds.
    pub held_jobs: u64,
    /// Tenants.
    pub tenants: u64,
    /// All devices are simulated.
    pub simulated: bool,
    /// What this server is: `leading`, `standby`, `starting` or `away`.
    #[schema(example = "leading")]
    pub role: String,
    /// The leading server, where this one stands by.
    pub leader: Option<String>,
    /// The turn of the leader, where this one leads.
    pub epoch: Option<u64>,
    /// Number of the newest journal entry that is shown here.
    pub seq: u64,
    /// Version of the server.
    pub version: String,
    /// The time of the server, RFC 3339.
    pub time: String,
    /// The same in Unix milliseconds.
    pub time_ms: i64,
}

/// GPUs of one model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GpuCount {
    /// In all.
    pub total: u64,
    /// That could be given out now.
    pub available: u64,
    /// That somebody holds.
    pub allocated: u64,
}

/// Whether the server can serve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `healthy` or `unhealthy`.
    #[schema(example = "healthy")]
    pub status: String,
    /// What this server is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Why it cannot serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Who the caller is to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Myself {
    /// The name under which acts are recorded.
    pub name: String,
    /// `viewer`, `member`, `tenant-admin`, `operator` or `admin`.
    pub role: String,
    /// The tenant it belongs to; absent for roles that reach every tenant.
    pub tenant_id: Option<String>,
}
