//! What is free where, filed so that a best fit is found without looking at every node.
//!
//! Nodes of one kind (same devices, cores, memory, labels) are filed together by the number of their free
//! GPUs. A shape is matched against kinds, of which there are few; inside a kind the fullest node that still
//! has enough comes first. Finding a place costs O(kinds × log nodes) unless cores or memory run short.

mod free;
mod kind;
mod parts;
mod seat;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::ids::NodeId;
use crate::job::{Demand, Isolation, PlacedTask, Resources};
use crate::mix::Kinds;
use crate::node::{GpuFacts, Node};
use crate::queue::Shape;
use crate::waste::Prospect;

pub use free::Free;
pub(crate) use kind::fit;
pub use kind::{Eligible, GpuKind, InstanceKind, Kind};
pub use parts::{Part, Parts};
pub use seat::Seat;

/// All nodes that take work, filed by kind and free GPUs. Derived from the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Capacity {
    shelves: BTreeMap<Arc<Kind>, Shelf>,
    nodes: BTreeMap<NodeId, Filed>,
    /// The power limits of all devices.
    milliwatts: u64,
    /// What is expected to be asked for.
    lesson: Arc<Kinds>,
    /// The nodes of each rack, in whatever state they are. Those that stand nowhere are in none.
    racks: BTreeMap<Arc<Rack>, Room>,
}

/// What stands in a rack.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Room {
    /// Its nodes, in whatever state they are.
    pub nodes: BTreeSet<NodeId>,
    /// GPUs that are wholly free on those that take work.
    pub free_gpus: u32,
}

/// Where a node stands: racks of one block are near each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rack {
    /// The block, where it is known.
    pub block: Option<String>,
    /// The rack.
    pub rack: String,
}

impl Rack {
    fn of(node: &Node) -> Option<Rack> {
        Some(Rack { block: node.facts.block.clone(), rack: node.facts.rack.clone()? })
    }
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
    /// Where it stands.
    pub rack: Option<Arc<Rack>>,
    /// The power limits of its devices.
    milliwatts: u64,
}

/// Nodes of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Shelf {
    /// What is expected to become of what is free on them.
    prospect: Arc<Prospect>,
    /// Nodes that take work, by number of free GPUs.
    by_free: BTreeMap<u32, BTreeSet<NodeId>>,
    /// The same nodes, by all that is free.
    alike: BTreeMap<Free, BTreeSet<NodeId>>,
    /// Nodes of this kind in any state.
    registered: usize,
}

impl Capacity {
    /// Without nodes, for what is expected to be asked for.
    pub fn going_by(lesson: &Arc<Kinds>) -> Capacity {
        Capacity { lesson: lesson.clone(), ..Capacity::default() }
    }

    /// From now on something else is expected to be asked for. O(kinds).
    pub fn learn(&mut self, lesson: &Arc<Kinds>) {
        self.lesson = lesson.clone();
        for (kind, shelf) in &mut self.shelves {
            shelf.prospect = kind.prospect(lesson);
        }
    }

    /// What is expected to become of what is free on nodes of a kind.
    pub fn prospect(&self, kind: &Kind) -> Arc<Prospect> {
        self.shelves.get(kind).map(|shelf| shelf.prospect.clone()).unwrap_or_default()
    }

    /// Nodes of a kind that take work, those together on which the same is free.
    pub fn alike(&self, kind: &Kind) -> impl Iterator<Item = (&Free, &BTreeSet<NodeId>)> {
        self.shelves.get(kind).into_iter().flat_map(|shelf| &shelf.alike)
    }

    /// File a node as it is now, anew if it was filed before. O(log nodes).
    pub fn file(&mut self, node: &Node) {
        let kind = Kind::of(node);
        let kind =
            self.shelves.get_key_value(&kind).map_or_else(|| Arc::new(kind), |(known, _)| known.clone());
        self.remove(&node.id);
        let milliwatts = node.facts.gpus.iter().map(GpuFacts::milliwatts).sum();
        let rack = Rack::of(node).map(|rack| match self.racks.get_key_value(&rack) {
            Some((known, _)) => known.clone(),
            None => Arc::new(rack),
        });
        if let Some(rack) = &rack {
            self.racks.entry(rack.clone()).or_default().nodes.insert(node.id.clone());
        }
        let (free, open) = (Free::of(node, kind.empty()), node.takes_work());
        let filed = Filed { kind: kind.clone(), free, open, rack, milliwatts };
        self.count_free(&filed, u32::wrapping_add);
        self.milliwatts += milliwatts;
        let lesson = &self.lesson;
        let shelf = self.shelves.entry(kind).or_insert_with_key(|kind| Shelf::new(kind.prospect(lesson)));
        shelf.registered += 1;
        if filed.open {
            shelf.put(filed.free, &node.id);
        }
        self.nodes.insert(node.id.clone(), filed);
    }

