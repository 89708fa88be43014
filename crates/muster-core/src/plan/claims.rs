//! Phase claims: who has made others stop starts where room was made, before anyone else is looked at.
//!
//! A claim is space, and the quota to use it: both count as held, so that nothing else can make the kill
//! pointless. A claim is broken when its node takes no more work or one of its devices may not be given out;
//! its job then takes part in the order like all others.

use crate::capacity::{Free, mask};
use crate::job::Job;
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Spot};
use crate::plan::{admit, order};
use crate::queue::{Bucket, bucket_of, place_of};
use crate::state::{Claim, State};
use crate::verdict::Reason;

/// Set aside what is claimed, for each claim in the state.
pub(super) fn set_all_aside(draft: &mut Draft) {
    let state = draft.state;
    for (id, claim) in &state.claims {
        let Some(job) = state.jobs.get(id) else { continue };
        draft.set_aside(*id, &claim.node, still_needed(state, job, claim));
        if is_ready(job) && works(state, claim) {
            draft.note_claimant(*id);
        }
    }
}

/// Start the jobs whose claimed space is free now; the others go on waiting for it.
pub(super) fn start_where_room_is_made(draft: &mut Draft) {
    let state = draft.state;
    let claimants = || state.claims.iter().filter_map(|(id, claim)| Some((state.jobs.get(id)?, claim)));
    let mut waiting = Vec::new();
    for (job, claim) in claimants() {
        if draft.is_claimant(job.id)
            && let Err(blockers) = start(draft, job, claim)
        {
            draft.reasons.insert(job.id, [vec![waits_for(claim)], blockers].concat());
            waiting.push(job);
        }
    }
    // Those who start come first: a quota that was lowered must not make claims wait for each other.
    for job in waiting {
        draft.count(&bucket(state, job), job.spec.demand());
    }
}

/// Start a job on its claim, or say what is in the way beside room.
fn start(draft: &mut Draft, job: &Job, claim: &Claim) -> Result<(), Vec<Reason>> {
    let bucket = bucket(draft.state, job);
    let ask = draft.ask(&bucket);
    let blockers = admit::blockers(draft, &bucket, &ask);
    if !blockers.is_empty() {
        return Err(blockers);
    }
    draft.put_back(job.id);
    match fit(draft, &ask, claim) {
        Some(spot) => {
            let effective = order::effective(draft, &bucket, place_of(job));
            draft.start(&bucket, (job.id, effective), &ask, &spot);
            Ok(())
        }
        None => {
            draft.set_aside(job.id, &claim.node, still_needed(draft.state, job, claim));
            Err(Vec::new())
        }
    }
}

/// On the claimed devices if they are free; on others of the node if those came free earlier.
fn fit(draft: &Draft, ask: &Ask, claim: &Claim) -> Option<Spot> {
    let filed = draft.capacity.filed(&claim.node).filter(|filed| filed.open)?;
    let found = ask.on(&filed.kind)?;
    let claimed = Free { gpus: filed.free.gpus & mask(&claim.gpus), ..filed.free };
    let chosen = ask.fit(found, claimed).or_else(|| ask.fit(found, filed.free))?;
    Some(Spot { node: claim.node.clone(), chosen })
}

/// What a claim keeps from others: its devices, and the cores and memory that victims still stopping will
/// not bring.
fn still_needed(state: &State, job: &Job, claim: &Claim) -> Free {
    let demand = job.spec.demand();
    let coming = state.coming_for(claim);
    Free {
        gpus: mask(&claim.gpus),
        cpus: demand.cpus.saturating_sub(coming.cpus),
        memory_mib: demand.memory_mib.saturating_sub(coming.memory_mib),
    }
}

fn works(state: &State, claim: &Claim) -> bool {
    let open = state.capacity.filed(&claim.node).is_some_and(|filed| filed.open);
    open && mask(&claim.gpus) & !state.usable_gpus(&claim.node) == 0
}

fn is_ready(job: &Job) -> bool {
    job.is_queued() && job.wakes_at.is_none() && job.open_dependencies.is_empty()
}

fn bucket(state: &State, job: &Job) -> Bucket {
    bucket_of(job, state.is_limited(job.id))
}

fn waits_for(claim: &Claim) -> Reason {
    Reason::Claimed { victims: claim.victims.clone() }
}
