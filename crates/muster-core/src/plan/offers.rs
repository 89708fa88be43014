//! What it would cost to make room for a shape, node by node. Kept for the round and refreshed where the draft
//! has changed, so that a wave of urgent jobs does not look at every node for each of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{Free, Seat};
use crate::guarantee::{self, Cover};
use crate::ids::{NodeId, TenantId};
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Haste};
use crate::plan::order::Turn;
use crate::plan::running::{Candidate, Here, Reach};

/// Making room on one node. The least work lost is best, or where nothing is lost the least worth, then the fewest victims, then the name of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Offer {
    lost_gpu_ms: u64,
    victims: usize,
    pub node: NodeId,
}

/// The offers of all nodes to jobs of one shape and one reach.
#[derive(Debug)]
pub(super) struct Offers {
    pub reach: Reach,
    sorted: BTreeSet<Offer>,
    by_node: BTreeMap<NodeId, Offer>,
    /// How many changes of the draft are in it.
    seen: usize,
}

impl Offers {
    /// Ask every node.
    pub fn new(draft: &Draft, turn: &Turn, ask: &Ask, reach: Reach) -> Offers {
        let (sorted, by_node) = (BTreeSet::new(), BTreeMap::new());
        let mut offers = Offers { reach, sorted, by_node, seen: draft.changed.len() };
        for (node, here) in draft.running.iter().flat_map(|running| &running.nodes) {
            offers.put(node, offer(draft, turn, ask, node, here));
        }
        offers
    }

    /// Ask the nodes again where something has changed since.
    pub fn refresh(&mut self, draft: &Draft, turn: &Turn, ask: &Ask) {
        for node in &draft.changed[self.seen..] {
            let here = draft.running.as_ref().and_then(|running| running.nodes.get(node));
            self.put(node, here.and_then(|here| offer(draft, turn, ask, node, here)));
        }
        self.seen = draft.changed.len();
    }

    /// The best of all.
    pub fn best(&self) -> Option<&Offer> {
        self.sorted.first()
    }

    fn put(&mut self, node: &NodeId, offer: Option<Offer>) {
        if let Some(former) = self.by_node.remove(node) {
            self.sorted.remove(&former);
        }
        if let Some(offer) = offer {
            self.sorted.insert(offer.clone());
            self.by_node.insert(node.clone(), offer);
        }
    }
}

fn offer(draft: &Draft, turn: &Turn, ask: &Ask, node: &NodeId, here: &Here) -> Option<Offer> {
    let (victims, _) = victims(draft, turn, ask, node, here)?;
    let lost_gpu_ms = victims.iter().fold(0u64, |sum, victim| sum.saturating_add(draft.price_of(victim)));
    Some(Offer { lost_gpu_ms, victims: victims.len(), node: node.clone() })
}

/// Who must go on a node so that the whole gang fits there, and the seat of each task then.
pub(super) fn victims<'a>(
    draft: &Draft,
    turn: &Turn,
    ask: &Ask,
    node: &NodeId,
    here: &'a Here,
) -> Option<(Vec<&'a Candidate>, Vec<Seat>)> {
    let filed = draft.capacity.filed(node).filter(|filed| filed.open)?;
    let found = ask.on(&filed.kind).filter(|found| found.whole)?;
    let candidates = displaceable(draft, turn, ask, here.candidates.iter(), &draft.fewer());
    let after = |victims: &[&Candidate]| {
        draft.usable(node, here.after(filed.free, all_space(victims)), draft.stays(turn))
    };
    let victims = least(candidates, |victims| after(victims).is_some_and(|free| ask.fits(found, free)))?;
    let seats = ask.fit(found, after(&victims)?)?;
    Some((victims, seats))
}

/// Who may be displaced for the job: whoever is weaker, and for a job within a guarantee those of other tenants;
/// as far as all of them together, and those who go already, leave to everyone what they are guaranteed.
pub(super) fn displaceable<'a>(
    draft: &Draft,
    turn: &Turn,
    ask: &Ask,
    candidates: impl Iterator<Item = &'a Candidate>,
    fewer: &guarantee::Leaving,
) -> Vec<&'a Candidate> {
    let weaker = |victim: &&Candidate| match draft.hastens {
        Some(Haste::Gently(most)) => {
            victim.priority <= turn.displaces_with && victim.worth.is_some_and(|worth| worth < most)
        }
        Some(Haste::AtACost(size)) => {
            victim.priority <= turn.displaces_with && victim.left_gpu_ms.is_some_and(|left| size < left)
        }
        None => {
            turn.outranks(victim.priority, victim.effective)
                || victim.overstays.is_some_and(|placed| turn.was_passed(placed))
        }
    };
    let (state, shares) = (draft.state, &draft.shares);
    let mut candidates: Vec<&Candidate> = candidates.collect();
    if draft.tells_victims_apart {
        let victim = |candidate: &Candidate| state.jobs.get(&candidate.job);
        let let_go = |victim| state.policies_let_displace(turn.bucket, victim, true);
        candidates.retain(|candidate| victim(candidate).is_some_and(let_go));
    }
    if let Some(Haste::Gently(_)) = draft.hastens {
        candidates.sort_by_key(|candidate| (draft.price_of(candidate), candidate.priority, candidate.job));
    }
    if !shares.has_guarantees() {
        candidates.retain(weaker);
        return candidates;
    }
    let cover = match draft.hastens {
        Some(_) => Cover::default(),
        None => shares.cover(state, &turn.bucket.tenant, &ask.shape),
    };
    let mut fewer = fewer.clone();
    let mut found = Vec::new();
    for candidate in candidates {
        let Some(victim) = state.jobs.get(&candidate.job) else { continue };
        let held = (|tenant: &TenantId| shares.runs(tenant), &shares.models);
        let reclaimed = cover.reclaims(state, victim, &shares.models);
        if (weaker(&candidate) || reclaimed) && fewer.allows(state, (victim, reclaimed), &cover, held) {
            fewer.add(state, victim);
            found.push(candidate);
        }
    }
    found
}

/// The victims that are needed so that it is enough: as many of the first as it takes, less those who turn out not to
/// be needed, the dearest spared first. Nothing if all together are not enough.
pub(super) fn least(
    candidates: Vec<&Candidate>,
    enough: impl Fn(&[&Candidate]) -> bool,
) -> Option<Vec<&Candidate>> {
    if candidates.is_empty() || !enough(&candidates) {
        return None;
    }
    let count = (1..candidates.len()).find(|count| enough(&candidates[..*count]));
    let mut victims = candidates[..count.unwrap_or(candidates.len())].to_vec();
    for place in (0..victims.len()).rev() {
        let spared = victims.remove(place);
        if !enough(&victims) {
            victims.insert(place, spared);
        }
    }
    Some(victims)
}

/// What victims give back together on the node they are candidates of.
pub(super) fn all_space(victims: &[&Candidate]) -> Free {
    victims.iter().fold(Free::default(), |sum, victim| sum.with(victim.space))
}
