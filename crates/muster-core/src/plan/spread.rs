//! Phase place, across nodes: the whole gang on as few nodes as possible, or nothing.
//!
//! The most demanding tasks are seated first: beside others of the gang where they fit, then on the node that takes
//! the most of them, and the last ones on the fullest node that takes them all. Nodes are compared by what they
//! hold, then by fewest free GPUs, then by name. Ranks follow the nodes rack by rack, so neighbours in rank are
//! neighbours in the room.
//!
//! For tasks of one kind this finds a place whenever there is one. Nodes are read from the index class by class, so
//! the cost grows with the nodes that are used, unless cores or memory run short.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;

use crate::capacity::{Capacity, Free, Rack, Room, Seat};
use crate::ids::NodeId;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::Spot;
use crate::state::State;

/// What of the free space of a node may be used; nothing if the node is closed to who asks.
pub(super) type Usable<'u> = dyn Fn(&NodeId, Free) -> Option<Free> + 'u;

/// Find seats for the whole gang: in one rack if that is possible, else in one block, else anywhere.
pub(super) fn find(state: &State, capacity: &Capacity, ask: &Ask, usable: &Usable) -> Option<Spot> {
    let anywhere = || anywhere(state, capacity, ask, usable);
    let racks: Vec<Place> = capacity.racks().map(|(rack, room)| Place::of(rack, room)).collect();
    if racks.is_empty() {
        return if ask.shape.must_share_a_rack() { None } else { anywhere() };
    }
    let within = |rooms: Vec<Place>| {
        fullest_first(rooms, ask).into_iter().find_map(|room| {
            let nodes = room.nodes.iter().flat_map(|nodes| nodes.iter());
            self::anywhere(state, &capacity.only(nodes), ask, usable)
        })
    };
    let in_a_rack = within(racks.clone());
    if ask.shape.must_share_a_rack() {
        return in_a_rack;
    }
    in_a_rack.or_else(|| within(blocks(racks))).or_else(anywhere)
}

/// Nodes that stand together.
#[derive(Clone)]
struct Place<'a> {
    rack: &'a Rack,
    free_gpus: u32,
    nodes: Vec<&'a BTreeSet<NodeId>>,
}

impl<'a> Place<'a> {
    fn of(rack: &'a Rack, room: &'a Room) -> Place<'a> {
        Place { rack, free_gpus: room.free_gpus, nodes: vec![&room.nodes] }
    }
}

/// Racks of one block together; those whose block is not known stand alone and were looked at before.
fn blocks(racks: Vec<Place>) -> Vec<Place> {
    let mut blocks: BTreeMap<&str, Place> = BTreeMap::new();
    for room in racks {
        let Some(block) = room.rack.block.as_deref() else { continue };
        match blocks.get_mut(block) {
            Some(sum) => {
                sum.free_gpus += room.free_gpus;
                sum.nodes.extend(room.nodes);
            }
            None => drop(blocks.insert(block, room)),
        }
    }
    blocks.into_values().collect()
}

/// Those with enough free GPUs, the fullest first.
fn fullest_first<'a>(mut rooms: Vec<Place<'a>>, ask: &Ask) -> Vec<Place<'a>> {
    rooms.retain(|room| room.free_gpus >= ask.whole_gpus());
    rooms.sort_by_key(|room| room.free_gpus);
    rooms
}

fn anywhere(state: &State, capacity: &Capacity, ask: &Ask, usable: &Usable) -> Option<Spot> {
    let mut hall = Hall { capacity, ask, usable, seats: Seats::default() };
    ask.groups_by_size().into_iter().all(|group| hall.seat_group(group)).then(|| hall.seats.spot(state, ask))
}

/// Find seats for all tasks, first on nodes on which others of the gang sit already.
pub(super) fn beside(
    state: &State,
    capacity: &Capacity,
    ask: &Ask,
    usable: &Usable,
    own: &[NodeId],
) -> Option<Spot> {
    let mut hall = Hall { capacity, ask, usable, seats: Seats::default() };
    for node in own {
        if let Some(free) = hall.free_on(node) {
            hall.seats.nodes.insert(node.clone(), Seated::new(free));
        }
    }
    ask.groups_by_size().into_iter().all(|group| hall.seat_group(group)).then(|| hall.seats.spot(state, ask))
}

