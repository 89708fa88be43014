//! Step 7, phase grow: elastic gangs that start in this round take tasks beyond their minimum while space is free.
//!
//! Every job in the queue order comes first with its minimum. Then the free space goes to the elastic gangs that start,
//! in the order of their starts: first on their own nodes, then on as few further nodes as possible. Growth evicts no
//! job, delays no reservation, exceeds no limit and uses no degraded GPU. A gang keeps its size until its attempt ends.

use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::ids::NodeId;
use crate::objects::job::{JobSpec, PlacedTask, Topology};
use crate::objects::shape::Shape;
use crate::planner::admit;
use crate::planner::draft::{Draft, Placement};
use crate::planner::place::multi_node;
use crate::planner::request::Request;
use crate::queue::Bucket;
use crate::resources::ResourceVec;
use crate::state::State;

/// Grow the elastic gangs that this round starts into the free space.
pub(crate) fn grow_started_gangs(draft: &mut Draft) {
    for index in 0..draft.output.plan.starts.len() {
        let spec = draft.spec(draft.output.plan.starts[index].job);
        let Some(spec) = spec.filter(|spec| spec.is_elastic()) else { continue };
        let bucket = Bucket::of_spec(spec, None, &draft.state.policies.bucket_criteria);
        for group in 0..spec.tasks.len() {
            grow(draft, index, &bucket, spec, group);
        }
    }
}

/// Add as many tasks of a group as fit to the start at an index of the plan.
fn grow(draft: &mut Draft, index: usize, bucket: &Bucket, spec: &JobSpec, group: usize) {
    let task_group = &spec.tasks[group];
    let allowed = |more: u32| {
        let demand = draft.state.resources.least_demand_of(&task_group.each).times(u64::from(more));
        admit::quota(draft, bucket, demand).is_empty()
    };
    let more = largest(task_group.count_most() - task_group.count, allowed);
    let own: Vec<NodeId> = nodes_of(&draft.output.plan.starts[index].tasks);
    // Tasks beyond the minimum never backfill revocably.
    let end = draft.expected_end(bucket, draft.output.plan.starts[index].job).never_revocable();
    let search = GrowthSearch { draft, bucket, own, end };
    let Some((request, placement)) = search.find(&bucket.shape, group, more) else { return };
    let tasks = placement.tasks.iter().map(|task| PlacedTask { group: group as u32, ..task.clone() });
    let tasks = draft.output.plan.starts[index].tasks.iter().cloned().chain(tasks).collect();
    draft.output.plan.starts[index].tasks = with_ranks(draft.state, tasks);
    draft.extend_start(bucket, draft.output.plan.starts[index].job, &request, &placement);
}

/// The largest allowed number up to `most`. All numbers below an allowed one are allowed.
fn largest(most: u32, allowed: impl Fn(u32) -> bool) -> u32 {
    let (mut good, mut bad) = (0, most + 1);
    while bad - good > 1 {
        let middle = good.midpoint(bad);
        if allowed(middle) { good = middle } else { bad = middle }
    }
    good
}

/// The nodes of the tasks in order, each once.
fn nodes_of(tasks: &[PlacedTask]) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = tasks.iter().map(|task| task.node.clone()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// The tasks with new ranks: by group, then rack, then node.
fn with_ranks(state: &State, mut tasks: Vec<PlacedTask>) -> Vec<PlacedTask> {
    let rack = |node: &NodeId| state.resources.entry(node).and_then(|entry| entry.rack.as_ref());
    tasks.sort_by(|a, b| (a.group, rack(&a.node), &a.node, &a.gpus).cmp(&(b.group, rack(&b.node), &b.node, &b.gpus)));
    (0..).zip(&mut tasks).for_each(|(rank, task)| task.rank = rank);
    tasks
}

/// The search for a placement of further tasks.
struct GrowthSearch<'d, 'a> {
    draft: &'d Draft<'a>,
    bucket: &'d Bucket,
    /// Nodes that the gang already uses.
    own: Vec<NodeId>,
    end: ExpectedEnd,
}

impl GrowthSearch<'_, '_> {
    /// A placement of as many tasks of a group as possible, at most `more`.
    fn find(&self, shape: &Shape, group: usize, mut more: u32) -> Option<(Arc<Request>, Placement)> {
        while more > 0 {
            let (request, limited) = self.request(shape, group, more);
            let room = self.room(&request, more);
            if room >= more {
                let usable = |node: &NodeId, free| self.usable(node, free);
                let (state, resources) = (self.draft.state, &self.draft.space.resources);
                let placement = multi_node::find_beside(state, resources, &request, &usable, &self.own)?;
                return Some((request, placement));
            }
            // Limits per GPU model depend on the number of tasks; without them the room does not.
            more = if limited { more - 1 } else { room };
        }
        None
    }

    /// A request for `more` tasks of a group, and whether that number changes which devices the limits leave.
    fn request(&self, shape: &Shape, group: usize, more: u32) -> (Arc<Request>, bool) {
        let groups = vec![(more, shape.groups[group].1.clone())];
        // `usable` enforces the locality of the whole gang.
        let shape =
            Shape { groups, topology: Topology::Any, locality: shape.locality.as_preference(), ..shape.clone() };
        let request = Arc::new(Request::new(&self.draft.state.resources, &Arc::new(shape)));
        let limited = self.draft.shares.usage.models.limits(&self.bucket.tenant) || request.may_hold_instances;
        (self.draft.within_limits(self.bucket, request), limited)
    }

    /// The number of tasks that fit; counting stops at `most`.
    fn room(&self, request: &Request, most: u32) -> u32 {
        let capacity = &self.draft.space.resources;
        let each = &request.shape.groups[0].1;
        let fitting = request.matches.iter().flat_map(|found| {
            let nodes = capacity.with_free(&found.kind, each.whole_gpus());
            nodes.filter_map(move |(_, node)| {
                let free = self.usable(node, capacity.entry(node)?.free)?;
                Some(found.eligible[0].tasks_that_fit(each, free))
            })
        });
        let mut room = 0u32;
        for tasks in fitting {
            room = room.saturating_add(tasks);
            if room >= most {
                break;
            }
        }
        room
    }

    /// True if a node is too far from the nodes that the gang already uses. A gang whose GPUs must be close together
    /// does not grow.
    fn is_too_far(&self, node: &NodeId) -> bool {
        let shape = &self.bucket.shape;
        let elsewhere = !self.own.contains(node);
        let rack = |node: &NodeId| self.draft.space.resources.entry(node).and_then(|entry| entry.rack.as_ref());
        let same_rack = || rack(node).is_some() && self.own.iter().all(|own| rack(own) == rack(node));
        shape.locality.is_required() || (elsewhere && shape.must_share_a_rack() && !same_rack())
    }

    /// The part of a node's free space that the gang may use; `None` if the node is too far.
    fn usable(&self, node: &NodeId, free: ResourceVec) -> Option<ResourceVec> {
        let near = !self.is_too_far(node);
        let usable = near.then(|| self.draft.usable(node, free, self.end)).flatten()?;
        Some(self.draft.space.without_degraded(node, usable))
    }
}
