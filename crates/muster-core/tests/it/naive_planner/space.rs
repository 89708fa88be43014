//! Free and used space of nodes.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::NodeId;
use muster_core::gpu::gpu_share::{Share, ShareMode};
use muster_core::gpu::partition::check;
use muster_core::objects::job::{Job, PlacedTask, Resources};
use muster_core::objects::node::{Node, Slot};

/// Free or used resources of a node: of each device the thousandths of compute and of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Space {
    pub(super) gpus: BTreeMap<u8, (u32, u32)>,
    /// MIG instances, by device and start.
    pub(super) instances: BTreeSet<(u8, u8)>,
    pub(super) cpus: u64,
    pub(super) memory_mib: u64,
}

pub(super) const WHOLE: (u32, u32) = (1_000, 1_000);

impl Space {
    /// Number of whole devices.
    pub(super) fn whole(&self) -> usize {
        self.gpus.values().filter(|part| **part == WHOLE).count()
    }

    pub(super) fn of(&self, gpu: u8) -> (u32, u32) {
        self.gpus.get(&gpu).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, gpu: u8, part: (u32, u32)) {
        match part {
            (0, 0) => drop(self.gpus.remove(&gpu)),
            _ => drop(self.gpus.insert(gpu, part)),
        }
    }

    pub(super) fn add(&mut self, more: &Space) {
        for (gpu, (compute, memory)) in &more.gpus {
            let have = self.of(*gpu);
            self.set(*gpu, ((have.0 + compute).min(1_000), (have.1 + memory).min(1_000)));
        }
        self.instances.extend(&more.instances);
        self.cpus += more.cpus;
        self.memory_mib += more.memory_mib;
    }

    pub(super) fn take(&mut self, less: &Space) {
        for (gpu, (compute, memory)) in &less.gpus {
            let have = self.of(*gpu);
            self.set(*gpu, (have.0.saturating_sub(*compute), have.1.saturating_sub(*memory)));
        }
        self.instances.retain(|one| !less.instances.contains(one));
        self.cpus = self.cpus.saturating_sub(less.cpus);
        self.memory_mib = self.memory_mib.saturating_sub(less.memory_mib);
    }

    /// A node may register again with less than its jobs hold; released space covers that deficit first.
    pub(super) fn less_overdrawn(&self, node: &Node) -> Space {
        let mut rest = self.clone();
        rest.cpus = rest.cpus.saturating_sub(node.cpus_held.saturating_sub(u64::from(node.facts.cpus)));
        let memory = node.memory_mib_held.saturating_sub(node.facts.memory_mib);
        rest.memory_mib = rest.memory_mib.saturating_sub(memory);
        rest
    }

    pub(super) fn shared_with(&self, other: &Space) -> Space {
        let mut both = Space {
            gpus: BTreeMap::new(),
            instances: self.instances.intersection(&other.instances).copied().collect(),
            cpus: self.cpus.min(other.cpus),
            memory_mib: self.memory_mib.min(other.memory_mib),
        };
        for (gpu, one) in &self.gpus {
            let other = other.of(*gpu);
            both.set(*gpu, (one.0.min(other.0), one.1.min(other.1)));
        }
        both
    }

    pub(super) fn holds(&self, wanted: &Space) -> bool {
        let enough = |(gpu, part): (&u8, &(u32, u32))| {
            let have = self.of(*gpu);
            part.0 <= have.0 && part.1 <= have.1
        };
        wanted.gpus.iter().all(enough)
            && wanted.instances.is_subset(&self.instances)
            && wanted.cpus <= self.cpus
            && wanted.memory_mib <= self.memory_mib
    }

    /// The part of this claimed space that comes from `released`: whole devices and instances always, the rest as far
    /// as it is released.
    pub(super) fn promised_of(&self, released: &Space) -> Space {
        let mut promised = self.shared_with(released);
        self.gpus.iter().filter(|(_, part)| **part == WHOLE).for_each(|(gpu, part)| promised.set(*gpu, *part));
        promised.instances = self.instances.clone();
        promised
    }

    pub(super) fn less(&self, less: &Space) -> Space {
        let mut rest = self.clone();
        rest.take(less);
        rest
    }

    pub(super) fn plus(&self, more: &Space) -> Space {
        let mut sum = self.clone();
        sum.add(more);
        sum
    }
}

/// Usable space of nodes, each with its number of free GPUs.
pub(super) type Spaces = BTreeMap<NodeId, (usize, Space)>;

