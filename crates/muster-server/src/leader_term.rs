//! The term of one leader: recovery from savepoint and journal, lease renewal, commands, hand-over. No thread and no
//! blocking here: `engine_loop.rs` runs it on the engine's thread, the simulator in simulated time.
//!
//! A server acts only while its leader lease is valid. Its age counts on the server's own monotonic clock from before
//! the renewal was sent, and the server stops acting at two thirds of the lease: it has stepped down before a standby
//! can take over.

use std::sync::Arc;
use std::time::Duration;

use muster_core::objects::settings::Settings;
use muster_core::objects::tenant::TenantConfig;
use muster_core::{Actor, Command, State};
use muster_store::{Journal, LeaderEpoch, Savepoints, StoreError};
use tokio::sync::oneshot;
use tracing::warn;

use crate::clock::Clock;
use crate::cluster::CommandRequest;
pub use crate::cluster::{LEADER_LEASE, is_lease_fresh};
use crate::engine::{Engine, ProcessedRequests};
use crate::savepoint;

/// Interval of `Command::Tick`, which checks everything that depends on time.
pub const TICK_INTERVAL: Duration = Duration::from_millis(200);

/// The leader's engine and its lease.
pub struct LeaderTerm {
    engine: Engine,
    leader_epoch: LeaderEpoch,
    lease: LeaderLease,
    last_tick: Duration,
    /// When the state was recovered.
    began: Duration,
}

impl LeaderTerm {
    /// Recover the state from the newest savepoint and the journal after it. `since` is the time just before the lease
    /// was requested.
    pub fn recover(
        journal: &mut dyn Journal,
        savepoints: &dyn Savepoints,
        clock: &Arc<dyn Clock>,
        leader_epoch: LeaderEpoch,
        since: Duration,
    ) -> Result<LeaderTerm, StoreError> {
        let mut state = load_newest_savepoint(savepoints)?;
        let mut lease = LeaderLease { renewed_at: since, clock: clock.clone() };
        // Recovery may take longer than the lease. This fails if another server leads by now.
        lease.resume_if_due(journal)?;
        while !replay_for_a_while(journal, &mut state, &lease)? {
            lease.resume_if_due(journal)?;
        }
        lease.resume(journal)?;
        clock.begin_term(state.clock);
        let engine = Engine::new(state, clock.clone(), leader_epoch.epoch);
        let began = clock.elapsed();
        Ok(LeaderTerm { engine, leader_epoch, lease, last_tick: began, began })
    }

    /// Put the leader's settings into force, record the CA of its agent link if it has one, and create the tenant
    /// `default` at the first start.
    pub fn apply_initial_commands(
        &mut self,
        journal: &mut dyn Journal,
        settings: &Settings,
        link_ca: Option<&str>,
    ) -> Result<ProcessedRequests, StoreError> {
        let mut commands = vec![Command::Configure { settings: Box::new(settings.clone()) }];
        commands.extend(link_ca.map(|fingerprint| Command::ChooseClusterCa { fingerprint: fingerprint.to_string() }));
        if self.state().tenants.is_empty()
            && let Ok(id) = "default".parse()
        {
            commands.push(Command::CreateTenant { id, config: Box::new(TenantConfig::unlimited("default")) });
        }
        self.engine.process_requests(journal, commands.into_iter().map(system_request).collect())
    }

    /// Renew the lease when a third of it has passed.
    pub fn renew_lease_if_due(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        self.lease.renew_if_due(journal)
    }

    /// Process a batch of requests, with a tick if one is due, unless the lease is too old.
    ///
    /// After an error the working state may be ahead of the journal, and this term is over.
    pub fn process_requests(
        &mut self,
        journal: &mut dyn Journal,
        mut requests: Vec<CommandRequest>,
    ) -> Result<ProcessedRequests, StoreError> {
        let elapsed = self.lease.clock.elapsed();
        if elapsed.saturating_sub(self.last_tick) >= TICK_INTERVAL {
            self.last_tick = elapsed;
            requests.push(system_request(Command::Tick));
            let led_ms = elapsed.saturating_sub(self.began).as_millis().try_into().unwrap_or(i64::MAX);
            requests.push(system_request(Command::StopLateGangs { led_ms }));
        }
        self.lease.check_not_expired()?;
        self.engine.process_requests(journal, requests)
    }

