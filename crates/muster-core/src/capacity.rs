//! What is free where, filed so that a best fit is found without looking at every node.
//!
//! Nodes of one kind (same devices, cores, memory, labels) are filed together by the number of their free
//! GPUs. A shape is matched against kinds, of which there are few; inside a kind the fullest node that still
//! has enough comes first. Finding a place costs O(kinds × log nodes) unless cores or memory run short.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::ids::NodeId;
use crate::job::{Job, JobSpec, PlacedTask, Resources};
use crate::model;
use crate::node::{GpuFacts, Node};
use crate::queue::Shape;

/// What nodes of one kind have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// Model and memory of each device, by index.
    pub gpus: Vec<(String, u64)>,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Taints keep jobs away; nothing tolerates them yet.
    pub taints: Vec<String>,
}

impl Kind {
    /// The kind of a node.
    pub fn of(node: &Node) -> Kind {
        let facts = &node.facts;
        let gpu = |gpu: &GpuFacts| (gpu.model.clone(), gpu.memory_mib);
        Kind {
            gpus: facts.gpus.iter().map(gpu).collect(),
            cpus: facts.cpus,
            memory_mib: facts.memory_mib,
            labels: facts.labels.clone(),
            taints: facts.taints.clone(),
        }
    }

    /// An empty node of this kind.
    pub fn empty(&self) -> Free {
        let gpus = if self.gpus.len() == 64 { u64::MAX } else { (1 << self.gpus.len()) - 1 };
        Free { gpus, cpus: u64::from(self.cpus), memory_mib: self.memory_mib }
    }

    /// Which devices would do for a task, as bits.
    pub fn eligible_gpus(&self, each: &Resources) -> u64 {
        let would_do = |(model, memory_mib): &(String, u64)| {
            *memory_mib >= each.gpu_memory_mib
                && (each.gpu_models.is_empty()
                    || each.gpu_models.iter().any(|wish| model::matches(wish, model)))
        };
        let bits = self.gpus.iter().enumerate().filter(|(_, gpu)| would_do(gpu));
        bits.fold(0, |mask, (index, _)| mask | 1 << index)
    }

    /// Whether the labels are there and no taint is in the way.
    pub fn admits(&self, shape: &Shape) -> bool {
        let labelled = |(key, value)| self.labels.get(key) == Some(value);
        self.taints.is_empty() && shape.node_labels.iter().all(labelled)
    }

    /// Whether an empty node of this kind could hold the whole gang.
    pub fn could_hold(&self, shape: &Shape) -> bool {
        self.admits(shape) && self.fit(shape, self.empty()).is_some()
    }

    /// How many tasks of a group an empty node of this kind could hold.
    pub fn could_hold_tasks(&self, shape: &Shape, each: &Resources) -> u32 {
        if self.admits(shape) { tasks_that_fit(each, self.eligible_gpus(each), self.empty()) } else { 0 }
    }

    /// Choose devices for every task of the gang from what is free, lowest index first.
    pub fn fit(&self, shape: &Shape, free: Free) -> Option<Vec<u64>> {
        if free.cpus < shape.cpus() || free.memory_mib < shape.memory_mib() {
            return None;
        }
        let mut left = free.gpus;
        let mut chosen = Vec::new();
        for (count, each) in &shape.groups {
            let eligible = self.eligible_gpus(each);
            for _ in 0..*count {
                let taken = lowest_bits(left & eligible, each.gpus)?;
                left &= !taken;
                chosen.push(taken);
            }
        }
        Some(chosen)
    }
}

/// How many tasks fit into what is free, given the devices that would do. Unbounded for a task that needs nothing.
pub(crate) fn tasks_that_fit(each: &Resources, eligible: u64, free: Free) -> u32 {
    let times = |have: u64, each: u64| have.checked_div(each).unwrap_or(u64::from(u32::MAX));
    let gpus = times(u64::from((free.gpus & eligible).count_ones()), u64::from(each.gpus));
    let fit = gpus.min(times(free.cpus, u64::from(each.cpus))).min(times(free.memory_mib, each.memory_mib));
    u32::try_from(fit).unwrap_or(u32::MAX)
}

/// The `count` lowest set bits, if there are that many.
pub(crate) fn lowest_bits(mut mask: u64, count: u32) -> Option<u64> {
    if mask.count_ones() < count {
        return None;
    }
    let mut taken = 0;
    for _ in 0..count {
        let lowest = mask & mask.wrapping_neg();
        taken |= lowest;
        mask &= !lowest;
    }
    Some(taken)
}

/// Space on one node: what is free, or what something uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Free {
    /// Devices, as bits.
    pub gpus: u64,
    /// CPU cores.
    pub cpus: u64,
    /// Main memory.
    pub memory_mib: u64,
}

impl Free {
    /// Both together.
    pub fn with(self, more: Free) -> Free {
        Free {
            gpus: self.gpus | more.gpus,
            cpus: self.cpus + more.cpus,
            memory_mib: self.memory_mib + more.memory_mib,
        }
    }