/// Tasks of a gang on one node by task group, and the space beside them.
#[derive(Clone)]
pub(super) struct NodeTasks {
    pub(super) left: Space,
    pub(super) tasks: Vec<(usize, Assignment)>,
}

/// The devices of a task, and its share of the device if it shares one.
#[derive(Debug, Clone)]
pub(super) struct Assignment {
    pub(super) gpus: Vec<u8>,
    pub(super) share: Option<Share>,
}

impl Assignment {
    pub(super) fn space(&self, each: &Resources) -> Space {
        let part = self.share.as_ref().map_or(WHOLE, |share| (share.compute_milli, share.memory_milli));
        let start = self.share.as_ref().and_then(|share| match share.mode {
            ShareMode::Mig { start, .. } => Some(start),
            _ => None,
        });
        let parts = || self.gpus.iter().map(|gpu| (*gpu, part)).collect();
        Space {
            gpus: if start.is_some() { BTreeMap::new() } else { parts() },
            instances: start.into_iter().map(|start| (self.gpus[0], start)).collect(),
            cpus: u64::from(each.cpus),
            memory_mib: each.memory_mib,
        }
    }

    pub(super) fn placed(self, rank: u32, group: u32, node: &NodeId) -> PlacedTask {
        PlacedTask { rank, group, node: node.clone(), gpus: self.gpus, share: self.share.map(Box::new) }
    }
}

impl NodeTasks {
    pub(super) fn new(space: &Space) -> NodeTasks {
        NodeTasks { left: space.clone(), tasks: Vec::new() }
    }
}

pub(super) fn space_of_task(job: &Job, task: &PlacedTask) -> Space {
    let each = &job.spec.tasks[task.group as usize].each;
    Assignment { gpus: task.gpus.clone(), share: task.share.as_deref().cloned() }.space(each)
}

pub(super) fn space_by_node(job: &Job, tasks: &[PlacedTask]) -> BTreeMap<NodeId, Space> {
    let mut nodes: BTreeMap<NodeId, Space> = BTreeMap::new();
    tasks.iter().for_each(|task| nodes.entry(task.node.clone()).or_default().add(&space_of_task(job, task)));
    nodes
}

/// The free space that a claim on `all` holds beside the released space.
pub(super) fn still_needed(released: &Space, all: &Space) -> Space {
    let mut needed = all.less(released);
    // A whole device is held as a whole.
    released.gpus.iter().filter(|(_, part)| **part == WHOLE).for_each(|(gpu, _)| needed.set(*gpu, all.of(*gpu)));
    needed.instances = all.instances.clone();
    needed
}

pub(super) fn free_on(node: &Node) -> Space {
    let free = |gpu: usize| {
        let leases = &node.holders[gpu];
        let used = leases.iter().fold((0, 0), |(compute, memory), lease| match lease.slot {
            Slot::Whole => WHOLE,
            Slot::Fraction(part) => (compute + u32::from(part.compute), memory + u32::from(part.memory)),
            // The device was registered again without the held instance, so its free part is unknown.
            Slot::Instance { .. } => WHOLE,
        });
        (gpu as u8, (1_000 - used.0, 1_000 - used.1))
    };
    let usable = (0..node.holders.len()).filter(|gpu| node.gpu_usable(*gpu));
    let partitioned = |gpu: &usize| !node.instances(*gpu as u8).is_empty();
    let instances = usable.clone().filter(partitioned).flat_map(|gpu| {
        let taken = |start| node.holders[gpu].iter().any(|lease| lease.slot == Slot::Instance { start });
        let known = check(&node.facts.gpus[gpu], gpu as u8, node.instances(gpu as u8)).is_ok();
        let all = node.instances(gpu as u8).iter().filter(move |_| known);
        let free = all.filter(|one| !taken(one.start)).map(|one| (gpu as u8, one.start));
        free.collect::<Vec<_>>()
    });
    Space {
        instances: instances.collect(),
        gpus: usable.filter(|gpu| !partitioned(gpu)).map(free).filter(|(_, part)| *part != (0, 0)).collect(),
        cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
        memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
    }
}

pub(super) fn usable(node: &Node, space: &Space) -> Space {
    let mut space = space.clone();
    space.gpus.retain(|gpu, _| node.gpu_usable(usize::from(*gpu)));
    space.instances.retain(|(gpu, _)| node.gpu_usable(usize::from(*gpu)));
    space
}
