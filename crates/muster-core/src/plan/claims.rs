//! Phase claims: who has made others stop starts where room was made, before anyone else is looked at.
//!
//! A claim is space, and the quota to use it: both count as held, so that nothing else can make the kill
//! pointless. A claim is broken when its node takes no more work or one of its devices may not be given out;
//! its job then takes part in the order like all others.

use crate::capacity::{Free, Seat};
use crate::ids::{JobId, NodeId};
use crate::job::{Demand, Job, PlacedTask};
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::{admit, order};
use crate::queue::{Bucket, place_of};
use crate::state::{Claim, State};
use crate::verdict::Reason;

/// Set aside what is claimed, for each claim in the state.
pub(super) fn set_all_aside(draft: &mut Draft) {
    let state = draft.state;
    for (id, claim) in &state.claims {
        let Some(job) = state.jobs.get(id) else { continue };
        hold(draft, *id, claim);
        for (node, space) in belongs_to(state, *id, claim) {
            draft.owe(&node, space);
        }
        if job.is_ready() && state.claim_works(job, claim, draft.now) {
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
            waiting.push((job, claim));
        }
    }
    // Those who start come first: a quota that was lowered must not make claims wait for each other.
    for (job, claim) in waiting {
        let milliwatts = state.milliwatts_of(&claim.tasks);
        draft.count(
            &bucket(state, job),
            Demand { milliwatts, ..job.spec.demand_of(&claim.tasks) },
            &claim.tasks,
        );
    }
}

/// Start a job on its claim, or say what is in the way beside room.
fn start(draft: &mut Draft, job: &Job, claim: &Claim) -> Result<(), Vec<Reason>> {
    let bucket = bucket(draft.state, job);
    let ask = draft.ask(&bucket);
    let blockers = admit::blockers(draft, (&bucket, draft.state.word(&bucket)), &ask);
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
            hold(draft, job.id, claim);
            Err(Vec::new())
        }
    }
}

/// On the claimed devices if they are free; where all of them are on one node, on others of it that came free earlier.
fn fit(draft: &Draft, ask: &Ask, claim: &Claim) -> Option<Spot> {
    let claimed = Spot { tasks: claim.tasks.clone(), score: None };
    if is_free(draft, ask, &claimed) {
        return Some(claimed);
    }
    let node = &claim.tasks.first()?.node;
    let filed = draft.capacity.filed(node).filter(|filed| filed.open)?;
    let found = ask.on(&filed.kind).filter(|_| claim.tasks.iter().all(|task| task.node == *node))?;
    Some(Spot::on_one(ask, (node, found), &ask.fit(found, filed.free)?))
}

/// Whether everything a spot needs is free and will do: a machine may have come back as another one.
fn is_free(draft: &Draft, ask: &Ask, spot: &Spot) -> bool {
    let would_do = |task: &PlacedTask| {
        let filed = draft.capacity.filed(&task.node).filter(|filed| filed.open);
        let found = filed.and_then(|filed| ask.on(&filed.kind));
        let group = task.group as usize;
        let each = &ask.shape.groups[group].1;
        let allows =
            |found: &Match| Seat::of(task).is_some_and(|seat| found.eligible[group].allows(seat, each));
        found.is_some_and(allows)
    };
    let is_there =
        |(node, taken): (&NodeId, &Free)| draft.free_on(node).is_some_and(|free| free.holds(*taken));
    spot.tasks.iter().all(would_do) && spot.taken(ask).iter().all(is_there)
}

/// Keep from others what a claim still needs.
fn hold(draft: &mut Draft, job: JobId, claim: &Claim) {
    for (node, needed) in draft.state.kept_by(job, claim) {
        draft.set_aside(job, &node, needed);
    }
}

/// Space that victims will give back belongs to whoever displaced them.
pub(super) fn belongs_to(state: &State, job: JobId, claim: &Claim) -> Vec<(NodeId, Free)> {
    let Some(job) = state.jobs.get(&job) else { return Vec::new() };
    let wanted = Free::by_node(&job.spec, &claim.tasks).into_iter();
    let theirs = wanted.map(|(node, wanted)| {
        let coming = state.coming_for(claim, node);
        let whole = Free { gpus: wanted.gpus, instances: wanted.instances, ..Free::default() };
        (node.clone(), wanted.divisible().shared_with(coming).with(whole))
    });
    theirs.collect()
}

fn bucket(state: &State, job: &Job) -> Bucket {
    state.bucket(job)
}

fn waits_for(claim: &Claim) -> Reason {
    Reason::Claimed { victims: claim.victims.clone() }
}
