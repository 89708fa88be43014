//! When space comes free: the ends of all running attempts, as far as they can be told, in order.
//!
//! Nothing is built for it: the state keeps the ends sorted, and a search reads only as far as it needs to.

use std::collections::BTreeMap;

use crate::capacity::Free;
use crate::ids::{JobId, NodeId};
use crate::lasting::overdue_end;
use crate::plan::draft::Draft;
use crate::plan::order::Turn;
use crate::plan::preempt::may_preempt;
use crate::time::Timestamp;

/// Space that comes free at a moment, by node.
pub(super) struct Release<'a> {
    pub at: Timestamp,
    pub space: BTreeMap<&'a NodeId, Free>,
}

/// What comes free for a job from now on, in order.
pub(super) fn releases<'a>(draft: &'a Draft, turn: &Turn) -> impl Iterator<Item = Release<'a>> {
    let (now, grace_ms) = (draft.now, draft.state.settings.stop_grace_ms);
    let late = draft.state.ends.iter().take_while(|(end, _)| end.plus(grace_ms) <= now);
    let late = late.map(|(end, job)| match may_call_in(draft, turn, *job) {
        true => (now.plus(grace_ms), *job),
        // Who has outlived its end goes on for as long again, as far as anyone can tell.
        false => (overdue_end(end.plus(grace_ms), now), *job),
    });
    let started = draft.started.iter().map(|(job, started)| (started.end, *job));
    let mut known: Vec<(Timestamp, JobId)> = late.chain(started).collect();
    known.sort_unstable();
    let mut known = known.into_iter().peekable();
    let kept = draft.state.ends.range((now.plus(1 - grace_ms), JobId::single(0))..);
    let mut kept = kept.map(move |(end, job)| (end.plus(grace_ms), *job)).peekable();
    std::iter::from_fn(move || {
        let (at, job) = match (known.peek(), kept.peek()) {
            (Some(one), Some(other)) if one < other => known.next(),
            (Some(_), None) => known.next(),
            _ => kept.next(),
        }?;
        Some(Release { at, space: space(draft, job) })
    })
}

/// Whether a job has passed the one whose turn it is on a loan that is over.
fn may_call_in(draft: &Draft, turn: &Turn, late: JobId) -> bool {
    let placed = draft.state.jobs.get(&late).and_then(|job| draft.state.overstays(job, draft.now));
    placed.is_some_and(|placed| turn.was_passed(placed)) && may_preempt(draft, turn)
}

/// What a job holds, or would hold if the plan so far came true.
fn space<'a>(draft: &'a Draft, job: JobId) -> BTreeMap<&'a NodeId, Free> {
    if let Some(started) = draft.started.get(&job) {
        return started.taken.iter().map(|(node, space)| (node, *space)).collect();
    }
    let job = draft.state.jobs.get(&job);
    let held = job.and_then(|job| Some(Free::by_node(&job.spec, &job.attempt()?.tasks)));
    held.unwrap_or_default()
}
