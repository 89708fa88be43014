//! Phase preempt under the objective `fast`: shortest remaining processing time (SRPT). Longer work yields to shorter.
//!
//! A job that checkpoints yields loss-free: to a preemptor whose SRPT index exceeds the sum of its victims' indexes.
//! For a job that does not checkpoint the preemptor must gain more time than its victims lose. The gain is the time by
//! which the preemptor starts before its reservation. The loss is, for each victim, the runtime of the preemptor, the
//! work that the victim repeats, and the time it takes to stop.

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::estimate::remaining::srpt_index;
use crate::ids::JobId;
use crate::objects::settings::Objective;
use crate::planner::draft::{Draft, EvictionOptions};
use crate::planner::order::QueueHead;
use crate::planner::preempt::releasing::wait_for_releasing;
use crate::planner::preempt::{
    EvictionProposal, PreemptionMode, Preemptor, accept, best_option, may_preempt, multi_node,
};
use crate::planner::request::Request;
use crate::time::Timestamp;

/// Evict jobs that lose almost no work and have a lower SRPT index. False if there are none.
pub(crate) fn evict_loss_free(draft: &mut Draft, head: &QueueHead, request: &Request) -> bool {
    if !is_enabled(draft, head) {
        return false;
    }
    let index = srpt_index(head.size_gpu_ms, request.shape.gpu_milli());
    let preemptor = Preemptor::new(draft, head, request, PreemptionMode::LossFree(index));
    let found = proposal(draft, preemptor);
    let found = found.filter(|found| total_srpt_index(draft, found) < index);
    found.is_some_and(|found| settle(draft, head, request, found))
}

/// Evict jobs for a head that could otherwise start at `reserved_at`. False if that is not allowed or has no net gain.
pub(crate) fn evict_for_net_gain(
    draft: &mut Draft,
    head: &QueueHead,
    request: &Request,
    reserved_at: Timestamp,
) -> bool {
    if !is_enabled(draft, head) {
        return false;
    }
    let preemptor = Preemptor::new(draft, head, request, PreemptionMode::NetGain(head.size_gpu_ms));
    let found = proposal(draft, preemptor);
    let found = found.filter(|found| has_net_gain(draft, head, found, reserved_at));
    found.is_some_and(|found| settle(draft, head, request, found))
}

fn is_enabled(draft: &Draft, head: &QueueHead) -> bool {
    draft.state.settings.objective == Objective::Fast && may_preempt(draft, head)
}

fn settle(draft: &mut Draft, head: &QueueHead, request: &Request, proposal: EvictionProposal) -> bool {
    if !wait_for_releasing(draft, head, request) {
        accept(draft, head, request, proposal);
    }
    true
}

/// The cheapest eviction in an SRPT mode.
fn proposal(draft: &mut Draft, preemptor: Preemptor) -> Option<EvictionProposal> {
    let reach = draft.candidates().reach(preemptor.head);
    let options = EvictionOptions::new(draft, preemptor, reach);
    best_option(draft, preemptor, &options).or_else(|| multi_node::proposal(draft, preemptor))
}

fn total_srpt_index(draft: &Draft, proposal: &EvictionProposal) -> u64 {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let indexes = jobs.map(|job| draft.state.srpt_index_of_victim(job, draft.now).unwrap_or(u64::MAX));
    indexes.fold(0, u64::saturating_add)
}

/// The expected runtime of a head, from its size.
fn runtime_ms(head: &QueueHead) -> i64 {
    let runtime_ms = head.size_gpu_ms.saturating_mul(1_000) / head.bucket.shape.gpu_milli().max(1);
    i64::try_from(runtime_ms).unwrap_or(i64::MAX)
}

/// True if the preemptor gains more time than its victims lose.
fn has_net_gain(draft: &Draft, head: &QueueHead, proposal: &EvictionProposal, reserved_at: Timestamp) -> bool {
    let grace_ms = draft.state.settings.stop_grace_ms;
    let start_without = reserved_at.min(expected_end_of_victims(draft, proposal));
    let gained_ms = start_without.since(draft.now).saturating_sub(grace_ms);
    let delay_ms = runtime_ms(head).saturating_add(grace_ms);
    let lost_ms = proposal
        .victims
        .iter()
        .fold(0i64, |sum, victim| sum.saturating_add(delay_ms).saturating_add(repeated_ms(draft, *victim)));
    lost_ms < gained_ms
}

/// The expected end of the last victim. The reservation counts on the time at which the victim must have ended.
fn expected_end_of_victims(draft: &Draft, proposal: &EvictionProposal) -> Timestamp {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let ends = jobs.map(|job| draft.now.plus(draft.state.remaining_ms(job, draft.now)));
    ends.max().unwrap_or(draft.now)
}

/// The work that a victim repeats, as time.
fn repeated_ms(draft: &Draft, victim: JobId) -> i64 {
    let attempt = draft.state.jobs.get(&victim).and_then(|job| Some((job, job.attempt()?)));
    attempt.map_or(0, |(job, attempt)| {
        let lost = lost_gpu_ms(job, attempt, draft.now).saturating_mul(1_000) / attempt.gpu_milli().max(1);
        i64::try_from(lost).unwrap_or(i64::MAX)
    })
}
