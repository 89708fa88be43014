//! Between server and agent: what a node is, what it owes, and what it says it has.
//!
//! Orders are the full list each time, so a lost message costs a moment and never a job. An agent keeps the
//! newest orders by (epoch, generation), refuses older ones, and repeats an end until the orders no longer
//! name that attempt.
//!
//! Each start of an agent is an incarnation with an id of its own. Orders name the incarnation that the journal
//! knows, so orders that were sent to a former incarnation are refused by its successor: it has forgotten which
//! orders were the newest, and after the loss of a disk also what it has launched.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an agent says its machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// The node's name.
    pub node: String,
    /// Host name, for people and for the tasks of a gang.
    #[serde(default)]
    pub hostname: String,
    /// Address, for people and for the tasks of a gang; empty where it has none of its own.
    #[serde(default)]
    pub address: String,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// The devices, by index.
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    /// Its NUMA nodes, by number; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<Numa>,
    /// Which rack it stands in.
    #[serde(default)]
    pub rack: Option<String>,
    /// Which block of racks it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Which power feed it hangs on.
    #[serde(default)]
    pub power_feed: Option<String>,
    /// Free words for placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Kept away from jobs that do not tolerate them.
    #[serde(default)]
    pub taints: Vec<String>,
    /// Version of the agent.
    #[serde(default)]
    pub agent_version: String,
    /// This start of the agent. Empty for an agent that lives and dies with the server process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// The devices are simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// What does not change about a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// Unique in the world.
    pub uuid: String,
    /// As the driver spells it.
    pub model: String,
    /// Memory of the device.
    pub memory_mib: u64,
    /// NUMA node it hangs on, where known.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs it reaches by NVLink.
    #[serde(default)]
    pub nvlink: Vec<u8>,
    /// Processor socket it hangs on, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch it hangs on, where it hangs on one and that is known; numbered within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// What it is partitioned into; nothing if it is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<MigInstance>,
    /// Power limit, where known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
}

/// An instance of a partitioned GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// As the driver names it, for example `1g.18gb`.
    pub profile: String,
    /// Where on the device it begins.
    pub start: u8,
}

/// A NUMA node: cores and the memory that is near to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Numa {
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Processor socket it belongs to.
    pub socket: u32,
}

/// Everything a node owes, at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// To which node.
    pub node: String,
    /// To which incarnation of its agent: the one that the journal knew when the orders were computed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// Under which leadership.
    pub epoch: u64,
    /// Grows with every change of the cluster; older orders are ignored.
    pub generation: u64,
    /// Every attempt with a part on this node that has not ended.
    pub attempts: Vec<Order>,
    /// The pools of policies that have devices on this node, and how those devices are to be driven and looked after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolOrder>,
}

/// A pool, as far as this node is concerned. Numbers of policies are told in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolOrder {
    /// Its name.
    pub name: String,
    /// Its devices on this node, by index.
    pub gpus: Vec<u8>,
    /// How they are driven: `performance`, `balanced`, `adaptive` or `efficiency`.
    pub power_policy: String,
    /// Warmer than this they are not given out.
    pub max_temp_milli_c: i64,
    /// Less healthy than this they are not given out.
    pub health_threshold_milli: i64,
    /// How they are tuned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuning: Vec<Wish>,
    /// What is to be looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Wish>,
}

/// Something that a policy wants of devices, in its own words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wish {
    /// What.
    pub name: String,
    /// What else was said of it, as it is written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// One attempt, as far as this node is concerned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The job, `job-42`.
    pub job: String,
    /// The attempt's number.
    pub attempt: u32,
    /// When it was placed, in Unix milliseconds.
    pub placed_at_ms: i64,
    /// The server has already heard that this part runs: it must not be launched again, only adopted.
    pub started: bool,
    /// The tasks on this node.
    pub tasks: Vec<TaskOrder>,
    /// Tasks of the whole gang, on all nodes.
    pub gang_size: u32,
    /// The nodes of the whole gang, each once, in order of rank; empty where a server did not say.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Which of them this node is, from 0.
    #[serde(default)]
    pub node_rank: u32,
    /// Where the first of them can be reached.
    #[serde(default)]
    pub master_address: String,
    /// What to run.
    pub run: Run,
    /// Name, tenant and user, for the environment of the job.
    pub name: String,
    /// Who pays.
    pub tenant: String,
    /// Who asked.
    pub user: String,
    /// Free words for machines.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The most that each of its GPUs may draw, where a policy says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts_max: Option<u64>,
    /// Set when the attempt must end.
    #[serde(default)]
    pub stop: Option<Stop>,
}

/// One task of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// Rank inside the gang.
    pub rank: u32,
    /// The name of its group.
    #[serde(default)]
    pub group: String,
    /// Rank inside its group.
    #[serde(default)]
    pub group_rank: u32,
    /// Devices it holds, by index.
    pub gpus: Vec<u8>,
    /// What it has of its device, where that is not all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<TaskShare>,
    /// The NUMA nodes of its devices; none where not all of them are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<u32>,
    /// CPU cores it holds.
    pub cpus: u32,
    /// Main memory it holds.
    pub memory_mib: u64,
}

/// What a task has of its device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskShare {
    /// How the device is shared: `mig`, `mps` or `time-slice`.
    pub mode: String,
    /// Thousandths of its compute.
    pub compute_milli: u32,
    /// What the task may use of its memory.
    pub memory_mib: u64,
    /// What the instance is called, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Where on the device the instance begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u8>,
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    /// An OCI image.
    #[serde(default)]
    pub image: Option<String>,
    /// A shell script.
    #[serde(default)]
    pub script: Option<String>,
    /// A command, without a shell.
    #[serde(default)]
    pub command: Vec<String>,
    /// Its further arguments.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory.
    #[serde(default)]
    pub directory: Option<String>,
}

/// An attempt must end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Since when, in Unix milliseconds.
    pub since_ms: i64,
    /// How long the processes may take before they are killed.
    pub grace_ms: i64,
    /// Why, for the log of the job.
    pub why: String,
}

/// What an agent says of its own accord.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// It is there; sent first and again when something about the machine changes.
    Registered(Box<Registration>),
    /// It is still there.
    Heartbeat {
        /// Which node.
        node: String,
    },
    /// Its part of an attempt runs.
    Started {
        /// Which node.
        node: String,
        /// Which job.
        job: String,
        /// Which attempt.
        attempt: u32,
        /// The incarnation of the agent that says so.
        #[serde(default)]
        incarnation: String,
    },
    /// Its part of an attempt is over; repeated until the orders no longer name it.
    Ended {
        /// Which node.
        node: String,
        /// Which job.
        job: String,
        /// Which attempt.
        attempt: u32,
        /// How.
        exit: Exit,
        /// The agent had told it to stop before it ended. Tells work that finished just in time from work
        /// that was cut short.
        stopped: bool,
        /// How long ago the processes were gone, by the clock of the node; absent where nobody saw the end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_ms_ago: Option<i64>,
        /// The incarnation of the agent that says so.
        #[serde(default)]
        incarnation: String,
    },
    /// Readings of a GPU.
    GpuReading {
        /// Which node.
        node: String,
        /// The device.
        gpu: u8,
        /// In °C, where it can be read.
        temperature_c: Option<i32>,
        /// Errors counted so far.
        errors: u32,
        /// The newest error, in words.
        last_error: String,
    },
}

/// How the processes of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// By themselves.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// They never started.
    NotStarted(String),
    /// They are gone and nobody saw how.
    Unknown(String),
}
