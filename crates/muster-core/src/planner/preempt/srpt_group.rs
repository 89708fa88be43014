//! Phase preempt under the objective `fast`: evict one running job for a group of waiting jobs whose SRPT indexes
//! together exceed its own, though no single one does.
//!
//! Runs after every queue head was tried, for the jobs that fit nowhere. A checkpointing job is evicted if the waiting
//! jobs that then fit on its nodes, the smallest placed first, have a clearly larger sum of SRPT indexes. The first of
//! them gets the claim; the others start when the space is free. Skipped while any eviction is pending, to avoid
//! freeing space twice for one demand.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::estimate::remaining::srpt_index;
use crate::ids::{JobId, NodeId};
use crate::objects::settings::Objective;
use crate::planner::admit;
use crate::planner::draft::{Candidate, Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::preempt::{EvictionProposal, accept, may_preempt};
use crate::planner::request::Request;
use crate::queue::QueueKey;
use crate::resources::ResourceVec;

/// Most waiting jobs considered, the smallest first.
const WAITING_MAX: usize = 32;
/// Most running jobs considered, those with the most remaining GPU time first.
const RUNNING_MAX: usize = 64;
/// The gain must exceed the victim's SRPT index divided by this: a stop and a restart have a cost.
const GAIN_DIVISOR: u64 = 4;

/// Propose the eviction of one running job for several waiting jobs.
pub(crate) fn evict_for_group(draft: &mut Draft) {
    let none_pending = draft.state.claims.is_empty() && draft.output.plan.evictions.is_empty();
    // Guarantees and policies on victims are evaluated for one preemptor at a time, not for a group.
    if draft.state.settings.objective != Objective::Fast
        || !none_pending
        || draft.shares.usage.limits_victims()
        || draft.distinguishes_victims
    {
        return;
    }
    let mut blocked = std::mem::take(&mut draft.output.blocked);
    let waiting = smallest(draft, &mut blocked);
    if let Some(best) = best(draft, &waiting) {
        let (head, request) = (&blocked[best.head], &best.request);
        accept(draft, head, request, EvictionProposal { placement: best.placement, victims: vec![best.victim] });
    }
    draft.output.blocked = blocked;
}

/// A waiting job of the group.
struct GroupCandidate {
    /// Index of the head of its bucket among the blocked heads.
    head: usize,
    job: JobId,
    priority: u32,
    size: u64,
    srpt_index: u64,
    request: Arc<Request>,
    end: ExpectedEnd,
}

/// The smallest of all jobs that are blocked only for lack of space and may preempt.
fn smallest(draft: &mut Draft, blocked: &mut [QueueHead]) -> Vec<GroupCandidate> {
    let mut all: Vec<(u64, QueueKey, usize)> = Vec::new();
    for (index, head) in blocked.iter_mut().enumerate() {
        if may_take_part(draft, head) {
            all.push((head.size_gpu_ms, head.queue_key(), index));
            all.extend(head.first_behind(WAITING_MAX).into_iter().map(|job| (job.size_gpu_ms, job.key, index)));
        }
    }
    all.sort_unstable();
    all.truncate(WAITING_MAX);
    let waiting = all.into_iter().map(|(size, key, head)| {
        let bucket = blocked[head].bucket;
        let (job, priority) = (key.1, bucket.priority);
        let srpt_index = srpt_index(size, bucket.shape.gpu_milli());
        let end = draft.expected_end(bucket, job);
        GroupCandidate { head, job, priority, size, srpt_index, request: draft.request(bucket), end }
    });
    waiting.collect()
}

fn may_take_part(draft: &mut Draft, head: &QueueHead) -> bool {
    let request = draft.request(head.bucket);
    may_preempt(draft, head)
        && !draft.limits_devices(head.bucket)
        && admit::blockers(draft, head.bucket, head.policy, &request).is_empty()
}

/// The victim, and the first job of the group with its placement.
struct GroupEviction {
    gain: u64,
    victim: JobId,
    head: usize,
    request: Arc<Request>,
    placement: Placement,
}

/// The eviction with the largest gain; the first of equals.
fn best(draft: &mut Draft, waiting: &[GroupCandidate]) -> Option<GroupEviction> {
    let smallest = waiting.first()?.size;
    draft.candidates();
    let draft = &*draft;
    let mut best: Option<GroupEviction> = None;
    for (victim, nodes) in largest(draft, smallest) {
        let found = gain(draft, victim, &nodes, waiting);
        best = match (best, found) {
            (Some(best), Some(found)) if found.gain > best.gain => Some(found),
            (best, found) => best.or(found),
        };
    }
    best
}

/// A running job, and the nodes it holds space on.
type PlacedCandidate<'a> = (&'a Candidate, Vec<&'a NodeId>);

/// The largest running jobs, by remaining GPU-milliseconds, that lose almost no work by yielding and have more than
/// `more_than` left.
fn largest<'a>(draft: &'a Draft, more_than: u64) -> Vec<PlacedCandidate<'a>> {
    let mut found: BTreeMap<(Reverse<u64>, JobId), PlacedCandidate> = BTreeMap::new();
    for (node, on_node) in draft.caches.candidates.iter().flat_map(|candidates| &candidates.nodes) {
        for one in on_node.candidates.iter().filter(|one| one.srpt_index.is_some()) {
            let left = one.remaining_gpu_ms.unwrap_or_default();
            if left > more_than {
                found.entry((Reverse(left), one.job)).or_insert((one, Vec::new())).1.push(node);
            }
        }
    }
    found.into_values().take(RUNNING_MAX).collect()
}

