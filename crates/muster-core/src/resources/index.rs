//! Index of free resources: finds the best-fit node for a gang without a scan of all nodes.
//!
//! Nodes of one kind (same devices, cores, memory, labels) are indexed together by their number of free GPUs. A shape
//! is matched against kinds, of which there are few; within a kind the fullest node with enough free GPUs comes first.
//! A lookup costs O(kinds × log nodes) unless cores or memory run short.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::estimate::fragmentation::FragmentationModel;
use crate::estimate::workload_mix::TaskCounts;
use crate::gpu::device::GpuFacts;
use crate::gpu::gpu_share::Isolation;
use crate::ids::NodeId;
use crate::objects::demand::Demand;
use crate::objects::job::{PlacedTask, Resources};
use crate::objects::node::Node;
use crate::objects::shape::Shape;
use crate::resources::{DeviceAssignment, Kind, ResourceVec};

/// All nodes, the schedulable ones indexed by kind and free GPUs. Derived from the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceIndex {
    kinds: BTreeMap<Arc<Kind>, KindIndex>,
    nodes: BTreeMap<NodeId, NodeEntry>,
    /// Sum of the power limits of all devices.
    milliwatts: u64,
    /// The workload mix that fragmentation is measured against.
    mix: Arc<TaskCounts>,
    /// The nodes of each rack, in any state. A node without a known rack is in none.
    racks: BTreeMap<Arc<Rack>, RackNodes>,
}

/// The nodes of one rack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RackNodes {
    /// Nodes in any state.
    pub nodes: BTreeSet<NodeId>,
    /// Whole free GPUs on the schedulable nodes.
    pub free_gpus: u32,
}

/// A rack and its block. Racks of one block are close to each other in the network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rack {
    /// `None` if the block is unknown.
    pub block: Option<String>,
    pub rack: String,
}

impl Rack {
    fn of(node: &Node) -> Option<Rack> {
        Some(Rack { block: node.facts.block.clone(), rack: node.facts.rack.clone()? })
    }
}

/// The index entry of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    pub kind: Arc<Kind>,
    pub free: ResourceVec,
    /// Whether the node is schedulable. Other nodes count for feasibility only.
    pub open: bool,
    pub rack: Option<Arc<Rack>>,
    /// Sum of the power limits of its devices.
    milliwatts: u64,
}

/// The index of the nodes of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct KindIndex {
    /// Expected fragmentation of such nodes under the workload mix.
    fragmentation: Arc<FragmentationModel>,
    /// Schedulable nodes by number of free GPUs.
    by_free: BTreeMap<u32, BTreeSet<NodeId>>,
    /// The same nodes by their free resources.
    by_free_space: BTreeMap<ResourceVec, BTreeSet<NodeId>>,
    /// Nodes of this kind in any state.
    registered: usize,
}

impl ResourceIndex {
    /// An index without nodes, for a workload mix.
    pub fn with_mix(mix: &Arc<TaskCounts>) -> ResourceIndex {
        ResourceIndex { mix: mix.clone(), ..ResourceIndex::default() }
    }

    /// Change the workload mix and rebuild the fragmentation model of each kind. O(kinds).
    pub fn set_mix(&mut self, mix: &Arc<TaskCounts>) {
        self.mix = mix.clone();
        for (kind, index) in &mut self.kinds {
            index.fragmentation = kind.fragmentation_model(mix);
        }
    }

    /// The fragmentation model of a kind.
    pub fn fragmentation_of(&self, kind: &Kind) -> Arc<FragmentationModel> {
        self.kinds.get(kind).map(|index| index.fragmentation.clone()).unwrap_or_default()
    }

    /// Schedulable nodes of a kind, grouped by their free resources.
    pub fn classes_of(&self, kind: &Kind) -> impl Iterator<Item = (&ResourceVec, &BTreeSet<NodeId>)> {
        self.kinds.get(kind).into_iter().flat_map(|index| &index.by_free_space)
    }

