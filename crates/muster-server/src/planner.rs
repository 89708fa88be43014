//! Step 7 on its own thread: a replica of the state, a plan whenever something has changed, and savepoints.
//!
//! The planner never holds up the engine. It rests after each round for four times as long as the round took, at
//! most a second: so it uses a fifth of a core as long as rounds take less than a quarter of a second.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use muster_core::planner::{Planned, Verdicts, plan};
use muster_core::{Actor, Command, State};
use muster_store::Savepoints;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::policies::{PolicyQuerier, Interpreter};
use crate::engine_loop::JournalUpdate;
use crate::round_stats::RoundStats;
use crate::savepoint;
use crate::shadow::Shadow;
use crate::wait_recorder::WaitRecorder;

/// Least events between two savepoints: replaying this many takes well under a second.
const SAVEPOINT_EVENTS_MIN: u64 = 50_000;
/// Waiting jobs that take part in a look ahead; for those behind them the pace of these is a measure.
const EXCERPT_WAITING_JOBS_MAX: usize = 2_000;
/// Least time between two looks ahead.
const FORECAST_INTERVAL_MIN: Duration = Duration::from_secs(2);
/// A shadow looks at least so often while jobs wait.
const SHADOW_INTERVAL_MAX: Duration = Duration::from_secs(1);
/// The longest rest after a long round.
const PAUSE_AFTER_ROUND_MAX: Duration = Duration::from_secs(1);

/// Everything the planner's thread needs.
pub struct Planner {
    /// News of the journal.
    pub feed: Receiver<JournalUpdate>,
    /// Where plans go.
    pub cluster: Cluster,
    /// Where states are saved.
    pub savepoints: Arc<dyn Savepoints>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The longest pause between two rounds: aging and waits go on while nothing happens.
    pub interval: Duration,
    /// What the rounds cost, for the metrics.
    pub rounds: Arc<RoundStats>,
    /// Where copies of the state go, to look ahead from. It takes one at a time.
    pub forecaster: SyncSender<Box<State>>,
    /// Who runs policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Policies that run beside those in force, if any.
    pub shadow: Arc<Shadow>,
    /// Where copies of the state go for them. It takes one at a time.
    pub shadow_evaluator: SyncSender<Box<State>>,
}

/// What follows the journal and proposes. Nothing here waits: the simulator runs it too.
#[derive(Default)]
pub struct Proposer {
    replica: Option<Box<State>>,
    wait_recorder: WaitRecorder,
    policy_querier: Option<PolicyQuerier>,
}

/// What a round came to.
pub struct Proposal {
    /// Why jobs wait.
    pub verdicts: Verdicts,
    /// What is to be put on record of that.
    pub wait_notes: Option<Command>,
    /// What policies answered, to be put on record.
    pub policy_answers: Option<Command>,
    /// The plan, if there is anything to do.
    pub adopt_plan: Option<Command>,
    /// Gangs to start.
    pub starts: usize,
    /// Gangs to make room for.
    pub claims: usize,
}

impl Proposer {
    /// One who asks policies.
    pub fn with_policies(interpreter: Arc<dyn Interpreter>) -> Proposer {
        Proposer { policy_querier: Some(PolicyQuerier::new(interpreter)), ..Proposer::default() }
    }

    /// Follow the journal.
    pub fn follow(&mut self, news: JournalUpdate) {
        match (news, &mut self.replica) {
            (JournalUpdate::Reset { state, .. }, replica) => *replica = Some(state),
            (JournalUpdate::Batch(batch), Some(replica)) => batch.events().for_each(|event| replica.apply(event)),
            (JournalUpdate::Batch(_), None) => {}
            (JournalUpdate::LeadershipLost, replica) => *replica = None,
        }
    }

    /// What is known of the cluster; nothing while nobody leads here.
    pub fn state(&self) -> Option<&State> {
        self.replica.as_deref()
    }

    /// One round.
    pub fn round(&mut self, clock: &dyn Clock) -> Option<Proposal> {
        let state = self.replica.as_deref()?;
        let now = clock.now().max(state.clock);
        let Planned { plan, verdicts } = plan(state, now);
        let waits = self.wait_recorder.due_notes(&verdicts, clock.elapsed());
        let asker = self.policy_querier.as_mut();
        let answers = asker.and_then(|asker| asker.new_answers(state, &plan, (now, clock.elapsed())));
        Some(Proposal {
            verdicts,
            policy_answers: answers,
            wait_notes: (!waits.is_empty()).then_some(Command::NoteWaits { waits }),
            starts: plan.starts.len(),
            claims: plan.evictions.len(),
            adopt_plan: (!plan.is_empty()).then(|| Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }),
        })
    }
}

