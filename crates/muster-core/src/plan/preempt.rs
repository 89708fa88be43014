//! Phase preempt: displace running jobs of lower priority, only where it is proven that the job fits then.
//!
//! Victims have a strictly lower priority as they asked for it; age never makes a job stronger here. It does
//! protect: who was placed because it had waited is not displaced by those it rightly went before, or it would
//! be started and killed in turn for ever.

use crate::capacity::{Free, bits};
use crate::ids::{JobId, NodeId};
use crate::plan::MakeRoom;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::running::{Candidate, Leaving};
use crate::verdict::Reason;

/// Propose to displace others for this job. False if that is not allowed or would not help.
pub(super) fn make_room(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    if !may_preempt(draft, turn) {
        return false;
    }
    if wait_for_leaving(draft, turn, ask) {
        return true;
    }
    let Some(offer) = best_offer(draft, turn, ask) else { return false };
    accept(draft, turn, ask, offer);
    true
}

/// The rules that do not depend on the place, cheapest first.
fn may_preempt(draft: &mut Draft, turn: &Turn) -> bool {
    let tenant = draft.state.tenants.get(&turn.bucket.tenant);
    draft.state.settings.preemption
        && tenant.is_some_and(|tenant| tenant.config.may_preempt)
        && !draft.state.claims.contains_key(&turn.job)
        && draft.running().any_below(turn.bucket.priority)
}

/// When attempts that are already stopping will leave enough room, set it aside and kill nobody.
fn wait_for_leaving(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    let Some((spot, leaving)) = room_where_others_leave(draft, ask) else { return false };
    let taken = ask.taken(&spot.chosen);
    // What leaves is used first, so that as little as possible stands idle until then.
    draft.set_aside(turn.job, &spot.node, taken.without(Free { gpus: 0, ..leaving.space }));
    if let Some(left) = draft.running().leaving.get_mut(&spot.node) {
        left.space = left.space.without(taken);
    }
    draft.count(turn.bucket, ask.demand);
    draft.reasons.insert(turn.job, vec![Reason::Claimed { victims: leaving.jobs }]);
    true
}

fn room_where_others_leave(draft: &mut Draft, ask: &Ask) -> Option<(Spot, Leaving)> {
    let leaving = draft.running().leaving.clone();
    leaving.into_iter().find_map(|(node, leaving)| {
        let filed = draft.capacity.filed(&node).filter(|filed| filed.open)?;
        let usable = Free { gpus: leaving.space.gpus & draft.state.usable_gpus(&node), ..leaving.space };
        let chosen = ask.fit(ask.on(&filed.kind)?, filed.free.with(usable))?;
        Some((Spot { node, chosen }, leaving))
    })
}

/// What it would cost to make room on one node.
struct Offer<'a> {
    node: &'a NodeId,
    chosen: Vec<u64>,
    victims: Vec<&'a Candidate>,
}

impl Offer<'_> {
    fn lost_gpu_ms(&self) -> u64 {
        self.victims.iter().fold(0, |sum, victim| sum.saturating_add(victim.lost_gpu_ms))
    }
}

/// An offer in owned form, so that the draft may change.
struct Accepted {
    spot: Spot,
    victims: Vec<JobId>,
    freed: Free,
}

/// The node with the least work lost, then the fewest victims, then by name.
fn best_offer(draft: &mut Draft, turn: &Turn, ask: &Ask) -> Option<Accepted> {
    draft.running();
    let draft = &*draft;
    let nodes = ask
        .matches
        .iter()
        .flat_map(|found| draft.capacity.with_free(&found.kind, 0).map(move |(_, node)| (found, node)));
    let offers = nodes.filter_map(|(found, node)| offer(draft, turn, ask, found, node));
    let best = offers.min_by_key(|offer| (offer.lost_gpu_ms(), offer.victims.len(), offer.node))?;
    Some(Accepted {
        spot: Spot { node: best.node.clone(), chosen: best.chosen },
        victims: best.victims.iter().map(|victim| victim.job).collect(),
        freed: best.victims.iter().fold(Free::default(), |sum, victim| sum.with(victim.space)),
    })
}

fn offer<'a>(draft: &'a Draft, turn: &Turn, ask: &Ask, found: &Match, node: &'a NodeId) -> Option<Offer<'a>> {
    let room = Room { ask, found, free: draft.free_on(node)?, usable: draft.state.usable_gpus(node) };
    let weaker = |victim: &&Candidate| turn.outranks(victim.priority, victim.effective);
    let candidates: Vec<&Candidate> = draft.running_on(node).iter().filter(weaker).collect();
    if candidates.is_empty() || !room.fits(&candidates) {
        return None;
    }
    let victims = room.needed(&room.enough(&candidates));
    let chosen = room.chosen(&victims)?;
    Some(Offer { node, chosen, victims })
}

/// Space on one node, with more of it as victims are added.
struct Room<'a> {
    ask: &'a Ask,
    found: &'a Match,
    free: Free,
    usable: u64,
}

impl Room<'_> {
    fn chosen(&self, victims: &[&Candidate]) -> Option<Vec<u64>> {
        let freed = victims.iter().fold(Free::default(), |sum, victim| sum.with(victim.space));
        let freed = Free { gpus: freed.gpus & self.usable, ..freed };
        self.ask.fit(self.found, self.free.with(freed))
    }

    fn fits(&self, victims: &[&Candidate]) -> bool {
        self.chosen(victims).is_some()
    }

    /// The first candidates that are enough together.
    fn enough<'c>(&self, candidates: &[&'c Candidate]) -> Vec<&'c Candidate> {
        let count = (1..=candidates.len()).find(|count| self.fits(&candidates[..*count]));
        candidates[..count.unwrap_or(candidates.len())].to_vec()
    }

    /// Spare those who turn out not to be needed, the dearest first.
    fn needed<'c>(&self, victims: &[&'c Candidate]) -> Vec<&'c Candidate> {
        let mut needed = victims.to_vec();
        for place in (0..needed.len()).rev() {
            let mut fewer = needed.clone();
            fewer.remove(place);
            if self.fits(&fewer) {
                needed = fewer;
            }
        }
        needed
    }
}

fn accept(draft: &mut Draft, turn: &Turn, ask: &Ask, offer: Accepted) {
    let taken = ask.taken(&offer.spot.chosen);
    draft.running().displace(&offer.victims);
    draft.set_aside(turn.job, &offer.spot.node, taken.without(Free { gpus: 0, ..offer.freed }));
    let leaving = draft.running().leaving.entry(offer.spot.node.clone()).or_default();
    leaving.space = leaving.space.with(offer.freed.without(taken));
    leaving.jobs.extend(&offer.victims);
    let room = MakeRoom {
        job: turn.job,
        node: offer.spot.node.clone(),
        gpus: bits(taken.gpus),
        victims: offer.victims,
    };
    draft.make_room(turn.bucket, ask, &offer.spot, room);
}
