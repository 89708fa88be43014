//! Space that will be free soon: attempts that were told to stop, for whatever reason, and whose space nobody
//! has claimed. Whoever fits into it waits for it, and nobody is killed for what comes anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::Free;
use crate::ids::{JobId, NodeId};
use crate::job::{Job, Stopping};
use crate::lasting::Ending;
use crate::plan::ask::Ask;
use crate::plan::claims::belongs_to;
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::running::overdrawn;
use crate::plan::spread;
use crate::queue::Shape;
use crate::state::State;
use crate::time::{MINUTE, Timestamp};
use crate::verdict::Reason;

/// Processes that were told to stop are killed after their grace. An attempt that is still there this long
/// after that hangs, and nobody should count on its space.
const HANGS_AFTER_MS: i64 = MINUTE;

/// Set aside what leaves, if the job fits into it.
pub(super) fn wait_for(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    let on_one = find(draft, turn, ask);
    let Some(spot) = on_one.or_else(|| find_across(draft, turn, ask)) else { return false };
    let mut victims = BTreeSet::new();
    for (node, taken) in spot.taken(ask) {
        let leaving = draft.running().leaving.on(&node);
        // What leaves is used first, so that as little as possible stands idle until then.
        draft.set_aside(turn.job, &node, taken.without(leaving.space.divisible()));
        draft.owe(&node, taken.shared_with(leaving.space));
        draft.running().leaving.take(&node, taken);
        victims.extend(leaving.jobs);
    }
    draft.count(turn.bucket, draft.demand(ask, &spot), &spot.tasks);
    let victims = victims.into_iter().collect();
    draft.reasons.insert(turn.job, vec![Reason::Claimed { victims }]);
    true
}

/// What leaves, by node.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    nodes: BTreeMap<NodeId, Going>,
    /// Nodes in the order in which space was added there.
    grown: Vec<NodeId>,
    searches: BTreeMap<Arc<Shape>, Search>,
    /// How far `grown` was when a shape found no seats on several nodes.
    searched: BTreeMap<Arc<Shape>, usize>,
}

/// What leaves on one node.
#[derive(Debug, Clone, Default)]
pub(super) struct Going {
    pub space: Free,
    pub jobs: Vec<JobId>,
}

/// Where a shape may still fit. A node it did not fit on is looked at again only when more leaves there:
/// everything else in a round only shrinks.
#[derive(Debug, Default)]
struct Search {
    pending: BTreeSet<NodeId>,
    seen: usize,
}

impl Leaving {
    pub fn of(state: &State, now: Timestamp) -> Leaving {
        let mut leaving = Leaving::default();
        for node in state.nodes.values() {
            let jobs = node.jobs.iter().filter_map(|job| state.jobs.get(job));
            for job in jobs.filter(|job| will_end(job, now)) {
                leaving.add(&node.id, Free::used_on(&node.id, job), &[job.id]);
            }
        }
        for (id, claim) in &state.claims {
            for (node, space) in belongs_to(state, *id, claim) {
                leaving.take(&node, space);
            }
        }
        leaving
    }

    pub fn on(&self, node: &NodeId) -> Going {
        self.nodes.get(node).cloned().unwrap_or_default()
    }

    pub fn add(&mut self, node: &NodeId, space: Free, jobs: &[JobId]) {
        let going = self.nodes.entry(node.clone()).or_default();
        going.space = going.space.with(space);
        going.jobs.extend(jobs);
        self.grown.push(node.clone());
    }

    pub fn take(&mut self, node: &NodeId, space: Free) {
        if let Some(going) = self.nodes.get_mut(node) {
            going.space = going.space.without(space);
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
fn find(draft: &mut Draft, turn: &Turn, ask: &Ask) -> Option<Spot> {
    for node in draft.running().leaving.pending(&ask.shape) {
        let space = draft.running().leaving.on(&node).space;
        if let Some(spot) = fit(draft, ask, &node, space) {
            return Some(spot);
        }
        // Limits per model are the tenant's own, so what they rule out says nothing about others.
        if !draft.limits_devices(turn.bucket) {
            draft.running().leaving.rule_out(&ask.shape, &node);
        }
    }
    None
}

fn fit(draft: &Draft, ask: &Ask, node: &NodeId, leaving: Free) -> Option<Spot> {
    let filed = draft.capacity.filed(node).filter(|filed| filed.open)?;
    let found = ask.on(&filed.kind).filter(|found| found.whole)?;
    let seats = ask.fit(found, later(draft, node, filed.free, leaving)?)?;
    Some(Spot::on_one(ask, (node, found), &seats))
}

/// What will be free on a node once others have left.
fn later(draft: &Draft, node: &NodeId, free: Free, leaving: Free) -> Option<Free> {
    let usable = leaving.on_devices(draft.state.usable_gpus(node));
    let overdrawn = draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
    draft.usable(node, free.with(usable).without(overdrawn), Ending::NEVER)
}

/// Seats on several nodes once others have left. Costs a copy of the capacity, so it is looked for again only when
/// more leaves.
fn find_across(draft: &mut Draft, turn: &Turn, ask: &Ask) -> Option<Spot> {
    if !ask.may_span() || !draft.running().leaving.has_grown_for(&ask.shape) {
        return None;
    }
    let mut capacity = draft.capacity.clone();
    for (node, going) in &draft.running().leaving.nodes.clone() {
        if let Some(free) = draft.free_on(node) {
            match later(draft, node, free, going.space) {
                Some(later) => capacity.set_free(node, later),
                None => capacity.set_open(node, false),
            }
        }
    }
    let found =
        spread::find(draft.state, &capacity, ask, &|node, free| draft.usable(node, free, Ending::NEVER));
    if found.is_none() && !draft.limits_devices(turn.bucket) {
        draft.running().leaving.note_searched(&ask.shape);
    }
    found
}

fn will_end(job: &Job, now: Timestamp) -> bool {
    let in_time =
        |stopping: &Stopping| now.since(stopping.since) <= stopping.grace_ms.saturating_add(HANGS_AFTER_MS);
    job.attempt().and_then(|attempt| attempt.stopping.as_ref()).is_some_and(in_time)
}
