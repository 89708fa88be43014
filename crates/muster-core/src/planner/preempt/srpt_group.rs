//! Phase preempt, for speed: several who wait may be worth more together than one who runs, though none of them
//! is alone.
//!
//! Everyone has had their turn, and some are left who fit nowhere. One who saves its work goes if those who would
//! then sit on its nodes are worth clearly more than it is, the smallest seated first. The first of them has the
//! claim; the others start when the room is there. While anyone is being displaced nobody is asked for this: it
//! would be for the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::estimate::expected_end::ExpectedEnd;
use crate::estimate::remaining::srpt_index;
use crate::ids::{JobId, NodeId};
use crate::objects::settings::Objective;
use crate::planner::admit;
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::preempt::candidates::Candidate;
use crate::planner::preempt::{EvictionProposal, accept, may_preempt};
use crate::planner::request::Request;
use crate::queue::QueueKey;
use crate::resources::ResourceVec;

/// So many of those who wait are looked at, the smallest first.
const WAITING_MAX: usize = 32;
/// So many of those who run are looked at, those first of whom most is left.
const RUNNING_MAX: usize = 64;
/// They must be worth more by this part of what it is worth: to stop and to start again is not for nothing.
const GAIN_DIVISOR: u64 = 4;

/// Propose that one who runs gives way to several who wait.
pub(crate) fn evict_for_group(draft: &mut Draft) {
    let quiet = draft.state.claims.is_empty() && draft.output.plan.evictions.is_empty();
    // What a guarantee protects is known only for one job at a time.
    if draft.state.settings.objective != Objective::Fast
        || !quiet
        || draft.shares.usage.limits_victims()
        || draft.distinguishes_victims
    {
        return;
    }
    let mut blocked = std::mem::take(&mut draft.output.blocked);
    let waiting = smallest(draft, &mut blocked);
    if let Some(best) = best(draft, &waiting) {
        let (turn, ask) = (&blocked[best.turn], &best.ask);
        accept(draft, turn, ask, EvictionProposal { placement: best.spot, victims: vec![best.victim] });
    }
    draft.output.blocked = blocked;
}

/// One who waits.
struct GroupCandidate {
    /// The place of the head of its bucket among those who are blocked.
    head: usize,
    job: JobId,
    priority: u32,
    size: u64,
    srpt_index: u64,
    ask: Arc<Request>,
    ending: ExpectedEnd,
}

/// Of all who are blocked for want of room and may displace others, the smallest.
fn smallest(draft: &mut Draft, blocked: &mut [QueueHead]) -> Vec<GroupCandidate> {
    let mut all: Vec<(u64, QueueKey, usize)> = Vec::new();
    for (index, turn) in blocked.iter_mut().enumerate() {
        if may_take_part(draft, turn) {
            all.push((turn.size_gpu_ms, turn.queue_key(), index));
            all.extend(turn.first_behind(WAITING_MAX).into_iter().map(|(place, size)| (size, place, index)));
        }
    }
    all.sort_unstable();
    all.truncate(WAITING_MAX);
    let waiting = all.into_iter().map(|(size, place, turn)| {
        let bucket = blocked[turn].bucket;
        let (job, priority) = (place.1, bucket.priority);
        let worth = srpt_index(size, bucket.shape.gpu_milli());
        let ending = draft.expected_end(bucket, job);
        GroupCandidate {
            head: turn,
            job,
            priority,
            size,
            srpt_index: worth,
            ask: draft.request(bucket),
            ending,
        }
    });
    waiting.collect()
}

fn may_take_part(draft: &mut Draft, turn: &QueueHead) -> bool {
    let ask = draft.request(turn.bucket);
    may_preempt(draft, turn)
        && !draft.limits_devices(turn.bucket)
        && admit::blockers(draft, turn.bucket, turn.policy, &ask).is_empty()
}

/// Who goes, and for whom.
struct GroupEviction {
    gain: u64,
    victim: JobId,
    turn: usize,
    ask: Arc<Request>,
    spot: Placement,
}

/// The one whose going gains most, the first of several.
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

/// One who runs, and the nodes it sits on.
type PlacedCandidate<'a> = (&'a Candidate, Vec<&'a NodeId>);

/// Of those who run and lose next to nothing by giving way, and of whom more is left than this, the largest, each
/// with the nodes it sits on.
fn largest<'a>(draft: &'a Draft, more_than: u64) -> Vec<PlacedCandidate<'a>> {
    let mut found: BTreeMap<(Reverse<u64>, JobId), PlacedCandidate> = BTreeMap::new();
    for (node, here) in draft.caches.candidates.iter().flat_map(|running| &running.nodes) {
        for one in here.candidates.iter().filter(|one| one.srpt_index.is_some()) {
            let left = one.remaining_gpu_ms.unwrap_or_default();
            if left > more_than {
                found.entry((Reverse(left), one.job)).or_insert((one, Vec::new())).1.push(node);
            }
        }
    }
    found.into_values().take(RUNNING_MAX).collect()
}

/// What is gained if one goes and those who wait sit on its nodes, as far as they fit; nothing if they are not
/// clearly worth more than it is, or if the first of them is not smaller.
fn gain(
    draft: &Draft,
    victim: &Candidate,
    nodes: &[&NodeId],
    waiting: &[GroupCandidate],
) -> Option<GroupEviction> {
    let mut spaces: Vec<(&NodeId, ResourceVec)> =
        nodes.iter().filter_map(|node| Some((*node, after(draft, victim.job, node)?))).collect();
    let mut first: Option<(&GroupCandidate, Placement)> = None;
    let mut together = 0u64;
    for one in waiting.iter().filter(|one| one.priority >= victim.priority) {
        if let Some(spot) = place(draft, one, &mut spaces) {
            together = together.saturating_add(one.srpt_index);
            first.get_or_insert((one, spot));
        }
    }
    let gain = together.checked_sub(victim.srpt_index?)?;
    if gain <= victim.srpt_index? / GAIN_DIVISOR {
        return None;
    }
    let (one, spot) = first.filter(|(one, _)| Some(one.size) < victim.remaining_gpu_ms)?;
    Some(GroupEviction { gain, victim: victim.job, turn: one.head, ask: one.ask.clone(), spot })
}

/// What is free on a node when one of those there has gone.
fn after(draft: &Draft, victim: JobId, node: &NodeId) -> Option<ResourceVec> {
    let here = draft.caches.candidates.as_ref()?.nodes.get(node)?;
    let filed = draft.space.resources.entry(node).filter(|filed| filed.open)?;
    let space = here.candidates.iter().find(|one| one.job == victim)?.space;
    Some(here.after(filed.free, space))
}

/// Seat one on the first node that has room for all of it.
fn place(draft: &Draft, one: &GroupCandidate, spaces: &mut [(&NodeId, ResourceVec)]) -> Option<Placement> {
    spaces.iter_mut().find_map(|(node, space)| {
        let found =
            one.ask.match_for(&draft.space.resources.entry(node)?.kind).filter(|found| found.holds_gang)?;
        let usable = draft.reservations.usable(node, *space, one.ending, Some(one.job))?;
        let spot = Placement::on_one_node(&one.ask, *node, found, &one.ask.assign(found, usable)?);
        let taken = spot.taken(&one.ask).values().fold(ResourceVec::default(), |sum, taken| sum.plus(*taken));
        *space = space.minus(taken);
        Some(spot)
    })
}