/// What was last done with the replica.
#[derive(Default)]
struct BackgroundWork {
    saved_seq: u64,
    /// What was last looked ahead from, and when.
    last_forecast: Option<(u64, Instant)>,
    /// When the shadow last had a look.
    last_shadow_evaluation: Option<Instant>,
}

impl Planner {
    /// Plan until the engine is gone.
    pub fn run(self) {
        let mut proposer = self.interpreter.clone().map(Proposer::with_policies).unwrap_or_default();
        let mut chores = BackgroundWork::default();
        let mut planned_at = Instant::now();
        loop {
            let pause = self.interval.saturating_sub(planned_at.elapsed());
            match self.feed.recv_timeout(pause) {
                Ok(news) => follow(&mut proposer, &mut chores, news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(news) = self.feed.try_recv() {
                follow(&mut proposer, &mut chores, news);
            }
            let started = Instant::now();
            if let Some(proposal) = proposer.round(&*self.clock) {
                self.rounds.record(started.elapsed(), proposal.starts, proposal.claims);
                if let Some(state) = proposer.state() {
                    self.send_to_shadow_if_due(state, &mut chores, proposal.starts + proposal.claims > 0);
                }
                self.submit_proposal(proposal);
                if let Some(state) = proposer.state() {
                    self.write_savepoint_if_due(state, &mut chores);
                    self.send_to_forecaster_if_due(state, &mut chores);
                }
                std::thread::sleep((started.elapsed() * 4).min(PAUSE_AFTER_ROUND_MAX));
            }
            planned_at = Instant::now();
        }
    }

    /// Publish the verdicts, hand in the proposal, and wait until it is settled.
    fn submit_proposal(&self, proposal: Proposal) {
        self.cluster.set_verdicts(proposal.verdicts);
        if let Some(notes) = proposal.wait_notes
            && let Err(declined) = self.cluster.enqueue(Actor::system(), notes)
        {
            debug!(%declined, "why jobs wait is not on record");
        }
        if let Some(answers) = proposal.policy_answers
            && let Err(declined) = self.cluster.enqueue(Actor::system(), answers)
        {
            debug!(%declined, "what policies answered is not on record");
        }
        let Some(adopt) = proposal.adopt_plan else { return };
        match self.cluster.execute_blocking(Actor::system(), adopt) {
            Ok(answer) => debug!(?answer, "plan adopted"),
            Err(declined) => debug!(%declined, "plan not adopted"),
        }
    }

    /// Have other policies tried where something is decided, and now and then where something might be.
    fn send_to_shadow_if_due(&self, state: &State, chores: &mut BackgroundWork, decides: bool) {
        let due = decides || chores.last_shadow_evaluation.is_none_or(|at| at.elapsed() >= SHADOW_INTERVAL_MAX);
        if state.queue.is_empty() || !due || !self.shadow.is_active() {
            return;
        }
        match self.shadow_evaluator.try_send(Box::new(state.excerpt(EXCERPT_WAITING_JOBS_MAX))) {
            Ok(()) => chores.last_shadow_evaluation = Some(Instant::now()),
            Err(_) if decides => self.shadow.count_skipped(),
            Err(_) => {}
        }
    }

    /// Have the future looked at when someone waits and something has changed; less often in large clusters.
    fn send_to_forecaster_if_due(&self, state: &State, chores: &mut BackgroundWork) {
        let pause = FORECAST_INTERVAL_MIN + Duration::from_micros(200) * state.jobs.len() as u32;
        let due = chores.last_forecast.is_none_or(|(seq, at)| seq != state.seq && at.elapsed() >= pause);
        if due && !state.queue.is_empty() {
            let sent = self.forecaster.try_send(Box::new(state.excerpt(EXCERPT_WAITING_JOBS_MAX)));
            if sent.is_ok() {
                chores.last_forecast = Some((state.seq, Instant::now()));
            }
        }
    }

    /// Save the state now and then, so that the next start reads little of the journal. A savepoint costs what
    /// the live jobs cost, so it waits for as many events as there are jobs: O(1) for each event, and a start
    /// that reads at most twice the state.
    fn write_savepoint_if_due(&self, state: &State, chores: &mut BackgroundWork) {
        let (seq, jobs) = (state.seq, state.jobs.len() as u64);
        if seq < chores.saved_seq + jobs.max(SAVEPOINT_EVENTS_MIN) {
            return;
        }
        chores.saved_seq = seq;
        if let Err(fault) = self.savepoints.save(seq, &savepoint::write(state)) {
            warn!(%fault, seq, "no savepoint was written; the next start reads more of the journal");
        }
    }
}

fn follow(proposer: &mut Proposer, chores: &mut BackgroundWork, news: JournalUpdate) {
    if let JournalUpdate::Reset { state, .. } = &news {
        *chores = BackgroundWork { saved_seq: state.seq, ..BackgroundWork::default() };
    }
    proposer.follow(news);
}
