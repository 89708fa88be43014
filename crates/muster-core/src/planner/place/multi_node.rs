//! Step 7, phase place, multi-node: a gang across nodes, racks and blocks, on as few nodes as possible, or not at all.
//!
//! The most demanding tasks are placed first: on nodes that the gang already uses, then on the node that holds the most
//! of them, and the last ones on the fullest node that holds them all. Nodes are compared by the number of tasks that
//! fit, then by fewest free GPUs, then by name. Ranks follow the nodes rack by rack, so tasks with adjacent ranks are
//! close in the network.
//!
//! For tasks of one group this finds a placement whenever one exists. Nodes are read from the resource index class by
//! class, so the cost grows with the number of nodes used, unless cores or memory run short.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use crate::ids::NodeId;
use crate::planner::draft::Placement;
use crate::planner::request::{KindMatch, Request};
use crate::resources::{DeviceAssignment, Rack, RackNodes, ResourceIndex, ResourceVec};
use crate::state::State;

/// The part of a node's free space that the gang may use; `None` if the node is closed to it.
pub(crate) type Usable<'u> = dyn Fn(&NodeId, ResourceVec) -> Option<ResourceVec> + 'u;

/// A placement of the whole gang: within one rack if possible, else within one block, else anywhere.
pub(crate) fn find(state: &State, capacity: &ResourceIndex, request: &Request, usable: &Usable) -> Option<Placement> {
    let anywhere = || anywhere(state, capacity, request, usable);
    let racks: Vec<TopologyDomain> = capacity.racks().map(|(rack, nodes)| TopologyDomain::of(rack, nodes)).collect();
    if racks.is_empty() {
        return if request.shape.must_share_a_rack() { None } else { anywhere() };
    }
    let within = |domains: Vec<TopologyDomain>| {
        fullest_first(domains, request).into_iter().find_map(|domain| {
            let nodes = domain.nodes.iter().flat_map(|nodes| nodes.iter());
            self::anywhere(state, &capacity.subset(nodes), request, usable)
        })
    };
    let in_a_rack = within(racks.clone());
    if request.shape.must_share_a_rack() {
        return in_a_rack;
    }
    in_a_rack.or_else(|| within(blocks(racks))).or_else(anywhere)
}

/// The nodes of one rack or block.
#[derive(Clone)]
struct TopologyDomain<'a> {
    rack: &'a Rack,
    free_gpus: u32,
    nodes: Vec<&'a BTreeSet<NodeId>>,
}

impl<'a> TopologyDomain<'a> {
    fn of(rack: &'a Rack, rack_nodes: &'a RackNodes) -> TopologyDomain<'a> {
        TopologyDomain { rack, free_gpus: rack_nodes.free_gpus, nodes: vec![&rack_nodes.nodes] }
    }
}

/// The racks merged by block. A rack without a known block is left out: it was tried alone before.
fn blocks(racks: Vec<TopologyDomain>) -> Vec<TopologyDomain> {
    let mut blocks: BTreeMap<&str, TopologyDomain> = BTreeMap::new();
    for domain in racks {
        let Some(block) = domain.rack.block.as_deref() else { continue };
        match blocks.get_mut(block) {
            Some(sum) => {
                sum.free_gpus += domain.free_gpus;
                sum.nodes.extend(domain.nodes);
            }
            None => drop(blocks.insert(block, domain)),
        }
    }
    blocks.into_values().collect()
}

/// The domains with enough free GPUs, the fullest first.
fn fullest_first<'a>(mut domains: Vec<TopologyDomain<'a>>, request: &Request) -> Vec<TopologyDomain<'a>> {
    domains.retain(|domain| domain.free_gpus >= request.whole_gpus());
    domains.sort_by_key(|domain| domain.free_gpus);
    domains
}

fn anywhere(state: &State, capacity: &ResourceIndex, request: &Request, usable: &Usable) -> Option<Placement> {
    let mut placer = GangPlacer { capacity, request, usable, assigned: GangAssignment::default() };
    request
        .groups_by_size()
        .into_iter()
        .all(|group| placer.place_group(group))
        .then(|| placer.assigned.placement(state, request))
}

/// A placement of all tasks, first on the nodes that the gang already uses (`own`).
pub(crate) fn find_beside(
    state: &State,
    capacity: &ResourceIndex,
    request: &Request,
    usable: &Usable,
    own: &[NodeId],
) -> Option<Placement> {
    let mut placer = GangPlacer { capacity, request, usable, assigned: GangAssignment::default() };
    for node in own {
        if let Some(free) = placer.free_on(node) {
            placer.assigned.nodes.insert(node.clone(), NodeAssignment::new(free));
        }
    }
    request
        .groups_by_size()
        .into_iter()
        .all(|group| placer.place_group(group))
        .then(|| placer.assigned.placement(state, request))
}

