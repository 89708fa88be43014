//! The life of the engine's thread: stand by, lead, take turns, and over again. What leading means is in `lead.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use muster_core::State;
use muster_core::objects::settings::Settings;
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tracing::{error, info};

use crate::clock::Clock;
use crate::cluster::{CommandRequest, Batch, Cluster, CommandError, ServerRole};
use crate::data_folder::ClusterMarker;
use crate::engine::ProcessedRequests;
use crate::leader_term::{LEADER_LEASE, LeaderTerm, TICK_INTERVAL};

/// Most commands taken in one turn: bounds the size of a transaction.
const BATCH_REQUESTS_MAX: usize = 4_096;
/// Pause before the database is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause before the log repeats a fault that lasts.
const FAULT_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// What followers of the journal are told: planner and dispatch.
#[derive(Clone)]
pub enum JournalUpdate {
    /// Start over from this state.
    Reset {
        /// The state.
        state: Box<State>,
        /// Under which leadership.
        epoch: u64,
    },
    /// These events became durable.
    Batch(Arc<Batch>),
    /// This server no longer leads; wait for a reset.
    LeadershipLost,
}

/// Everything the engine's thread needs.
pub struct EngineLoop {
    /// Saved states to start from.
    pub savepoints: Arc<dyn Savepoints>,
    /// What the doors hold.
    pub cluster: Cluster,
    /// What was asked.
    pub inbox: Receiver<CommandRequest>,
    /// Who follows the journal.
    pub subscribers: Vec<Sender<JournalUpdate>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What this server is called, for others who stand by.
    pub holder: String,
    /// Which cluster the data folder belongs to.
    pub marker: ClusterMarker,
    /// The settings of this server's configuration; they become the cluster's when it leads.
    pub settings: Settings,
    /// Set when the server must stop.
    pub stop: Arc<AtomicBool>,
}

/// Why the thread ended.
#[derive(Debug)]
pub enum EngineExit {
    /// It was asked to.
    Stopped,
    /// Going on would be wrong: a bug or damage. The process must end loudly.
    Broken(StoreError),
}

impl EngineLoop {
    /// Run until stopped or broken.
    pub fn run(mut self, mut journal: Box<dyn Journal>) -> EngineExit {
        let mut lasting = FaultLogLimiter::default();
        while !self.is_stopping() {
            match self.try_lead(journal.as_mut()) {
                Ok(Some(leader)) => {
                    self.cluster.set_role(ServerRole::Standby { leader: leader.clone() });
                    self.decline_requests_for(RETRY_PAUSE, &format!("this server stands by; `{leader}` leads"));
                }
                Ok(None) => {}
                Err(fault) if fault.is_recoverable_by_reload() => self.step_down(&fault, &mut lasting),
                Err(broken) => return self.exit_broken(broken),
            }
        }
        EngineExit::Stopped
    }

    /// Lead if nobody else does, until that is over; else say who leads.
    fn try_lead(&mut self, journal: &mut dyn Journal) -> Result<Option<String>, StoreError> {
        self.marker.check_database(journal)?;
        let sent = self.clock.elapsed();
        match journal.acquire_leadership(&self.holder, LEADER_LEASE.as_millis() as i64)? {
            Leadership::Leading { epoch, .. } => self.run_as_leader(journal, epoch, sent).map(|()| None),
            Leadership::Standby { holder, .. } => Ok(Some(holder)),
        }
    }

    fn exit_broken(&self, broken: StoreError) -> EngineExit {
        error!(%broken, "the engine ends, because going on would be wrong");
        self.cluster.set_role(ServerRole::Unavailable { why: broken.to_string() });
        EngineExit::Broken(broken)
    }

    /// Lead until the lease, the database or the server ends.
    fn run_as_leader(&mut self, journal: &mut dyn Journal, epoch: u64, since: Duration) -> Result<(), StoreError> {
        self.cluster.set_role(ServerRole::Starting);
        self.marker.assign_cluster_id(journal)?;
        let mut lead = LeaderTerm::recover(journal, &*self.savepoints, &self.clock, epoch, since)?;
        info!(epoch, seq = lead.state().seq, jobs = lead.state().jobs.len(), "leading");
        let outcome = self.process_until_stopped(journal, &mut lead);
        self.notify_subscribers(JournalUpdate::LeadershipLost);
        outcome?;
        lead.hand_over(journal, &*self.savepoints);
        self.cluster.set_role(ServerRole::Unavailable { why: "the server is stopping".to_string() });
        Ok(())
    }

    /// Publish what was read, then take turns until told to stop.
    fn process_until_stopped(&mut self, journal: &mut dyn Journal, lead: &mut LeaderTerm) -> Result<(), StoreError> {
        let epoch = lead.epoch();
        self.cluster.reset(lead.state().clone());
        self.notify_subscribers(JournalUpdate::Reset { state: Box::new(lead.state().clone()), epoch });
        self.publish(lead.apply_initial_commands(journal, &self.settings)?);
        self.cluster.set_role(ServerRole::Leading { epoch });
        while !self.is_stopping() {
            lead.renew_lease_if_due(journal)?;
            let asks = self.wait_for_requests();
            self.publish(lead.process_requests(journal, asks)?);
        }
        Ok(())
    }

    fn publish(&self, turn: ProcessedRequests) {
        if let Some(batch) = turn.batch {
            self.cluster.publish(batch.clone());
            self.notify_subscribers(JournalUpdate::Batch(batch));
        }
        turn.replies.send();
    }

    /// The commands that wait, or none after a tick.
    fn wait_for_requests(&self) -> Vec<CommandRequest> {
        let mut asks = match self.inbox.recv_timeout(TICK_INTERVAL) {
            Ok(ask) => vec![ask],
            Err(RecvTimeoutError::Timeout) => return Vec::new(),
            Err(RecvTimeoutError::Disconnected) => {
                self.stop.store(true, Ordering::Relaxed);
                return Vec::new();
            }
        };
        asks.extend(self.inbox.try_iter().take(BATCH_REQUESTS_MAX - 1));
        asks
    }

    /// Nothing can be promised now: say so, and try again in a moment.
    fn step_down(&self, fault: &StoreError, lasting: &mut FaultLogLimiter) {
        let why = fault.to_string();
        if lasting.should_log(&why) {
            error!(%fault, "stepping back; trying again until the database answers, then the state is read again");
        }
        self.cluster.set_role(ServerRole::Unavailable { why: why.clone() });
        self.decline_requests_for(RETRY_PAUSE, &why);
    }

    /// Turn everyone away for a while.
    fn decline_requests_for(&self, time: Duration, why: &str) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.inbox.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(ask) => drop(ask.reply.send(Err(CommandError::Unavailable { why: why.to_string() }))),
                Err(RecvTimeoutError::Timeout) if self.is_stopping() => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop.store(true, Ordering::Relaxed),
            }
        }
    }

    fn notify_subscribers(&self, feed: JournalUpdate) {
        for follower in &self.subscribers {
            // A follower that has ended needs no more news.
            let _ = follower.send(feed.clone());
        }
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// A fault that lasts is logged at once and then every few seconds.
#[derive(Default)]
struct FaultLogLimiter {
    last_logged: Option<(String, Instant)>,
}

impl FaultLogLimiter {
    fn should_log(&mut self, why: &str) -> bool {
        let known = self.last_logged.as_ref().is_some_and(|(last, at)| last == why && at.elapsed() < FAULT_LOG_INTERVAL);
        if !known {
            self.last_logged = Some((why.to_string(), Instant::now()));
        }
        !known
    }
}
