//! Space that stopping attempts release, as far as no claim takes it. A part of the draft of a planning round (step 7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, Stopping};
use crate::objects::shape::Shape;
use crate::planner::draft::claims::promised_to;
use crate::resources::ResourceVec;
use crate::state::State;
use crate::time::{MINUTE, Timestamp};

/// Processes that are stopping are killed after their grace. An attempt that still holds its space this long after its
/// grace is stuck, and its space does not count as releasing.
const STUCK_AFTER_MS: i64 = MINUTE;

/// Releasing space by node.
#[derive(Debug, Default)]
pub(crate) struct Releasing {
    pub nodes: BTreeMap<NodeId, NodeReleasing>,
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
    pub fn pending(&mut self, shape: &Arc<Shape>) -> Vec<NodeId> {
        let search = self.searches.entry(shape.clone()).or_default();
        search.pending.extend(self.grown[search.seen..].iter().cloned());
        search.seen = self.grown.len();
        search.pending.iter().cloned().collect()
    }

    /// True if releasing space was added since a search for a placement of the shape on several nodes last failed.
    pub fn has_grown_for(&self, shape: &Arc<Shape>) -> bool {
        self.grown.len() > self.searched.get(shape).copied().unwrap_or_default()
    }

    pub fn note_searched(&mut self, shape: &Arc<Shape>) {
        self.searched.insert(shape.clone(), self.grown.len());
    }

    pub fn rule_out(&mut self, shape: &Arc<Shape>, node: &NodeId) {
        if let Some(search) = self.searches.get_mut(shape) {
            search.pending.remove(node);
        }
    }
}

fn will_end(job: &Job, now: Timestamp) -> bool {
    let in_time = |stopping: &Stopping| now.since(stopping.since) <= stopping.grace_ms.saturating_add(STUCK_AFTER_MS);
    job.attempt().and_then(|attempt| attempt.stopping.as_ref()).is_some_and(in_time)
}
