//! Nodes: hardware facts, schedulable state, labels, GPU health, and the leases on each GPU.

mod drain;
mod power;
mod status;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gpu::device::{GpuFacts, GpuHealth, GpuStatus, MigInstance, NumaFacts};
use crate::gpu::gpu_share::GpuFraction;
use crate::gpu::gpu_share::{ShareMode, WHOLE};
use crate::gpu::partition;
use crate::gpu::partition::Partition;
use crate::ids::{JobId, NodeId};
use crate::objects::job::PlacedTask;
use crate::time::Timestamp;

pub use drain::{Drain, Reboot};
pub use power::{PowerAction, PowerFailure};
pub(crate) use status::Axis;
pub use status::{NodeState, NodeStatus, Recorded, Service, Sight};

/// How the labels begin by which an agent says how it isolates jobs.
const AGENT_LABEL_PREFIX: &str = "muster.io/";
/// The label of a node that has a container runtime; its value is the name of the runtime.
const CONTAINER_RUNTIME_LABEL: &str = "muster.io/container-runtime";
/// The label of a node whose agent delivers secrets; its value says who else can read them there.
const SECRETS_LABEL: &str = "muster.io/secrets";

/// A node and its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub facts: NodeFacts,
    pub state: NodeState,
    /// By GPU index; as many as `facts.gpus`.
    pub gpu_health: Vec<GpuHealth>,
    /// GPUs that are or were partitioned, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<u8, Partition>,
    pub registered_at: Timestamp,
    /// An operator declared the node and its agent has not joined: nothing is placed on it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Labels and taints set by operators. They take precedence over those in `facts`.
    #[serde(default, skip_serializing_if = "OperatorLabels::is_empty")]
    pub operator: OperatorLabels,
    /// Leases on each GPU: one for the whole device, or several for parts of it. Derived from the jobs; `State::check`
    /// recomputes it.
    #[serde(skip)]
    pub holders: Vec<Vec<Lease>>,
    /// CPU cores held. Derived.
    pub cpus_held: u64,
    /// Main memory held. Derived.
    pub memory_mib_held: u64,
    /// Jobs with an attempt on this node. Derived.
    pub jobs: std::collections::BTreeSet<JobId>,
    /// Its health program failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_failure: Option<HealthFailure>,
    /// What follows its drain; `None` unless it drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Box<Drain>>,
    /// The power program failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_failure: Option<Box<PowerFailure>>,
    /// Time of the last placement on this node.
    #[serde(default)]
    pub placed_at: Timestamp,
    /// The pools of each GPU, and whether its current temperature and health meet the pool's bounds. Derived from the
    /// policies.
    #[serde(skip)]
    pub pools: Vec<BTreeMap<String, bool>>,
}

/// The last run of the health program of a node failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFailure {
    pub why: String,
    pub since: Timestamp,
}

/// Labels and taints that operators set on a node. A registration never changes them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorLabels {
    /// All labels of the node; `None` leaves them to the agent.
    #[serde(default)]
    pub labels: Option<BTreeMap<String, String>>,
    /// All taints of the node; `None` leaves them to the agent.
    #[serde(default)]
    pub taints: Option<Vec<String>>,
}

impl OperatorLabels {
    fn is_empty(&self) -> bool {
        *self == OperatorLabels::default()
    }
}

/// A slot of a device held by a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    pub job: JobId,
    pub slot: Slot,
}

/// A slot: the part of a device that a lease holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    Whole,
    /// A MIG instance.
    Instance {
        /// First memory slice of the instance.
        start: u8,
    },
    /// An MPS or time-sliced share.
    Fraction(GpuFraction),
}

impl Slot {
    /// The slot that a task holds on each of its devices.
    pub fn of(task: &PlacedTask) -> Slot {
        let Some(share) = &task.share else { return Slot::Whole };
        let thousandths = |milli: u32| u16::try_from(milli.min(WHOLE)).unwrap_or_default();
        match share.mode {
            ShareMode::Mig { start, .. } => Slot::Instance { start },
            ShareMode::Mps | ShareMode::TimeSlice => Slot::Fraction(GpuFraction {
                compute: thousandths(share.compute_milli),
                memory: thousandths(share.memory_milli),
            }),
        }
    }
}

/// True if a device can carry all these leases: one lease of the whole, or distinct MIG instances, or shares that do
/// not exceed the device.
pub fn fit_on_one_device(leases: &[Lease]) -> bool {
    let (mut whole, mut starts, mut compute, mut memory) = (0, 0u64, 0u32, 0u32);
    let (mut parts, mut instances) = (0, 0);
    for lease in leases {
        match lease.slot {
            Slot::Whole => whole += 1,
            Slot::Instance { start } => {
                starts |= 1 << start.min(63);
                instances += 1;
            }
            Slot::Fraction(part) => {
                compute += u32::from(part.compute);
                memory += u32::from(part.memory);
                parts += 1;
            }
        }
    }
    let alone = whole.max(parts).max(instances) == leases.len();
    alone && whole <= 1 && starts.count_ones() as usize == instances && compute.max(memory) <= WHOLE
}

