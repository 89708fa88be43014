//! Step 7 on its own thread: a replica of the state, a plan whenever something has changed, and savepoints.
//!
//! The planner never holds up the engine. It rests after each round for four times as long as the round took, at
//! most a second: so it uses a fifth of a core as long as rounds take less than a quarter of a second.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use muster_core::plan::{Planned, Verdicts, plan};
use muster_core::{Actor, Command, State};
use muster_store::Savepoints;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::policies::{Asker, Interpreter};
use crate::reign::Feed;
use crate::rounds::Rounds;
use crate::savepoint;
use crate::shadow::Shadow;
use crate::waits::Waits;

/// Least events between two savepoints: replaying this many takes well under a second.
const SAVEPOINT_EVERY: u64 = 50_000;
/// Waiting jobs that take part in a look ahead; for those behind them the pace of these is a measure.
const FORECAST_WAITING_MAX: usize = 2_000;
/// Least time between two looks ahead.
const FORECAST_EVERY: Duration = Duration::from_secs(2);
/// A shadow looks at least so often while jobs wait.
const SHADOW_EVERY: Duration = Duration::from_secs(1);
/// The longest rest after a long round.
const REST_MAX: Duration = Duration::from_secs(1);

/// Everything the planner's thread needs.
pub struct Planner {
    /// News of the journal.
    pub feed: Receiver<Feed>,
    /// Where plans go.
    pub cluster: Cluster,
    /// Where states are saved.
    pub savepoints: Arc<dyn Savepoints>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The longest pause between two rounds: aging and waits go on while nothing happens.
    pub interval: Duration,
    /// What the rounds cost, for the metrics.
    pub rounds: Arc<Rounds>,
    /// Where copies of the state go, to look ahead from. It takes one at a time.
    pub forecaster: SyncSender<Box<State>>,
    /// Who runs policies.
    pub interpreter: Option<Arc<dyn Interpreter>>,
    /// Policies that run beside those in force, if any.
    pub shadow: Arc<Shadow>,
    /// Where copies of the state go for them. It takes one at a time.
    pub shadower: SyncSender<Box<State>>,
}

/// What follows the journal and proposes. Nothing here waits: the simulator runs it too.
#[derive(Default)]
pub struct Proposer {
    replica: Option<Box<State>>,
    waits: Waits,
    asker: Option<Asker>,
}

/// What a round came to.
pub struct Proposal {
    /// Why jobs wait.
    pub verdicts: Verdicts,
    /// What is to be put on record of that.
    pub notes: Option<Command>,
    /// What policies answered, to be put on record.
    pub answers: Option<Command>,
    /// The plan, if there is anything to do.
    pub adopt: Option<Command>,
    /// Gangs to start.
    pub starts: usize,
    /// Gangs to make room for.
    pub claims: usize,
}

impl Proposer {
    /// One who asks policies.
    pub fn asking(interpreter: Arc<dyn Interpreter>) -> Proposer {
        Proposer { asker: Some(Asker::new(interpreter)), ..Proposer::default() }
    }

    /// Follow the journal.
    pub fn follow(&mut self, news: Feed) {
        match (news, &mut self.replica) {
            (Feed::Reset { state, .. }, replica) => *replica = Some(state),
            (Feed::Batch(batch), Some(replica)) => batch.events().for_each(|event| replica.apply(event)),
            (Feed::Batch(_), None) => {}
            (Feed::Pause, replica) => *replica = None,
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
        let waits = self.waits.news(&verdicts, clock.elapsed());
        let asker = self.asker.as_mut();
        let answers = asker.and_then(|asker| asker.news(state, &plan, (now, clock.elapsed())));
        Some(Proposal {
            verdicts,
            answers,
            notes: (!waits.is_empty()).then_some(Command::NoteWaits { waits }),
            starts: plan.starts.len(),
            claims: plan.claims.len(),
            adopt: (!plan.is_empty()).then(|| Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }),
        })
    }
}

