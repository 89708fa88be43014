//! Running jobs that hold devices which a waiting job could use, and when they are expected to end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::overdue_end;
use crate::ids::JobId;
use crate::objects::job::{Attempt, Job};
use crate::objects::node::{Lease, Node};
use crate::objects::shape::Shape;
use crate::planner::request::Request;
use crate::resources::bits;
use crate::state::State;
use crate::time::Timestamp;

/// A running job that holds devices another job could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceHolder {
    pub job: JobId,
    /// How many such devices it holds, whole or in part.
    pub gpus: u32,
    /// The expected end. `None` if it depends on runtimes and no job of the cluster has ended yet.
    pub end: Option<Timestamp>,
    /// True if `end` follows from the time limit or a stop order, false if it is an estimate.
    pub is_bound: bool,
}

/// The jobs that hold devices a waiting job could use, the first to end first. O(nodes × GPUs).
pub fn holders(state: &State, waiting: &Job, now: Timestamp) -> Vec<DeviceHolder> {
    let request = Request::new(&state.resources, &Arc::new(Shape::of(&waiting.spec)));
    let mut gpus: BTreeMap<JobId, u32> = BTreeMap::new();
    for (id, entry) in state.resources.nodes() {
        let (Some(found), Some(node)) = (request.match_for(&entry.kind), state.nodes.get(id)) else {
            continue;
        };
        for device in bits(found.useful) {
            let leases = node.holders.get(usize::from(device)).into_iter().flatten();
            let jobs: BTreeSet<JobId> = leases.map(|lease| lease.job).collect();
            jobs.into_iter().for_each(|job| *gpus.entry(job).or_default() += 1);
        }
    }
    let holder = |(id, gpus): (JobId, u32)| {
        let job = state.jobs.get(&id)?;
        let (end, is_bound) = expected_end(state, job, job.attempt()?, now);
        Some(DeviceHolder { job: id, gpus, end, is_bound })
    };
    let mut holders: Vec<DeviceHolder> = gpus.into_iter().filter_map(holder).collect();
    holders.sort_by_key(|holder| (holder.end.is_none(), holder.end, holder.job));
    holders
}

/// The jobs with an attempt on a node, with how many of its devices each holds, the first to end first.
pub fn holders_of_node(state: &State, node: &Node, now: Timestamp) -> Vec<DeviceHolder> {
    let holder = |job: &Job| {
        let holds = |leases: &&Vec<Lease>| leases.iter().any(|lease| lease.job == job.id);
        let gpus = u32::try_from(node.holders.iter().filter(holds).count()).unwrap_or(u32::MAX);
        let (end, is_bound) = expected_end(state, job, job.attempt()?, now);
        let deadline = node.drain.as_ref().and_then(|drain| drain.deadline);
        let grace_ms = state.settings.stop_grace_ms;
        let stopped_at = deadline.map(|deadline| deadline.plus(grace_ms)).filter(|at| end.is_none_or(|end| *at < end));
        let (end, is_bound) = (stopped_at.or(end), is_bound || stopped_at.is_some());
        Some(DeviceHolder { job: job.id, gpus, end, is_bound })
    };
    let mut holders: Vec<DeviceHolder> = state.attempts_on(&node.id).filter_map(holder).collect();
    holders.sort_by_key(|holder| (holder.end.is_none(), holder.end, holder.job));
    holders
}

/// The end by a stop order or the time limit, else by the median runtime of similar jobs; and whether it is a bound.
fn expected_end(state: &State, job: &Job, attempt: &Attempt, now: Timestamp) -> (Option<Timestamp>, bool) {
    let began = attempt.started_at.unwrap_or(attempt.placed_at);
    if let Some(stopping) = &attempt.stopping {
        return (Some(stopping.since.plus(stopping.grace_ms).max(now)), true);
    }
    if let Some(limit_ms) = job.spec.time_limit_ms {
        return (Some(began.plus(limit_ms).max(now)), true);
    }
    let end = state.median_and_longest_ms(&job.spec).map(|(median_ms, _)| began.plus(median_ms));
    (end.map(|end| if end > now { end } else { overdue_end(end, now) }), false)
}