/// Who sits where on each node.
#[derive(Debug, Clone, Default)]
pub(super) struct Seats {
    pub nodes: BTreeMap<NodeId, Seated>,
}

/// The tasks on one node.
#[derive(Debug, Clone)]
pub(super) struct Seated {
    /// What is left on the node.
    pub left: Free,
    /// Each with its group.
    tasks: Vec<(usize, Seat)>,
}

impl Seated {
    pub fn new(free: Free) -> Seated {
        Seated { left: free, tasks: Vec::new() }
    }

    /// Seat tasks of a group. False if they do not fit.
    pub fn take(&mut self, ask: &Ask, found: &Match, group: usize, count: u32) -> bool {
        let each = &ask.shape.groups[group].1;
        if count > ask.tasks_that_fit(found, group, self.left) {
            return false;
        }
        for _ in 0..count {
            let Some(seat) = found.eligible[group].seat(each, self.left) else { return false };
            self.left = self.left.without(Free::of_task(each, seat));
            self.tasks.push((group, seat));
        }
        true
    }
}

impl Seats {
    /// Give out ranks: group by group as they were asked for, and inside a group rack by rack.
    pub fn spot(&self, state: &State, ask: &Ask) -> Spot {
        let kind = |node: &NodeId| state.capacity.filed(node).map(|filed| &filed.kind);
        let rack = |node: &NodeId| state.capacity.filed(node).and_then(|filed| filed.rack.as_ref());
        let mut nodes: Vec<&NodeId> = self.nodes.keys().collect();
        nodes.sort_by_key(|node| (rack(node), *node));
        let mut tasks = Vec::new();
        for group in 0..ask.shape.groups.len() {
            for node in &nodes {
                let here = self.nodes[*node].tasks.iter().filter(|(of, _)| *of == group);
                for (_, seat) in here {
                    let (rank, each) = (tasks.len() as u32, &ask.shape.groups[group].1);
                    let Some(kind) = kind(node) else { continue };
                    tasks.push(kind.placed(each, (rank, group as u32), node, *seat));
                }
            }
        }
        Spot { tasks, score: None }
    }
}

struct Hall<'a> {
    capacity: &'a Capacity,
    ask: &'a Ask,
    usable: &'a Usable<'a>,
    seats: Seats,
}

impl<'a> Hall<'a> {
    fn seat_group(&mut self, group: usize) -> bool {
        let left = self.seat_beside(group, self.ask.shape.groups[group].0);
        let Some(chosen) = self.fewest_nodes(group, left) else { return false };
        for (node, count) in chosen {
            self.seat(group, node, count);
        }
        true
    }

    /// Seat as many as fit on nodes where others of the gang sit already; how many are left.
    fn seat_beside(&mut self, group: usize, mut left: u32) -> u32 {
        let nodes: Vec<NodeId> = self.seats.nodes.keys().cloned().collect();
        for node in nodes {
            let Some(found) = self.match_of(&node) else { continue };
            let here = self.ask.tasks_that_fit(found, group, self.seats.nodes[&node].left).min(left);
            self.seat(group, &node, here);
            left -= here;
        }
        left
    }

    fn seat(&mut self, group: usize, node: &NodeId, count: u32) {
        if let (Some(found), Some(free)) = (self.match_of(node), self.free_on(node)) {
            let here = self.seats.nodes.entry(node.clone()).or_insert(Seated::new(free));
            here.take(self.ask, found, group, count);
        }
    }

