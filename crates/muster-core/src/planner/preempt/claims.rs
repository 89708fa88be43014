//! Phase claims: preemptors start on the space that their evictions freed, before the queue is read.
//!
//! A claim consists of space and the quota to use it. Both count as held, so that no other job can make the eviction
//! useless. A claim breaks when its node takes no more work or one of its devices may not be allocated; its job then
//! takes part in the order like every other job.

use crate::facts::verdict::Reason;
use crate::ids::NodeId;
use crate::objects::demand::Demand;
use crate::objects::job::{Job, PlacedTask};
use crate::planner::admit;
use crate::planner::draft::claims::earmark;
use crate::planner::draft::{Draft, Placement};
use crate::planner::request::{KindMatch, Request};
use crate::queue::{Bucket, queue_key};
use crate::resources::{DeviceAssignment, ResourceVec};
use crate::state::usage::Consumer;
use crate::state::{Claim, State};

/// Start the jobs whose claimed space is free; the other claimants keep waiting for theirs.
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
    // Waiting claimants hold quota only after all starts: otherwise claims would wait for each other once a quota is
    // lowered.
    for (job, claim) in waiting {
        let milliwatts = state.milliwatts_of(&claim.tasks);
        let demand = Demand { milliwatts, ..job.spec.demand_of(&claim.tasks) };
        draft.shares.hold(Consumer::of_bucket(&state.bucket(job)), demand, &claim.tasks);
    }
}

/// Start a job on its claim, or return what blocks the job besides space.
fn start(draft: &mut Draft, job: &Job, claim: &Claim) -> Result<(), Vec<Reason>> {
    let bucket = bucket(draft.state, job);
    let request = draft.request(&bucket);
    let blockers = admit::blockers(draft, &bucket, draft.state.policy_answer(&bucket), &request);
    if !blockers.is_empty() {
        return Err(blockers);
    }
    let first = claim.tasks.first().filter(|_| job.spec.is_gang());
    if first.is_some_and(|task| draft.reservations.without_master_ports.contains(&task.node)) {
        return Err(vec![Reason::MasterPorts { nodes: 1, ports: draft.state.settings.master_ports }]);
    }
    draft.space.release_earmarked(job.id);
    match fit(draft, &request, claim) {
        Some(placement) => {
            let effective = draft.effective_priority(&bucket, queue_key(job));
            draft.start(&bucket, job.id, effective, &request, &placement);
            Ok(())
        }
        None => {
            earmark(draft, job.id, claim);
            Err(Vec::new())
        }
    }
}

/// The claimed placement if it is free. A claim on one node may also use other devices there that came free earlier.
fn fit(draft: &Draft, request: &Request, claim: &Claim) -> Option<Placement> {
    let claimed = Placement { tasks: claim.tasks.clone(), score: None };
    if is_free(draft, request, &claimed) {
        return Some(claimed);
    }
    let node = &claim.tasks.first()?.node;
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let found = request.match_for(&entry.kind).filter(|_| claim.tasks.iter().all(|task| task.node == *node))?;
    Some(Placement::on_one_node(request, node, found, &request.assign(found, entry.free)?))
}

/// True if everything that a placement needs is free and eligible: a node may have registered again with other devices.
fn is_free(draft: &Draft, request: &Request, placement: &Placement) -> bool {
    let is_eligible = |task: &PlacedTask| {
        let entry = draft.space.resources.entry(&task.node).filter(|entry| entry.open);
        let found = entry.and_then(|entry| request.match_for(&entry.kind));
        let group = task.group as usize;
        let each = &request.shape.groups[group].1;
        let allows = |found: &KindMatch| {
            DeviceAssignment::of(task).is_some_and(|assignment| found.eligible[group].allows(assignment, each))
        };
        found.is_some_and(allows)
    };
    let has_space =
        |(node, taken): (&NodeId, &ResourceVec)| draft.space.free_on(node).is_some_and(|free| free.covers(*taken));
    placement.tasks.iter().all(is_eligible) && placement.taken(request).iter().all(has_space)
}

fn bucket(state: &State, job: &Job) -> Bucket {
    state.bucket(job)
}

fn waiting_reason(claim: &Claim) -> Reason {
    Reason::Claimed { victims: claim.victims.clone() }
}
