//! Shape: the resources that a gang requests, without names. Jobs of one shape fit in the same places.

use std::collections::BTreeMap;

use crate::gpu::topology::{LocalityRequirement, Nvlink};
use crate::objects::job::{JobSpec, Resources, Topology};

/// The resources that a gang requests, without names. Jobs of one shape fit in the same places.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shape {
    /// Number of tasks and resources per task, in the order of the job's task groups.
    pub groups: Vec<(u32, Resources)>,
    /// Required locality of the nodes.
    pub topology: Topology,
    /// Required or preferred locality of the GPUs.
    pub locality: LocalityRequirement,
    /// Labels that the nodes must have.
    pub node_labels: BTreeMap<String, String>,
    /// Pool that the GPUs must belong to.
    pub pool: Option<String>,
    /// The job has an image, so its nodes must have a container runtime.
    pub in_container: bool,
    /// The job has secrets, so the agents of its nodes must deliver them.
    pub has_secrets: bool,
}

impl Shape {
    pub fn of(spec: &JobSpec) -> Shape {
        Shape {
            groups: spec.tasks.iter().map(|group| (group.count, group.each.clone())).collect(),
            topology: spec.topology,
            locality: spec.locality(),
            node_labels: spec.node_labels.clone(),
            pool: spec.pool.clone(),
            in_container: spec.run.image.is_some(),
            has_secrets: !spec.run.secrets.is_empty(),
        }
    }

    /// True if its tasks may span several nodes. A requirement of one NUMA node or NVLink applies to all GPUs of the
    /// gang, so they must be on one node.
    pub fn may_span(&self) -> bool {
        !self.locality.is_required() && self.tasks() > 1
    }

    pub fn must_share_a_rack(&self) -> bool {
        self.topology == Topology::SameRack
    }

    /// The shape without locality requirements; they become preferences.
    pub fn without_locality(&self) -> Shape {
        let topology = Topology::Any;
        let locality = if self.locality.is_required() { self.locality.as_preference() } else { self.locality };
        Shape { topology, locality, ..self.clone() }
    }

    /// The required locality, for messages.
    pub fn locality_phrase(&self) -> &'static str {
        match (self.locality.same_numa, self.locality.nvlink == Nvlink::Required) {
            (true, true) => "on one NUMA node and joined by NVLink",
            (true, false) => "on one NUMA node",
            (false, true) => "joined by NVLink",
            (false, false) if self.must_share_a_rack() => "in one rack",
            (false, false) => "anywhere",
        }
    }

    pub fn tasks(&self) -> u32 {
        self.groups.iter().map(|(count, _)| count).sum()
    }

    /// GPUs of the gang; a share of a GPU counts as one.
    pub fn gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.gpus).sum()
    }

    /// GPUs of the gang that are not shared.
    pub fn whole_gpus(&self) -> u32 {
        self.groups.iter().map(|(count, each)| count * each.whole_gpus()).sum()
    }

    /// GPUs of the gang in thousandths, shares counted in part.
    pub fn gpu_milli(&self) -> u64 {
        let groups = self.groups.iter();
        groups.map(|(count, each)| u64::from(*count) * each.demand().gpu_milli).sum()
    }

    pub fn cpus(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * u64::from(each.cpus)).sum()
    }

    pub fn memory_mib(&self) -> u64 {
        self.groups.iter().map(|(count, each)| u64::from(*count) * each.memory_mib).sum()
    }
}