    fn match_of(&self, node: &NodeId) -> Option<&'a Match> {
        self.ask.on(&self.capacity.filed(node)?.kind)
    }

    fn free_on(&self, node: &NodeId) -> Option<Free> {
        self.capacity.filed(node).and_then(|filed| (self.usable)(node, filed.free))
    }

    /// Fresh nodes for so many tasks, and how many sit on each.
    fn fewest_nodes(&self, group: usize, mut left: u32) -> Option<Vec<(&'a NodeId, u32)>> {
        let mut chosen = Vec::new();
        let mut roomiest = Roomiest::new(self, group);
        while left > 0 {
            let (most, node) = roomiest.next()?;
            if left <= most {
                chosen.push((self.fullest_for(group, left, &chosen)?, left));
                break;
            }
            chosen.push((node, most));
            left -= most;
        }
        Some(chosen)
    }

    /// The node with the fewest free GPUs that takes so many tasks, then by name.
    fn fullest_for(&self, group: usize, count: u32, chosen: &[(&NodeId, u32)]) -> Option<&'a NodeId> {
        let gpus = self.ask.shape.groups[group].1.whole_gpus().saturating_mul(count);
        let taken: BTreeSet<&NodeId> = chosen.iter().map(|(node, _)| *node).collect();
        let fits =
            |found: &Match, node: &NodeId| !taken.contains(node) && self.room(found, group, node) >= count;
        let fullest = self.ask.matches.iter().filter_map(|found| {
            let mut nodes = self.capacity.with_free(&found.kind, gpus);
            nodes.find(|(_, node)| fits(found, node))
        });
        fullest.min().map(|(_, node)| node)
    }

    /// How many tasks of a group a node takes on which nobody of the gang sits yet.
    fn room(&self, found: &Match, group: usize, node: &NodeId) -> u32 {
        let fresh = !self.seats.nodes.contains_key(node);
        let free = self.free_on(node).filter(|_| fresh);
        free.map_or(0, |free| self.ask.tasks_that_fit(found, group, free))
    }
}

type Stream<'a> = (&'a Match, Peekable<Box<dyn Iterator<Item = (u32, &'a NodeId)> + 'a>>);

/// Fresh nodes by how many tasks of a group they take, most first, then by fewest free GPUs, then by name.
///
/// GPUs give an upper bound that the index knows; nodes that cores or memory hold below it wait for their class.
struct Roomiest<'h, 'a> {
    hall: &'h Hall<'a>,
    group: usize,
    /// The class that is being read: nodes whose GPUs are enough for so many tasks and no more.
    class: u32,
    streams: Vec<Stream<'a>>,
    /// Nodes of higher classes that take fewer.
    waiting: BTreeSet<(Reverse<u32>, u32, &'a NodeId)>,
}

impl<'h, 'a> Roomiest<'h, 'a> {
    fn new(hall: &'h Hall<'a>, group: usize) -> Roomiest<'h, 'a> {
        let each = hall.ask.shape.groups[group].1.whole_gpus();
        let class = u64::BITS.checked_div(each).unwrap_or(0);
        let mut roomiest = Roomiest { hall, group, class, streams: Vec::new(), waiting: BTreeSet::new() };
        match each {
            0 => roomiest.read_all(),
            _ => roomiest.open_class(),
        }
        roomiest
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

    /// Tasks without GPUs of their own have no index to go by.
    fn read_all(&mut self) {
        for found in &self.hall.ask.matches {
            for (free, node) in self.hall.capacity.with_free(&found.kind, 0) {
                self.wait(self.hall.room(found, self.group, node), free, node);
            }
        }
    }

    fn wait(&mut self, room: u32, free: u32, node: &'a NodeId) {
        if room > 0 {
            self.waiting.insert((Reverse(room), free, node));
        }
    }

    fn open_class(&mut self) {
        let (hall, each) = (self.hall, self.hall.ask.shape.groups[self.group].1.whole_gpus());
        let range = self.class * each..=(self.class * each).saturating_add(each - 1);
        let stream = |found: &'a Match| -> Stream<'a> {
            let nodes = hall.capacity.with_free_in(&found.kind, range.clone());
            (found, (Box::new(nodes) as Box<dyn Iterator<Item = (u32, &'a NodeId)> + 'a>).peekable())
        };
        self.streams = hall.ask.matches.iter().map(stream).collect();
    }

    /// The next node that takes as many as its class says.
    fn next_of_class(&mut self) -> Option<&'a NodeId> {
        loop {
            let of_class = self.waiting.first().filter(|(room, _, _)| room.0 == self.class);
            let waiting = of_class.map(|(_, free, node)| (*free, *node));
            let heads = self.streams.iter_mut().enumerate();
            let head = heads.filter_map(|(place, (_, nodes))| Some((*nodes.peek()?, place))).min();
            match (waiting, head) {
                (Some(waiting), head) if head.is_none_or(|(head, _)| waiting < head) => {
                    self.waiting.pop_first();
                    return Some(waiting.1);
                }
                (_, None) => return None,
                (_, Some(((free, node), place))) => {
                    let (found, nodes) = &mut self.streams[place];
                    nodes.next();
                    let room = self.hall.room(found, self.group, node);
                    if room == self.class {
                        return Some(node);
                    }
                    self.wait(room, free, node);
                }
            }
        }
    }
}
