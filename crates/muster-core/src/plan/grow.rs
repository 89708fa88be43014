//! Phase grow: elastic gangs that start in this round take more tasks than they need, as far as there is room.
//!
//! Everyone in the order comes first with what they need. What is left then goes to those who start and can make use of
//! more, in the order in which they start: first beside their own tasks, then on as few further nodes as possible.
//! Nobody is displaced for it, no reservation is delayed, no limit is passed, and devices in doubt are left alone. A
//! gang keeps its size until its attempt ends.

use std::sync::Arc;

use crate::capacity::Free;
use crate::ids::NodeId;
use crate::job::{JobSpec, PlacedTask, Topology};
use crate::lasting::Ending;
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Spot};
use crate::plan::{admit, spread};
use crate::queue::{Bucket, Shape};
use crate::state::State;

/// Let those who start now take what is left.
pub(super) fn take_the_rest(draft: &mut Draft) {
    for place in 0..draft.plan.starts.len() {
        let spec = draft.spec(draft.plan.starts[place].job);
        let Some(spec) = spec.filter(|spec| spec.is_elastic()) else { continue };
        let bucket = Bucket::of_spec(spec, None, &draft.state.policies);
        for group in 0..spec.tasks.len() {
            grow(draft, place, &bucket, spec, group);
        }
    }
}

/// Add as many tasks of a group as there is room for.
fn grow(draft: &mut Draft, place: usize, bucket: &Bucket, spec: &JobSpec, group: usize) {
    let of = &spec.tasks[group];
    let allowed = |more: u32| {
        let demand = draft.state.capacity.least_demand_of(&of.each).times(u64::from(more));
        admit::quota(draft, bucket, demand).is_empty()
    };
    let more = largest(of.most() - of.count, allowed);
    let own: Vec<NodeId> = nodes_of(&draft.plan.starts[place].tasks);
    // Nothing is had on loan beyond what is needed.
    let ending = draft.ending(bucket, draft.plan.starts[place].job).outright();
    let search = Search { draft, bucket, own, ending };
    let Some((ask, spot)) = search.find(&bucket.shape, group, more) else { return };
    let tasks = spot.tasks.iter().map(|task| PlacedTask { group: group as u32, ..task.clone() });
    let tasks = draft.plan.starts[place].tasks.iter().cloned().chain(tasks).collect();
    draft.plan.starts[place].tasks = ranked(draft.state, tasks);
    draft.add_to_start(bucket, draft.plan.starts[place].job, &ask, &spot);
}

/// The largest number up to `most` that is allowed, where all below an allowed one are.
fn largest(most: u32, allowed: impl Fn(u32) -> bool) -> u32 {
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if allowed(middle) { good = middle } else { bad = middle }
    }
    good
}

/// Its nodes, each once, in order.
fn nodes_of(tasks: &[PlacedTask]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = tasks.iter().map(|task| task.node.clone()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// Give out ranks anew: group by group, rack by rack, node by node.
fn ranked(state: &State, mut tasks: Vec<PlacedTask>) -> Vec<PlacedTask> {
    let rack = |node: &NodeId| state.capacity.filed(node).and_then(|filed| filed.rack.as_ref());
    tasks.sort_by(|a, b| {
        (a.group, rack(&a.node), &a.node, &a.gpus).cmp(&(b.group, rack(&b.node), &b.node, &b.gpus))
    });
    (0..).zip(&mut tasks).for_each(|(rank, task)| task.rank = rank);
    tasks
}

/// Where more tasks could sit.
struct Search<'d, 'a> {
    draft: &'d Draft<'a>,
    bucket: &'d Bucket,
    /// Nodes on which the gang sits already.
    own: Vec<NodeId>,
    ending: Ending,
}

impl Search<'_, '_> {
    /// Seats for as many tasks of a group as possible, and no more than so many.
    fn find(&self, shape: &Shape, group: usize, mut more: u32) -> Option<(Arc<Ask>, Spot)> {
        while more > 0 {
            let (ask, limited) = self.ask(shape, group, more);
            let room = self.room(&ask, more);
            if room >= more {
                let usable = |node: &NodeId, free| self.usable(node, free);
                let spot = spread::beside(self.draft.state, &self.draft.capacity, &ask, &usable, &self.own)?;
                return Some((ask, spot));
            }
            // Limits per model depend on how many there are; without them the room is what it is.
            more = if limited { more - 1 } else { room };
        }
        None
    }

    /// A gang of that many tasks of a group, and whether its size changes which devices limits leave to it.
    fn ask(&self, shape: &Shape, group: usize, more: u32) -> (Arc<Ask>, bool) {
        let groups = vec![(more, shape.groups[group].1.clone())];
        // How close together they must sit is seen to by what is usable.
        let shape = Shape { groups, topology: Topology::Any, wish: shape.wish.as_wish(), ..shape.clone() };
        let ask = Arc::new(Ask::new(&self.draft.state.capacity, &Arc::new(shape)));
        let limited = self.draft.models.limits(&self.bucket.tenant) || ask.may_hold_instances;
        (self.draft.within_limits(self.bucket, ask), limited)
    }

    /// How many tasks there is room for; more than so many are not counted.
    fn room(&self, ask: &Ask, most: u32) -> u32 {
        let capacity = &self.draft.capacity;
        let each = &ask.shape.groups[0].1;
        let seats = ask.matches.iter().flat_map(|found| {
            let nodes = capacity.with_free(&found.kind, each.whole_gpus());
            nodes.filter_map(move |(_, node)| {
                let free = self.usable(node, capacity.filed(node)?.free)?;
                Some(found.eligible[0].tasks_that_fit(each, free))
            })
        });
        let mut room = 0u32;
        for seats in seats {
            room = room.saturating_add(seats);
            if room >= most {
                break;
            }
        }
        room
    }

    /// Whether a node is too far from those on which the gang sits already. Where all its GPUs must be close together it
    /// stays as it is.
    fn is_too_far(&self, node: &NodeId) -> bool {
        let shape = &self.bucket.shape;
        let elsewhere = !self.own.contains(node);
        let rack = |node: &NodeId| self.draft.capacity.filed(node).and_then(|filed| filed.rack.as_ref());
        let same_rack = || rack(node).is_some() && self.own.iter().all(|own| rack(own) == rack(node));
        shape.wish.is_demand() || (elsewhere && shape.must_share_a_rack() && !same_rack())
    }

    /// What of the free space of a node the gang may use. One that must stay close stays close.
    fn usable(&self, node: &NodeId, free: Free) -> Option<Free> {
        let near = !self.is_too_far(node);
        let usable = near.then(|| self.draft.usable(node, free, self.ending)).flatten()?;
        Some(self.draft.without_degraded(node, usable))
    }
}
