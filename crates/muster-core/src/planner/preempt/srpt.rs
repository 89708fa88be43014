//! Phase preempt, for speed: where the objective is `fast`, longer work gives way to shorter.
//!
//! Who saves its work gives way gently: to a job that is worth more than all who stop for it, whenever it comes. For
//! who does not it must gain more than it costs. What is gained is the time by which the job starts earlier than at its
//! place in the future. What it costs is, for each who gives way, the time the job takes until they can go on, the work
//! they lose, and the time they take to stop.

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::estimate::remaining::srpt_index;
use crate::ids::JobId;
use crate::objects::settings::Objective;
use crate::planner::draft::{Draft, SrptMode};
use crate::planner::order::QueueHead;
use crate::planner::preempt::victims::EvictionOptions;
use crate::planner::preempt::{EvictionProposal, accept, best_option, may_preempt};
use crate::planner::preempt::{multi_node as across, releasing as leaving};
use crate::planner::request::Request;
use crate::time::Timestamp;

/// Propose that those give way to a job who lose next to nothing by it and are worth less. False if there are none.
pub(crate) fn evict_loss_free(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> bool {
    if !is_enabled(draft, turn) {
        return false;
    }
    let own = srpt_index(turn.size_gpu_ms, ask.shape.gpu_milli());
    let found = proposal(draft, turn, ask, SrptMode::LossFree(own));
    let found = found.filter(|found| total_srpt_index(draft, found) < own);
    found.is_some_and(|found| settle(draft, turn, ask, found))
}

/// Propose that others give way to a job that could otherwise start at a moment. False if that is not allowed or does
/// not pay.
pub(crate) fn evict_for_net_gain(draft: &mut Draft, turn: &QueueHead, ask: &Request, at: Timestamp) -> bool {
    if !is_enabled(draft, turn) {
        return false;
    }
    let found = proposal(draft, turn, ask, SrptMode::NetGain(turn.size_gpu_ms));
    let found = found.filter(|found| has_net_gain(draft, turn, found, at));
    found.is_some_and(|found| settle(draft, turn, ask, found))
}

fn is_enabled(draft: &Draft, turn: &QueueHead) -> bool {
    draft.state.settings.objective == Objective::Fast && may_preempt(draft, turn)
}

fn settle(draft: &mut Draft, turn: &QueueHead, ask: &Request, proposal: EvictionProposal) -> bool {
    if !leaving::wait_for_releasing(draft, turn, ask) {
        accept(draft, turn, ask, proposal);
    }
    true
}

/// Who would give way, at the least price.
fn proposal(draft: &mut Draft, turn: &QueueHead, ask: &Request, haste: SrptMode) -> Option<EvictionProposal> {
    let reach = draft.candidates().reach(turn);
    draft.srpt_mode = Some(haste);
    let offers = EvictionOptions::new(draft, turn, ask, reach);
    let found = best_option(draft, turn, ask, &offers).or_else(|| across::proposal(draft, turn, ask));
    draft.srpt_mode = None;
    found
}

fn total_srpt_index(draft: &Draft, proposal: &EvictionProposal) -> u64 {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let worths = jobs.map(|job| draft.state.srpt_index_of_victim(job, draft.now).unwrap_or(u64::MAX));
    worths.fold(0, u64::saturating_add)
}

/// How long a job takes, from its size.
fn runtime_ms(turn: &QueueHead) -> i64 {
    let takes = turn.size_gpu_ms.saturating_mul(1_000) / turn.bucket.shape.gpu_milli().max(1);
    i64::try_from(takes).unwrap_or(i64::MAX)
}

/// Whether the job gains more time than all others lose.
fn has_net_gain(draft: &Draft, turn: &QueueHead, proposal: &EvictionProposal, at: Timestamp) -> bool {
    let grace_ms = draft.state.settings.stop_grace_ms;
    let gained_ms =
        at.min(expected_end_of_victims(draft, proposal)).since(draft.now).saturating_sub(grace_ms);
    let takes_ms = runtime_ms(turn).saturating_add(grace_ms);
    let lost_ms = proposal
        .victims
        .iter()
        .fold(0i64, |sum, victim| sum.saturating_add(takes_ms).saturating_add(lost_ms(draft, *victim)));
    lost_ms < gained_ms
}

/// When the last of those who would give way is usually over: the place in the future knows only when they must be.
fn expected_end_of_victims(draft: &Draft, proposal: &EvictionProposal) -> Timestamp {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let ends = jobs.map(|job| draft.now.plus(draft.state.remaining_ms(job, draft.now)));
    ends.max().unwrap_or(draft.now)
}

/// Work that a job loses, as time.
fn lost_ms(draft: &Draft, victim: JobId) -> i64 {
    let attempt = draft.state.jobs.get(&victim).and_then(|job| Some((job, job.attempt()?)));
    attempt.map_or(0, |(job, attempt)| {
        let lost = lost_gpu_ms(job, attempt, draft.now).saturating_mul(1_000) / attempt.gpu_milli().max(1);
        i64::try_from(lost).unwrap_or(i64::MAX)
    })
}
