//! Machines and their GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::capacity::Part;
use crate::ids::{JobId, NodeId};
use crate::job::PlacedTask;
use crate::partition::{self, MigInstance, Partition};
use crate::share::{ShareMode, WHOLE};
use crate::time::Timestamp;

/// Most GPUs in one node: free devices are kept as bits of one word.
pub const GPUS_PER_NODE_MAX: usize = 64;

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
    /// Which job.
    pub job: JobId,
    /// What it holds.
    pub slot: Slot,
}

/// What can be held of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// All of it.
    Whole,
    /// An instance of it.
    Instance {
        /// Where on the device it begins.
        start: u8,
    },
    /// A part of it.
    Part(Part),
}

impl Slot {
    /// What a task holds of each of its devices.
    pub fn of(task: &PlacedTask) -> Slot {
        let Some(share) = &task.share else { return Slot::Whole };
        let thousandths = |milli: u32| u16::try_from(milli.min(WHOLE)).unwrap_or_default();
        match share.mode {
            ShareMode::Mig { start, .. } => Slot::Instance { start },
            ShareMode::Mps | ShareMode::TimeSlice => Slot::Part(Part {
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
            Slot::Part(part) => {
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
    /// Address, for people.
    #[serde(default)]
    pub address: String,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
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

/// What does not change about a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuFacts {
    /// Unique in the world.
    pub uuid: String,
    /// As the driver spells it, for example `NVIDIA H200`.
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
    /// What it is partitioned into, as its agent found it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<MigInstance>,
    /// Power limit, where known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
}

/// A NUMA node: cores and the memory that is near to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NumaFacts {
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Processor socket it belongs to.
    pub socket: u32,
}

impl GpuFacts {
    /// Its power limit; nothing where it is not known.
    pub fn milliwatts(&self) -> u64 {
        self.power_limit_milliwatts.unwrap_or(0)
    }
}

/// Whether a node takes work, and since when and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeState {
    /// The state itself.
    pub word: NodeWord,
    /// Who or what set it.
    pub by: String,
    /// Why.
    pub why: String,
    /// Since when.
    pub since: Timestamp,
}

/// Whether a node takes work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeWord {
    /// Takes work.
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

impl NodeWord {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            NodeWord::Ready => "Ready",
            NodeWord::Suspect => "Suspect",
            NodeWord::Unreachable => "Unreachable",
            NodeWord::Fenced => "Fenced",
            NodeWord::Draining => "Draining",
            NodeWord::Hold => "Hold",
        }
    }
}

/// How a GPU is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuHealth {
    /// Whether it may be given out.
    pub word: GpuWord,
    /// Why, in a sentence; empty when healthy.
    #[serde(default)]
    pub why: String,
    /// Since when.
    pub since: Timestamp,
    /// Not to be given out before this moment: the cooling period.
    #[serde(default)]
    pub cooling_until: Option<Timestamp>,
    /// How warm it is, as far as that was worth a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<i32>,
    /// What an operator declared it to be. No reading erases it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub declared: Option<Box<DeclaredHealth>>,
    /// What the readings of its agent come to, where an operator has declared something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<GpuWord>,
}

/// A device as an operator declared it: warning or worse, until an operator declares it healthy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredHealth {
    /// At least this bad.
    pub word: GpuWord,
    /// Why; may be empty.
    pub why: String,
    /// By whom.
    pub by: String,
}

/// Differences in °C below this are not worth a note.
const TEMPERATURE_STEP_C: i32 = 5;

impl GpuHealth {
    /// One of which nothing is known yet.
    pub fn healthy(since: Timestamp) -> GpuHealth {
        let (word, why) = (GpuWord::Healthy, String::new());
        GpuHealth { word, why, since, cooling_until: None, temperature_c: None, declared: None, read: None }
    }

    /// What the readings of its agent come to.
    pub fn read_word(&self) -> GpuWord {
        self.read.unwrap_or(self.word)
    }

    /// Whether a temperature is worth a note.
    pub fn is_news(&self, temperature_c: Option<i32>) -> bool {
        match (self.temperature_c, temperature_c) {
            (Some(noted), Some(read)) => (noted - read).abs() >= TEMPERATURE_STEP_C,
            (None, Some(_)) => true,
            (_, None) => false,
        }
    }
}

/// The health levels of seed 004, and whether the device may be given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuWord {
    /// Nothing to say.
    Healthy,
    /// Warm, or a first error; still given out.
    Warning,
    /// Hot, or several errors; given out only if nothing better is free.
    Degraded,
    /// Never given out.
    Unhealthy,
}

impl GpuWord {
    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            GpuWord::Healthy => "healthy",
            GpuWord::Warning => "warning",
            GpuWord::Degraded => "degraded",
            GpuWord::Unhealthy => "unhealthy",
        }
    }

    /// How healthy that is in thousandths, for pools that ask for so much.
    pub fn health_milli(self) -> i64 {
        match self {
            GpuWord::Healthy => 1_000,
            GpuWord::Warning => 900,
            GpuWord::Degraded => 500,
            GpuWord::Unhealthy => 0,
        }
    }

    /// The thresholds of seed 004: temperature in °C and number of errors.
    pub fn of_reading(temperature_c: Option<i32>, errors: u32) -> GpuWord {
        let above = |limit: i32| temperature_c.is_some_and(|celsius| celsius > limit);
        match () {
            () if above(85) || errors > 10 => GpuWord::Unhealthy,
            () if above(75) || errors > 5 => GpuWord::Degraded,
            () if above(65) || errors > 0 => GpuWord::Warning,
            () => GpuWord::Healthy,
        }
    }
}

impl Node {
    /// Whether new work may be placed here at all.
    pub fn takes_work(&self) -> bool {
        self.state.word == NodeWord::Ready && !self.declared
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
    pub fn state_word(&self) -> &'static str {
        match self.state.word {
            NodeWord::Ready if self.declared => "Declared",
            word => word.word(),
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
        let usable = |health: &GpuHealth| health.word != GpuWord::Unhealthy && health.cooling_until.is_none();
        self.gpu_health.get(index).is_some_and(usable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_follows_the_thresholds_of_the_seed() {
        use GpuWord::*;
        let cases = [
            (Some(60), 0, Healthy),
            (Some(65), 0, Healthy),
            (Some(66), 0, Warning),
            (Some(75), 1, Warning),
            (Some(76), 0, Degraded),
            (Some(50), 6, Degraded),
            (Some(85), 10, Degraded),
            (Some(86), 0, Unhealthy),
            (None, 11, Unhealthy),
            (None, 0, Healthy),
        ];
        for (temperature, errors, word) in cases {
            assert_eq!(GpuWord::of_reading(temperature, errors), word, "{temperature:?} {errors}");
        }
    }
}