/// The gain in SRPT index if a victim is evicted and as many waiting jobs as fit are placed on its nodes. `None` if
/// their sum is not clearly larger than the victim's index, or if the first of them is not smaller than the victim.
fn gain(draft: &Draft, victim: &Candidate, nodes: &[&NodeId], waiting: &[GroupCandidate]) -> Option<GroupEviction> {
    let mut spaces: Vec<(&NodeId, ResourceVec)> =
        nodes.iter().filter_map(|node| Some((*node, after(draft, victim.job, node)?))).collect();
    let mut first: Option<(&GroupCandidate, Placement)> = None;
    let mut index_sum = 0u64;
    for candidate in waiting.iter().filter(|candidate| candidate.priority >= victim.priority) {
        if let Some(placement) = place(draft, candidate, &mut spaces) {
            index_sum = index_sum.saturating_add(candidate.srpt_index);
            first.get_or_insert((candidate, placement));
        }
    }
    let gain = index_sum.checked_sub(victim.srpt_index?)?;
    if gain <= victim.srpt_index? / GAIN_DIVISOR {
        return None;
    }
    let (candidate, placement) = first.filter(|(candidate, _)| Some(candidate.size) < victim.remaining_gpu_ms)?;
    let (head, request) = (candidate.head, candidate.request.clone());
    Some(GroupEviction { gain, victim: victim.job, head, request, placement })
}

/// What is free on a node after the eviction of a victim.
fn after(draft: &Draft, victim: JobId, node: &NodeId) -> Option<ResourceVec> {
    let candidates = draft.caches.candidates.as_ref()?.nodes.get(node)?;
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let space = candidates.candidates.iter().find(|candidate| candidate.job == victim)?.space;
    Some(candidates.after(entry.free, space))
}

/// Place a waiting job on the first node that holds its whole gang, and subtract what it takes there.
fn place(draft: &Draft, candidate: &GroupCandidate, spaces: &mut [(&NodeId, ResourceVec)]) -> Option<Placement> {
    spaces.iter_mut().find_map(|(node, space)| {
        let found =
            candidate.request.match_for(&draft.space.resources.entry(node)?.kind).filter(|found| found.holds_gang)?;
        let usable = draft.reservations.usable(node, *space, candidate.end, Some(candidate.job))?;
        let placement =
            Placement::on_one_node(&candidate.request, node, found, &candidate.request.assign(found, usable)?);
        let taken =
            placement.taken(&candidate.request).values().fold(ResourceVec::default(), |sum, taken| sum.plus(*taken));
        *space = space.minus(taken);
        Some(placement)
    })
}
