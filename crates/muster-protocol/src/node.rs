//! Machines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu::Gpu;

/// A node to declare before its agent joins, or to describe again until then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "gpu01", "cpu_cores": 64, "memory_mb": 524288,
    "gpus": [{"model": "NVIDIA H100", "memory_mb": 81920, "count": 8}]}))]
pub struct NodeSpec {
    /// Its name for ever, a-z, 0-9, `-`, `_`, `.`.
    pub name: String,
    /// CPU cores.
    pub cpu_cores: u32,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// Its GPUs, by index.
    #[serde(default)]
    pub gpus: Vec<GpuSpec>,
    /// Host name, for people.
    #[serde(default)]
    pub hostname: String,
    /// Address, for people.
    #[serde(default)]
    pub ip_address: String,
    /// Which rack it stands in.
    #[serde(default)]
    pub rack: Option<String>,
    /// Which block of racks it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Its NUMA nodes, by number; none where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<NumaNode>,
    /// Which power feed it hangs on.
    #[serde(default)]
    pub power_feed: Option<String>,
    /// Free words for placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Kept away from jobs that do not tolerate them.
    #[serde(default)]
    pub taints: Vec<String>,
    /// The devices are simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// GPUs of one kind on a node to make known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// As the driver spells it.
    pub model: String,
    /// Memory of the device in MiB.
    pub memory_mb: u64,
    /// Unique in the world; made from node and index when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// So many devices like this, one after the other; 1 when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// NUMA node it hangs on, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs it reaches by NVLink; with `count`, its own may be among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlink: Vec<u8>,
    /// Processor socket it hangs on, where known; that of its NUMA node when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch it hangs on, where it hangs on one and that is known; numbered within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// Power limit in watts, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_limit_w: Option<u32>,
}

/// A NUMA node: cores and the memory that is near to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NumaNode {
    /// CPU cores.
    pub cpu_cores: u32,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// Processor socket it belongs to.
    #[serde(default)]
    pub socket: u32,
}

/// What to change of a node. What is not sent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NodeChange {
    /// Whether it takes work: `ready`, `draining` or `hold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Why the state is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Labels for placement, all of them; they replace those that the agent reports. `null` leaves them to the agent.
    #[serde(deserialize_with = "crate::written::sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, String>>)]
    pub labels: Option<Option<BTreeMap<String, String>>>,
    /// Taints, all of them; they replace those that the agent reports. `null` leaves them to the agent.
    #[serde(deserialize_with = "crate::written::sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<String>>)]
    pub taints: Option<Option<Vec<String>>>,
}

/// A machine, as it stands now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Node {
    /// Its name for ever.
    #[schema(example = "gpu01")]
    pub id: String,
    /// The same as `id`.
    pub name: String,
    /// Host name.
    pub hostname: String,
    /// Address.
    pub ip_address: String,
    /// `Ready`, `Suspect`, `Unreachable`, `Fenced`, `Draining`, `Hold`, or `Declared` until its agent joins.
    #[schema(example = "Ready")]
    pub state: String,
    /// Who or what set the state.
    pub state_by: String,
    /// Why.
    pub state_why: String,
    /// Since when, RFC 3339.
    pub state_since: String,
    /// The same in Unix milliseconds.
    pub state_since_ms: i64,
    /// It is heard from.
    pub online: bool,
    /// It takes new work.
    pub schedulable: bool,
    /// It finishes what it has and takes nothing new.
    pub draining_mode: bool,
    /// GPUs.
    pub total_gpus: u32,
    /// GPUs that could be given out now.
    pub available_gpus: u32,
    /// CPU cores.
    pub cpu_cores: u32,
    /// CPU cores that nobody holds.
    pub available_cpu_cores: u64,
    /// Main memory in MiB.
    pub memory_mb: u64,
    /// Main memory that nobody holds, in MiB.
    pub available_memory_mb: u64,
    /// Part of its GPUs that is held, 0 to 1.
    pub gpu_allocation: f64,
    /// Which rack it stands in.
    pub rack: Option<String>,
    /// Which block of racks it stands in.
    #[serde(default)]
    pub block: Option<String>,
    /// Its NUMA nodes, by number; none where they are not known.
    #[serde(default)]
    pub numa_nodes: Vec<NumaNode>,
    /// Which power feed it hangs on.
    pub power_feed: Option<String>,
    /// Free words for placement.
    pub labels: BTreeMap<String, String>,
    /// Taints.
    pub taints: Vec<String>,
    /// Version of its agent.
    pub agent_version: String,
    /// The devices are simulated.
    pub simulated: bool,
    /// When it was first seen.
    pub registered_at: String,
    /// When this server last heard from its agent, RFC 3339; absent until then.
    pub last_heartbeat: Option<String>,
    /// Jobs with a part here; those of other tenants are left out for callers who may not see them.
    pub jobs: Vec<String>,
    /// Its GPUs; only when one node is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<Gpu>,
}

/// All nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeList {
    /// In order of name.
    pub nodes: Vec<Node>,
    /// How many there are.
    pub total: u64,
}
