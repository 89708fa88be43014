//! Nodes: declaration, changes and status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu::Gpu;

/// Declaration of a node whose agent has not joined; may be replaced until then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "gpu01", "cpu_cores": 64, "memory_mb": 524288,
    "gpus": [{"model": "NVIDIA H100", "memory_mb": 81920, "count": 8}]}))]
pub struct NodeSpec {
    /// Permanent name, of a-z, 0-9, `-`, `_`, `.`.
    pub name: String,
    /// CPU cores.
    pub cpu_cores: u32,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// GPUs of the node, by index.
    #[serde(default)]
    pub gpus: Vec<GpuSpec>,
    /// Host name, for display.
    #[serde(default)]
    pub hostname: String,
    /// Address, for display.
    #[serde(default)]
    pub ip_address: String,
    /// Rack of the node.
    #[serde(default)]
    pub rack: Option<String>,
    /// Block of racks that contains the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// NUMA nodes, by number; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<NumaNode>,
    /// Power feed of the node.
    #[serde(default)]
    pub power_feed: Option<String>,
    /// Node labels, for placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints: they keep jobs off the node that do not tolerate them.
    #[serde(default)]
    pub taints: Vec<String>,
    /// True if the GPUs are simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// GPUs of one model on a declared node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// Model name as the driver reports it.
    pub model: String,
    /// Memory of the device in MiB.
    pub memory_mb: u64,
    /// Globally unique id of the device; derived from node and index if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Number of such GPUs, with consecutive indexes. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// NUMA node that it is attached to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs that are connected by NVLink; with `count` they may include its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlink: Vec<u8>,
    /// Processor socket that it is attached to, if known. Default: that of its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch that it is attached to, if there is one and it is known; numbered within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// Power limit in watts, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<u32>,
}

/// A NUMA node: cores and the memory next to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// CPU cores.
    pub cpu_cores: u32,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// Processor socket that contains it.
    #[serde(default)]
    pub socket: u32,
}

/// Changes of a node. A field that is not sent stays unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeChange {
    /// State of the node: `ready`, `draining` or `hold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Reason for the change of state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// All node labels; they replace those that the agent reports. `null` restores the agent's labels.
    #[serde(deserialize_with = "crate::input::double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub labels: Option<Option<BTreeMap<String, String>>>,
    /// All taints; they replace those that the agent reports. `null` restores the agent's taints.
    #[serde(deserialize_with = "crate::input::double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub taints: Option<Option<Vec<String>>>,
}

/// Current status of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Permanent name.
    #[schema(example = "gpu01")]
    pub id: String,
    /// The same as `id`.
    pub name: String,
    /// Host name.
    pub hostname: String,
    /// Address.
    pub ip_address: String,
    /// `Ready`, `Suspect`, `Unreachable`, `Fenced`, `Draining`, `Hold`, or `Declared` until its agent joins. The word for
    /// service and sight together; the worst counts: `Fenced`, `Unreachable`, `Hold`, `Draining`, `Suspect`, `Ready`.
    #[schema(example = "Ready")]
    pub state: String,
    /// Actor that set the state.
    pub state_by: String,
    /// Reason of the state.
    pub state_why: String,
    /// Start of the state, RFC 3339.
    pub state_since: String,
    /// The same in Unix milliseconds.
    pub state_since_ms: i64,
    /// What operators want of the node: `Ready`, `Draining` or `Hold`. Silence and fences leave it unchanged.
    #[serde(default)]
    pub service: NodeAxis,
    /// Whether the leader hears its agent: `Seen`, `Suspect`, `Unreachable` or `Fenced`.
    #[serde(default)]
    pub sight: NodeAxis,
    /// Last report of a silent node that the leader knows of, RFC 3339. A new leader counts from its takeover.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<String>,
    /// How its health program failed last; absent if the node is healthy or has no such program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_failure: Option<String>,
    /// When the jobs that still run are stopped and queue again, RFC 3339; absent unless the node drains with a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_deadline: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_deadline_ms: Option<i64>,
    /// True if it reboots once it is empty, and then returns to service.
    #[serde(default)]
    pub reboots_when_idle: bool,
    /// How the power program failed last for this node; absent if it succeeded or was not needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_failure: Option<String>,
    /// True if its agent is connected.
    pub online: bool,
    /// True if it takes new jobs.
    pub schedulable: bool,
    /// True if it is draining: it finishes its jobs and takes no new ones.
    pub draining_mode: bool,
    /// Number of GPUs.
    pub total_gpus: u32,
    /// GPUs free for placement now.
    pub available_gpus: u32,
    /// CPU cores.
    pub cpu_cores: u32,
    /// CPU cores that no job holds.
    pub available_cpu_cores: u64,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// Main memory that no job holds, in MiB.
    pub available_memory_mb: u64,
    /// Part of its GPUs that jobs hold, 0 to 1.
    pub gpu_allocation: f64,
    /// Rack of the node.
    pub rack: Option<String>,
    /// Block of racks that contains the node.
    #[serde(default)]
    pub block: Option<String>,
    /// NUMA nodes, by number; empty if unknown.
    #[serde(default)]
    pub numa_nodes: Vec<NumaNode>,
    /// Power feed of the node.
    pub power_feed: Option<String>,
    /// Node labels, for placement.
    pub labels: BTreeMap<String, String>,
    /// Taints of the node.
    pub taints: Vec<String>,
    /// Version of its agent.
    pub agent_version: String,
    /// Interval of the heartbeats of its agent, if the agent told it; a silent node is suspect after three of them and a margin.
    #[serde(default)]
    pub heartbeat_interval_ms: Option<i64>,
    /// True if the GPUs are simulated.
    pub simulated: bool,
    /// First registration, RFC 3339.
    pub registered_at: String,
    /// Last message of its agent to this server, RFC 3339; absent until then.
    pub last_heartbeat: Option<String>,
    /// Jobs with tasks on this node, if visible to the caller.
    pub jobs: Vec<String>,
    /// GPUs of the node; only in the answer for a single node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// How to drain a node. Everything is optional. A drain replaces what an earlier one said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DrainSpec {
    /// Reason in a sentence, shown with the node; may be empty.
    pub why: String,
    /// After this time the jobs that still run are stopped, with their grace, and queue again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<u64>,
    /// Stop the running jobs now; they queue again.
    pub requeue: bool,
}

