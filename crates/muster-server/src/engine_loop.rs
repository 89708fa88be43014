//! The loop of the engine's thread: stand by, become leader, process requests until the lease or the database is lost,
//! start over. The leader's term itself is in `leader_term.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use muster_core::objects::settings::Settings;
use muster_core::{Refusal, State};
use muster_store::{Journal, LeaderEpoch, Leadership, Savepoints, StoreError};
use tracing::{error, info};

use crate::clock::Clock;
use crate::cluster::{Batch, Cluster, CommandError, CommandRequest, ServerRole};
use crate::data_folder::ClusterMarker;
use crate::engine::ProcessedRequests;
use crate::leader_term::{LEADER_LEASE, LeaderTerm, TICK_INTERVAL};

/// Most commands in one batch: bounds the size of a transaction.
const BATCH_REQUESTS_MAX: usize = 4_096;
/// Pause before the next attempt to reach the database or to become leader.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Pause before a persisting fault is logged again.
const FAULT_LOG_INTERVAL: Duration = Duration::from_secs(5);

/// An update for the subscribers of the journal: planner and dispatch.
#[derive(Clone)]
pub enum JournalUpdate {
    /// Start over from this state.
    Reset { state: Box<State>, term: LeaderEpoch },
    /// These events are durable.
    Batch(Arc<Batch>),
    /// This server is no longer the leader; a reset follows when it leads again.
    LeadershipLost,
}

/// Receives every update; called on the engine's thread, so it must not block. Dropped when the engine has ended.
pub type Subscriber = Box<dyn Fn(JournalUpdate) + Send>;

/// Everything the engine's thread needs.
pub struct EngineLoop {
    pub savepoints: Arc<dyn Savepoints>,
    pub cluster: Cluster,
    pub inbox: Receiver<CommandRequest>,
    pub subscribers: Vec<Subscriber>,
    pub clock: Arc<dyn Clock>,
    /// Name of this server in the leader lease; standbys show it.
    pub holder: String,
    /// The cluster to which the data folder belongs.
    pub marker: ClusterMarker,
    /// The settings of this server's configuration; they become the cluster's when this server leads.
    pub settings: Settings,
    /// Fingerprint of the CA that signs the certificates of agents; `None` if this server has no agent link.
    pub link_ca: Option<String>,
    /// Set when the server must stop.
    pub stop: Arc<AtomicBool>,
}

/// Why the engine's thread ended.
#[derive(Debug)]
pub enum EngineExit {
    /// The server stops.
    Stopped,
    /// An unrecoverable fault: a bug, a damaged journal, or a wrong configuration. The process must exit with an error.
    Broken(StoreError),
}

impl EngineLoop {
    /// Run until stopped or broken.
    pub fn run(mut self, mut journal: Box<dyn Journal>) -> EngineExit {
        let mut fault_log = FaultLogLimiter::default();
        while !self.is_stopping() {
            match self.try_lead(journal.as_mut()) {
                Ok(Some(leader)) => {
                    self.cluster.set_role(ServerRole::Standby { leader: leader.clone() });
                    self.decline_requests_for(
                        RETRY_PAUSE,
                        &format!("this server is a standby; `{leader}` is the leader"),
                    );
                }
                Ok(None) => {}
                Err(fault) if fault.is_recoverable_by_reload() => self.step_down(&fault, &mut fault_log),
                Err(broken) => return self.exit_broken(broken),
            }
        }
        EngineExit::Stopped
    }

    /// Become leader and run until the term ends, or return the name of the current leader.
    fn try_lead(&mut self, journal: &mut dyn Journal) -> Result<Option<String>, StoreError> {
        self.marker.check_database(journal)?;
        let sent = self.clock.elapsed();
        match journal.acquire_leadership(&self.holder, LEADER_LEASE.as_millis() as i64)? {
            Leadership::Leading { epoch, nonce } => {
                self.run_as_leader(journal, LeaderEpoch { epoch, nonce }, sent).map(|()| None)
            }
            Leadership::Standby { holder, .. } => Ok(Some(holder)),
        }
    }

    fn exit_broken(&self, broken: StoreError) -> EngineExit {
        error!(%broken, "the engine stops: unrecoverable fault of the store");
        self.cluster.set_role(ServerRole::Unavailable { why: broken.to_string() });
        EngineExit::Broken(broken)
    }

