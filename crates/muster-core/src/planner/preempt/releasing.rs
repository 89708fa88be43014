//! Phase preempt: releasing space, held by attempts that are stopping for any reason, and not claimed.
//!
//! A job that fits into releasing space waits for it, so that no victim is evicted for space that is released anyway.

use std::collections::BTreeSet;

use crate::estimate::expected_end::ExpectedEnd;
use crate::facts::verdict::Reason;
use crate::ids::NodeId;
use crate::planner::draft::{Draft, Placement, overdrawn};
use crate::planner::order::QueueHead;
use crate::planner::place;
use crate::planner::request::Request;
use crate::resources::ResourceVec;
use crate::state::usage::Consumer;

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

/// The placement on the first node, by name, on which the job fits after the releases.
fn find(draft: &mut Draft, head: &QueueHead, request: &Request) -> Option<Placement> {
    for node in draft.candidates().releasing.pending(&request.shape) {
        let space = draft.candidates().releasing.on(&node).space;
        if let Some(placement) = fit(draft, head, request, &node, space) {
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

fn fit(draft: &Draft, head: &QueueHead, request: &Request, node: &NodeId, releasing: ResourceVec) -> Option<Placement> {
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let found = request.match_for(&entry.kind).filter(|found| found.holds_gang)?;
    let free = free_after_release(draft, node, (entry.free, releasing), draft.never_ending(head.job))?;
    let assignments = request.assign(found, free)?;
    Some(Placement::on_one_node(request, node, found, &assignments))
}

/// What is free on a node after the releases.
fn free_after_release(
    draft: &Draft,
    node: &NodeId,
    (free, releasing): (ResourceVec, ResourceVec),
    end: ExpectedEnd,
) -> Option<ResourceVec> {
    let usable = releasing.on_devices(draft.state.usable_gpus(node));
    let overdrawn = draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
    draft.usable(node, free.plus(usable).minus(overdrawn), end)
}

/// The placement on several nodes after the releases. It costs a copy of the resource index, so a failed search is
/// repeated only when releasing space was added.
fn find_multi_node(draft: &mut Draft, head: &QueueHead, request: &Request) -> Option<Placement> {
    if !request.may_span() || !draft.candidates().releasing.has_grown_for(&request.shape) {
        return None;
    }
    let (mut resources, end) = (draft.space.resources.clone(), draft.never_ending(head.job));
    for (node, on_node) in &draft.candidates().releasing.nodes.clone() {
        if let Some(free) = draft.space.free_on(node) {
            match free_after_release(draft, node, (free, on_node.space), end) {
                Some(free) => resources.set_free(node, free),
                None => resources.set_open(node, false),
            }
        }
    }
    let found = place::multi_node::find(draft.state, &resources, request, &|node, free| draft.usable(node, free, end));
    if found.is_none() && !draft.limits_devices(head.bucket) {
        draft.candidates().releasing.note_searched(&request.shape);
    }
    found
}