    /// What one task uses on its devices.
    pub fn of_task(each: &Resources, gpus: u64) -> Free {
        Free { gpus, cpus: u64::from(each.cpus), memory_mib: each.memory_mib }
    }

    /// What one task uses.
    pub fn used_by(spec: &JobSpec, task: &PlacedTask) -> Free {
        Free::of_task(&spec.tasks[task.group as usize].each, mask(&task.gpus))
    }

    /// What tasks use together on each of their nodes.
    pub fn by_node<'a>(
        spec: &JobSpec,
        tasks: impl IntoIterator<Item = &'a PlacedTask>,
    ) -> BTreeMap<&'a NodeId, Free> {
        let mut nodes: BTreeMap<&NodeId, Free> = BTreeMap::new();
        for task in tasks {
            let here = nodes.entry(&task.node).or_default();
            *here = here.with(Free::used_by(spec, task));
        }
        nodes
    }

    /// What an attempt uses on one node.
    pub fn used_on(node: &NodeId, job: &Job) -> Free {
        let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        let here = tasks.filter(|task| task.node == *node);
        here.fold(Free::default(), |sum, task| sum.with(Free::used_by(&job.spec, task)))
    }

    /// What is in both.
    pub fn shared_with(self, other: Free) -> Free {
        Free {
            gpus: self.gpus & other.gpus,
            cpus: self.cpus.min(other.cpus),
            memory_mib: self.memory_mib.min(other.memory_mib),
        }
    }

    /// Whether so much is there.
    pub fn holds(self, wanted: Free) -> bool {
        wanted.gpus & !self.gpus == 0 && wanted.cpus <= self.cpus && wanted.memory_mib <= self.memory_mib
    }

    /// What is left when something is set apart.
    pub fn without(self, apart: Free) -> Free {
        Free {
            gpus: self.gpus & !apart.gpus,
            cpus: self.cpus.saturating_sub(apart.cpus),
            memory_mib: self.memory_mib.saturating_sub(apart.memory_mib),
        }
    }

    /// What is free on a node, whether or not it takes work now.
    fn of(node: &Node) -> Free {
        let usable = |index: &usize| node.holders[*index].is_none() && node.gpu_usable(*index);
        let gpus = (0..node.facts.gpus.len()).filter(usable).fold(0, |mask, index| mask | 1 << index);
        Free {
            gpus,
            cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
            memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
        }
    }
}

/// All nodes that take work, filed by kind and free GPUs. Derived from the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capacity {
    shelves: BTreeMap<Arc<Kind>, Shelf>,
    nodes: BTreeMap<NodeId, Filed>,
    /// The power limits of all devices.
    milliwatts: u64,
}

/// A node as it is filed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filed {
    /// Its kind.
    pub kind: Arc<Kind>,
    /// What is free.
    pub free: Free,
    /// Whether it takes work; if not it is only counted.
    pub open: bool,
    /// The power limits of its devices.
    milliwatts: u64,
}

/// Nodes of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Shelf {
    /// Nodes that take work, by number of free GPUs.
    by_free: BTreeMap<u32, BTreeSet<NodeId>>,
    /// Nodes of this kind in any state.
    registered: usize,
}

impl Capacity {
    /// File a node as it is now, anew if it was filed before. O(log nodes).
    pub fn file(&mut self, node: &Node) {
        let kind = Kind::of(node);
        let kind =
            self.shelves.get_key_value(&kind).map_or_else(|| Arc::new(kind), |(known, _)| known.clone());
        self.remove(&node.id);
        let milliwatts = node.facts.gpus.iter().map(GpuFacts::milliwatts).sum();
        let filed = Filed { kind: kind.clone(), free: Free::of(node), open: node.takes_work(), milliwatts };
        self.milliwatts += milliwatts;
        let shelf = self.shelves.entry(kind).or_default();
        shelf.registered += 1;
        if filed.open {
            shelf.put(filed.free, &node.id);
        }
        self.nodes.insert(node.id.clone(), filed);
    }

    /// Forget a node.
    pub fn remove(&mut self, node: &NodeId) {
        let Some(filed) = self.nodes.remove(node) else { return };
        self.milliwatts -= filed.milliwatts;
        let Some(shelf) = self.shelves.get_mut(&filed.kind) else { return };
        shelf.registered -= 1;
        if filed.open {
            shelf.pull(filed.free, node);
        }
        if shelf.registered == 0 {
            self.shelves.remove(&filed.kind);
        }
    }

    /// Change what is free on a node that is filed.
    pub fn set_free(&mut self, node: &NodeId, free: Free) {
        let Some(filed) = self.nodes.get_mut(node) else { return };
        let Some(shelf) = self.shelves.get_mut(&filed.kind) else { return };
        if filed.open {
            shelf.pull(filed.free, node);
            shelf.put(free, node);
        }
        filed.free = free;
    }