    /// Index a node as it is now; an earlier entry is replaced. O(log nodes).
    pub fn insert(&mut self, node: &Node) {
        let kind = Kind::of(node);
        let kind = self.kinds.get_key_value(&kind).map_or_else(|| Arc::new(kind), |(known, _)| known.clone());
        self.remove(&node.id);
        let milliwatts = node.facts.gpus.iter().map(GpuFacts::milliwatts).sum();
        let rack = Rack::of(node).map(|rack| match self.racks.get_key_value(&rack) {
            Some((known, _)) => known.clone(),
            None => Arc::new(rack),
        });
        if let Some(rack) = &rack {
            self.racks.entry(rack.clone()).or_default().nodes.insert(node.id.clone());
        }
        let (free, open) = (ResourceVec::of(node, kind.empty()), node.is_schedulable());
        let entry = NodeEntry { kind: kind.clone(), free, open, rack, milliwatts };
        self.count_free(&entry, u32::wrapping_add);
        self.milliwatts += milliwatts;
        let mix = &self.mix;
        let index = self.kinds.entry(kind).or_insert_with_key(|kind| KindIndex::new(kind.fragmentation_model(mix)));
        index.registered += 1;
        if entry.open {
            index.insert(entry.free, &node.id);
        }
        self.nodes.insert(node.id.clone(), entry);
    }

    /// Recompute the free resources of an indexed node from its leases. O(log nodes).
    pub fn refresh(&mut self, node: &Node) {
        if let Some(entry) = self.nodes.get(&node.id) {
            let free = ResourceVec::of(node, entry.kind.empty());
            self.set_free(&node.id, free);
        }
    }

    pub fn remove(&mut self, node: &NodeId) {
        let Some(entry) = self.nodes.remove(node) else { return };
        self.milliwatts -= entry.milliwatts;
        self.count_free(&entry, u32::wrapping_sub);
        if let Some(rack) = &entry.rack {
            self.leave_rack(rack, node);
        }
        let Some(index) = self.kinds.get_mut(&entry.kind) else { return };
        index.registered -= 1;
        if entry.open {
            index.remove(entry.free, node);
        }
        if index.registered == 0 {
            self.kinds.remove(&entry.kind);
        }
    }

    fn leave_rack(&mut self, rack: &Arc<Rack>, node: &NodeId) {
        if let Some(rack_nodes) = self.racks.get_mut(rack) {
            rack_nodes.nodes.remove(node);
            if rack_nodes.nodes.is_empty() {
                self.racks.remove(rack);
            }
        }
    }

    /// Add the free GPUs of a schedulable node to its rack, or subtract them, as `change` does.
    fn count_free(&mut self, entry: &NodeEntry, change: fn(u32, u32) -> u32) {
        let rack_nodes = entry.rack.as_ref().filter(|_| entry.open).and_then(|rack| self.racks.get_mut(rack));
        if let Some(rack_nodes) = rack_nodes {
            rack_nodes.free_gpus = change(rack_nodes.free_gpus, entry.free.gpus.count_ones());
        }
    }

    /// All racks in a fixed order, each with its nodes in any state.
    pub fn racks(&self) -> impl Iterator<Item = (&Arc<Rack>, &RackNodes)> {
        self.racks.iter()
    }