/// What was last done with the replica.
#[derive(Default)]
struct Chores {
    saved_at: u64,
    /// What was last looked ahead from, and when.
    foreseen: Option<(u64, Instant)>,
    /// When the shadow last had a look.
    shadowed: Option<Instant>,
}

impl Planner {
    /// Plan until the engine is gone.
    pub fn run(self) {
        let mut proposer = self.interpreter.clone().map(Proposer::asking).unwrap_or_default();
        let mut chores = Chores::default();
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
                self.rounds.note(started.elapsed(), proposal.starts, proposal.claims);
                if let Some(state) = proposer.state() {
                    self.let_shadow_look(state, &mut chores, proposal.starts + proposal.claims > 0);
                }
                self.propose(proposal);
                if let Some(state) = proposer.state() {
                    self.save(state, &mut chores);
                    self.look_ahead(state, &mut chores);
                }
                std::thread::sleep((started.elapsed() * 4).min(REST_MAX));
            }
            planned_at = Instant::now();
        }
    }

    /// Publish the verdicts, hand in the proposal, and wait until it is settled.
    fn propose(&self, proposal: Proposal) {
        self.cluster.set_verdicts(proposal.verdicts);
        if let Some(notes) = proposal.notes
            && let Err(declined) = self.cluster.tell(Actor::system(), notes)
        {
            debug!(%declined, "why jobs wait is not on record");
        }
        if let Some(answers) = proposal.answers
            && let Err(declined) = self.cluster.tell(Actor::system(), answers)
        {
            debug!(%declined, "what policies answered is not on record");
        }
        let Some(adopt) = proposal.adopt else { return };
        match self.cluster.ask_blocking(Actor::system(), adopt) {
            Ok(answer) => debug!(?answer, "plan adopted"),
            Err(declined) => debug!(%declined, "plan not adopted"),
        }
    }

    /// Have other policies tried where something is decided, and now and then where something might be.
    fn let_shadow_look(&self, state: &State, chores: &mut Chores, decides: bool) {
        let due = decides || chores.shadowed.is_none_or(|at| at.elapsed() >= SHADOW_EVERY);
        if state.queue.is_empty() || !due || !self.shadow.is_on() {
            return;
        }
        match self.shadower.try_send(Box::new(state.excerpt(FORECAST_WAITING_MAX))) {
            Ok(()) => chores.shadowed = Some(Instant::now()),
            Err(_) if decides => self.shadow.miss(),
            Err(_) => {}
        }
    }

    /// Have the future looked at when someone waits and something has changed; less often in large clusters.
    fn look_ahead(&self, state: &State, chores: &mut Chores) {
        let pause = FORECAST_EVERY + Duration::from_micros(200) * state.jobs.len() as u32;
        let due = chores.foreseen.is_none_or(|(seq, at)| seq != state.seq && at.elapsed() >= pause);
        if due && !state.queue.is_empty() {
            let sent = self.forecaster.try_send(Box::new(state.excerpt(FORECAST_WAITING_MAX)));
            if sent.is_ok() {
                chores.foreseen = Some((state.seq, Instant::now()));
            }
        }
    }

    /// Save the state now and then, so that the next start reads little of the journal. A savepoint costs what
    /// the live jobs cost, so it waits for as many events as there are jobs: O(1) for each event, and a start
    /// that reads at most twice the state.
    fn save(&self, state: &State, chores: &mut Chores) {
        let (seq, jobs) = (state.seq, state.jobs.len() as u64);
        if seq < chores.saved_at + jobs.max(SAVEPOINT_EVERY) {
            return;
        }
        chores.saved_at = seq;
        if let Err(fault) = self.savepoints.save(seq, &savepoint::write(state)) {
            warn!(%fault, seq, "no savepoint was written; the next start reads more of the journal");
        }
    }
}

fn follow(proposer: &mut Proposer, chores: &mut Chores, news: Feed) {
    if let Feed::Reset { state, .. } = &news {
        *chores = Chores { saved_at: state.seq, ..Chores::default() };
    }
    proposer.follow(news);
}
