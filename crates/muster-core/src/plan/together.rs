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

use crate::capacity::Free;
use crate::haste::worth;
use crate::ids::{JobId, NodeId};
use crate::lasting::Ending;
use crate::plan::admit;
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::preempt::{Proposal, accept, may_preempt};
use crate::plan::running::Candidate;
use crate::queue::Place;
use crate::settings::Objective;

/// So many of those who wait are looked at, the smallest first.
const WAITING_MAX: usize = 32;
/// So many of those who run are looked at, those first of whom most is left.
const RUNNING_MAX: usize = 64;
/// They must be worth more by this part of what it is worth: to stop and to start again is not for nothing.
const CLEARLY: u64 = 4;

/// Propose that one who runs gives way to several who wait.
pub(super) fn make_room(draft: &mut Draft) {
    let quiet = draft.state.claims.is_empty() && draft.plan.claims.is_empty();
    // What a guarantee protects is known only for one job at a time.
    if draft.state.settings.objective != Objective::Fast
        || !quiet
        || draft.shares.has_guarantees()
        || draft.tells_victims_apart
    {
        return;
    }
    let mut blocked = std::mem::take(&mut draft.blocked);
    let waiting = smallest(draft, &mut blocked);
    if let Some(best) = best(draft, &waiting) {
        let (turn, ask) = (&blocked[best.turn], &best.ask);
        accept(draft, turn, ask, Proposal { spot: best.spot, victims: vec![best.victim] });
    }
    draft.blocked = blocked;
}

/// One who waits.
struct Waiting {
    /// The place of the head of its bucket among those who are blocked.
    turn: usize,
    job: JobId,
    priority: u32,
    size: u64,
    worth: u64,
    ask: Arc<Ask>,
    ending: Ending,
}

/// Of all who are blocked for want of room and may displace others, the smallest.
fn smallest(draft: &mut Draft, blocked: &mut [Turn]) -> Vec<Waiting> {
    let mut all: Vec<(u64, Place, usize)> = Vec::new();
    for (index, turn) in blocked.iter_mut().enumerate() {
        if may_take_part(draft, turn) {
            all.push((turn.size, turn.place(), index));
            all.extend(turn.behind(WAITING_MAX).into_iter().map(|(place, size)| (size, place, index)));
        }
    }
    all.sort_unstable();
    all.truncate(WAITING_MAX);
    let waiting = all.into_iter().map(|(size, place, turn)| {
        let bucket = blocked[turn].bucket;
        let (job, priority) = (place.1, bucket.priority);
        let worth = worth(size, bucket.shape.gpu_milli());
        let ending = draft.ending(bucket, job);
        Waiting { turn, job, priority, size, worth, ask: draft.ask(bucket), ending }
    });
    waiting.collect()
}

fn may_take_part(draft: &mut Draft, turn: &Turn) -> bool {
    let ask = draft.ask(turn.bucket);
    may_preempt(draft, turn)
        && !draft.limits_devices(turn.bucket)
        && admit::blockers(draft, (turn.bucket, turn.word), &ask).is_empty()
}

/// Who goes, and for whom.
struct Best {
    gain: u64,
    victim: JobId,
    turn: usize,
    ask: Arc<Ask>,
    spot: Spot,
}

/// The one whose going gains most, the first of several.
fn best(draft: &mut Draft, waiting: &[Waiting]) -> Option<Best> {
    let smallest = waiting.first()?.size;
    draft.running();
    let draft = &*draft;
    let mut best: Option<Best> = None;
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
type Sitting<'a> = (&'a Candidate, Vec<&'a NodeId>);

/// Of those who run and lose next to nothing by giving way, and of whom more is left than this, the largest, each
/// with the nodes it sits on.
fn largest<'a>(draft: &'a Draft, more_than: u64) -> Vec<Sitting<'a>> {
    let mut found: BTreeMap<(Reverse<u64>, JobId), Sitting> = BTreeMap::new();
    for (node, here) in draft.running.iter().flat_map(|running| &running.nodes) {
        for one in here.candidates.iter().filter(|one| one.worth.is_some()) {
            let left = one.left_gpu_ms.unwrap_or_default();
            if left > more_than {
                found.entry((Reverse(left), one.job)).or_insert((one, Vec::new())).1.push(node);
            }
        }
    }
    found.into_values().take(RUNNING_MAX).collect()
}

/// What is gained if one goes and those who wait sit on its nodes, as far as they fit; nothing if they are not
/// clearly worth more than it is, or if the first of them is not smaller.
fn gain(draft: &Draft, victim: &Candidate, nodes: &[&NodeId], waiting: &[Waiting]) -> Option<Best> {
    let mut spaces: Vec<(&NodeId, Free)> =
        nodes.iter().filter_map(|node| Some((*node, after(draft, victim.job, node)?))).collect();
    let mut first: Option<(&Waiting, Spot)> = None;
    let mut together = 0u64;
    for one in waiting.iter().filter(|one| one.priority >= victim.priority) {
        if let Some(spot) = seat(draft, one, &mut spaces) {
            together = together.saturating_add(one.worth);
            first.get_or_insert((one, spot));
        }
    }
    let gain = together.checked_sub(victim.worth?)?;
    if gain <= victim.worth? / CLEARLY {
        return None;
    }
    let (one, spot) = first.filter(|(one, _)| Some(one.size) < victim.left_gpu_ms)?;
    Some(Best { gain, victim: victim.job, turn: one.turn, ask: one.ask.clone(), spot })
}

/// What is free on a node when one of those there has gone.
fn after(draft: &Draft, victim: JobId, node: &NodeId) -> Option<Free> {
    let here = draft.running.as_ref()?.nodes.get(node)?;
    let filed = draft.capacity.filed(node).filter(|filed| filed.open)?;
    let space = here.candidates.iter().find(|one| one.job == victim)?.space;
    Some(here.after(filed.free, space))
}

/// Seat one on the first node that has room for all of it.
fn seat(draft: &Draft, one: &Waiting, spaces: &mut [(&NodeId, Free)]) -> Option<Spot> {
    spaces.iter_mut().find_map(|(node, space)| {
        let found = one.ask.on(&draft.capacity.filed(node)?.kind).filter(|found| found.whole)?;
        let usable = draft.reservations.usable(node, *space, one.ending, Some(one.job))?;
        let spot = Spot::on_one(&one.ask, (*node, found), &one.ask.fit(found, usable)?);
        let taken = spot.taken(&one.ask).values().fold(Free::default(), |sum, taken| sum.with(*taken));
        *space = space.without(taken);
        Some(spot)
    })
}
