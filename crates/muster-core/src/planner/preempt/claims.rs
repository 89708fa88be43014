//! Phase claims: who has made others stop starts where room was made, before anyone else is looked at.
//!
//! A claim is space, and the quota to use it: both count as held, so that nothing else can make the kill
//! pointless. A claim is broken when its node takes no more work or one of its devices may not be given out;
//! its job then takes part in the order like all others.

use crate::facts::verdict::Reason;
use crate::ids::{JobId, NodeId};
use crate::objects::demand::Demand;
use crate::objects::job::{Job, PlacedTask};
use crate::planner::draft::{Draft, Placement};
use crate::planner::request::{KindMatch, Request};
use crate::planner::{admit, order};
use crate::queue::{Bucket, queue_key};
use crate::resources::{DeviceAssignment, ResourceVec};
use crate::state::usage::Consumer;
use crate::state::{Claim, State};

/// Set aside what is claimed, for each claim in the state.
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

/// Start the jobs whose claimed space is free now; the others go on waiting for it.
pub(crate) fn start_claimants(draft: &mut Draft) {
    let state = draft.state;
    let claimants = || state.claims.iter().filter_map(|(id, claim)| Some((state.jobs.get(id)?, claim)));
    let mut waiting = Vec::new();
    for (job, claim) in claimants() {
        if draft.is_claimant(job.id)
            && let Err(blockers) = start(draft, job, claim)
        {
            draft.output.reasons.insert(job.id, [vec![waiting_reason(claim)], blockers].concat());
            waiting.push((job, claim));
        }
    }
    // Those who start come first: a quota that was lowered must not make claims wait for each other.
    for (job, claim) in waiting {
        let milliwatts = state.milliwatts_of(&claim.tasks);
        let demand = Demand { milliwatts, ..job.spec.demand_of(&claim.tasks) };
        draft.shares.hold(Consumer::of_bucket(&state.bucket(job)), demand, &claim.tasks);
    }
}

/// Start a job on its claim, or say what is in the way beside room.
fn start(draft: &mut Draft, job: &Job, claim: &Claim) -> Result<(), Vec<Reason>> {
    let bucket = bucket(draft.state, job);
    let ask = draft.request(&bucket);
    let blockers = admit::blockers(draft, &bucket, draft.state.policy_answer(&bucket), &ask);
    if !blockers.is_empty() {
        return Err(blockers);
    }
    draft.space.release_earmarked(job.id);
    match fit(draft, &ask, claim) {
        Some(spot) => {
            let effective = order::effective_priority(draft, &bucket, queue_key(job));
            draft.start(&bucket, job.id, effective, &ask, &spot);
            Ok(())
        }
        None => {
            earmark(draft, job.id, claim);
            Err(Vec::new())
        }
    }
}

/// On the claimed devices if they are free; where all of them are on one node, on others of it that came free earlier.
fn fit(draft: &Draft, ask: &Request, claim: &Claim) -> Option<Placement> {
    let claimed = Placement { tasks: claim.tasks.clone(), score: None };
    if is_free(draft, ask, &claimed) {
        return Some(claimed);
    }
    let node = &claim.tasks.first()?.node;
    let filed = draft.space.resources.entry(node).filter(|filed| filed.open)?;
    let found = ask.match_for(&filed.kind).filter(|_| claim.tasks.iter().all(|task| task.node == *node))?;
    Some(Placement::on_one_node(ask, node, found, &ask.assign(found, filed.free)?))
}

/// Whether everything a spot needs is free and will do: a machine may have come back as another one.
fn is_free(draft: &Draft, ask: &Request, spot: &Placement) -> bool {
    let would_do = |task: &PlacedTask| {
        let filed = draft.space.resources.entry(&task.node).filter(|filed| filed.open);
        let found = filed.and_then(|filed| ask.match_for(&filed.kind));
        let group = task.group as usize;
        let each = &ask.shape.groups[group].1;
        let allows = |found: &KindMatch| {
            DeviceAssignment::of(task).is_some_and(|seat| found.eligible[group].allows(seat, each))
        };
        found.is_some_and(allows)
    };
    let is_there = |(node, taken): (&NodeId, &ResourceVec)| {
        draft.space.free_on(node).is_some_and(|free| free.covers(*taken))
    };
    spot.tasks.iter().all(would_do) && spot.taken(ask).iter().all(is_there)
}

/// Keep from others what a claim still needs.
fn earmark(draft: &mut Draft, job: JobId, claim: &Claim) {
    for (node, needed) in draft.state.kept_by_claim(job, claim) {
        draft.space.earmark(job, &node, needed);
    }
}

/// Space that victims will give back belongs to whoever displaced them.
pub(crate) fn promised_to(state: &State, job: JobId, claim: &Claim) -> Vec<(NodeId, ResourceVec)> {
    let Some(job) = state.jobs.get(&job) else { return Vec::new() };
    let wanted = ResourceVec::by_node(&job.spec, &claim.tasks).into_iter();
    let theirs = wanted.map(|(node, wanted)| {
        let coming = state.releasing_for(claim, node);
        let whole = ResourceVec { gpus: wanted.gpus, instances: wanted.instances, ..ResourceVec::default() };
        (node.clone(), wanted.divisible().intersection(coming).plus(whole))
    });
    theirs.collect()
}

fn bucket(state: &State, job: &Job) -> Bucket {
    state.bucket(job)
}

fn waiting_reason(claim: &Claim) -> Reason {
    Reason::Claimed { victims: claim.victims.clone() }
}
