//! Phase preempt, eviction: stop running jobs, only where the draft proves that the preemptor fits afterwards.
//!
//! A preemptor within a guarantee reclaims borrowed space at any priority. Every other preemptor needs a strictly
//! higher raw priority than its victims, revocable jobs that overran and SRPT aside: aging never makes a preemptor
//! stronger. Aging does protect a victim: a job that was placed because it had waited is not evicted by the jobs that
//! it rightly passed, or the two would start and be killed in turn for ever.

pub(crate) mod claims;
pub(crate) mod defragment;
pub(crate) mod multi_node;
pub(crate) mod releasing;
pub(crate) mod srpt;
pub(crate) mod srpt_group;
pub(crate) mod victims;

use std::collections::BTreeMap;

use crate::estimate::expected_end::ExpectedEnd;
use crate::facts::plan::Eviction;
use crate::ids::{JobId, NodeId};
use crate::planner::draft::{Candidate, Draft, EvictionOptions, Placement, PreemptionReach};
use crate::planner::order::QueueHead;
use crate::planner::preempt::releasing::wait_for_releasing;
use crate::planner::preempt::victims::minimal_victims_on;
use crate::planner::request::Request;
use crate::resources::ResourceVec;
use crate::state::State;

/// Most searches for victims over all nodes in one round, where an earlier search cannot be reused; the next round
/// continues.
const SEARCHES_MAX: usize = 500;

/// A waiting job that may evict running jobs.
#[derive(Clone, Copy)]
pub(crate) struct Preemptor<'p> {
    pub head: &'p QueueHead<'p>,
    pub request: &'p Request,
    pub mode: PreemptionMode,
    /// Expected end of the preemptor, checked against the reservations on every node. Outside of loss-free mode a
    /// preemptor counts as never ending, so that it stays clear of every reservation.
    pub end: ExpectedEnd,
}

/// Which running jobs a preemptor may evict.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PreemptionMode {
    /// Jobs of lower priority, jobs that hold borrowed space, and revocable jobs that overran.
    Priority,
    /// SRPT: jobs that lose almost no work, whose SRPT indexes sum to less than this.
    LossFree(u64),
    /// SRPT: jobs with more remaining GPU time than this, where the preemptor gains more time than its victims lose.
    NetGain(u64),
}

