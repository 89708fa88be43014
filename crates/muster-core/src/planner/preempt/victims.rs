//! Victim selection: for each node the cheapest set of running jobs whose eviction makes the preemptor fit.
//!
//! The options of a shape are kept for the round and refreshed on the nodes that changed, so that a wave of urgent jobs
//! does not search every node for each of them.

use crate::ids::NodeId;
use crate::planner::draft::{Candidate, Draft, EvictionOption, EvictionOptions, NodeCandidates, PreemptionReach};
use crate::planner::preempt::{PreemptionMode, Preemptor};
use crate::resources::{DeviceAssignment, ResourceVec};
use crate::state::usage::guarantee::{GuaranteeCover, PendingReleases};

impl EvictionOptions {
    /// Search every node.
    pub fn new(draft: &Draft, preemptor: Preemptor, reach: PreemptionReach) -> EvictionOptions {
        let mut options = EvictionOptions::empty(reach, draft.space.dirty_nodes.len());
        for (node, candidates) in draft.caches.candidates.iter().flat_map(|candidates| &candidates.nodes) {
            options.put(node, eviction_option(draft, preemptor, node, candidates));
        }
        options
    }

    /// Search again on the nodes that changed since.
    pub fn refresh(&mut self, draft: &Draft, preemptor: Preemptor) {
        for node in &draft.space.dirty_nodes[self.seen..] {
            let candidates = draft.caches.candidates.as_ref().and_then(|candidates| candidates.nodes.get(node));
            let option = candidates.and_then(|candidates| eviction_option(draft, preemptor, node, candidates));
            self.put(node, option);
        }
        self.seen = draft.space.dirty_nodes.len();
    }
}

fn eviction_option(
    draft: &Draft,
    preemptor: Preemptor,
    node: &NodeId,
    candidates: &NodeCandidates,
) -> Option<EvictionOption> {
    let (victims, _) = minimal_victims_on(draft, preemptor, node, candidates)?;
    let cost = total_cost(preemptor, &victims);
    Some(EvictionOption { cost, victims: victims.len(), node: node.clone() })
}

/// The cost of evicting several jobs.
pub(crate) fn total_cost(preemptor: Preemptor, victims: &[&Candidate]) -> u64 {
    victims.iter().fold(0u64, |sum, victim| sum.saturating_add(preemptor.eviction_cost(victim)))
}

/// The jobs to evict on a node so that the whole gang fits there, and the assignment of each task then.
pub(crate) fn minimal_victims_on<'a>(
    draft: &Draft,
    preemptor: Preemptor,
    node: &NodeId,
    candidates: &'a NodeCandidates,
) -> Option<(Vec<&'a Candidate>, Vec<DeviceAssignment>)> {
    let request = preemptor.request;
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let found = request.match_for(&entry.kind).filter(|found| found.holds_gang)?;
    let eligible = eligible_victims(draft, preemptor, candidates.candidates.iter(), &draft.pending_releases());
    let free_after =
        |victims: &[&Candidate]| draft.usable(node, candidates.after(entry.free, freed_space(victims)), preemptor.end);
    let fits = |victims: &[&Candidate]| free_after(victims).is_some_and(|free| request.fits(found, free));
    let victims = minimal_victims(eligible, fits)?;
    let assignments = request.assign(found, free_after(&victims)?)?;
    Some((victims, assignments))
}

/// The candidates that a preemptor may evict: weaker jobs, and for a preemptor within a guarantee jobs on borrowed
/// space; only as many as leave every tenant its guarantee, together with the releases that are pending.
pub(crate) fn eligible_victims<'a>(
    draft: &Draft,
    preemptor: Preemptor,
    candidates: impl Iterator<Item = &'a Candidate>,
    pending: &PendingReleases,
) -> Vec<&'a Candidate> {
    let (state, usage, head) = (draft.state, &draft.shares.usage, preemptor.head);
    let mut candidates: Vec<&Candidate> = candidates.collect();
    if draft.distinguishes_victims {
        let allowed = |victim| state.policies_allow_eviction(head.bucket, victim, true);
        candidates.retain(|candidate| state.jobs.get(&candidate.job).is_some_and(allowed));
    }
    if let PreemptionMode::LossFree(_) = preemptor.mode {
        candidates.sort_by_key(|one| (preemptor.eviction_cost(one), one.priority, one.job));
    }
    if !usage.limits_victims() {
        candidates.retain(|candidate| is_weaker(preemptor, candidate));
        return candidates;
    }
    let cover = match preemptor.mode {
        PreemptionMode::Priority => usage.cover(&head.bucket.tenant, &preemptor.request.shape),
        PreemptionMode::LossFree(_) | PreemptionMode::NetGain(_) => GuaranteeCover::default(),
    };
    let mut pending = pending.clone();
    let mut eligible = Vec::new();
    for candidate in candidates {
        let Some(victim) = state.jobs.get(&candidate.job) else { continue };
        let reclaimed = cover.reclaims(state, victim, &usage.guaranteed);
        let wanted = is_weaker(preemptor, candidate) || reclaimed;
        if wanted && pending.allows(victim, reclaimed, &cover, usage) {
            pending.add(state, victim);
            eligible.push(candidate);
        }
    }
    eligible
}

/// True if a running job may be evicted for the preemptor, guarantees aside.
fn is_weaker(preemptor: Preemptor, victim: &Candidate) -> bool {
    let head = preemptor.head;
    let not_above = victim.priority <= head.preemption_priority;
    match preemptor.mode {
        PreemptionMode::LossFree(most) => not_above && victim.srpt_index.is_some_and(|index| index < most),
        PreemptionMode::NetGain(size) => not_above && victim.remaining_gpu_ms.is_some_and(|left| size < left),
        PreemptionMode::Priority => {
            head.outranks(victim.priority, victim.effective_priority)
                || victim.overran_since.is_some_and(|placed| head.was_waiting_at(placed))
        }
    }
}

/// The victims that are needed so that `enough` holds: the shortest prefix of the candidates, without those that turn
/// out not to be needed, the most expensive spared first. `None` if all candidates together are not enough.
pub(crate) fn minimal_victims(
    candidates: Vec<&Candidate>,
    enough: impl Fn(&[&Candidate]) -> bool,
) -> Option<Vec<&Candidate>> {
    if candidates.is_empty() || !enough(&candidates) {
        return None;
    }
    let count = (1..candidates.len()).find(|count| enough(&candidates[..*count]));
    let mut victims = candidates[..count.unwrap_or(candidates.len())].to_vec();
    for position in (0..victims.len()).rev() {
        let spared = victims.remove(position);
        if !enough(&victims) {
            victims.insert(position, spared);
        }
    }
    Some(victims)
}

/// What victims release together on the node they are candidates of.
pub(crate) fn freed_space(victims: &[&Candidate]) -> ResourceVec {
    victims.iter().fold(ResourceVec::default(), |sum, victim| sum.plus(victim.space))
}
