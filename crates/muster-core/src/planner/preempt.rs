//! Phase preempt: displace running jobs, only where it is proven that the job fits then.
//!
//! A job within what its tenant is guaranteed may have borrowed space back. All others need a reason in the
//! priorities: victims have a strictly lower priority as they asked for it; age never makes a job stronger here. It does
//! protect: who was placed because it had waited is not displaced by those it rightly went before, or it would
//! be started and killed in turn for ever.

pub(crate) mod candidates;
pub(crate) mod claims;
pub(crate) mod defragment;
pub(crate) mod multi_node;
pub(crate) mod releasing;
pub(crate) mod srpt;
pub(crate) mod srpt_group;
pub(crate) mod victims;

use std::collections::BTreeMap;

use crate::facts::plan::Eviction;
use crate::ids::{JobId, NodeId};
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::preempt::candidates::PreemptionReach;
use crate::planner::preempt::victims::{EvictionOptions, minimal_victims_on};
use crate::planner::preempt::{multi_node as across, releasing as leaving};
use crate::planner::request::Request;
use crate::resources::ResourceVec;
use crate::state::State;

/// Most searches in one round where guarantees make each of them look at every node; the next round goes on.
const SEARCHES_MAX: usize = 500;

/// Propose to displace others for this job. False if that is not allowed or would not help.
pub(crate) fn evict(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> bool {
    if !may_preempt(draft, turn) {
        return false;
    }
    let reach = draft.candidates().reach(turn);
    let reclaims = draft.shares.cover(draft.state, &turn.bucket.tenant, &ask.shape).is_some();
    if reach.is_nothing() && !reclaims {
        return false;
    }
    if leaving::wait_for_releasing(draft, turn, ask) {
        return true;
    }
    let on_one = best_on_one_node(draft, turn, ask, reach);
    let proposal = on_one.or_else(|| best_multi_node(draft, turn, ask, reach));
    proposal.map(|proposal| accept(draft, turn, ask, proposal)).is_some()
}

/// The rules that do not depend on the place.
pub(crate) fn may_preempt(draft: &Draft, turn: &QueueHead) -> bool {
    let tenant = draft.state.tenants.get(&turn.bucket.tenant);
    draft.state.settings.preemption
        && tenant.is_some_and(|tenant| tenant.config.may_preempt)
        && !draft.state.claims.contains_key(&turn.job)
}

/// Who must go, and where the gang sits then.
pub(crate) struct EvictionProposal {
    pub spot: Placement,
    pub victims: Vec<JobId>,
}

fn best_on_one_node(
    draft: &mut Draft,
    turn: &QueueHead,
    ask: &Request,
    reach: PreemptionReach,
) -> Option<EvictionProposal> {
    match draft.shares.has_guarantees() || draft.distinguishes_victims {
        // What is borrowed changes with every start of any tenant, and policies speak of single jobs: nothing known from
        // before is of use.
        true if draft.eviction_searches >= SEARCHES_MAX => None,
        true => {
            draft.eviction_searches += 1;
            best_option(draft, turn, ask, &EvictionOptions::new(draft, turn, ask, reach))
        }
        false => best_cached_proposal(draft, turn, ask, reach),
    }
}

/// Room on several nodes. Who is weaker than someone for whom there was none finds none either.
fn best_multi_node(
    draft: &mut Draft,
    turn: &QueueHead,
    ask: &Request,
    reach: PreemptionReach,
) -> Option<EvictionProposal> {
    let told_apart = draft.shares.has_guarantees() || draft.distinguishes_victims;
    let alike = !told_apart && !draft.limits_devices(turn.bucket);
    let hopeless =
        |draft: &Draft| draft.no_eviction_cache.get(&ask.shape).is_some_and(|known| reach.is_within(*known));
    if !ask.may_span() || (alike && hopeless(draft)) {
        return None;
    }
    let proposal = across::proposal(draft, turn, ask);
    if proposal.is_none() && alike {
        draft.no_eviction_cache.insert(ask.shape.clone(), reach);
    }
    proposal
}

fn best_cached_proposal(
    draft: &mut Draft,
    turn: &QueueHead,
    ask: &Request,
    reach: PreemptionReach,
) -> Option<EvictionProposal> {
    let known = draft.take_eviction_options(turn.bucket);
    // Who is weaker than someone for whom there was no offer has none either: in a round nothing grows.
    if known.as_ref().is_some_and(|known| known.best().is_none() && reach.is_within(known.reach)) {
        draft.put_eviction_options(turn.bucket, known);
        return None;
    }
    let mut offers = match known.filter(|known| known.reach == reach) {
        Some(known) => known,
        None => EvictionOptions::new(draft, turn, ask, reach),
    };
    offers.refresh(draft, turn, ask);
    let proposal = best_option(draft, turn, ask, &offers);
    draft.put_eviction_options(turn.bucket, Some(offers));
    proposal
}

pub(crate) fn best_option(
    draft: &Draft,
    turn: &QueueHead,
    ask: &Request,
    offers: &EvictionOptions,
) -> Option<EvictionProposal> {
    let offer = offers.best()?;
    let here = draft.candidates.as_ref()?.nodes.get(&offer.node)?;
    let (victims, seats) = minimal_victims_on(draft, turn, ask, &offer.node, here)?;
    let found = ask.match_for(&draft.resources.entry(&offer.node)?.kind)?;
    Some(EvictionProposal {
        spot: Placement::on_one(ask, (&offer.node, found), &seats),
        victims: victims.iter().map(|victim| victim.job).collect(),
    })
}

pub(crate) fn accept(draft: &mut Draft, turn: &QueueHead, ask: &Request, proposal: EvictionProposal) {
    let (state, EvictionProposal { spot, victims }) = (draft.state, proposal);
    let taken = spot.taken(ask);
    let freed = freed_by_node(state, &victims);
    let touched = draft.candidates().evict(state, &victims);
    draft.dirty_nodes.extend(touched);
    for (node, (freed, of)) in &freed {
        let rest = freed.minus(taken.get(node).copied().unwrap_or_default());
        draft.candidates().releasing.add(node, rest, of);
    }
    for (node, taken) in &taken {
        let freed = freed.get(node).map(|(freed, _)| *freed).unwrap_or_default();
        draft.earmark(turn.job, node, taken.minus(freed.divisible()));
        draft.promise(node, taken.intersection(freed));
    }
    let room = Eviction { job: turn.job, tasks: spot.tasks.clone(), victims };
    draft.propose_eviction(turn.bucket, ask, &spot, room);
}

/// What victims give back on each node, and which of them.
fn freed_by_node(state: &State, victims: &[JobId]) -> BTreeMap<NodeId, (ResourceVec, Vec<JobId>)> {
    let mut nodes: BTreeMap<NodeId, (ResourceVec, Vec<JobId>)> = BTreeMap::new();
    for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
        let tasks = victim.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        for (node, space) in ResourceVec::by_node(&victim.spec, tasks) {
            let (sum, of) = nodes.entry(node.clone()).or_default();
            *sum = sum.plus(space);
            of.push(victim.id);
        }
    }
    nodes
}
