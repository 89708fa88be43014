//! Running jobs that hold devices which a waiting job could use, and when they are expected to end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::bits;
use crate::ids::JobId;
use crate::job::{Attempt, Job};
use crate::lasting::overdue_end;
use crate::plan::ask::Ask;
use crate::queue::Shape;
use crate::state::State;
use crate::time::Timestamp;

/// A running job that holds devices another job could use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The running job.
    pub job: JobId,
    /// How many such devices it holds, whole or in part.
    pub gpus: u32,
    /// When it is expected to end; nothing while it is not known how long jobs run.
    pub end: Option<Timestamp>,
    /// Whether that is its time limit or an order to stop, and not an estimate.
    pub is_bound: bool,
}

/// The jobs that hold devices a waiting job could use, the first to end first. O(nodes × GPUs).
pub fn holders(state: &State, waiting: &Job, now: Timestamp) -> Vec<Holder> {
    let ask = Ask::new(&state.capacity, &Arc::new(Shape::of(&waiting.spec)));
    let mut gpus: BTreeMap<JobId, u32> = BTreeMap::new();
    for (id, filed) in state.capacity.nodes() {
        let (Some(found), Some(node)) = (ask.on(&filed.kind), state.nodes.get(id)) else { continue };
        for device in bits(found.useful) {
            let leases = node.holders.get(usize::from(device)).into_iter().flatten();
            let jobs: BTreeSet<JobId> = leases.map(|lease| lease.job).collect();
            jobs.into_iter().for_each(|job| *gpus.entry(job).or_default() += 1);
        }
    }
    let holder = |(id, gpus): (JobId, u32)| {
        let job = state.jobs.get(&id)?;
        let (end, is_bound) = expected_end(state, job, job.attempt()?, now);
        Some(Holder { job: id, gpus, end, is_bound })
    };
    let mut holders: Vec<Holder> = gpus.into_iter().filter_map(holder).collect();
    holders.sort_by_key(|holder| (holder.end.is_none(), holder.end, holder.job));
    holders
}

/// The end by the time limit or by an order to stop; else by the runtime that such jobs usually have.
fn expected_end(state: &State, job: &Job, attempt: &Attempt, now: Timestamp) -> (Option<Timestamp>, bool) {
    let began = attempt.started_at.unwrap_or(attempt.placed_at);
    if let Some(stopping) = &attempt.stopping {
        return (Some(stopping.since.plus(stopping.grace_ms).max(now)), true);
    }
    if let Some(limit_ms) = job.spec.time_limit_ms {
        return (Some(began.plus(limit_ms).max(now)), true);
    }
    let end = state.usual_and_longest_ms(&job.spec).map(|(usual_ms, _)| began.plus(usual_ms));
    (end.map(|end| if end > now { end } else { overdue_end(end, now) }), false)
}