    /// Lead until the lease or the database is lost, or the server stops.
    fn run_as_leader(
        &mut self,
        journal: &mut dyn Journal,
        acquired: LeaderEpoch,
        since: Duration,
    ) -> Result<(), StoreError> {
        self.cluster.set_role(ServerRole::Starting);
        self.marker.assign_cluster_id(journal)?;
        let mut term = LeaderTerm::recover(journal, &*self.savepoints, &self.clock, acquired, since)?;
        if let Err(misconfigured) = self.check_link_ca(term.state()) {
            // Another server can lead at once.
            journal.resign()?;
            return Err(misconfigured);
        }
        info!(epoch = acquired.epoch, seq = term.state().seq, jobs = term.state().jobs.len(), "leading");
        let outcome = self.process_until_stopped(journal, &mut term);
        self.notify_subscribers(JournalUpdate::LeadershipLost);
        outcome?;
        term.hand_over(journal, &*self.savepoints);
        self.cluster.set_role(ServerRole::Unavailable { why: "the server is stopping".to_string() });
        Ok(())
    }

    /// A server whose CA the enrolled agents do not trust must not lead: none of them could connect.
    fn check_link_ca(&self, state: &State) -> Result<(), StoreError> {
        let Some(offered) = &self.link_ca else { return Ok(()) };
        match &state.cluster_ca {
            Some(known) if known != offered && !state.enrolments.is_empty() => {
                let refusal = Refusal::OtherClusterCa { known: known.clone(), offered: offered.clone() };
                let hint = refusal.hint().unwrap_or_default();
                Err(StoreError::Misconfigured(format!("{refusal}; {hint}")))
            }
            _ => Ok(()),
        }
    }

    /// Publish the recovered state, then process requests until the server stops.
    fn process_until_stopped(&mut self, journal: &mut dyn Journal, term: &mut LeaderTerm) -> Result<(), StoreError> {
        let leader_epoch = term.leader_epoch();
        self.cluster.reset(term.state().clone());
        self.notify_subscribers(JournalUpdate::Reset { state: Box::new(term.state().clone()), term: leader_epoch });
        self.publish(term.apply_initial_commands(journal, &self.settings, self.link_ca.as_deref())?);
        self.cluster.set_lease_renewed_at(term.lease_renewed_at());
        self.cluster.set_role(ServerRole::Leading { term: leader_epoch });
        while !self.is_stopping() {
            term.renew_lease_if_due(journal)?;
            self.cluster.set_lease_renewed_at(term.lease_renewed_at());
            let requests = self.wait_for_requests();
            self.publish(term.process_requests(journal, requests)?);
        }
        Ok(())
    }

    fn publish(&self, processed: ProcessedRequests) {
        if let Some(batch) = processed.batch {
            self.cluster.publish(batch.clone());
            self.notify_subscribers(JournalUpdate::Batch(batch));
        }
        processed.replies.send();
    }

    /// The waiting requests, or none after a tick.
    fn wait_for_requests(&self) -> Vec<CommandRequest> {
        let mut requests = match self.inbox.recv_timeout(TICK_INTERVAL) {
            Ok(request) => vec![request],
            Err(RecvTimeoutError::Timeout) => return Vec::new(),
            Err(RecvTimeoutError::Disconnected) => {
                self.stop.store(true, Ordering::Relaxed);
                return Vec::new();
            }
        };
        requests.extend(self.inbox.try_iter().take(BATCH_REQUESTS_MAX - 1));
        requests
    }

    /// Commands cannot be recorded now: decline them until the next attempt to lead.
    fn step_down(&self, fault: &StoreError, fault_log: &mut FaultLogLimiter) {
        let why = fault.to_string();
        if fault_log.should_log(&why) {
            error!(%fault, "stepped down; retrying until the database answers, then the journal is replayed");
        }
        self.cluster.set_role(ServerRole::Unavailable { why: why.clone() });
        self.decline_requests_for(RETRY_PAUSE, &why);
    }

    /// Decline all requests for a while.
    fn decline_requests_for(&self, time: Duration, why: &str) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.inbox.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(request) => drop(request.reply.send(Err(CommandError::Unavailable { why: why.to_string() }))),
                Err(RecvTimeoutError::Timeout) if self.is_stopping() => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop.store(true, Ordering::Relaxed),
            }
        }
    }

    fn notify_subscribers(&self, update: JournalUpdate) {
        self.subscribers.iter().for_each(|subscriber| subscriber(update.clone()));
    }

    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Logs a persisting fault at once and then every [`FAULT_LOG_INTERVAL`].
#[derive(Default)]
struct FaultLogLimiter {
    last_logged: Option<(String, Instant)>,
}

impl FaultLogLimiter {
    fn should_log(&mut self, why: &str) -> bool {
        let known =
            self.last_logged.as_ref().is_some_and(|(last, at)| last == why && at.elapsed() < FAULT_LOG_INTERVAL);
        if !known {
            self.last_logged = Some((why.to_string(), Instant::now()));
        }
        !known
    }
}
