//! Phase defragment: move a running job so that a blocked job fits, where enough space is free but not on one node.
//!
//! Only a job that checkpoints is moved, once in its life, never for a job of lower priority, and only where the
//! blocked job gains at least twice what the move loses. Off unless an operator enables `scheduler.defragment`;
//! [`moves`] always returns the moves that it would make.

use serde::{Deserialize, Serialize};

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::facts::plan::Eviction;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, PlacedTask};
use crate::planner::draft::{Candidate, Draft, Placement};
use crate::planner::order::{Order, QueueHead};
use crate::planner::preempt::{EvictionProposal, accept, may_preempt};
use crate::planner::request::{KindMatch, Request};
use crate::planner::{admit, place, round_until_blocked};
use crate::queue::Bucket;
use crate::state::State;
use crate::time::Timestamp;

/// Most blocked heads, in the order of the queue, for which a round looks for a move.
const MOVES_PER_ROUND_MAX: usize = 8;
/// Least ratio of gain to loss.
const GAIN_OVER_LOSS_MIN: u64 = 2;

/// A move of a running job to other nodes so that a blocked job fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The blocked job.
    pub job: JobId,
    /// Placement of the blocked job after the move.
    pub tasks: Vec<PlacedTask>,
    /// The running job to move.
    pub victim: JobId,
    /// A placement that is free for the victim now.
    pub to: Vec<PlacedTask>,
    /// GPUs × milliseconds by which the blocked job starts earlier.
    pub gained_gpu_ms: u64,
    /// GPUs × milliseconds of work that the victim repeats, and of its idle time during the move.
    pub lost_gpu_ms: u64,
}

/// The moves that defragmentation would make now, whether it is enabled or not.
pub fn moves(state: &State, now: Timestamp) -> Vec<Move> {
    let mut draft = Draft::new(state, now, None);
    let order = Order::new(state, now, &draft.shares);
    round_until_blocked(&mut draft, order);
    propose(&mut draft)
}

/// Propose the moves that pay, if an operator enabled defragmentation.
pub(crate) fn propose_if_enabled(draft: &mut Draft) {
    if draft.state.settings.defragment {
        propose(draft);
    }
}

/// Find a move for each of the first blocked heads, and take it into the draft.
fn propose(draft: &mut Draft) -> Vec<Move> {
    // All heads stay in the list, helped or not: the jobs behind them in their buckets are still blocked.
    let blocked = std::mem::take(&mut draft.output.blocked);
    let mut found = Vec::new();
    for head in blocked.iter().take(MOVES_PER_ROUND_MAX) {
        if let Some((best, proposal, request)) = best_move(draft, head) {
            accept(draft, head, &request, proposal);
            found.push(best);
        }
    }
    draft.output.blocked = blocked;
    found
}

/// A move, its eviction, and the request of the blocked job.
type FoundMove = (Move, EvictionProposal, std::sync::Arc<Request>);

/// The move with the least loss for a job that is blocked because it fits on no node.
fn best_move(draft: &mut Draft, head: &QueueHead) -> Option<FoundMove> {
    let request = draft.request(head.bucket);
    let at = draft.reservations.of(head.job)?.at;
    if !may_preempt(draft, head) || !admit::blockers(draft, head.bucket, head.policy, &request).is_empty() {
        return None;
    }
    let gained_ms = at.since(draft.now).saturating_sub(draft.state.settings.stop_grace_ms).max(0) as u64;
    let gained_gpu_ms = gained_ms.saturating_mul(request.demand.gpu_milli) / 1_000;
    draft.candidates();
    let draft = &*draft;
    let nodes = draft.caches.candidates.iter().flat_map(|candidates| &candidates.nodes);
    let candidates = nodes.flat_map(|(node, on_node)| on_node.candidates.iter().map(move |one| (node, one)));
    let mut best: Option<((u64, JobId), Move, EvictionProposal)> = None;
    for (node, candidate) in candidates {
        let Some(victim) = draft.state.jobs.get(&candidate.job) else { continue };
        let lost_gpu_ms = cost(draft, victim);
        let no_better = best.as_ref().is_some_and(|(key, _, _)| *key <= (lost_gpu_ms, victim.id));
        let pays = gained_gpu_ms >= lost_gpu_ms.saturating_mul(GAIN_OVER_LOSS_MIN) && gained_gpu_ms > 0;
        let allowed = draft.state.policies_allow_eviction(head.bucket, victim, true);
        if no_better || !pays || !allowed || !draft.state.may_be_moved(victim, head.bucket.priority) {
            continue;
        }
        let moved = MoveCandidate { node, candidate, victim };
        let Some((placement, to)) = fits_after(draft, head.job, &request, moved) else { continue };
        let (job, tasks) = (head.job, placement.tasks.clone());
        let eviction = Eviction { job, tasks: tasks.clone(), victims: vec![victim.id] };
        if draft.state.settings.defragment && !draft.state.would_adopt(&eviction, draft.now) {
            continue;
        }
        let found = Move { job, tasks, victim: victim.id, to: to.tasks, gained_gpu_ms, lost_gpu_ms };
        best = Some(((lost_gpu_ms, victim.id), found, EvictionProposal { placement, victims: vec![victim.id] }));
    }
    best.map(|(_, found, proposal)| (found, proposal, request))
}

/// What a move loses: the work since the last checkpoint, and the time until the victim runs again.
fn cost(draft: &Draft, victim: &Job) -> u64 {
    let Some(attempt) = victim.attempt() else { return u64::MAX };
    let idle_ms = draft.state.settings.stop_grace_ms.max(0) as u64;
    lost_gpu_ms(victim, attempt, draft.now).saturating_add(idle_ms.saturating_mul(attempt.gpu_milli()) / 1_000)
}

/// A running job that may be moved, with one of its nodes and its entry among the candidates of that node.
#[derive(Clone, Copy)]
struct MoveCandidate<'a> {
    node: &'a NodeId,
    candidate: &'a Candidate,
    victim: &'a Job,
}

/// The placement of the blocked job after the move, and a placement elsewhere that is free for the victim now.
fn fits_after(draft: &Draft, job: JobId, request: &Request, moved: MoveCandidate) -> Option<(Placement, Placement)> {
    let MoveCandidate { node, candidate, victim } = moved;
    let candidates = draft.caches.candidates.as_ref()?.nodes.get(node)?;
    let entry = draft.space.resources.entry(node).filter(|entry| entry.open)?;
    let found: &KindMatch = request.match_for(&entry.kind).filter(|found| found.holds_gang)?;
    let after = candidates.after(entry.free, candidate.space);
    let usable = draft.reservations.usable(node, after, draft.never_ending(job), Some(job))?;
    let assignments = request.assign(found, usable)?;
    let to = elsewhere(draft, victim, node)?;
    Some((Placement::on_one_node(request, node, found, &assignments), to))
}

/// A free placement for the whole gang of a running job, on any node but `node`.
fn elsewhere(draft: &Draft, victim: &Job, node: &NodeId) -> Option<Placement> {
    let bucket: Bucket = draft.state.bucket(victim);
    let request = Request::new(&draft.space.resources, &bucket.shape);
    let end = draft.expected_end(&bucket, victim.id).never_revocable();
    place::find_excluding(draft, &request, end, node)
}