/// The tasks of a gang, by node.
#[derive(Debug, Clone, Default)]
pub(crate) struct GangAssignment {
    pub nodes: BTreeMap<NodeId, NodeAssignment>,
}

/// The tasks on one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeAssignment {
    /// Free resources left on the node.
    pub left: ResourceVec,
    /// The group and the device assignment of each task.
    tasks: Vec<(usize, DeviceAssignment)>,
}

impl NodeAssignment {
    pub fn new(free: ResourceVec) -> NodeAssignment {
        NodeAssignment { left: free, tasks: Vec::new() }
    }

    /// Assign `count` tasks of a group. False if they do not fit.
    pub fn take(&mut self, request: &Request, found: &KindMatch, group: usize, count: u32) -> bool {
        let each = &request.shape.groups[group].1;
        if count > request.tasks_that_fit(found, group, self.left) {
            return false;
        }
        for _ in 0..count {
            let Some(assignment) = found.eligible[group].best_assignment(each, self.left) else {
                return false;
            };
            self.left = self.left.minus(ResourceVec::of_task(each, assignment));
            self.tasks.push((group, assignment));
        }
        true
    }
}

impl GangAssignment {
    /// The placement with ranks: by group in the order of the request, within a group rack by rack.
    pub fn placement(&self, state: &State, request: &Request) -> Placement {
        let kind = |node: &NodeId| state.resources.entry(node).map(|entry| &entry.kind);
        let rack = |node: &NodeId| state.resources.entry(node).and_then(|entry| entry.rack.as_ref());
        let mut nodes: Vec<&NodeId> = self.nodes.keys().collect();
        nodes.sort_by_key(|node| (rack(node), *node));
        let mut tasks = Vec::new();
        for group in 0..request.shape.groups.len() {
            for node in &nodes {
                let of_group = self.nodes[*node].tasks.iter().filter(|(of, _)| *of == group);
                for (_, assignment) in of_group {
                    let (rank, each) = (tasks.len() as u32, &request.shape.groups[group].1);
                    let Some(kind) = kind(node) else { continue };
                    tasks.push(kind.placed(each, (rank, group as u32), node, *assignment));
                }
            }
        }
        Placement { tasks, score: None }
    }
}

struct GangPlacer<'a> {
    capacity: &'a ResourceIndex,
    request: &'a Request,
    usable: &'a Usable<'a>,
    assigned: GangAssignment,
}

impl<'a> GangPlacer<'a> {
    fn place_group(&mut self, group: usize) -> bool {
        let left = self.place_beside_gang(group, self.request.shape.groups[group].0);
        let Some(chosen) = self.fewest_nodes(group, left) else { return false };
        for (node, count) in chosen {
            self.place_on(group, node, count);
        }
        true
    }

    /// Place as many tasks as fit on nodes that the gang already uses. Returns the number of tasks left.
    fn place_beside_gang(&mut self, group: usize, mut left: u32) -> u32 {
        let nodes: Vec<NodeId> = self.assigned.nodes.keys().cloned().collect();
        for node in nodes {
            let Some(found) = self.match_of(&node) else { continue };
            let count = self.request.tasks_that_fit(found, group, self.assigned.nodes[&node].left).min(left);
            self.place_on(group, &node, count);
            left -= count;
        }
        left
    }

    fn place_on(&mut self, group: usize, node: &NodeId, count: u32) {
        if let (Some(found), Some(free)) = (self.match_of(node), self.free_on(node)) {
            let assignment = self.assigned.nodes.entry(node.clone()).or_insert(NodeAssignment::new(free));
            assignment.take(self.request, found, group, count);
        }
    }

    fn match_of(&self, node: &NodeId) -> Option<&'a KindMatch> {
        self.request.match_for(&self.capacity.entry(node)?.kind)
    }

    fn free_on(&self, node: &NodeId) -> Option<ResourceVec> {
        self.capacity.entry(node).and_then(|entry| (self.usable)(node, entry.free))
    }

    /// Unused nodes for `left` tasks of a group, and the number of tasks on each.
    fn fewest_nodes(&self, group: usize, mut left: u32) -> Option<Vec<(&'a NodeId, u32)>> {
        let mut chosen = Vec::new();
        let mut nodes = NodesByRoom::new(self, group);
        while left > 0 {
            let (most, node) = nodes.next()?;
            if left <= most {
                chosen.push((self.fullest_for(group, left, &chosen)?, left));
                break;
            }
            chosen.push((node, most));
            left -= most;
        }
        Some(chosen)
    }

    /// The node with the fewest free GPUs that holds `count` tasks, then by name.
    fn fullest_for(&self, group: usize, count: u32, chosen: &[(&NodeId, u32)]) -> Option<&'a NodeId> {
        let gpus = self.request.shape.groups[group].1.whole_gpus().saturating_mul(count);
        let taken: BTreeSet<&NodeId> = chosen.iter().map(|(node, _)| *node).collect();
        let fits = |found: &KindMatch, node: &NodeId| !taken.contains(node) && self.room(found, group, node) >= count;
        let fullest = self.request.matches.iter().filter_map(|found| {
            let mut nodes = self.capacity.with_free(&found.kind, gpus);
            nodes.find(|(_, node)| fits(found, node))
        });
        fullest.min().map(|(_, node)| node)
    }

    /// The number of tasks of a group that fit on a node; 0 if the gang already uses the node.
    fn room(&self, found: &KindMatch, group: usize, node: &NodeId) -> u32 {
        let unused = !self.assigned.nodes.contains_key(node);
        let free = self.free_on(node).filter(|_| unused);
        free.map_or(0, |free| self.request.tasks_that_fit(found, group, free))
    }
}

