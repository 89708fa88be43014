//! Phase preempt: displace running jobs, only where it is proven that the job fits then.
//!
//! A job within what its tenant is guaranteed may have borrowed space back. All others need a reason in the
//! priorities: victims have a strictly lower priority as they asked for it; age never makes a job stronger here. It does
//! protect: who was placed because it had waited is not displaced by those it rightly went before, or it would
//! be started and killed in turn for ever.

use std::collections::BTreeMap;

use crate::capacity::Free;
use crate::ids::{JobId, NodeId};
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Spot};
use crate::plan::offers::{Offers, victims};
use crate::plan::order::Turn;
use crate::plan::running::Reach;
use crate::plan::{MakeRoom, across, leaving};
use crate::state::State;

/// Most searches in one round where guarantees make each of them look at every node; the next round goes on.
const SEARCHES_MAX: usize = 500;

/// Propose to displace others for this job. False if that is not allowed or would not help.
pub(super) fn make_room(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    if !may_preempt(draft, turn) {
        return false;
    }
    let reach = draft.running().reach(turn);
    let reclaims = draft.shares.cover(draft.state, &turn.bucket.tenant, &ask.shape).is_some();
    if reach.is_nothing() && !reclaims {
        return false;
    }
    if leaving::wait_for(draft, turn, ask) {
        return true;
    }
    let on_one = best_on_one_node(draft, turn, ask, reach);
    let proposal = on_one.or_else(|| best_across(draft, turn, ask, reach));
    proposal.map(|proposal| accept(draft, turn, ask, proposal)).is_some()
}

/// The rules that do not depend on the place.
pub(super) fn may_preempt(draft: &Draft, turn: &Turn) -> bool {
    let tenant = draft.state.tenants.get(&turn.bucket.tenant);
    draft.state.settings.preemption
        && tenant.is_some_and(|tenant| tenant.config.may_preempt)
        && !draft.state.claims.contains_key(&turn.job)
}

/// Who must go, and where the gang sits then.
pub(super) struct Proposal {
    pub spot: Spot,
    pub victims: Vec<JobId>,
}

fn best_on_one_node(draft: &mut Draft, turn: &Turn, ask: &Ask, reach: Reach) -> Option<Proposal> {
    match draft.shares.has_guarantees() || draft.tells_victims_apart {
        // What is borrowed changes with every start of any tenant, and policies speak of single jobs: nothing known from
        // before is of use.
        true if draft.searches >= SEARCHES_MAX => None,
        true => {
            draft.searches += 1;
            best_offer(draft, turn, ask, &Offers::new(draft, turn, ask, reach))
        }
        false => best_known_proposal(draft, turn, ask, reach),
    }
}

/// Room on several nodes. Who is weaker than someone for whom there was none finds none either.
fn best_across(draft: &mut Draft, turn: &Turn, ask: &Ask, reach: Reach) -> Option<Proposal> {
    let told_apart = draft.shares.has_guarantees() || draft.tells_victims_apart;
    let alike = !told_apart && !draft.limits_devices(turn.bucket);
    let hopeless =
        |draft: &Draft| draft.hopeless.get(&ask.shape).is_some_and(|known| reach.is_within(*known));
    if !ask.may_span() || (alike && hopeless(draft)) {
        return None;
    }
    let proposal = across::proposal(draft, turn, ask);
    if proposal.is_none() && alike {
        draft.hopeless.insert(ask.shape.clone(), reach);
    }
    proposal
}

fn best_known_proposal(draft: &mut Draft, turn: &Turn, ask: &Ask, reach: Reach) -> Option<Proposal> {
    let known = draft.take_offers(turn.bucket);
    // Who is weaker than someone for whom there was no offer has none either: in a round nothing grows.
    if known.as_ref().is_some_and(|known| known.best().is_none() && reach.is_within(known.reach)) {
        draft.put_offers(turn.bucket, known);
        return None;
    }
    let mut offers = match known.filter(|known| known.reach == reach) {
        Some(known) => known,
        None => Offers::new(draft, turn, ask, reach),
    };
    offers.refresh(draft, turn, ask);
    let proposal = best_offer(draft, turn, ask, &offers);
    draft.put_offers(turn.bucket, Some(offers));
    proposal
}

pub(super) fn best_offer(draft: &Draft, turn: &Turn, ask: &Ask, offers: &Offers) -> Option<Proposal> {
    let offer = offers.best()?;
    let here = draft.running.as_ref()?.nodes.get(&offer.node)?;
    let (victims, seats) = victims(draft, turn, ask, &offer.node, here)?;
    let found = ask.on(&draft.capacity.filed(&offer.node)?.kind)?;
    Some(Proposal {
        spot: Spot::on_one(ask, (&offer.node, found), &seats),
        victims: victims.iter().map(|victim| victim.job).collect(),
    })
}

pub(super) fn accept(draft: &mut Draft, turn: &Turn, ask: &Ask, proposal: Proposal) {
    let (state, Proposal { spot, victims }) = (draft.state, proposal);
    let taken = spot.taken(ask);
    let freed = all_space(state, &victims);
    let touched = draft.running().displace(state, &victims);
    draft.changed.extend(touched);
    for (node, (freed, of)) in &freed {
        let rest = freed.without(taken.get(node).copied().unwrap_or_default());
        draft.running().leaving.add(node, rest, of);
    }
    for (node, taken) in &taken {
        let freed = freed.get(node).map(|(freed, _)| *freed).unwrap_or_default();
        draft.set_aside(turn.job, node, taken.without(freed.divisible()));
        draft.owe(node, taken.shared_with(freed));
    }
    let room = MakeRoom { job: turn.job, tasks: spot.tasks.clone(), victims };
    draft.make_room(turn.bucket, ask, &spot, room);
}

/// What victims give back on each node, and which of them.
fn all_space(state: &State, victims: &[JobId]) -> BTreeMap<NodeId, (Free, Vec<JobId>)> {
    let mut nodes: BTreeMap<NodeId, (Free, Vec<JobId>)> = BTreeMap::new();
    for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
        let tasks = victim.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        for (node, space) in Free::by_node(&victim.spec, tasks) {
            let (sum, of) = nodes.entry(node.clone()).or_default();
            *sum = sum.with(space);
            of.push(victim.id);
        }
    }
    nodes
}