    /// Change whether a node that is filed takes work.
    pub fn set_open(&mut self, node: &NodeId, open: bool) {
        let Some(filed) = self.nodes.get_mut(node).filter(|filed| filed.open != open) else { return };
        let Some(shelf) = self.shelves.get_mut(&filed.kind) else { return };
        match open {
            true => shelf.put(filed.free, node),
            false => shelf.pull(filed.free, node),
        }
        filed.open = open;
    }

    /// A node as it is filed.
    pub fn filed(&self, node: &NodeId) -> Option<&Filed> {
        self.nodes.get(node)
    }

    /// Every node as it is filed, in order of name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &Filed)> {
        self.nodes.iter()
    }

    /// The kinds there are, in a fixed order, each with the number of its nodes in any state.
    pub fn kinds(&self) -> impl Iterator<Item = (&Arc<Kind>, usize)> {
        self.shelves.iter().map(|(kind, shelf)| (kind, shelf.registered))
    }

    /// Nodes of a kind that take work and have at least `gpus` free, the fullest first, then by name.
    pub fn with_free<'a>(&'a self, kind: &Kind, gpus: u32) -> impl Iterator<Item = (u32, &'a NodeId)> + 'a {
        let shelf = self.shelves.get(kind);
        shelf
            .into_iter()
            .flat_map(move |shelf| shelf.by_free.range(gpus..))
            .flat_map(|(free, nodes)| nodes.iter().map(move |node| (*free, node)))
    }

    /// Nodes of a kind that take work, with so many free GPUs, the fullest first, then by name.
    pub fn with_free_in<'a>(
        &'a self,
        kind: &Kind,
        gpus: RangeInclusive<u32>,
    ) -> impl Iterator<Item = (u32, &'a NodeId)> + 'a {
        let shelf = self.shelves.get(kind);
        shelf
            .into_iter()
            .flat_map(move |shelf| shelf.by_free.range(gpus.clone()))
            .flat_map(|(free, nodes)| nodes.iter().map(move |node| (*free, node)))
    }

    /// Whether the registered nodes, in any state, could hold the shape when empty: one of them, or several
    /// together where the shape may sit on several. For gangs of several groups that is a bound: each group by
    /// itself must fit, and all of them in sum.
    pub fn could_ever_hold(&self, shape: &Shape) -> bool {
        self.shelves.keys().any(|kind| kind.could_hold(shape))
            || (shape.may_span() && self.could_ever_span(shape))
    }

    fn could_ever_span(&self, shape: &Shape) -> bool {
        let sum = |of: &dyn Fn(&Kind) -> u64| -> u64 {
            let kinds = self.kinds().filter(|(kind, _)| kind.admits(shape));
            kinds.map(|(kind, nodes)| of(kind).saturating_mul(nodes as u64)).fold(0, u64::saturating_add)
        };
        let groups = &mut shape.groups.iter();
        groups.all(|(count, each)| {
            sum(&|kind| u64::from(kind.could_hold_tasks(shape, each))) >= u64::from(*count)
        }) && sum(&|kind| kind.gpus.len() as u64) >= u64::from(shape.gpus())
            && sum(&|kind| u64::from(kind.cpus)) >= shape.cpus()
            && sum(&|kind| kind.memory_mib) >= shape.memory_mib()
    }

    /// The power limits of the devices of all registered nodes, in whatever state they are.
    pub fn milliwatts(&self) -> u64 {
        self.milliwatts
    }

    /// Whether any node is registered.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Shelf {
    fn put(&mut self, free: Free, node: &NodeId) {
        self.by_free.entry(free.gpus.count_ones()).or_default().insert(node.clone());
    }

    fn pull(&mut self, free: Free, node: &NodeId) {
        let count = free.gpus.count_ones();
        if let Some(nodes) = self.by_free.get_mut(&count) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.by_free.remove(&count);
            }
        }
    }
}

/// Turn chosen devices into the tasks of a gang on one node, rank by rank.
pub fn placed_tasks(shape: &Shape, node: &NodeId, chosen: &[u64]) -> Vec<PlacedTask> {
    let groups = shape.groups.iter().enumerate();
    let ranks = groups.flat_map(|(group, (count, _))| (0..*count).map(move |_| group as u32));
    ranks
        .zip(chosen)
        .enumerate()
        .map(|(rank, (group, mask))| PlacedTask {
            rank: rank as u32,
            group,
            node: node.clone(),
            gpus: bits(*mask),
        })
        .collect()
}

/// Devices as bits. No node has more than 64.
pub fn mask(gpus: &[u8]) -> u64 {
    gpus.iter().filter(|gpu| **gpu < 64).fold(0, |mask, gpu| mask | 1 << gpu)
}

/// The indexes of the set bits.
pub fn bits(mask: u64) -> Vec<u8> {
    (0..64).filter(|index| mask & (1 << index) != 0).collect()
}