impl<'p> Preemptor<'p> {
    pub fn new(draft: &Draft, head: &'p QueueHead<'p>, request: &'p Request, mode: PreemptionMode) -> Preemptor<'p> {
        let end = match mode {
            PreemptionMode::LossFree(_) => draft.expected_end(head.bucket, head.job),
            PreemptionMode::Priority | PreemptionMode::NetGain(_) => draft.never_ending(head.job),
        };
        Preemptor { head, request, mode, end }
    }

    /// The cost of evicting a job: the work it loses; its SRPT index where victims lose almost none.
    pub fn eviction_cost(&self, victim: &Candidate) -> u64 {
        match self.mode {
            PreemptionMode::LossFree(_) => victim.srpt_index.unwrap_or(u64::MAX),
            PreemptionMode::Priority | PreemptionMode::NetGain(_) => victim.lost_gpu_ms,
        }
    }
}

/// Propose evictions for a queue head. False if preemption is not allowed or would not make the head fit.
pub(crate) fn evict(draft: &mut Draft, head: &QueueHead, request: &Request) -> bool {
    if !may_preempt(draft, head) {
        return false;
    }
    let reach = draft.candidates().reach(head);
    let reclaims = draft.shares.usage.cover(&head.bucket.tenant, &request.shape).is_some();
    if reach.is_nothing() && !reclaims {
        return false;
    }
    if wait_for_releasing(draft, head, request) {
        return true;
    }
    let preemptor = Preemptor::new(draft, head, request, PreemptionMode::Priority);
    let on_one = best_on_one_node(draft, preemptor, reach);
    let proposal = on_one.or_else(|| best_multi_node(draft, preemptor, reach));
    proposal.map(|proposal| accept(draft, head, request, proposal)).is_some()
}

/// The rules of preemption that do not depend on the placement.
pub(crate) fn may_preempt(draft: &Draft, head: &QueueHead) -> bool {
    let tenant = draft.state.tenants.get(&head.bucket.tenant);
    draft.state.settings.preemption
        && tenant.is_some_and(|tenant| tenant.config.may_preempt)
        && !draft.state.claims.contains_key(&head.job)
}

/// The victims, and the placement of the preemptor after their eviction.
pub(crate) struct EvictionProposal {
    pub placement: Placement,
    pub victims: Vec<JobId>,
}

fn best_on_one_node(draft: &mut Draft, preemptor: Preemptor, reach: PreemptionReach) -> Option<EvictionProposal> {
    match draft.shares.usage.limits_victims() || draft.distinguishes_victims {
        // Borrowed usage changes with every start of any tenant, and policies answer for single jobs: earlier options
        // are stale.
        true if draft.caches.eviction_searches >= SEARCHES_MAX => None,
        true => {
            draft.caches.eviction_searches += 1;
            best_option(draft, preemptor, &EvictionOptions::new(draft, preemptor, reach))
        }
        false => best_cached_proposal(draft, preemptor, reach),
    }
}

/// Evictions on several nodes. A preemptor with less reach than one that found none finds none either.
fn best_multi_node(draft: &mut Draft, preemptor: Preemptor, reach: PreemptionReach) -> Option<EvictionProposal> {
    let (head, request) = (preemptor.head, preemptor.request);
    let own_victims = draft.shares.usage.limits_victims() || draft.distinguishes_victims;
    let cacheable = !own_victims && !draft.limits_devices(head.bucket);
    let known = draft.caches.no_multi_node_eviction.get(&request.shape);
    if !request.may_span() || (cacheable && known.is_some_and(|known| reach.is_within(*known))) {
        return None;
    }
    let proposal = multi_node::proposal(draft, preemptor);
    if proposal.is_none() && cacheable {
        draft.caches.no_multi_node_eviction.insert(request.shape.clone(), reach);
    }
    proposal
}

fn best_cached_proposal(draft: &mut Draft, preemptor: Preemptor, reach: PreemptionReach) -> Option<EvictionProposal> {
    let bucket = preemptor.head.bucket;
    let known = draft.take_eviction_options(bucket);
    // A preemptor with less reach than one without options has none either: in a round nothing grows.
    if known.as_ref().is_some_and(|known| known.best().is_none() && reach.is_within(known.reach)) {
        draft.put_eviction_options(bucket, known);
        return None;
    }
    let mut options = match known.filter(|known| known.reach == reach) {
        Some(known) => known,
        None => EvictionOptions::new(draft, preemptor, reach),
    };
    options.refresh(draft, preemptor);
    let proposal = best_option(draft, preemptor, &options);
    draft.put_eviction_options(bucket, Some(options));
    proposal
}

pub(crate) fn best_option(draft: &Draft, preemptor: Preemptor, options: &EvictionOptions) -> Option<EvictionProposal> {
    let node = &options.best()?.node;
    let candidates = draft.caches.candidates.as_ref()?.nodes.get(node)?;
    let (victims, assignments) = minimal_victims_on(draft, preemptor, node, candidates)?;
    let request = preemptor.request;
    let found = request.match_for(&draft.space.resources.entry(node)?.kind)?;
    Some(EvictionProposal {
        placement: Placement::on_one_node(request, node, found, &assignments),
        victims: victims.iter().map(|victim| victim.job).collect(),
    })
}

/// Take an eviction into the plan: free space is earmarked for the preemptor, and released space is promised to it.
pub(crate) fn accept(draft: &mut Draft, head: &QueueHead, request: &Request, proposal: EvictionProposal) {
    let (state, EvictionProposal { placement, victims }) = (draft.state, proposal);
    let taken = placement.taken(request);
    let freed = freed_by_node(state, &victims);
    let touched = draft.candidates().evict(state, &victims);
    draft.space.dirty_nodes.extend(touched);
    for (node, (freed, victims)) in &freed {
        let rest = freed.minus(taken.get(node).copied().unwrap_or_default());
        draft.candidates().releasing.add(node, rest, victims);
    }
    for (node, taken) in &taken {
        let freed = freed.get(node).map(|(freed, _)| *freed).unwrap_or_default();
        draft.space.earmark(head.job, node, taken.minus(freed.divisible()));
        draft.space.promise(node, taken.intersection(freed));
    }
    let eviction = Eviction { job: head.job, tasks: placement.tasks.clone(), victims };
    draft.propose_eviction(head.bucket, request, &placement, eviction);
}

/// What the victims release on each node, and which victims.
fn freed_by_node(state: &State, victims: &[JobId]) -> BTreeMap<NodeId, (ResourceVec, Vec<JobId>)> {
    let mut nodes: BTreeMap<NodeId, (ResourceVec, Vec<JobId>)> = BTreeMap::new();
    for victim in victims.iter().filter_map(|victim| state.jobs.get(victim)) {
        let tasks = victim.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        for (node, space) in ResourceVec::by_node(&victim.spec, tasks) {
            let (sum, jobs) = nodes.entry(node.clone()).or_default();
            *sum = sum.plus(space);
            jobs.push(victim.id);
        }
    }
    nodes
}