    /// Look at what is held on a node that is filed. O(log nodes).
    pub fn refresh(&mut self, node: &Node) {
        if let Some(filed) = self.nodes.get(&node.id) {
            let free = Free::of(node, filed.kind.empty());
            self.set_free(&node.id, free);
        }
    }

    /// Forget a node.
    pub fn remove(&mut self, node: &NodeId) {
        let Some(filed) = self.nodes.remove(node) else { return };
        self.milliwatts -= filed.milliwatts;
        self.count_free(&filed, u32::wrapping_sub);
        if let Some(rack) = &filed.rack {
            self.leave(rack, node);
        }
        let Some(shelf) = self.shelves.get_mut(&filed.kind) else { return };
        shelf.registered -= 1;
        if filed.open {
            shelf.pull(filed.free, node);
        }
        if shelf.registered == 0 {
            self.shelves.remove(&filed.kind);
        }
    }

    fn leave(&mut self, rack: &Arc<Rack>, node: &NodeId) {
        if let Some(room) = self.racks.get_mut(rack) {
            room.nodes.remove(node);
            if room.nodes.is_empty() {
                self.racks.remove(rack);
            }
        }
    }

    /// What is free on a node counts for its rack, or no longer does.
    fn count_free(&mut self, filed: &Filed, to: fn(u32, u32) -> u32) {
        let room = filed.rack.as_ref().filter(|_| filed.open).and_then(|rack| self.racks.get_mut(rack));
        if let Some(room) = room {
            room.free_gpus = to(room.free_gpus, filed.free.gpus.count_ones());
        }
    }

    /// The racks, in a fixed order, each with its nodes in whatever state.
    pub fn racks(&self) -> impl Iterator<Item = (&Arc<Rack>, &Room)> {
        self.racks.iter()
    }

