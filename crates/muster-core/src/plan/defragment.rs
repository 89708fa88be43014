//! Phase defragment: a job waits although enough is free, only not together; someone who runs could go on elsewhere, and
//! then it would fit. Gentle: only who saves its work is moved, once in its life, never for a lower priority, and only
//! where the waiting job gains at least twice what the move loses. Switched off unless an operator wants it; what it would
//! do can always be asked.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::job::{Job, PlacedTask};
use crate::lasting::Ending;
use crate::loss::lost_gpu_ms;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::{Order, Turn};
use crate::plan::preempt::{Proposal, accept, may_preempt};
use crate::plan::running::Candidate;
use crate::plan::{MakeRoom, admit, place, round_until_blocked};
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

/// So many of the first that are blocked are helped in one round.
const HELPED_MAX: usize = 8;
/// The gain must be so many times the loss.
const WORTH_IT: u64 = 2;

/// A job that could go on elsewhere so that another fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// Who waits.
    pub job: JobId,
    /// Where it would sit.
    pub tasks: Vec<PlacedTask>,
    /// Who would be moved.
    pub victim: JobId,
    /// Where there is room for it now.
    pub to: Vec<PlacedTask>,
    /// GPUs × milliseconds by which the waiting job starts earlier.
    pub gained_gpu_ms: u64,
    /// GPUs × milliseconds of work that is done again, and of standing still while it moves.
    pub lost_gpu_ms: u64,
}

/// What would be moved now if that were wanted.
pub fn moves(state: &State, now: Timestamp) -> Vec<Move> {
    let mut draft = Draft::new(state, now, None);
    let order = Order::new(state, now, &draft.shares);
    round_until_blocked(&mut draft, order);
    propose(&mut draft)
}

/// Move those whose move pays, if an operator wants it.
pub(super) fn make_room(draft: &mut Draft) {
    if draft.state.settings.defragment {
        propose(draft);
    }
}

/// Find a move for each of the first that are blocked, and count on it from then on.
fn propose(draft: &mut Draft) -> Vec<Move> {
    // Those behind the first of a bucket are still blocked, so all of them are put back.
    let blocked = std::mem::take(&mut draft.blocked);
    let mut found = Vec::new();
    for turn in blocked.iter().take(HELPED_MAX) {
        if let Some((one, proposal, ask)) = best_move(draft, turn) {
            accept(draft, turn, &ask, proposal);
            found.push(one);
        }
    }
    draft.blocked = blocked;
    found
}

type Found = (Move, Proposal, std::sync::Arc<Ask>);

/// The move that gains most for a job that is blocked for want of room on one node.
fn best_move(draft: &mut Draft, turn: &Turn) -> Option<Found> {
    let ask = draft.ask(turn.bucket);
    let at = draft.reservations.of(turn.job)?.at;
    if !may_preempt(draft, turn) || !admit::blockers(draft, (turn.bucket, turn.word), &ask).is_empty() {
        return None;
    }
    let gained_ms = at.since(draft.now).saturating_sub(draft.state.settings.stop_grace_ms).max(0) as u64;
    let gained_gpu_ms = gained_ms.saturating_mul(ask.demand.gpu_milli) / 1_000;
    draft.running();
    let draft = &*draft;
    let nodes = draft.running.iter().flat_map(|running| &running.nodes);
    let candidates = nodes.flat_map(|(node, here)| here.candidates.iter().map(move |one| (node, one)));
    let mut best: Option<((u64, JobId), Move, Proposal)> = None;
    for (node, candidate) in candidates {
        let Some(victim) = draft.state.jobs.get(&candidate.job) else { continue };
        let lost_gpu_ms = cost(draft, victim);
        let known = best.as_ref().is_some_and(|(key, _, _)| *key <= (lost_gpu_ms, victim.id));
        let pays = gained_gpu_ms >= lost_gpu_ms.saturating_mul(WORTH_IT) && gained_gpu_ms > 0;
        let let_go = draft.state.policies_let_displace(turn.bucket, victim, true);
        if known || !pays || !let_go || !draft.state.may_be_moved(victim, turn.bucket.priority) {
            continue;
        }
        let Some((spot, to)) = fits_after(draft, (turn.job, &ask), (node, candidate), victim) else {
            continue;
        };
        let (job, tasks) = (turn.job, spot.tasks.clone());
        let room = MakeRoom { job, tasks: tasks.clone(), victims: vec![victim.id] };
        if draft.state.settings.defragment && !draft.state.would_adopt(&room, draft.now) {
            continue;
        }
        let one = Move { job, tasks, victim: victim.id, to: to.tasks, gained_gpu_ms, lost_gpu_ms };
        best = Some(((lost_gpu_ms, victim.id), one, Proposal { spot, victims: vec![victim.id] }));
    }
    best.map(|(_, one, proposal)| (one, proposal, ask))
}

/// What a move loses: work since it was last saved, and the time until it runs again.
fn cost(draft: &Draft, victim: &Job) -> u64 {
    let Some(attempt) = victim.attempt() else { return u64::MAX };
    let still_ms = draft.state.settings.stop_grace_ms.max(0) as u64;
    lost_gpu_ms(victim, attempt, draft.now)
        .saturating_add(still_ms.saturating_mul(attempt.gpu_milli()) / 1_000)
}

/// Where the waiting job sits once another is gone, and where that one finds room now.
fn fits_after(
    draft: &Draft,
    (job, ask): (JobId, &Ask),
    (node, candidate): (&NodeId, &Candidate),
    victim: &Job,
) -> Option<(Spot, Spot)> {
    let here = draft.running.as_ref()?.nodes.get(node)?;
    let filed = draft.capacity.filed(node).filter(|filed| filed.open)?;
    let found: &Match = ask.on(&filed.kind).filter(|found| found.whole)?;
    let after = here.after(filed.free, candidate.space);
    let usable = draft.reservations.usable(node, after, Ending::NEVER, Some(job))?;
    let seats = ask.fit(found, usable)?;
    let to = elsewhere(draft, victim, node)?;
    Some((Spot::on_one(ask, (node, found), &seats), to))
}

/// Room for a whole gang that runs, apart from a node, as things are now.
fn elsewhere(draft: &Draft, victim: &Job, node: &NodeId) -> Option<Spot> {
    let bucket: Bucket = draft.state.bucket(victim);
    let ask = Ask::new(&draft.capacity, &bucket.shape);
    let ending = draft.ending(&bucket, victim.id).outright();
    place::find_apart(draft, &ask, ending, node)
}

impl State {
    /// Whether a running job may be moved for one of a priority: it saves its work, was not disturbed before, and is not
    /// worth more.
    pub(crate) fn may_be_moved(&self, victim: &Job, priority: u32) -> bool {
        let saves = victim.spec.checkpoint.is_some()
            || victim.attempt().is_some_and(|attempt| attempt.saved_at.is_some());
        saves && victim.preemptions == 0 && victim.spec.priority <= priority
    }
}