/// Nodes of one kind with their free GPUs, fewest first.
type Stream<'a> = (&'a KindMatch, Peekable<Box<dyn Iterator<Item = (u32, &'a NodeId)> + 'a>>);

/// Unused nodes by the number of tasks of a group that fit, most first, then by fewest free GPUs, then by name.
///
/// Free GPUs are an upper bound that the resource index knows. A node on which cores or memory allow fewer tasks waits
/// for the class of that number.
struct NodesByRoom<'h, 'a> {
    placer: &'h GangPlacer<'a>,
    group: usize,
    /// The class being read: nodes whose free GPUs suffice for this number of tasks and no more.
    class: u32,
    streams: Vec<Stream<'a>>,
    /// Nodes of higher classes on which fewer tasks fit.
    waiting: BTreeSet<(Reverse<u32>, u32, &'a NodeId)>,
}

impl<'h, 'a> NodesByRoom<'h, 'a> {
    fn new(placer: &'h GangPlacer<'a>, group: usize) -> NodesByRoom<'h, 'a> {
        let each = placer.request.shape.groups[group].1.whole_gpus();
        let class = u64::BITS.checked_div(each).unwrap_or(0);
        let mut nodes = NodesByRoom { placer, group, class, streams: Vec::new(), waiting: BTreeSet::new() };
        match each {
            0 => nodes.read_all(),
            _ => nodes.open_class(),
        }
        nodes
    }

    fn next(&mut self) -> Option<(u32, &'a NodeId)> {
        loop {
            if let Some(node) = self.next_of_class() {
                return Some((self.class, node));
            }
            if self.class <= 1 {
                let (Reverse(room), _, node) = self.waiting.pop_first()?;
                return Some((room, node));
            }
            self.class -= 1;
            self.open_class();
        }
    }

    /// For tasks without whole GPUs the index gives no bound, so all nodes are read.
    fn read_all(&mut self) {
        for found in &self.placer.request.matches {
            for (free, node) in self.placer.capacity.with_free(&found.kind, 0) {
                self.wait(self.placer.room(found, self.group, node), free, node);
            }
        }
    }

    fn wait(&mut self, room: u32, free: u32, node: &'a NodeId) {
        if room > 0 {
            self.waiting.insert((Reverse(room), free, node));
        }
    }

    fn open_class(&mut self) {
        let (placer, each) = (self.placer, self.placer.request.shape.groups[self.group].1.whole_gpus());
        let range = self.class * each..=(self.class * each).saturating_add(each - 1);
        let stream = |found: &'a KindMatch| -> Stream<'a> {
            let nodes = placer.capacity.with_free_in(&found.kind, range.clone());
            (found, (Box::new(nodes) as Box<dyn Iterator<Item = (u32, &'a NodeId)> + 'a>).peekable())
        };
        self.streams = placer.request.matches.iter().map(stream).collect();
    }

    /// The next node on which exactly as many tasks fit as its class says.
    fn next_of_class(&mut self) -> Option<&'a NodeId> {
        loop {
            let of_class = self.waiting.first().filter(|(room, _, _)| room.0 == self.class);
            let waiting = of_class.map(|(_, free, node)| (*free, *node));
            let heads = self.streams.iter_mut().enumerate();
            let head = heads.filter_map(|(index, (_, nodes))| Some((*nodes.peek()?, index))).min();
            match (waiting, head) {
                (Some(waiting), head) if head.is_none_or(|(head, _)| waiting < head) => {
                    self.waiting.pop_first();
                    return Some(waiting.1);
                }
                (_, None) => return None,
                (_, Some(((free, node), index))) => {
                    let (found, nodes) = &mut self.streams[index];
                    nodes.next();
                    let room = self.placer.room(found, self.group, node);
                    if room == self.class {
                        return Some(node);
                    }
                    self.wait(room, free, node);
                }
            }
        }
    }
}