    /// An index of some of the nodes, without racks and power.
    pub fn subset<'a>(&self, nodes: impl Iterator<Item = &'a NodeId>) -> ResourceIndex {
        let mut part = ResourceIndex::default();
        for (node, entry) in nodes.filter_map(|node| self.nodes.get_key_value(node)) {
            let fragmentation =
                || self.kinds.get(&entry.kind).map(|index| index.fragmentation.clone()).unwrap_or_default();
            let index = part.kinds.entry(entry.kind.clone()).or_insert_with(|| KindIndex::new(fragmentation()));
            index.registered += 1;
            if entry.open {
                index.insert(entry.free, node);
            }
            part.nodes.insert(node.clone(), entry.clone());
        }
        part
    }

    /// Change the free resources of an indexed node.
    pub fn set_free(&mut self, node: &NodeId, free: ResourceVec) {
        let Some(entry) = self.nodes.get_mut(node) else { return };
        let Some(index) = self.kinds.get_mut(&entry.kind) else { return };
        if entry.open {
            index.remove(entry.free, node);
            index.insert(free, node);
            if let Some(rack_nodes) = entry.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
                rack_nodes.free_gpus = rack_nodes.free_gpus + free.gpus.count_ones() - entry.free.gpus.count_ones();
            }
        }
        entry.free = free;
    }

    /// Change whether an indexed node is schedulable.
    pub fn set_open(&mut self, node: &NodeId, open: bool) {
        let Some(entry) = self.nodes.get_mut(node).filter(|entry| entry.open != open) else { return };
        let Some(index) = self.kinds.get_mut(&entry.kind) else { return };
        match open {
            true => index.insert(entry.free, node),
            false => index.remove(entry.free, node),
        }
        entry.open = open;
        let gpus = entry.free.gpus.count_ones();
        if let Some(rack_nodes) = entry.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
            rack_nodes.free_gpus = if open { rack_nodes.free_gpus + gpus } else { rack_nodes.free_gpus - gpus };
        }
    }

    /// The entry of a node.
    pub fn entry(&self, node: &NodeId) -> Option<&NodeEntry> {
        self.nodes.get(node)
    }

    /// The entries of all nodes, by name.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeId, &NodeEntry)> {
        self.nodes.iter()
    }

    /// All kinds in a fixed order, each with its number of nodes in any state.
    pub fn kinds(&self) -> impl Iterator<Item = (&Arc<Kind>, usize)> + Clone {
        self.kinds.iter().map(|(kind, index)| (kind, index.registered))
    }

    /// Schedulable nodes of a kind with at least `gpus` free GPUs, each with that number: the fullest first, then by
    /// name.
    pub fn with_free<'a>(&'a self, kind: &Kind, gpus: u32) -> impl Iterator<Item = (u32, &'a NodeId)> + 'a {
        let index = self.kinds.get(kind);
        index
            .into_iter()
            .flat_map(move |index| index.by_free.range(gpus..))
            .flat_map(|(free, nodes)| nodes.iter().map(move |node| (*free, node)))
    }

    /// Schedulable nodes of a kind whose number of free GPUs is in the range: the fullest first, then by name.
    pub fn with_free_in<'a>(
        &'a self,
        kind: &Kind,
        gpus: RangeInclusive<u32>,
    ) -> impl Iterator<Item = (u32, &'a NodeId)> + 'a {
        let index = self.kinds.get(kind);
        index
            .into_iter()
            .flat_map(move |index| index.by_free.range(gpus.clone()))
            .flat_map(|(free, nodes)| nodes.iter().map(move |node| (*free, node)))
    }

    /// Feasibility: whether the registered nodes, in any state, could hold the shape when empty. One node must hold it,
    /// or several nodes together if the shape may span nodes. For gangs of several groups this is a necessary
    /// condition: each group must fit by itself, and the sum of all groups must fit.
    pub fn could_ever_hold(&self, shape: &Shape) -> bool {
        self.kinds.keys().any(|kind| kind.could_hold(shape))
            || (shape.may_span() && self.could_ever_span(shape))
            || self.could_repartition_for(shape)
    }

    /// The least demand that a gang puts on the quota of its tenant: its request, except that a task that needs a MIG
    /// instance counts as the smallest legal instance of any registered device.
    pub fn least_demand<'a>(&self, groups: impl Iterator<Item = (u32, &'a Resources)>) -> Demand {
        let groups = groups.map(|(count, each)| self.least_demand_of(each).times(u64::from(count)));
        groups.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// The least demand of one task.
    pub fn least_demand_of(&self, each: &Resources) -> Demand {
        let request = each.demand();
        if !each.is_shared() || each.isolation != Isolation::Full {
            return request;
        }
        let least = self.kinds.keys().filter_map(|kind| kind.least_instance(each)).min();
        least.map_or(request, |(gpu_milli, gpu_memory_mib)| Demand { gpu_milli, gpu_memory_mib, ..request })
    }

    /// Whether a repartition would make the shape feasible: a MIG instance for a task that shares, or whole devices
    /// again for tasks that need whole devices.
    fn could_repartition_for(&self, shape: &Shape) -> bool {
        match &shape.groups[..] {
            [(1, each)] if each.is_shared() => self.kinds.keys().any(|kind| kind.could_repartition_for(shape, each)),
            [(_, each)] if each.whole_gpus() > 0 => self.could_hold_unpartitioned(shape),
            _ => false,
        }
    }

    fn could_hold_unpartitioned(&self, shape: &Shape) -> bool {
        let partitioned = self.kinds.keys().filter(|kind| kind.gpus.iter().any(|gpu| gpu.partitioned));
        partitioned.into_iter().any(|kind| kind.unpartitioned().could_hold(shape))
    }

    fn could_ever_span(&self, shape: &Shape) -> bool {
        if !shape.must_share_a_rack() {
            return could_span(shape, self.kinds().map(|(kind, nodes)| (kind.as_ref(), nodes)));
        }
        let kind = |node| self.entry(node).map(|entry| (entry.kind.as_ref(), 1));
        self.racks().any(|(_, rack_nodes)| could_span(shape, rack_nodes.nodes.iter().filter_map(kind)))
    }

    /// Sum of the power limits of all devices of the registered nodes, in any state.
    pub fn milliwatts(&self) -> u64 {
        self.milliwatts
    }

    /// Whether a node of the kind is registered.
    pub fn has(&self, kind: &Kind) -> bool {
        self.kinds.contains_key(kind)
    }

    /// True if no node is registered.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Whether empty nodes, given as kinds with their number of nodes, could hold the shape together.
fn could_span<'a>(shape: &Shape, kinds: impl Iterator<Item = (&'a Kind, usize)> + Clone) -> bool {
    let sum = |of: &dyn Fn(&Kind) -> u64| -> u64 {
        let kinds = kinds.clone().filter(|(kind, _)| kind.admits(shape));
        kinds.map(|(kind, nodes)| of(kind).saturating_mul(nodes as u64)).fold(0, u64::saturating_add)
    };
    let groups = &mut shape.groups.iter();
    groups.all(|(count, each)| sum(&|kind| u64::from(kind.could_hold_tasks(shape, each))) >= u64::from(*count))
        && sum(&|kind| kind.gpus.len() as u64) >= u64::from(shape.whole_gpus())
        && sum(&|kind| u64::from(kind.cpus)) >= shape.cpus()
        && sum(&|kind| kind.memory_mib) >= shape.memory_mib()
}