    /// The working state. Between batches it equals the durable state.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    pub fn epoch(&self) -> u64 {
        self.engine.epoch()
    }

    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// Monotonic time just before the last successful renewal of the lease was sent: no other server led until then.
    pub fn lease_renewed_at(&self) -> Duration {
        self.lease.renewed_at
    }

    /// End the term in order: write a savepoint for a quick start, and release the lease so that a standby can take over
    /// at once.
    pub fn hand_over(&mut self, journal: &mut dyn Journal, savepoints: &dyn Savepoints) {
        if let Err(fault) = self.engine.record_counted_refusals(journal) {
            // The working state is ahead of the journal now, so it must not be saved.
            warn!(%fault, "aggregated refusals were not written to the audit log, and no savepoint was written");
            return;
        }
        let state = self.state();
        if let Err(fault) = savepoints.save(state.seq, &savepoint::write(state)) {
            warn!(%fault, "cannot write a savepoint; the next start replays more of the journal");
        }
        if let Err(fault) = journal.resign() {
            warn!(%fault, "cannot release the leader lease; it expires by itself");
        }
    }
}

/// Replay the journal until its end, or until the lease is due to be renewed. True at the end.
fn replay_for_a_while(journal: &mut dyn Journal, state: &mut State, lease: &LeaderLease) -> Result<bool, StoreError> {
    let mut is_renewal_due = false;
    let replayed = journal.replay(state.seq, &mut |entry| {
        state.apply(&entry.event);
        is_renewal_due = lease.is_renewal_due();
        // The only way to end a replay early.
        let renewal_due = || StoreError::NotLeader { why: "the lease is due to be renewed".to_string() };
        if is_renewal_due { Err(renewal_due()) } else { Ok(()) }
    });
    if is_renewal_due { Ok(false) } else { replayed.map(|_| true) }
}

/// The newest savepoint that this release can read, or the empty state.
fn load_newest_savepoint(savepoints: &dyn Savepoints) -> Result<State, StoreError> {
    let mut before = None;
    while let Some(found) = savepoints.newest(before)? {
        match savepoint::read(&found.bytes) {
            Ok(state) => return Ok(state),
            Err(problem) => {
                // The journal holds all events, so an unreadable savepoint only costs time.
                warn!(seq = found.seq, %problem, "skipping an unreadable savepoint");
                before = Some(found.seq);
            }
        }
    }
    Ok(State::empty())
}

fn system_request(command: Command) -> CommandRequest {
    let (reply, _) = oneshot::channel();
    CommandRequest { by: Actor::system(), command, reply }
}

/// The leader lease of this server, as far as this server can be sure of it.
struct LeaderLease {
    /// Monotonic time just before the last successful renewal was sent.
    renewed_at: Duration,
    clock: Arc<dyn Clock>,
}

impl LeaderLease {
    fn renew_if_due(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.is_renewal_due() { self.renew(journal) } else { Ok(()) }
    }

    fn is_renewal_due(&self) -> bool {
        self.time_since_renewal() >= LEADER_LEASE / 3
    }

    fn resume_if_due(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.is_renewal_due() { self.resume(journal) } else { Ok(()) }
    }

    /// Renew the lease also after it has expired, unless another server leads.
    fn resume(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let sent = self.clock.elapsed();
        journal.resume_lease(LEADER_LEASE.as_millis() as i64)?;
        self.renewed_at = sent;
        Ok(())
    }

    fn renew(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let sent = self.clock.elapsed();
        journal.renew_lease(LEADER_LEASE.as_millis() as i64)?;
        self.renewed_at = sent;
        Ok(())
    }

    fn check_not_expired(&self) -> Result<(), StoreError> {
        if is_lease_fresh(self.time_since_renewal()) {
            return Ok(());
        }
        Err(StoreError::NotLeader { why: "the lease was not renewed in time".to_string() })
    }

    fn time_since_renewal(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.renewed_at)
    }
}

#[cfg(test)]
mod tests;
