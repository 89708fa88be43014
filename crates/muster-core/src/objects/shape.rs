//! What a gang asks of the cluster, without names: jobs of one shape fit in the same places.

use std::collections::BTreeMap;

use crate::gpu::topology::{LocalityRequirement, Nvlink};
use crate::objects::job::{JobSpec, Resources, Topology};

/// What a gang asks of the cluster, without names: jobs of one shape fit in the same places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// How many tasks, and what each needs; in the order of the job's groups.
    pub groups: Vec<(u32, Resources)>,
    /// How close together its nodes must be.
    pub topology: Topology,
    /// How close together its GPUs are wished.
    pub locality: LocalityRequirement,
    /// Labels that the nodes must carry.
    pub node_labels: BTreeMap<String, String>,
    /// A pool to stay inside of.
    pub pool: Option<String>,
}

impl Shape {
    /// The shape of a job.
    pub fn of(spec: &JobSpec) -> Shape {
        Shape {
            groups: spec.tasks.iter().map(|group| (group.count, group.each.clone())).collect(),
            topology: spec.topology,
            locality: spec.locality(),
            node_labels: spec.node_labels.clone(),
            pool: spec.pool.clone(),
        }
    }

    /// Whether its tasks may sit on several nodes. Who asks for one NUMA node or for NVLink asks it of all GPUs of the
    /// gang, and they are on one node then.
    pub fn may_span(&self) -> bool {
        !self.locality.is_required() && self.tasks() > 1
    }

    /// Whether its nodes must stand in one rack.
    pub fn must_share_a_rack(&self) -> bool {
        self.topology == Topology::SameRack
    }

    /// The same for a gang that may sit anywhere.
    pub fn without_locality(&self) -> Shape {
        let topology = Topology::Any;
        let wish = if self.locality.is_required() { self.locality.as_preference() } else { self.locality };
        Shape { topology, locality: wish, ..self.clone() }
    }

    /// How close together it must be, in words.
    pub fn locality_phrase(&self) -> &'static str {
        match (self.locality.same_numa, self.locality.nvlink == Nvlink::Required) {
            (true, true) => "on one NUMA node and joined by NVLink",
            (true, false) => "on one NUMA node",
            (false, true) => "joined by NVLink",
            (false, false) if self.must_share_a_rack() => "in one rack",
            (false, false) => "anywhere",
        }
    }

    /// Tasks of the gang.
    pub fn tasks(&self) -> u32 {
        self.groups.iter().map(|(count, _)| count).sum()
    }

    /// GPUs of the gang, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.gpus).sum()
    }

    /// GPUs that the gang needs for itself.
    pub fn whole_gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.whole_gpus()).sum()
    }

    /// How much of GPUs the gang takes, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|(count, each)| u64::from(*count) * each.demand().gpu_milli).sum()
    }

    /// CPU cores of the gang.
    pub fn cpus(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * u64::from(each.cpus)).sum()
    }

    /// Main memory of the gang.
    pub fn memory_mib(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * each.memory_mib).sum()
    }
}
