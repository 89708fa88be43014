//! Machines and their GPUs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
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
    /// When it was first seen.
    pub registered_at: Timestamp,
    /// Who holds each GPU. Derived from the jobs; `State::check` recomputes it.
    pub holders: Vec<Option<JobId>>,
    /// CPU cores held. Derived.
    pub cpus_held: u64,
    /// Main memory held. Derived.
    pub memory_mib_held: u64,
    /// Attempts with a part here. Derived.
    pub jobs: std::collections::BTreeSet<JobId>,
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
    /// Which rack it stands in.
    #[serde(default)]
    pub rack: Option<String>,
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
    /// Power limit, where known.
    #[serde(default)]
    pub power_limit_milliwatts: Option<u64>,
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
        self.state.word == NodeWord::Ready
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
