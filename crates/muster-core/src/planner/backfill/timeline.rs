//! Timeline of releases: the expected ends of all running attempts in order.
//!
//! No timeline is built: the state keeps the ends sorted, and a search reads only as far as it needs to.

use std::collections::BTreeMap;

use crate::estimate::expected_end::overdue_end;
use crate::ids::{JobId, NodeId};
use crate::planner::draft::Draft;
use crate::planner::order::QueueHead;
use crate::planner::preempt::may_preempt;
use crate::resources::ResourceVec;
use crate::time::Timestamp;

/// Space that one job releases, by node.
pub(crate) struct Release<'a> {
    pub at: Timestamp,
    pub space: BTreeMap<&'a NodeId, ResourceVec>,
}

/// The releases that a queue head may count on, from now on, in order.
pub(crate) fn releases<'a>(draft: &'a Draft, head: &QueueHead) -> impl Iterator<Item = Release<'a>> {
    let (now, grace_ms) = (draft.now, draft.state.settings.stop_grace_ms);
    let late = draft.state.ends.iter().take_while(|(end, _)| end.plus(grace_ms) <= now);
    let late = late.map(|(end, job)| match may_revoke(draft, head, *job) {
        true => (now.plus(grace_ms), *job),
        // A job that has overrun is expected to run on for as long as it is late.
        false => (overdue_end(end.plus(grace_ms), now), *job),
    });
    let started = draft.space.started.iter().map(|(job, started)| (started.end, *job));
    let mut computed: Vec<(Timestamp, JobId)> = late.chain(started).collect();
    computed.sort_unstable();
    let mut computed = computed.into_iter().peekable();
    let upcoming = draft.state.ends.range((now.plus(1 - grace_ms), JobId::single(0))..);
    let mut upcoming = upcoming.map(move |(end, job)| (end.plus(grace_ms), *job)).peekable();
    std::iter::from_fn(move || {
        let (at, job) = match (computed.peek(), upcoming.peek()) {
            (Some(one), Some(other)) if one < other => computed.next(),
            (Some(_), None) => computed.next(),
            _ => upcoming.next(),
        }?;
        Some(Release { at, space: space(draft, job) })
    })
}

/// True if the head may preempt a late job: the job is revocable, has overrun and was placed while the head waited.
fn may_revoke(draft: &Draft, head: &QueueHead, late: JobId) -> bool {
    let placed = draft.state.jobs.get(&late).and_then(|job| draft.state.overran(job, draft.now));
    placed.is_some_and(|placed| head.was_waiting_at(placed)) && may_preempt(draft, head)
}

/// What a job holds, or would hold if the plan so far were adopted.
fn space<'a>(draft: &'a Draft, job: JobId) -> BTreeMap<&'a NodeId, ResourceVec> {
    if let Some(started) = draft.space.started.get(&job) {
        return started.taken.iter().map(|(node, space)| (node, *space)).collect();
    }
    let job = draft.state.jobs.get(&job);
    let held = job.and_then(|job| Some(ResourceVec::by_node(&job.spec, &job.attempt()?.tasks)));
    held.unwrap_or_default()
}
