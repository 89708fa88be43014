//! Phase preempt: releasing space, held by attempts that are stopping for any reason, and not claimed.
//!
//! A job that fits into releasing space waits for it, so that no victim is evicted for space that is released anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::facts::verdict::Reason;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, Stopping};
use crate::objects::shape::Shape;
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::place;
use crate::planner::preempt::candidates::overdrawn;
use crate::planner::preempt::claims::promised_to;
use crate::planner::request::Request;
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::Consumer;
use crate::time::{MINUTE, Timestamp};

/// Processes that are stopping are killed after their grace. An attempt that still holds its space this long after its
/// grace is stuck, and its space does not count as releasing.
const STUCK_AFTER_MS: i64 = MINUTE;

/// Let a queue head wait for releasing space. False if the head does not fit into it.
pub(crate) fn wait_for_releasing(draft: &mut Draft, head: &QueueHead, request: &Request) -> bool {
    let on_one = find(draft, head, request);
    let Some(placement) = on_one.or_else(|| find_multi_node(draft, head, request)) else { return false };
    let mut victims = BTreeSet::new();
    for (node, taken) in placement.taken(request) {
        let releasing = draft.candidates().releasing.on(&node);
        // Releasing space is used first, so that as little free space as possible is idle until then.
        draft.space.earmark(head.job, &node, taken.minus(releasing.space.divisible()));
        draft.space.promise(&node, taken.intersection(releasing.space));
        draft.candidates().releasing.take(&node, taken);
        victims.extend(releasing.jobs);
    }
    let demand = draft.demand(request, &placement);
    draft.shares.hold(Consumer::of_bucket(head.bucket), demand, &placement.tasks);
    let victims = victims.into_iter().collect();
    draft.output.reasons.insert(head.job, vec![Reason::Claimed { victims }]);
    true
}

/// Releasing space by node.
#[derive(Debug, Default)]
pub(crate) struct Releasing {
    nodes: BTreeMap<NodeId, NodeReleasing>,
    /// Nodes in the order in which releasing space was added.
    grown: Vec<NodeId>,
    searches: BTreeMap<Arc<Shape>, ShapeSearch>,
    /// The length of `grown` when a shape last found no placement on several nodes.
    searched: BTreeMap<Arc<Shape>, usize>,
}

/// Releasing space on one node, and the jobs that hold it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeReleasing {
    pub space: ResourceVec,
    pub jobs: Vec<JobId>,
}

/// The nodes on which a shape may still fit. A node on which it did not fit is searched again only when more releasing
/// space is added there: all other space only shrinks in a round.
#[derive(Debug, Default)]
struct ShapeSearch {
    pending: BTreeSet<NodeId>,
    /// How much of `grown` has been read.
    seen: usize,
}

impl Releasing {
    pub fn of(state: &State, now: Timestamp) -> Releasing {
        let mut releasing = Releasing::default();
        for node in state.nodes.values() {
            let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
            for job in jobs.filter(|job| will_end(job, now)) {
                releasing.add(&node.id, ResourceVec::used_on(&node.id, job), &[job.id]);
            }
        }
        for (id, claim) in &state.claims {
            for (node, space) in promised_to(state, *id, claim) {
                releasing.take(&node, space);
            }
        }
        releasing
    }

    pub fn on(&self, node: &NodeId) -> NodeReleasing {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    pub fn add(&mut self, node: &NodeId, space: ResourceVec, jobs: &[JobId]) {
        let on_node = self.nodes.entry(node.clone()).or_default();
        on_node.space = on_node.space.plus(space);
        on_node.jobs.extend(jobs);
        self.grown.push(node.clone());
    }

    pub fn take(&mut self, node: &NodeId, space: ResourceVec) {
        if let Some(on_node) = self.nodes.get_mut(node) {
            on_node.space = on_node.space.minus(space);
        }
    }

    /// Nodes that may hold the shape, by name. The caller rules out those that do not.
    fn pending(&mut self, shape: &Arc<Shape>) -> Vec<NodeId> {
        let search = self.searches.entry(shape.clone()).or_default();
        search.pending.extend(self.grown[search.seen..].iter().cloned());
        search.seen = self.grown.len();
        search.pending.iter().cloned().collect()
    }

    /// True if releasing space was added since a search for a placement of the shape on several nodes last failed.
    fn has_grown_for(&self, shape: &Arc<Shape>) -> bool {
        self.grown.len() > self.searched.get(shape).copied().unwrap_or_default()
    }

    fn note_searched(&mut self, shape: &Arc<Shape>) {
        self.searched.insert(shape.clone(), self.grown.len());
    }

    fn rule_out(&mut self, shape: &Arc<Shape>, node: &NodeId) {
        if let Some(search) = self.searches.get_mut(shape) {
            search.pending.remove(node);
        }
    }
}

/// The placement on the first node, by name, on which the job fits after the releases.
fn find(draft: &mut Draft, head: &QueueHead, request: &Request) -> Option<Placement> {
    for node in draft.candidates().releasing.pending(&request.shape) {
        let space = draft.candidates().releasing.on(&node).space;
        if let Some(placement) = fit(draft, request, &node, space) {
            return Some(placement);
        }
        // Limits on devices are those of one tenant or user: a node that they rule out may hold other jobs of the
        // shape.
        if !draft.limits_devices(head.bucket) {
            draft.candidates().releasing.rule_out(&request.shape, &node);
        }
    }
    None
}

fn fit(draft: &Draft, request: &Request, node: &NodeId, releasing: ResourceVec) -> Option<Placement> {
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let found = request.match_for(&entry.kind).filter(|found| found.holds_gang)?;
    let assignments = request.assign(found, free_after_release(draft, node, entry.free, releasing)?)?;
    Some(Placement::on_one_node(request, node, found, &assignments))
}

/// What is free on a node after the releases.
fn free_after_release(draft: &Draft, node: &NodeId, free: ResourceVec, releasing: ResourceVec) -> Option<ResourceVec> {
    let usable = releasing.on_devices(draft.state.usable_gpus(node));
    let overdrawn = draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
    draft.usable(node, free.plus(usable).minus(overdrawn), ExpectedEnd::NEVER)
}

/// The placement on several nodes after the releases. It costs a copy of the resource index, so a failed search is
/// repeated only when releasing space was added.
fn find_multi_node(draft: &mut Draft, head: &QueueHead, request: &Request) -> Option<Placement> {
    if !request.may_span() || !draft.candidates().releasing.has_grown_for(&request.shape) {
        return None;
    }
    let mut resources = draft.space.resources.clone();
    for (node, on_node) in &draft.candidates().releasing.nodes.clone() {
        if let Some(free) = draft.space.free_on(node) {
            match free_after_release(draft, node, free, on_node.space) {
                Some(free) => resources.set_free(node, free),
                None => resources.set_open(node, false),
            }
        }
    }
    let found = place::multi_node::find(draft.state, &resources, request, &|node, free| {
        draft.usable(node, free, ExpectedEnd::NEVER)
    });
    if found.is_none() && !draft.limits_devices(head.bucket) {
        draft.candidates().releasing.note_searched(&request.shape);
    }
    found
}

fn will_end(job: &Job, now: Timestamp) -> bool {
    let in_time = |stopping: &Stopping| now.since(stopping.since) <= stopping.grace_ms.saturating_add(STUCK_AFTER_MS);
    job.attempt().and_then(|attempt| attempt.stopping.as_ref()).is_some_and(in_time)
}
