//! Server-agent protocol: registration, orders, reports. Steps 9 to 11 of the path of a job.
//!
//! Orders are the full list each time, so a lost message causes a delay and never the loss of a job. An agent keeps the
//! newest orders by (epoch, generation), refuses older ones, and repeats the report of an end until the orders no
//! longer name that attempt.
//!
//! Each start of an agent is an incarnation with its own id. Orders name the incarnation that the journal knows, so an
//! agent refuses orders that were meant for its predecessor: it no longer knows which orders were the newest, and after
//! the loss of its disk it does not know which attempts it has launched.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::secret_value::SecretValue;

/// Registration of a node by its agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registration {
    /// Name of the node.
    pub node: String,
    /// Host name, for display and for the tasks of a gang.
    #[serde(default)]
    pub hostname: String,
    /// Address, for display and for the tasks of a gang; empty if the node has no address of its own.
    #[serde(default)]
    pub address: String,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// GPUs, by index.
    #[serde(default)]
    pub gpus: Vec<RegisteredGpu>,
    /// NUMA nodes, by number; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<RegisteredNumaNode>,
    /// Rack of the node.
    #[serde(default)]
    pub rack: Option<String>,
    /// Block of racks that contains the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// Power feed of the node.
    #[serde(default)]
    pub power_feed: Option<String>,
    /// Node labels, for placement.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints: they keep jobs off the node that do not tolerate them.
    #[serde(default)]
    pub taints: Vec<String>,
    /// Version of the agent.
    #[serde(default)]
    pub agent_version: String,
    /// Id of this start of the agent. Empty for an agent within the server process.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// Interval of its heartbeats; absent for an agent of an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_ms: Option<i64>,
    /// Id of the boot of the node's kernel. Empty for an agent of an earlier release.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// True if the GPUs are simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// Permanent properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredGpu {
    /// Globally unique id of the device.
    pub uuid: String,
    /// Model name as the driver reports it.
    pub model: String,
    /// Memory of the device.
    pub memory_mib: u64,
    /// NUMA node that it is attached to, if known.
    #[serde(default)]
    pub numa_node: Option<u32>,
    /// Indexes of the GPUs that are connected by NVLink.
    #[serde(default)]
    pub nvlink: Vec<u8>,
    /// Processor socket that it is attached to, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    /// PCIe switch that it is attached to, if there is one and it is known; numbered within the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_switch: Option<u32>,
    /// MIG instances; empty if the GPU is not partitioned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<MigInstance>,
    /// Power limit, if known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
}

/// A MIG instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// MIG profile, for example `1g.18gb`.
    pub profile: String,
    /// First memory slice of the instance.
    pub start: u8,
}

/// A NUMA node: cores and the memory next to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredNumaNode {
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Processor socket that contains it.
    pub socket: u32,
}

/// Full list of attempts that a node must run or stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Node that receives the orders.
    pub node: String,
    /// Incarnation of the agent that receives them: the one in the journal when the orders were computed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// Epoch of the leader that computed the orders.
    pub epoch: u64,
    /// Random number of the leader's term. A database that is restored from a backup or from a late replica may give an
    /// epoch a second time, but never with the same nonce. 0 if the server is of an earlier release.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nonce: u64,
    /// Grows with every change of the cluster; an agent ignores older orders.
    pub generation: u64,
    /// All attempts with tasks on this node that have not ended.
    pub attempts: Vec<AttemptOrder>,
    /// Policy pools with GPUs on this node, with their settings for power, tuning and health checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolOrder>,
    /// Reboot the node if this is the id of its boot, and no attempt is left on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_from: Option<String>,
    /// Secrets of attempts that the agent has not reported as started. An agent launches an attempt with secrets only when
    /// it has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<AttemptSecrets>,
}

/// The secrets of one attempt. An agent keeps them in memory until the launch and never on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSecrets {
    /// Job id.
    pub job: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// One for each file that the run specification names.
    pub files: Vec<SecretFile>,
    /// Why they cannot be delivered, as the text of [`Exit::NotStarted`]; then `files` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// A secret as the job finds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretFile {
    /// Name of the file.
    pub name: String,
    /// Content of the file.
    pub value: SecretValue,
}

/// Age of orders. An agent never follows orders that are older than those it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrdersStamp {
    /// Epoch of the leader that computed them.
    pub epoch: u64,
    /// Nonce of its term; 0 if unknown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub nonce: u64,
    /// Their generation within the epoch.
    pub generation: u64,
}

impl Orders {
    /// Age of these orders.
    pub fn stamp(&self) -> OrdersStamp {
        OrdersStamp { epoch: self.epoch, nonce: self.nonce, generation: self.generation }
    }
}

/// How orders relate to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrdersAge {
    /// Of the same state, or of a later one.
    Current,
    /// Of an earlier state.
    Older,
    /// Of an epoch that was given before, by a database that has lost a part of its history: neither is the older one.
    OtherHistory,
}

