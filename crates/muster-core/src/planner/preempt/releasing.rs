//! Space that will be free soon: attempts that were told to stop, for whatever reason, and whose space nobody
//! has claimed. Whoever fits into it waits for it, and nobody is killed for what comes anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::facts::verdict::Reason;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, Stopping};
use crate::objects::shape::Shape;
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::place::multi_node as spread;
use crate::planner::preempt::candidates::overdrawn;
use crate::planner::preempt::claims::promised_to;
use crate::planner::request::Request;
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::Consumer;
use crate::time::{MINUTE, Timestamp};

/// Processes that were told to stop are killed after their grace. An attempt that is still there this long
/// after that hangs, and nobody should count on its space.
const STUCK_AFTER_MS: i64 = MINUTE;

/// Set aside what leaves, if the job fits into it.
pub(crate) fn wait_for_releasing(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> bool {
    let on_one = find(draft, turn, ask);
    let Some(spot) = on_one.or_else(|| find_multi_node(draft, turn, ask)) else { return false };
    let mut victims = BTreeSet::new();
    for (node, taken) in spot.taken(ask) {
        let leaving = draft.candidates().releasing.on(&node);
        // What leaves is used first, so that as little as possible stands idle until then.
        draft.space.earmark(turn.job, &node, taken.minus(leaving.space.divisible()));
        draft.space.promise(&node, taken.intersection(leaving.space));
        draft.candidates().releasing.take(&node, taken);
        victims.extend(leaving.jobs);
    }
    let demand = draft.demand(ask, &spot);
    draft.shares.hold(Consumer::of_bucket(turn.bucket), demand, &spot.tasks);
    let victims = victims.into_iter().collect();
    draft.output.reasons.insert(turn.job, vec![Reason::Claimed { victims }]);
    true
}

/// What leaves, by node.
#[derive(Debug, Default)]
pub(crate) struct Releasing {
    nodes: BTreeMap<NodeId, NodeReleasing>,
    /// Nodes in the order in which space was added there.
    grown: Vec<NodeId>,
    searches: BTreeMap<Arc<Shape>, ShapeSearch>,
    /// How far `grown` was when a shape found no seats on several nodes.
    searched: BTreeMap<Arc<Shape>, usize>,
}

/// What leaves on one node.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeReleasing {
    pub space: ResourceVec,
    pub jobs: Vec<JobId>,
}

/// Where a shape may still fit. A node it did not fit on is looked at again only when more leaves there:
/// everything else in a round only shrinks.
#[derive(Debug, Default)]
struct ShapeSearch {
    pending: BTreeSet<NodeId>,
    seen: usize,
}

impl Releasing {
    pub fn of(state: &State, now: Timestamp) -> Releasing {
        let mut leaving = Releasing::default();
        for node in state.nodes.values() {
            let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
            for job in jobs.filter(|job| will_end(job, now)) {
                leaving.add(&node.id, ResourceVec::used_on(&node.id, job), &[job.id]);
            }
        }
        for (id, claim) in &state.claims {
            for (node, space) in promised_to(state, *id, claim) {
                leaving.take(&node, space);
            }
        }
        leaving
    }

    pub fn on(&self, node: &NodeId) -> NodeReleasing {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    pub fn add(&mut self, node: &NodeId, space: ResourceVec, jobs: &[JobId]) {
        let going = self.nodes.entry(node.clone()).or_default();
        going.space = going.space.plus(space);
        going.jobs.extend(jobs);
        self.grown.push(node.clone());
    }

    pub fn take(&mut self, node: &NodeId, space: ResourceVec) {
        if let Some(going) = self.nodes.get_mut(node) {
            going.space = going.space.minus(space);
        }
    }

    /// Nodes that may hold the shape, by name, as far as is known. Those that do not are to be ruled out.
    fn pending(&mut self, shape: &Arc<Shape>) -> Vec<NodeId> {
        let search = self.searches.entry(shape.clone()).or_default();
        search.pending.extend(self.grown[search.seen..].iter().cloned());
        search.seen = self.grown.len();
        search.pending.iter().cloned().collect()
    }

    /// Whether more leaves than when seats on several nodes were last looked for in vain.
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

/// The first node by name on which the job fits once others have left.
fn find(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> Option<Placement> {
    for node in draft.candidates().releasing.pending(&ask.shape) {
        let space = draft.candidates().releasing.on(&node).space;
        if let Some(spot) = fit(draft, ask, &node, space) {
            return Some(spot);
        }
        // Limits per model are the tenant's own, so what they rule out says nothing about others.
        if !draft.limits_devices(turn.bucket) {
            draft.candidates().releasing.rule_out(&ask.shape, &node);
        }
    }
    None
}

fn fit(draft: &Draft, ask: &Request, node: &NodeId, leaving: ResourceVec) -> Option<Placement> {
    let filed = draft.space.resources.entry(node).filter(|filed| filed.open)?;
    let found = ask.match_for(&filed.kind).filter(|found| found.holds_gang)?;
    let seats = ask.assign(found, free_after_release(draft, node, filed.free, leaving)?)?;
    Some(Placement::on_one_node(ask, node, found, &seats))
}

/// What will be free on a node once others have left.
fn free_after_release(
    draft: &Draft,
    node: &NodeId,
    free: ResourceVec,
    leaving: ResourceVec,
) -> Option<ResourceVec> {
    let usable = leaving.on_devices(draft.state.usable_gpus(node));
    let overdrawn = draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
    draft.usable(node, free.plus(usable).minus(overdrawn), ExpectedEnd::NEVER)
}

/// Seats on several nodes once others have left. Costs a copy of the capacity, so it is looked for again only when
/// more leaves.
fn find_multi_node(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> Option<Placement> {
    if !ask.may_span() || !draft.candidates().releasing.has_grown_for(&ask.shape) {
        return None;
    }
    let mut capacity = draft.space.resources.clone();
    for (node, going) in &draft.candidates().releasing.nodes.clone() {
        if let Some(free) = draft.space.free_on(node) {
            match free_after_release(draft, node, free, going.space) {
                Some(later) => capacity.set_free(node, later),
                None => capacity.set_open(node, false),
            }
        }
    }
    let found =
        spread::find(draft.state, &capacity, ask, &|node, free| draft.usable(node, free, ExpectedEnd::NEVER));
    if found.is_none() && !draft.limits_devices(turn.bucket) {
        draft.candidates().releasing.note_searched(&ask.shape);
    }
    found
}

fn will_end(job: &Job, now: Timestamp) -> bool {
    let in_time =
        |stopping: &Stopping| now.since(stopping.since) <= stopping.grace_ms.saturating_add(STUCK_AFTER_MS);
    job.attempt().and_then(|attempt| attempt.stopping.as_ref()).is_some_and(in_time)
}
