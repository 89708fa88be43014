//! What it would cost to make room for a shape, node by node. Kept for the round and refreshed where the draft
//! has changed, so that a wave of urgent jobs does not look at every node for each of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{NodeId, TenantId};
use crate::planner::draft::{Draft, SrptMode};
use crate::planner::order::QueueHead;
use crate::planner::preempt::candidates::{Candidate, NodeCandidates, PreemptionReach};
use crate::planner::request::Request;
use crate::resources::{DeviceAssignment, ResourceVec};
use crate::state::usage::guarantee;
use crate::state::usage::guarantee::GuaranteeCover;

/// Making room on one node. The least work lost is best, or where nothing is lost the least worth, then the fewest victims, then the name of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionOption {
    lost_gpu_ms: u64,
    victims: usize,
    pub node: NodeId,
}

/// The offers of all nodes to jobs of one shape and one reach.
#[derive(Debug)]
pub(crate) struct EvictionOptions {
    pub reach: PreemptionReach,
    sorted: BTreeSet<EvictionOption>,
    by_node: BTreeMap<NodeId, EvictionOption>,
    /// How many changes of the draft are in it.
    seen: usize,
}

impl EvictionOptions {
    pub fn new(draft: &Draft, turn: &QueueHead, ask: &Request, reach: PreemptionReach) -> EvictionOptions {
        let (sorted, by_node) = (BTreeSet::new(), BTreeMap::new());
        let mut offers = EvictionOptions { reach, sorted, by_node, seen: draft.dirty_nodes.len() };
        for (node, here) in draft.candidates.iter().flat_map(|running| &running.nodes) {
            offers.put(node, eviction_option(draft, turn, ask, node, here));
        }
        offers
    }

    /// Ask the nodes again where something has changed since.
    pub fn refresh(&mut self, draft: &Draft, turn: &QueueHead, ask: &Request) {
        for node in &draft.dirty_nodes[self.seen..] {
            let here = draft.candidates.as_ref().and_then(|running| running.nodes.get(node));
            self.put(node, here.and_then(|here| eviction_option(draft, turn, ask, node, here)));
        }
        self.seen = draft.dirty_nodes.len();
    }

    /// The best of all.
    pub fn best(&self) -> Option<&EvictionOption> {
        self.sorted.first()
    }

    fn put(&mut self, node: &NodeId, offer: Option<EvictionOption>) {
        if let Some(former) = self.by_node.remove(node) {
            self.sorted.remove(&former);
        }
        if let Some(offer) = offer {
            self.sorted.insert(offer.clone());
            self.by_node.insert(node.clone(), offer);
        }
    }
}

fn eviction_option(
    draft: &Draft,
    turn: &QueueHead,
    ask: &Request,
    node: &NodeId,
    here: &NodeCandidates,
) -> Option<EvictionOption> {
    let (victims, _) = minimal_victims_on(draft, turn, ask, node, here)?;
    let lost_gpu_ms =
        victims.iter().fold(0u64, |sum, victim| sum.saturating_add(draft.eviction_cost(victim)));
    Some(EvictionOption { lost_gpu_ms, victims: victims.len(), node: node.clone() })
}

/// Who must go on a node so that the whole gang fits there, and the seat of each task then.
pub(crate) fn minimal_victims_on<'a>(
    draft: &Draft,
    turn: &QueueHead,
    ask: &Request,
    node: &NodeId,
    here: &'a NodeCandidates,
) -> Option<(Vec<&'a Candidate>, Vec<DeviceAssignment>)> {
    let filed = draft.resources.entry(node).filter(|filed| filed.open)?;
    let found = ask.match_for(&filed.kind).filter(|found| found.holds_gang)?;
    let candidates = eligible_victims(draft, turn, ask, here.candidates.iter(), &draft.pending_releases());
    let after = |victims: &[&Candidate]| {
        draft.usable(node, here.after(filed.free, freed_space(victims)), draft.preemptor_end(turn))
    };
    let victims =
        minimal_victims(candidates, |victims| after(victims).is_some_and(|free| ask.fits(found, free)))?;
    let seats = ask.assign(found, after(&victims)?)?;
    Some((victims, seats))
}

/// Who may be displaced for the job: whoever is weaker, and for a job within a guarantee those of other tenants;
/// as far as all of them together, and those who go already, leave to everyone what they are guaranteed.
pub(crate) fn eligible_victims<'a>(
    draft: &Draft,
    turn: &QueueHead,
    ask: &Request,
    candidates: impl Iterator<Item = &'a Candidate>,
    fewer: &guarantee::PendingReleases,
) -> Vec<&'a Candidate> {
    let weaker = |victim: &&Candidate| match draft.srpt_mode {
        Some(SrptMode::LossFree(most)) => {
            victim.priority <= turn.preemption_priority && victim.srpt_index.is_some_and(|worth| worth < most)
        }
        Some(SrptMode::NetGain(size)) => {
            victim.priority <= turn.preemption_priority
                && victim.remaining_gpu_ms.is_some_and(|left| size < left)
        }
        None => {
            turn.outranks(victim.priority, victim.effective)
                || victim.overran_since.is_some_and(|placed| turn.was_waiting_at(placed))
        }
    };
    let (state, shares) = (draft.state, &draft.shares);
    let mut candidates: Vec<&Candidate> = candidates.collect();
    if draft.distinguishes_victims {
        let victim = |candidate: &Candidate| state.jobs.get(&candidate.job);
        let let_go = |victim| state.policies_allow_eviction(turn.bucket, victim, true);
        candidates.retain(|candidate| victim(candidate).is_some_and(let_go));
    }
    if let Some(SrptMode::LossFree(_)) = draft.srpt_mode {
        candidates
            .sort_by_key(|candidate| (draft.eviction_cost(candidate), candidate.priority, candidate.job));
    }
    if !shares.has_guarantees() {
        candidates.retain(weaker);
        return candidates;
    }
    let cover = match draft.srpt_mode {
        Some(_) => GuaranteeCover::default(),
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
pub(crate) fn minimal_victims(
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
pub(crate) fn freed_space(victims: &[&Candidate]) -> ResourceVec {
    victims.iter().fold(ResourceVec::default(), |sum, victim| sum.plus(victim.space))
}