impl KindIndex {
    fn new(fragmentation: Arc<FragmentationModel>) -> KindIndex {
        KindIndex { fragmentation, ..KindIndex::default() }
    }

    fn insert(&mut self, free: ResourceVec, node: &NodeId) {
        self.by_free_space.entry(free).or_default().insert(node.clone());
        self.by_free.entry(free.gpus.count_ones()).or_default().insert(node.clone());
    }

    fn remove(&mut self, free: ResourceVec, node: &NodeId) {
        if let Some(nodes) = self.by_free_space.get_mut(&free) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.by_free_space.remove(&free);
            }
        }
        let count = free.gpus.count_ones();
        if let Some(nodes) = self.by_free.get_mut(&count) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.by_free.remove(&count);
            }
        }
    }
}

/// The placed tasks of a gang on one node, in order of rank.
pub fn placed_tasks(
    shape: &Shape,
    (node, kind): (&NodeId, &Kind),
    assignments: &[DeviceAssignment],
) -> Vec<PlacedTask> {
    let groups = (0..).zip(&shape.groups);
    let ranks = groups.flat_map(|(group, (count, each))| (0..*count).map(move |_| (group, each)));
    let tasks = (0..).zip(ranks.zip(assignments));
    tasks.map(|(rank, ((group, each), assignment))| kind.placed(each, (rank, group), node, *assignment)).collect()
}