impl OrdersStamp {
    /// The age of these orders beside those with another stamp.
    pub fn age_beside(self, other: OrdersStamp) -> OrdersAge {
        let is_same_term = self.nonce == other.nonce || self.nonce == 0 || other.nonce == 0;
        match (self.epoch, self.generation) >= (other.epoch, other.generation) {
            true if is_same_term || self.epoch > other.epoch => OrdersAge::Current,
            false if is_same_term => OrdersAge::Older,
            _ => OrdersAge::OtherHistory,
        }
    }

    /// True if they were computed in this leader term.
    pub fn is_of_term(self, epoch: u64, nonce: u64) -> bool {
        self.epoch == epoch && (self.nonce == nonce || self.nonce == 0)
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The part of a policy pool on this node. Numbers of policies are in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolOrder {
    /// Name of the pool.
    pub name: String,
    /// GPUs of the pool on this node, by index.
    pub gpus: Vec<u8>,
    /// Power policy of the GPUs: `performance`, `balanced`, `adaptive` or `efficiency`.
    pub power_policy: String,
    /// GPUs above this temperature get no job.
    pub max_temp_milli_c: i64,
    /// GPUs below this health get no job.
    pub health_threshold_milli: i64,
    /// Tuning of the GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tuning: Vec<DeviceDirective>,
    /// Health checks of the GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub health_checks: Vec<DeviceDirective>,
}

/// A tuning or health-check directive of a policy, passed through unparsed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceDirective {
    /// Name of the directive.
    pub name: String,
    /// Further fields of the directive, as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, String>,
}

/// The part of an attempt on this node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptOrder {
    /// Job id, for example `job-42`.
    pub job: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// When it was placed, in Unix milliseconds.
    pub placed_at_ms: i64,
    /// The agent has already reported that these tasks run: they must not be launched again, only adopted.
    pub started: bool,
    /// A former installation of the node may have launched the tasks, and nobody has reported that they run: they must not be
    /// launched, only adopted, and then their start is reported. `started` is true as well, so that an agent of an earlier
    /// release does not launch them either.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt_only: bool,
    /// The tasks on this node.
    pub tasks: Vec<TaskOrder>,
    /// Tasks of the whole gang, on all nodes.
    pub gang_size: u32,
    /// Nodes of the whole gang, each once, in order of rank; empty if the server did not send them.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Position of this node in `nodes`, from 0.
    #[serde(default)]
    pub node_rank: u32,
    /// Address of the first node.
    #[serde(default)]
    pub master_address: String,
    /// Port on the first node that this attempt alone holds, for the tasks of a gang to meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u16>,
    /// Address and number of tasks of each node, in the order of `nodes`; empty if the server is of an earlier release.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<GangHost>,
    /// Program to run.
    pub run: RunSpec,
    /// Name of the job, for its environment.
    pub name: String,
    /// Tenant of the job.
    pub tenant: String,
    /// User who submitted the job.
    pub user: String,
    /// Annotations of the job.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Power limit of each of its GPUs, if a policy sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts_max: Option<u64>,
    /// Set if the node must kill the attempt by itself when no heartbeat sent within this time was acknowledged by a
    /// leader: the server may start the attempt's job elsewhere after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_fence_ms: Option<i64>,
    /// Number of the signal that the tasks get once, before the time limit of the job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Set if the attempt must stop.
    #[serde(default)]
    pub stop: Option<StopOrder>,
}

impl AttemptOrder {
    /// False if the tasks may run already, so that a launch could run them twice.
    pub fn may_be_launched(&self) -> bool {
        !self.started && !self.adopt_only
    }

    /// True once the server has received the report that the tasks run.
    pub fn is_start_acknowledged(&self) -> bool {
        self.started && !self.adopt_only
    }
}

/// A node of a gang.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GangHost {
    /// Network address, else host name, else name of the node.
    pub address: String,
    /// Tasks of the gang on this node.
    pub tasks: u32,
}

/// One task of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOrder {
    /// Rank within the gang.
    pub rank: u32,
    /// Name of its task group.
    #[serde(default)]
    pub group: String,
    /// Rank within its task group.
    #[serde(default)]
    pub group_rank: u32,
    /// GPUs that it holds, by index.
    pub gpus: Vec<u8>,
    /// Its share of the GPU, if it does not hold the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<TaskShare>,
    /// NUMA nodes of its GPUs; empty if not all of them are known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_nodes: Vec<u32>,
    /// CPU cores that it holds.
    pub cpus: u32,
    /// Main memory that it holds.
    pub memory_mib: u64,
}

/// The share of a GPU that a task holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskShare {
    /// Sharing mode: `mig`, `mps` or `time-slice`.
    pub mode: String,
    /// Compute share in thousandths.
    pub compute_milli: u32,
    /// GPU memory that the task may use.
    pub memory_mib: u64,
    /// MIG profile, if the share is a MIG instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// First memory slice of the MIG instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u8>,
}

