//! Step 7 on its own thread: a replica of the state, a plan whenever something has changed, and savepoints.
//!
//! The planner never holds up the engine. It rests after each round for four times as long as the round took, at
//! most a second: so it uses a fifth of a core as long as rounds take less than a quarter of a second.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use muster_core::plan::plan;
use muster_core::{Actor, Command, State};
use muster_store::Savepoints;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::reign::Feed;
use crate::rounds::Rounds;
use crate::savepoint;
use crate::waits::Waits;

/// Least events between two savepoints: replaying this many takes well under a second.
const SAVEPOINT_EVERY: u64 = 50_000;
/// Waiting jobs that take part in a look ahead; for those behind them the pace of these is a measure.
const FORECAST_WAITING_MAX: usize = 2_000;
/// Least time between two looks ahead.
const FORECAST_EVERY: Duration = Duration::from_secs(2);
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
}

/// The planner's own replica.
struct Replica {
    state: Box<State>,
    saved_at: u64,
    /// What was last looked ahead from, and when.
    foreseen: Option<(u64, Instant)>,
}

impl Planner {
    /// Plan until the engine is gone.
    pub fn run(self) {
        let mut replica: Option<Replica> = None;
        let mut planned_at = Instant::now();
        let mut waits = Waits::default();
        loop {
            let pause = self.interval.saturating_sub(planned_at.elapsed());
            match self.feed.recv_timeout(pause) {
                Ok(news) => self.follow(&mut replica, news),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(news) = self.feed.try_recv() {
                self.follow(&mut replica, news);
            }
            if let Some(replica) = &mut replica {
                let started = Instant::now();
                self.round(&replica.state, &mut waits);
                self.save(replica);
                self.look_ahead(replica);
                std::thread::sleep((started.elapsed() * 4).min(REST_MAX));
            }
            planned_at = Instant::now();
        }
    }

    fn follow(&self, replica: &mut Option<Replica>, news: Feed) {
        match (news, replica) {
            (Feed::Reset { state, .. }, replica) => {
                *replica = Some(Replica { saved_at: state.seq, state, foreseen: None });
            }
            (Feed::Batch(batch), Some(replica)) => {
                batch.events().for_each(|event| replica.state.apply(event));
            }
            (Feed::Batch(_), None) => {}
            (Feed::Pause, replica) => *replica = None,
        }
    }

    /// One round: propose, publish the verdicts, and wait until the proposal is settled.
    fn round(&self, state: &State, waits: &mut Waits) {
        let now = self.clock.now().max(state.clock);
        let started = Instant::now();
        let planned = plan(state, now);
        self.rounds.note(started.elapsed(), planned.plan.starts.len(), planned.plan.claims.len());
        let news = waits.news(&planned.verdicts, Instant::now());
        self.cluster.set_verdicts(planned.verdicts);
        if !news.is_empty()
            && let Err(declined) = self.cluster.tell(Actor::system(), Command::NoteWaits { waits: news })
        {
            debug!(%declined, "why jobs wait is not on record");
        }
        if planned.plan.is_empty() {
            return;
        }
        let adopt = Command::AdoptPlan { plan: Box::new(planned.plan), epoch: 0 };
        match self.cluster.ask_blocking(Actor::system(), adopt) {
            Ok(answer) => debug!(?answer, "plan adopted"),
            Err(declined) => debug!(%declined, "plan not adopted"),
        }
    }

    /// Have the future looked at when someone waits and something has changed; less often in large clusters.
    fn look_ahead(&self, replica: &mut Replica) {
        let pause = FORECAST_EVERY + Duration::from_micros(200) * replica.state.jobs.len() as u32;
        let due = replica.foreseen.is_none_or(|(seq, at)| seq != replica.state.seq && at.elapsed() >= pause);
        if due && !replica.state.queue.is_empty() {
            let sent = self.forecaster.try_send(Box::new(replica.state.excerpt(FORECAST_WAITING_MAX)));
            if sent.is_ok() {
                replica.foreseen = Some((replica.state.seq, Instant::now()));
            }
        }
    }

    /// Save the state now and then, so that the next start reads little of the journal. A savepoint costs what
    /// the live jobs cost, so it waits for as many events as there are jobs: O(1) for each event, and a start
    /// that reads at most twice the state.
    fn save(&self, replica: &mut Replica) {
        let seq = replica.state.seq;
        let jobs = replica.state.jobs.len() as u64;
        if seq < replica.saved_at + jobs.max(SAVEPOINT_EVERY) {
            return;
        }
        replica.saved_at = seq;
        if let Err(fault) = self.savepoints.save(seq, &savepoint::write(&replica.state)) {
            warn!(%fault, seq, "no savepoint was written; the next start reads more of the journal");
        }
    }
}
