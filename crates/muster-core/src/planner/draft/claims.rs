//! Space of the claims in the state: earmarked for the preemptors when the draft of a planning round (step 7) begins.

use crate::ids::{JobId, NodeId};
use crate::planner::draft::Draft;
use crate::resources::ResourceVec;
use crate::state::{Claim, State};

/// Earmark the space of each claim in the state.
pub(crate) fn earmark_all(draft: &mut Draft) {
    let state = draft.state;
    for (id, claim) in &state.claims {
        let Some(job) = state.jobs.get(id) else { continue };
        earmark(draft, *id, claim);
        for (node, space) in promised_to(state, *id, claim) {
            draft.space.promise(&node, space);
        }
        if job.is_ready() && state.is_claim_usable(job, claim, draft.now) {
            draft.note_claimant(*id);
        }
    }
}

/// Earmark what a claim still needs.
pub(crate) fn earmark(draft: &mut Draft, job: JobId, claim: &Claim) {
    for (node, needed) in draft.state.kept_by_claim(job, claim) {
        draft.space.earmark(job, &node, needed);
    }
}

/// The space that victims will release and that belongs to their preemptor, by node.
pub(crate) fn promised_to(state: &State, job: JobId, claim: &Claim) -> Vec<(NodeId, ResourceVec)> {
    let Some(job) = state.jobs.get(&job) else { return Vec::new() };
    let wanted = ResourceVec::by_node(&job.spec, &claim.tasks).into_iter();
    let promised = wanted.map(|(node, wanted)| {
        let releasing = state.releasing_for(claim, node);
        let devices = ResourceVec { gpus: wanted.gpus, instances: wanted.instances, ..ResourceVec::default() };
        (node.clone(), wanted.divisible().intersection(releasing).plus(devices))
    });
    promised.collect()
}