/// Program of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunSpec {
    /// An OCI image.
    #[serde(default)]
    pub image: Option<String>,
    /// A shell script.
    #[serde(default)]
    pub script: Option<String>,
    /// A command, without a shell.
    #[serde(default)]
    pub command: Vec<String>,
    /// Further arguments of the command.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Working directory; with an image, the one in the container.
    #[serde(default)]
    pub directory: Option<String>,
    /// What the container sees of the machine, besides its own directories.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<RunMount>,
    /// Names of the files of its secrets. Their values are never in a run specification.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
}

/// A directory or file of the machine that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunMount {
    /// Path on the machine.
    pub source: String,
    /// Path in the container.
    pub target: String,
    /// The container cannot write to it.
    #[serde(default)]
    pub read_only: bool,
}

/// Order to stop an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// Time of the order, in Unix milliseconds.
    pub since_ms: i64,
    /// Grace: time between SIGTERM and SIGKILL.
    pub grace_ms: i64,
    /// Reason, for the log of the job.
    pub why: String,
}

/// Message of an agent to the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// Registration; sent first, and again when the machine changes.
    Registered(Box<Registration>),
    /// Sign of life.
    Heartbeat {
        /// Name of the node.
        node: String,
        /// The newest orders that the agent follows, so that the server repeats orders that were lost; absent before the
        /// first ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        following: Option<OrdersStamp>,
        /// When the agent sent it, by the boot clock of its node. The leader echoes it; nobody else interprets it.
        #[serde(default)]
        sent_at_boot_ms: i64,
    },
    /// The tasks of an attempt on this node run.
    Started {
        /// Name of the node.
        node: String,
        /// Job id.
        job: String,
        /// Number of the attempt.
        attempt: u32,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// The tasks of an attempt on this node have ended; repeated until the orders no longer name the attempt.
    Ended {
        /// Name of the node.
        node: String,
        /// Job id.
        job: String,
        /// Number of the attempt.
        attempt: u32,
        /// How the processes ended.
        exit: Exit,
        /// The agent had sent the stop signal before the processes ended. Distinguishes work that finished in time
        /// from work that was interrupted.
        stopped: bool,
        /// How long ago the processes ended, by the clock of the node; absent if the end was not observed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_ms_ago: Option<i64>,
        /// The prolog of the node failed, so no task ran; `exit` has the reason.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        prolog_failed: bool,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// The epilog of an attempt failed. Sent before the end of the attempt, and repeated with it.
    EpilogFailed {
        /// Name of the node.
        node: String,
        /// Job id.
        job: String,
        /// Number of the attempt.
        attempt: u32,
        /// How it ended, and what it wrote last.
        why: String,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// Processes of an attempt survive SIGKILL. Repeated until they are gone.
    Unkillable {
        /// Name of the node.
        node: String,
        /// Job id.
        job: String,
        /// Number of the attempt.
        attempt: u32,
        /// Pids, commands and states, for people.
        processes: String,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// The health program of the node has run.
    NodeHealth {
        /// Name of the node.
        node: String,
        /// How it failed, and what it wrote last; absent if the node is healthy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<String>,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// The node could not be rebooted as ordered. The agent tries again while the orders say so.
    RebootFailed {
        /// Name of the node.
        node: String,
        /// How the program failed, and what it wrote last.
        why: String,
        /// Incarnation of the reporting agent.
        #[serde(default)]
        incarnation: String,
    },
    /// Readings of a GPU.
    GpuReading {
        /// Name of the node.
        node: String,
        /// Index of the GPU.
        gpu: u8,
        /// In °C, if it can be read.
        temperature_c: Option<i32>,
        /// Number of errors so far.
        errors: u32,
        /// Description of the newest error.
        last_error: String,
    },
}

/// Reply of the leader to a heartbeat. It renews the self-fence deadlines of the node's attempts, which count from the
/// sending of that heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatEcho {
    /// Name of the node.
    pub node: String,
    /// `sent_at_boot_ms` of the heartbeat.
    pub sent_at_boot_ms: i64,
}

/// How the reason of [`Exit::NotStarted`] begins if the job itself is the reason, for example its working directory.
pub const INVALID_JOB: &str = "invalid job: ";

/// How the processes of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The kernel killed a task because it used more memory than it may.
    OutOfMemory {
        /// Memory limit of that task.
        limit_mib: u64,
    },
    /// The processes were never started. The text is the reason. If it begins with [`INVALID_JOB`], the job itself is the
    /// reason and must not be started again; a server of an older release starts it again.
    NotStarted(String),
    /// The processes ended unobserved. The text is what the agent knows.
    Unknown(String),
}

impl Exit {
    /// The exit of an attempt that cannot be started on any node.
    pub fn invalid_job(why: &str) -> Exit {
        Exit::NotStarted(format!("{INVALID_JOB}{why}"))
    }
}
