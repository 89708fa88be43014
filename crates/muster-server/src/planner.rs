//! Step 7, plan: the planner's thread keeps a replica of the state and proposes a plan after each change. It also writes
//! savepoints, and feeds the forecaster and the shadow evaluator.
//!
//! The planner never blocks the engine. After each round it pauses for four times as long as the round took, at most a
//! second, so it uses a fifth of a core as long as rounds take less than a quarter of a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use muster_core::facts::plan::{RejectedPart, Rejection};
use muster_core::planner::{Planned, Verdicts, plan};
use muster_core::{Actor, Answer, Command, State};
use muster_store::Savepoints;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::engine_loop::JournalUpdate;
use crate::policies::{Interpreter, PolicyQuerier};
use crate::round_stats::RoundStats;
use crate::savepoint;
use crate::shadow::Shadow;
use crate::wait_recorder::WaitRecorder;

/// Least number of events between two savepoints: a replay of this many takes well under a second.
const SAVEPOINT_EVENTS_MIN: u64 = 50_000;
/// Waiting jobs in the excerpt for the forecaster and the shadow evaluator. The forecast extrapolates from them to the
/// jobs behind them.
const EXCERPT_WAITING_JOBS_MAX: usize = 2_000;
/// Least time between two forecasts.
const FORECAST_INTERVAL_MIN: Duration = Duration::from_secs(2);
/// Most time between two shadow evaluations while jobs wait.
const SHADOW_INTERVAL_MAX: Duration = Duration::from_secs(1);
const PAUSE_AFTER_ROUND_MAX: Duration = Duration::from_secs(1);

/// Everything the planner's thread needs.
pub struct Planner {
    pub feed: Receiver<JournalUpdate>,
    pub cluster: Cluster,
    pub savepoints: Arc<dyn Savepoints>,
    pub clock: Arc<dyn Clock>,
    /// The longest pause between two rounds: aging and time limits need rounds without any event.
    pub interval: Duration,
    pub rounds: Arc<RoundStats>,
    /// Takes copies of the state for forecasts, one at a time.
    pub forecaster: SyncSender<Box<State>>,
    pub interpreter: Option<Arc<dyn Interpreter>>,
    pub shadow: Arc<Shadow>,
    /// Takes copies of the state for shadow evaluations, one at a time.
    pub shadow_evaluator: SyncSender<Box<State>>,
}

/// Follows the journal and plans. Nothing here blocks: the simulator runs it too.
#[derive(Default)]
pub struct Proposer {
    replica: Option<Box<State>>,
    wait_recorder: WaitRecorder,
    policy_querier: Option<PolicyQuerier>,
}

/// The result of a round.
pub struct Proposal {
    pub verdicts: Verdicts,
    /// Wait reasons to record.
    pub wait_notes: Option<Command>,
    /// Policy answers to record.
    pub policy_answers: Option<Command>,
    /// `None` if the plan is empty.
    pub adopt_plan: Option<Command>,
    /// Number of starts in the plan.
    pub starts: usize,
    /// Number of evictions in the plan.
    pub evictions: usize,
}

impl Proposer {
    pub fn with_policies(interpreter: Arc<dyn Interpreter>) -> Proposer {
        Proposer { policy_querier: Some(PolicyQuerier::new(interpreter)), ..Proposer::default() }
    }

    /// Update the replica.
    pub fn follow(&mut self, update: JournalUpdate) {
        match (update, &mut self.replica) {
            (JournalUpdate::Reset { state, .. }, replica) => *replica = Some(state),
            (JournalUpdate::Batch(batch), Some(replica)) => batch.events().for_each(|event| replica.apply(event)),
            (JournalUpdate::Batch(_), None) => {}
            (JournalUpdate::LeadershipLost, replica) => *replica = None,
        }
    }

    /// The replica; `None` while this server is not the leader.
    pub fn state(&self) -> Option<&State> {
        self.replica.as_deref()
    }

    /// Plan once; `None` while this server is not the leader.
    pub fn round(&mut self, clock: &dyn Clock) -> Option<Proposal> {
        let state = self.replica.as_deref()?;
        let now = clock.now().max(state.clock);
        let Planned { plan, verdicts } = plan(state, now);
        let waits = self.wait_recorder.due_notes(&verdicts, clock.elapsed());
        let querier = self.policy_querier.as_mut();
        let answers = querier.and_then(|querier| querier.new_answers(state, &plan, (now, clock.elapsed())));
        Some(Proposal {
            verdicts,
            policy_answers: answers,
            wait_notes: (!waits.is_empty()).then_some(Command::NoteWaits { waits }),
            starts: plan.starts.len(),
            evictions: plan.evictions.len(),
            adopt_plan: (!plan.is_empty()).then(|| Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }),
        })
    }
}

/// When the planner last wrote a savepoint and fed the forecaster and the shadow evaluator.
#[derive(Default)]
struct BackgroundWork {
    saved_seq: u64,
    /// Journal position and time of the last forecast.
    last_forecast: Option<(u64, Instant)>,
    last_shadow_evaluation: Option<Instant>,
}

