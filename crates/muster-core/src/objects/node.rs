//! Machines and their GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::gpu::device::{GpuFacts, GpuHealth, GpuStatus, NumaFacts};
use crate::gpu::gpu_share::GpuFraction;
use crate::gpu::gpu_share::{ShareMode, WHOLE};
use crate::gpu::partition;
use crate::gpu::partition::{MigInstance, Partition};
use crate::ids::{JobId, NodeId};
use crate::objects::job::PlacedTask;
use crate::time::Timestamp;

/// A machine, as it stands now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its name for ever.
    pub id: NodeId,
    /// What its agent says it is.
    pub facts: NodeFacts,
    /// Whether it takes work.
    pub state: NodeState,
    /// Health of each GPU, by index; as many as `facts.gpus`.
    pub gpu_health: Vec<GpuHealth>,
    /// GPUs that are partitioned, or were, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub partitions: BTreeMap<u8, Partition>,
    /// When it was first seen.
    pub registered_at: Timestamp,
    /// An operator announced it and its agent has not joined: nothing is placed here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// Labels and taints set by operators. They take precedence over those in `facts`.
    #[serde(default, skip_serializing_if = "OperatorLabels::is_empty")]
    pub operator: OperatorLabels,
    /// Who holds each GPU: one the whole of it, or several a part each. Derived from the jobs; `State::check` recomputes
    /// it.
    #[serde(skip)]
    pub holders: Vec<Vec<Lease>>,
    /// CPU cores held. Derived.
    pub cpus_held: u64,
    /// Main memory held. Derived.
    pub memory_mib_held: u64,
    /// Attempts with a part here. Derived.
    pub jobs: std::collections::BTreeSet<JobId>,
    /// When something was last placed here.
    #[serde(default)]
    pub placed_at: Timestamp,
    /// The pools that each GPU belongs to, and whether it is given out there as it is now. Derived from the policies.
    #[serde(skip)]
    pub pools: Vec<BTreeMap<String, bool>>,
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

/// What a job holds of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lease {
    pub job: JobId,
    pub slot: Slot,
}

/// What can be held of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    Whole,
    /// An instance of it.
    Instance {
        /// Where on the device it begins.
        start: u8,
    },
    /// A part of it.
    Fraction(GpuFraction),
}

impl Slot {
    /// What a task holds of each of its devices.
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

/// Whether so many can hold a device together: one the whole of it, or each an instance of its own, or parts that do not
/// exceed it.
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

/// What an agent says its machine is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Host name, for people.
    #[serde(default)]
    pub hostname: String,
    #[serde(default)]
    pub address: String,
    pub cpus: u32,
    pub memory_mib: u64,
    /// The devices, by index.
    pub gpus: Vec<GpuFacts>,
    /// Its NUMA nodes, by number; empty where they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa: Vec<NumaFacts>,
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
    /// The start of its agent that registered last; orders are for that one and no other.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub incarnation: String,
    /// The devices are simulated.
    #[serde(default)]
    pub simulated: bool,
}

/// Whether a node takes work, and since when and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    pub status: NodeStatus,
    /// Who or what set it.
    pub by: String,
    pub why: String,
    pub since: Timestamp,
}

/// Whether a node takes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeStatus {
    Ready,
    /// Missed heartbeats; no new work.
    Suspect,
    /// Silent; its jobs wait for its return or its fence.
    Unreachable,
    /// Proven dead: its attempts are over.
    Fenced,
    /// Finishes what it has; no new work.
    Draining,
    /// Out of service until a person clears it.
    Hold,
}

impl NodeStatus {
    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeStatus::Ready => "Ready",
            NodeStatus::Suspect => "Suspect",
            NodeStatus::Unreachable => "Unreachable",
            NodeStatus::Fenced => "Fenced",
            NodeStatus::Draining => "Draining",
            NodeStatus::Hold => "Hold",
        }
    }
}

impl Node {
    /// Whether new work may be placed here at all.
    pub fn is_schedulable(&self) -> bool {
        self.state.status == NodeStatus::Ready && !self.declared
    }

    /// The labels that placement reads: the operator's, or else the agent's.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        self.operator.labels.as_ref().unwrap_or(&self.facts.labels)
    }

    /// The taints that placement reads: the operator's, or else the agent's.
    pub fn taints(&self) -> &[String] {
        self.operator.taints.as_ref().unwrap_or(&self.facts.taints)
    }

    /// The state in one word, as people read it.
    pub fn status_name(&self) -> &'static str {
        match self.state.status {
            NodeStatus::Ready if self.declared => "Declared",
            word => word.as_str(),
        }
    }

    /// A task takes its devices.
    pub(crate) fn take_leases(&mut self, job: JobId, task: &PlacedTask) {
        let lease = Lease { job, slot: Slot::of(task) };
        for gpu in &task.gpus {
            let leases = &mut self.holders[usize::from(*gpu)];
            leases.insert(leases.partition_point(|other| *other < lease), lease);
            assert!(fit_on_one_device(leases), "{}/gpu-{gpu} is oversubscribed: {leases:?}", self.id);
        }
    }

    /// A task gives its devices back.
    pub(crate) fn end_leases(&mut self, job: JobId, task: &PlacedTask) {
        let lease = Lease { job, slot: Slot::of(task) };
        for gpu in &task.gpus {
            let leases = &mut self.holders[usize::from(*gpu)];
            let Ok(place) = leases.binary_search(&lease) else {
                panic!("{job} does not hold {}/gpu-{gpu}", self.id)
            };
            leases.remove(place);
        }
    }

    /// What this GPU is partitioned into. A machine that came back as another one is what its agent found.
    pub fn instances(&self, index: u8) -> &[MigInstance] {
        let Some(Partition { instances, .. }) = self.partitions.get(&index) else { return &[] };
        match self.facts.gpus.get(usize::from(index)) {
            Some(gpu) if partition::check(gpu, index, instances).is_err() => &gpu.mig,
            _ => instances,
        }
    }

    /// Whether anyone holds this GPU or a part of it.
    pub fn is_held(&self, index: usize) -> bool {
        self.holders.get(index).is_some_and(|leases| !leases.is_empty())
    }

    /// How many of its GPUs are held, whole or in part.
    pub fn held_gpus(&self) -> usize {
        (0..self.holders.len()).filter(|index| self.is_held(*index)).count()
    }

    /// Who holds this GPU, if it is one job alone.
    pub fn sole_holder(&self, index: usize) -> Option<JobId> {
        match self.holders.get(index)?[..] {
            [Lease { job, slot: Slot::Whole }] => Some(job),
            _ => None,
        }
    }

    /// Whether this GPU may be given out, if nobody holds it. A cooling period is ended by an event.
    pub fn gpu_usable(&self, index: usize) -> bool {
        let usable =
            |health: &GpuHealth| health.status != GpuStatus::Unhealthy && health.cooling_until.is_none();
        self.gpu_health.get(index).is_some_and(usable)
    }
}
