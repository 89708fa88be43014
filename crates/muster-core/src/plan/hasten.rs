//! Phase preempt, for speed: where the objective is `fast`, longer work gives way to shorter where that gains more than
//! it costs.
//!
//! What is gained is the time by which the job starts earlier than at its place in the future. What it costs is, for
//! each who gives way, the time the job takes until they can go on, the work they lose, and the time they take to stop.

use crate::ids::JobId;
use crate::loss::lost_gpu_ms;
use crate::plan::ask::Ask;
use crate::plan::draft::Draft;
use crate::plan::offers::Offers;
use crate::plan::order::Turn;
use crate::plan::preempt::{Proposal, accept, best_offer, may_preempt};
use crate::plan::{across, leaving};
use crate::settings::Objective;
use crate::time::Timestamp;

/// Propose that others give way to a job that could otherwise start at a moment. False if that is not allowed or does
/// not pay.
pub(super) fn make_room(draft: &mut Draft, turn: &Turn, ask: &Ask, at: Timestamp) -> bool {
    if draft.state.settings.objective != Objective::Fast || !may_preempt(draft, turn) {
        return false;
    }
    let Some(proposal) = proposal(draft, turn, ask).filter(|found| pays(draft, turn, found, at)) else {
        return false;
    };
    if !leaving::wait_for(draft, turn, ask) {
        accept(draft, turn, ask, proposal);
    }
    true
}

/// Who would give way, with the least loss.
fn proposal(draft: &mut Draft, turn: &Turn, ask: &Ask) -> Option<Proposal> {
    let reach = draft.running().reach(turn);
    draft.hastens = Some(draft.state.size(turn.bucket));
    let offers = Offers::new(draft, turn, ask, reach);
    let found = best_offer(draft, turn, ask, &offers).or_else(|| across::proposal(draft, turn, ask));
    draft.hastens = None;
    found
}

fn usual_ms(draft: &Draft, turn: &Turn) -> i64 {
    let bucket = turn.bucket;
    draft.state.usual_ms(&bucket.tenant, &bucket.user, bucket.limit_ms).max(0)
}

/// Whether the job gains more time than all others lose.
fn pays(draft: &Draft, turn: &Turn, proposal: &Proposal, at: Timestamp) -> bool {
    let grace_ms = draft.state.settings.stop_grace_ms;
    let gained_ms = at.min(usual_end(draft, proposal)).since(draft.now).saturating_sub(grace_ms);
    let takes_ms = usual_ms(draft, turn).saturating_add(grace_ms);
    let lost_ms = proposal
        .victims
        .iter()
        .fold(0i64, |sum, victim| sum.saturating_add(takes_ms).saturating_add(set_back_ms(draft, *victim)));
    lost_ms < gained_ms
}

/// When the last of those who would give way is usually over: the place in the future knows only when they must be.
fn usual_end(draft: &Draft, proposal: &Proposal) -> Timestamp {
    let jobs = proposal.victims.iter().filter_map(|victim| draft.state.jobs.get(victim));
    let ends = jobs.filter_map(|job| draft.state.usual_end(job));
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