    /// Some of its nodes alone.
    pub fn only<'a>(&self, nodes: impl Iterator<Item = &'a NodeId>) -> Capacity {
        let mut part = Capacity::default();
        for (node, filed) in nodes.filter_map(|node| self.nodes.get_key_value(node)) {
            let prospect =
                || self.shelves.get(&filed.kind).map(|shelf| shelf.prospect.clone()).unwrap_or_default();
            let shelf = part.shelves.entry(filed.kind.clone()).or_insert_with(|| Shelf::new(prospect()));
            shelf.registered += 1;
            if filed.open {
                shelf.put(filed.free, node);
            }
            part.nodes.insert(node.clone(), filed.clone());
        }
        part
    }

    /// Change what is free on a node that is filed.
    pub fn set_free(&mut self, node: &NodeId, free: Free) {
        let Some(filed) = self.nodes.get_mut(node) else { return };
        let Some(shelf) = self.shelves.get_mut(&filed.kind) else { return };
        if filed.open {
            shelf.pull(filed.free, node);
            shelf.put(free, node);
            if let Some(room) = filed.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
                room.free_gpus = room.free_gpus + free.gpus.count_ones() - filed.free.gpus.count_ones();
            }
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
        let gpus = filed.free.gpus.count_ones();
        if let Some(room) = filed.rack.as_ref().and_then(|rack| self.racks.get_mut(rack)) {
            room.free_gpus = if open { room.free_gpus + gpus } else { room.free_gpus - gpus };
        }
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
    pub fn kinds(&self) -> impl Iterator<Item = (&Arc<Kind>, usize)> + Clone {
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
            || self.could_be_cut_for(shape)
    }

    /// The least that a gang takes from its tenant's quota: what it asks for, but of a task that must have an instance the
    /// smallest legal one of any registered device.
    pub fn least_demand<'a>(&self, groups: impl Iterator<Item = (u32, &'a Resources)>) -> Demand {
        let groups = groups.map(|(count, each)| self.least_demand_of(each).times(u64::from(count)));
        groups.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// The same of one task.
    pub fn least_demand_of(&self, each: &Resources) -> Demand {
        let asked = each.demand();
        if !each.is_shared() || each.isolation != Isolation::Full {
            return asked;
        }
        let least = self.shelves.keys().filter_map(|kind| kind.least_instance(each)).min();
        least.map_or(asked, |(gpu_milli, gpu_memory_mib)| Demand { gpu_milli, gpu_memory_mib, ..asked })
    }

    /// Whether nodes would do if their devices were partitioned otherwise: for a task that shares, or made whole again
    /// for those who need whole ones.
    fn could_be_cut_for(&self, shape: &Shape) -> bool {
        match &shape.groups[..] {
            [(1, each)] if each.is_shared() => {
                self.shelves.keys().any(|kind| kind.could_be_cut_for(shape, each))
            }
            [(_, each)] if each.whole_gpus() > 0 => self.could_hold_uncut(shape),
            _ => false,
        }
    }

    fn could_hold_uncut(&self, shape: &Shape) -> bool {
        let cut = self.shelves.keys().filter(|kind| kind.gpus.iter().any(|gpu| gpu.partitioned));
        cut.into_iter().any(|kind| kind.uncut().could_hold(shape))
    }

    fn could_ever_span(&self, shape: &Shape) -> bool {
        if !shape.must_share_a_rack() {
            return could_span(shape, self.kinds().map(|(kind, nodes)| (kind.as_ref(), nodes)));
        }
        let kind = |node| self.filed(node).map(|filed| (filed.kind.as_ref(), 1));
        self.racks().any(|(_, room)| could_span(shape, room.nodes.iter().filter_map(kind)))
    }

    /// The power limits of the devices of all registered nodes, in whatever state they are.
    pub fn milliwatts(&self) -> u64 {
        self.milliwatts
    }

    /// Whether a node of a kind is registered.
    pub fn has(&self, kind: &Kind) -> bool {
        self.shelves.contains_key(kind)
    }

    /// Whether any node is registered.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// Whether empty nodes of some kinds, so many of each, could hold the shape together.
fn could_span<'a>(shape: &Shape, kinds: impl Iterator<Item = (&'a Kind, usize)> + Clone) -> bool {
    let sum = |of: &dyn Fn(&Kind) -> u64| -> u64 {
        let kinds = kinds.clone().filter(|(kind, _)| kind.admits(shape));
        kinds.map(|(kind, nodes)| of(kind).saturating_mul(nodes as u64)).fold(0, u64::saturating_add)
    };
    let groups = &mut shape.groups.iter();
    groups
        .all(|(count, each)| sum(&|kind| u64::from(kind.could_hold_tasks(shape, each))) >= u64::from(*count))
        && sum(&|kind| kind.gpus.len() as u64) >= u64::from(shape.whole_gpus())
        && sum(&|kind| u64::from(kind.cpus)) >= shape.cpus()
        && sum(&|kind| kind.memory_mib) >= shape.memory_mib()
}

impl Shelf {
    fn new(prospect: Arc<Prospect>) -> Shelf {
        Shelf { prospect, ..Shelf::default() }
    }

    fn put(&mut self, free: Free, node: &NodeId) {
        self.alike.entry(free).or_default().insert(node.clone());
        self.by_free.entry(free.gpus.count_ones()).or_default().insert(node.clone());
    }

    fn pull(&mut self, free: Free, node: &NodeId) {
        if let Some(nodes) = self.alike.get_mut(&free) {
            nodes.remove(node);
            if nodes.is_empty() {
                self.alike.remove(&free);
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

/// The tasks of a gang on one node, rank by rank.
pub fn placed_tasks(shape: &Shape, (node, kind): (&NodeId, &Kind), seats: &[Seat]) -> Vec<PlacedTask> {
    let groups = (0..).zip(&shape.groups);
    let ranks = groups.flat_map(|(group, (count, each))| (0..*count).map(move |_| (group, each)));
    let tasks = (0..).zip(ranks.zip(seats));
    tasks.map(|(rank, ((group, each), seat))| kind.placed(each, (rank, group), node, *seat)).collect()
}

/// Devices as bits. No node has more than 64.
pub fn mask(gpus: &[u8]) -> u64 {
    gpus.iter().filter(|gpu| **gpu < 64).fold(0, |mask, gpu| mask | 1 << gpu)
}

/// The indexes of the set bits.
pub fn bits(mask: u64) -> Vec<u8> {
    (0..64).filter(|index| mask & (1 << index) != 0).collect()
}