/// The drain of a node, and what still runs on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeDrain {
    /// Message for display.
    pub message: String,
    /// Name of the node.
    pub node: String,
    /// State of the node, as in the answer for the node.
    pub state: String,
    /// When the jobs that still run are stopped, RFC 3339; absent without a deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// True if the node reboots once it is empty.
    pub reboots_when_idle: bool,
    /// Jobs with tasks on the node, the first to end first.
    pub remaining: Vec<RemainingJob>,
}

/// A job that still has tasks on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemainingJob {
    /// Job id.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// User of the job.
    pub user: String,
    /// Phase of the job, for example `Running` or `Stopping`.
    pub phase: String,
    /// GPUs of this node that it holds, whole or in part.
    pub gpus: u32,
    /// Expected end, RFC 3339; absent without a runtime estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_end_ms: Option<i64>,
    /// True if the expected end is a limit (time limit, stop order, deadline) and not a runtime estimate.
    pub is_bound: bool,
}

/// How to fence a node. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FenceSpec {
    /// Reason in a sentence, shown with the node; may be empty.
    pub why: String,
    /// Do not run the power program: the caller knows that nothing runs on the node any more.
    pub skip_program: bool,
}

/// A use of the power program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerSpec {
    /// `status`, `on`, `off`, `reset` or `reboot`.
    #[schema(example = "status")]
    pub action: String,
    /// Also if jobs run on the node.
    #[serde(default)]
    pub force: bool,
}

/// The power program has done what was asked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PowerDone {
    /// Message for display.
    pub message: String,
    /// Last output of the program, in one line.
    pub output: String,
}

/// The state of a node on one axis.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAxis {
    /// `Ready`, `Draining` or `Hold` for the service; `Seen`, `Suspect`, `Unreachable` or `Fenced` for the sight.
    pub state: String,
    /// Who set it.
    pub by: String,
    /// Reason.
    pub why: String,
    /// Time of the last change, RFC 3339.
    pub since: String,
    /// Time of the last change, in Unix milliseconds.
    pub since_ms: i64,
}

/// All nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// In order of name.
    pub nodes: Vec<Node>,
    /// Number of nodes.
    pub total: u64,
}

/// A new join token. Everything is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JoinTokenSpec {
    /// The only node that may use it. Without a name the token enrols any node that has not joined yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Lifetime. Default: 15 minutes; at most 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<u64>,
}

/// A join token that was created. Its URL is shown only once and is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JoinTokenMade {
    /// Public id.
    #[schema(example = "j0123456789")]
    pub id: String,
    /// Start the agent of the new node with `muster agent --join` and this URL.
    pub url: String,
    /// The only node that may use it; absent for any new node.
    pub node: Option<String>,
    /// Time of expiry, RFC 3339.
    pub expires_at: String,
}