impl Planner {
    /// Plan until the engine has ended.
    pub fn run(self) {
        let mut proposer = self.interpreter.clone().map(Proposer::with_policies).unwrap_or_default();
        let mut background = BackgroundWork::default();
        let mut planned_at = Instant::now();
        loop {
            let pause = self.interval.saturating_sub(planned_at.elapsed());
            match self.feed.recv_timeout(pause) {
                Ok(update) => follow(&mut proposer, &mut background, update),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(update) = self.feed.try_recv() {
                follow(&mut proposer, &mut background, update);
            }
            let started = Instant::now();
            if let Some(proposal) = proposer.round(&*self.clock) {
                self.rounds.record(started.elapsed(), proposal.starts, proposal.evictions);
                if let Some(state) = proposer.state() {
                    self.send_to_shadow_if_due(state, &mut background, proposal.starts + proposal.evictions > 0);
                }
                self.submit_proposal(proposal);
                if let Some(state) = proposer.state() {
                    self.write_savepoint_if_due(state, &mut background);
                    self.send_to_forecaster_if_due(state, &mut background);
                }
                std::thread::sleep((started.elapsed() * 4).min(PAUSE_AFTER_ROUND_MAX));
            }
            planned_at = Instant::now();
        }
    }

    /// Publish the verdicts, submit the proposal, and wait until its plan is adopted.
    fn submit_proposal(&self, proposal: Proposal) {
        self.cluster.set_verdicts(proposal.verdicts);
        if let Some(notes) = proposal.wait_notes
            && let Err(declined) = self.cluster.enqueue(Actor::system(), notes)
        {
            debug!(%declined, "wait reasons not recorded");
        }
        if let Some(answers) = proposal.policy_answers
            && let Err(declined) = self.cluster.enqueue(Actor::system(), answers)
        {
            debug!(%declined, "policy answers not recorded");
        }
        let Some(adopt) = proposal.adopt_plan else { return };
        match self.cluster.execute_blocking(Actor::system(), adopt) {
            Ok(Answer::Adopted { gangs, rejected }) => {
                debug!(gangs, rejected = rejected.len(), "plan adopted");
                self.report_rejections(&rejected);
            }
            Ok(answer) => warn!(?answer, "unexpected answer to a plan"),
            Err(declined) => debug!(%declined, "plan not adopted"),
        }
    }

    /// Count and log the parts of a plan that adoption rejected. A few are normal: the state changes while the planner
    /// works on its snapshot.
    fn report_rejections(&self, rejected: &[RejectedPart]) {
        if rejected.is_empty() {
            return;
        }
        self.rounds.record_rejections(rejected);
        let mut reasons: BTreeMap<Rejection, usize> = BTreeMap::new();
        for RejectedPart { part, job, reason } in rejected {
            debug!(part = part.as_str(), %job, reason = reason.code(), "plan: part rejected");
            *reasons.entry(*reason).or_default() += 1;
        }
        let reasons: Vec<String> = reasons.iter().map(|(reason, count)| format!("{}={count}", reason.code())).collect();
        info!(rejected = rejected.len(), reasons = reasons.join(" "), "plan: {} parts rejected", rejected.len());
    }

    /// Send a copy of the state to the shadow evaluator when the plan is not empty, and at least every
    /// [`SHADOW_INTERVAL_MAX`] while jobs wait.
    fn send_to_shadow_if_due(&self, state: &State, background: &mut BackgroundWork, has_plan: bool) {
        let due = has_plan || background.last_shadow_evaluation.is_none_or(|at| at.elapsed() >= SHADOW_INTERVAL_MAX);
        if state.queue.is_empty() || !due || !self.shadow.is_active() {
            return;
        }
        match self.shadow_evaluator.try_send(Box::new(state.excerpt(EXCERPT_WAITING_JOBS_MAX))) {
            Ok(()) => background.last_shadow_evaluation = Some(Instant::now()),
            Err(_) if has_plan => self.shadow.count_skipped(),
            Err(_) => {}
        }
    }

    /// Send a copy of the state to the forecaster if jobs wait and the state has changed; less often with many jobs.
    fn send_to_forecaster_if_due(&self, state: &State, background: &mut BackgroundWork) {
        let pause = FORECAST_INTERVAL_MIN + Duration::from_micros(200) * state.jobs.len() as u32;
        let due = background.last_forecast.is_none_or(|(seq, at)| seq != state.seq && at.elapsed() >= pause);
        if due && !state.queue.is_empty() {
            let sent = self.forecaster.try_send(Box::new(state.excerpt(EXCERPT_WAITING_JOBS_MAX)));
            if sent.is_ok() {
                background.last_forecast = Some((state.seq, Instant::now()));
            }
        }
    }

    /// Write a savepoint now and then, so that the next start replays little of the journal. The cost of a savepoint
    /// grows with the number of live jobs, so it is written once there are as many new events as jobs: O(1) per event,
    /// and a start reads at most twice the state.
    fn write_savepoint_if_due(&self, state: &State, background: &mut BackgroundWork) {
        let (seq, jobs) = (state.seq, state.jobs.len() as u64);
        if seq < background.saved_seq + jobs.max(SAVEPOINT_EVENTS_MIN) {
            return;
        }
        background.saved_seq = seq;
        if let Err(fault) = self.savepoints.save(seq, &savepoint::write(state)) {
            warn!(%fault, seq, "cannot write a savepoint; the next start replays more of the journal");
        }
    }
}

fn follow(proposer: &mut Proposer, background: &mut BackgroundWork, update: JournalUpdate) {
    if let JournalUpdate::Reset { state, .. } = &update {
        *background = BackgroundWork { saved_seq: state.seq, ..BackgroundWork::default() };
    }
    proposer.follow(update);
}

#[cfg(test)]
mod tests;