/// Hardware facts of a node, as its agent reports them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub address: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// By index.
    pub gpus: Vec<GpuFacts>,
    /// NUMA nodes by number; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaFacts>,
    #[serde(default)]
    pub rack: Option<String>,
    /// Block of racks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    #[serde(default)]
    pub power_feed: Option<String>,
    /// Labels that jobs may select.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// A node with a taint gets no job: jobs have no tolerations yet.
    #[serde(default)]
    pub taints: Vec<String>,
    #[serde(default)]
    pub agent_version: String,
    /// The incarnation of the agent that registered last; orders are valid for that incarnation only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// Interval of the heartbeats of its agent, if the agent told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_interval_ms: Option<i64>,
    /// Id of the boot of its kernel; empty if the agent does not report it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    #[serde(default)]
    pub simulated: bool,
}

impl Node {
    /// True if new work may be placed on this node.
    pub fn is_schedulable(&self) -> bool {
        self.status() == NodeStatus::Ready && !self.declared
    }

    /// The reboot that is due: an operator ordered it, and no job holds anything of the node any more.
    pub fn due_reboot(&self) -> Option<&Reboot> {
        let reboot = self.drain.as_ref().and_then(|drain| drain.reboot.as_ref());
        reboot.filter(|reboot| self.jobs.is_empty() && reboot.boot_id == self.facts.boot_id)
    }

    /// The one word for its state.
    pub fn status(&self) -> NodeStatus {
        self.state.status()
    }

    /// True if its agent is silent for so long that its attempts are lost, or if it is fenced.
    pub fn is_lost(&self) -> bool {
        matches!(self.state.sight.status, Sight::Unreachable | Sight::Fenced)
    }

    /// The labels that placement reads: the operator's, or else the agent's.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.operator.labels.as_ref().unwrap_or(&self.facts.labels)
    }

    /// The taints that placement reads: the operator's, or else the agent's.
    pub fn taints(&self) -> &[String] {
        self.operator.taints.as_ref().unwrap_or(&self.facts.taints)
    }

    /// Whether jobs with an image can run here. The agent of a real machine reports how it isolates jobs, and its container
    /// runtime if there is one; a simulated node runs no programs, so it takes every image; of a declared node nothing is
    /// known yet.
    pub fn runs_images(&self) -> bool {
        self.has_facility(CONTAINER_RUNTIME_LABEL)
    }

    /// Whether jobs with secrets can run here. An agent of an earlier release would run them without their secrets.
    pub fn delivers_secrets(&self) -> bool {
        self.has_facility(SECRETS_LABEL)
    }

    /// False for a simulated node, which runs no programs: a real one reports how it isolates them.
    pub fn runs_programs(&self) -> bool {
        !self.facts.simulated || self.facts.labels.keys().any(|key| key.starts_with(AGENT_LABEL_PREFIX))
    }

    fn has_facility(&self, label: &str) -> bool {
        self.declared || self.facts.labels.contains_key(label) || !self.runs_programs()
    }

    /// The status as users see it, with `Declared` for a declared node.
    pub fn status_name(&self) -> &'static str {
        match self.status() {
            NodeStatus::Ready if self.declared => "Declared",
            status => status.as_str(),
        }
    }

    /// Adds the leases of a task.
    pub(crate) fn take_leases(&mut self, job: JobId, task: &PlacedTask) {
        let lease = Lease { job, slot: Slot::of(task) };
        for gpu in &task.gpus {
            let leases = &mut self.holders[usize::from(*gpu)];
            leases.insert(leases.partition_point(|other| *other < lease), lease);
            assert!(fit_on_one_device(leases), "{}/gpu-{gpu} is oversubscribed: {leases:?}", self.id);
        }
    }

    /// Removes the leases of a task.
    pub(crate) fn end_leases(&mut self, job: JobId, task: &PlacedTask) {
        let lease = Lease { job, slot: Slot::of(task) };
        for gpu in &task.gpus {
            let leases = &mut self.holders[usize::from(*gpu)];
            let Ok(index) = leases.binary_search(&lease) else { panic!("{job} does not hold {}/gpu-{gpu}", self.id) };
            leases.remove(index);
        }
    }

    /// The MIG instances of a GPU. If the node returned with hardware on which the recorded partition is impossible,
    /// those that its agent found.
    pub fn instances(&self, index: u8) -> &[MigInstance] {
        let Some(Partition { instances, .. }) = self.partitions.get(&index) else { return &[] };
        match self.facts.gpus.get(usize::from(index)) {
            Some(gpu) if partition::check(gpu, index, instances).is_err() => &gpu.mig,
            _ => instances,
        }
    }

    /// True if a lease on this GPU exists.
    pub fn is_held(&self, index: usize) -> bool {
        self.holders.get(index).is_some_and(|leases| !leases.is_empty())
    }

    /// The number of GPUs with a lease.
    pub fn held_gpus(&self) -> usize {
        (0..self.holders.len()).filter(|index| self.is_held(*index)).count()
    }

    /// The job that holds the whole GPU, if there is one.
    pub fn sole_holder(&self, index: usize) -> Option<JobId> {
        match self.holders.get(index)?[..] {
            [Lease { job, slot: Slot::Whole }] => Some(job),
            _ => None,
        }
    }

    /// True if this GPU may get jobs, apart from existing leases. An event ends a cooling period.
    pub fn gpu_usable(&self, index: usize) -> bool {
        let usable = |health: &GpuHealth| health.status != GpuStatus::Unhealthy && health.cooling_until.is_none();
        self.gpu_health.get(index).is_some_and(usable)
    }
}
