//! Phase preempt, for speed: where the objective is `fast`, longer work gives way to shorter.
//!
//! Who saves its work gives way gently: to a job that is worth more than all who stop for it, whenever it comes. For
//! who does not it must gain more than it costs. What is gained is the time by which the job starts earlier than at its
//! place in the future. What it costs is, for each who gives way, the time the job takes until they can go on, the work
//! they lose, and the time they take to stop.

use crate::haste::worth;
use crate::ids::JobId;
use crate::loss::lost_gpu_ms;
use crate::plan::ask::Ask;
use crate::plan::draft::{Draft, Haste};
use crate::plan::offers::Offers;
use crate::plan::order::Turn;
use crate::plan::preempt::{Proposal, accept, best_offer, may_preempt};
use crate::plan::{across, leaving};
use crate::settings::Objective;
use crate::time::Timestamp;

/// Propose that those give way to a job who lose next to nothing by it and are worth less. False if there are none.
pub(super) fn make_room_gently(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    if !is_asked(draft, turn) {
        return false;
    }
    let own = worth(turn.size, ask.shape.gpu_milli());
    let found = proposal(draft, turn, ask, Haste::Gently(own));
    let found = found.filter(|found| worth_of_all(draft, found) < own);
    found.is_some_and(|found| settle(draft, turn, ask, found))
}

/// Propose that others give way to a job that could otherwise start at a moment. False if that is not allowed or does
/// not pay.
pub(super) fn make_room(draft: &mut Draft, turn: &Turn, ask: &Ask, at: Timestamp) -> bool {
    if !is_asked(draft, turn) {
        return false;
    }
    let found = proposal(draft, turn, ask, Haste::AtACost(turn.size));
    let found = found.filter(|found| pays(draft, turn, found, at));
    found.is_some_and(|found| settle(draft, turn, ask, found))
}

fn is_asked(draft: &Draft, turn: &Turn) -> bool {
    draft.state.settings.objective == Objective::Fast && may_preempt(draft, turn)
}

fn settle(draft: &mut Draft, turn: &Turn, ask: &Ask, proposal: Proposal) -> bool {
    if !leaving::wait_for(draft, turn, ask) {
        accept(draft, turn, ask, proposal);
    }
    true
}

/// Who would give way, at the least price.
fn proposal(draft: &mut Draft, turn: &Turn, ask: &Ask, haste: Haste) -> Option<Proposal> {
    let reach = draft.running().reach(turn);
    draft.hastens = Some(haste);
    let offers = Offers::new(draft, turn, ask, reach);
    let found = best_offer(draft, turn, ask, &offers).or_else(|| across::proposal(draft, turn, ask));
    draft.hastens = None;
    found
}

fn worth_of_all(draft: &Draft, proposal: &Proposal) -> u64 {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let worths = jobs.map(|job| draft.state.worth_of(job, draft.now).unwrap_or(u64::MAX));
    worths.fold(0, u64::saturating_add)
}

/// How long a job takes, from its size.
fn takes_ms(turn: &Turn) -> i64 {
    let takes = turn.size.saturating_mul(1_000) / turn.bucket.shape.gpu_milli().max(1);
    i64::try_from(takes).unwrap_or(i64::MAX)
}

/// Whether the job gains more time than all others lose.
fn pays(draft: &Draft, turn: &Turn, proposal: &Proposal, at: Timestamp) -> bool {
    let grace_ms = draft.state.settings.stop_grace_ms;
    let gained_ms = at.min(usual_end(draft, proposal)).since(draft.now).saturating_sub(grace_ms);
    let takes_ms = takes_ms(turn).saturating_add(grace_ms);
    let lost_ms = proposal
        .victims
        .iter()
        .fold(0i64, |sum, victim| sum.saturating_add(takes_ms).saturating_add(set_back_ms(draft, *victim)));
    lost_ms < gained_ms
}

/// When the last of those who would give way is usually over: the place in the future knows only when they must be.
fn usual_end(draft: &Draft, proposal: &Proposal) -> Timestamp {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let ends = jobs.map(|job| draft.now.plus(draft.state.left_ms(job, draft.now)));
    ends.max().unwrap_or(draft.now)
}

/// Work that a job loses, as time.
fn set_back_ms(draft: &Draft, victim: JobId) -> i64 {
    let attempt = draft.state.jobs.get(&victim).and_then(|job| Some((job, job.attempt()?)));
    attempt.map_or(0, |(job, attempt)| {
        let lost = lost_gpu_ms(job, attempt, draft.now).saturating_mul(1_000) / attempt.gpu_milli().max(1);
        i64::try_from(lost).unwrap_or(i64::MAX)
    })
}
