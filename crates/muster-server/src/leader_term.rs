//! One leadership, from the first word to the last. Nothing here waits or knows a thread: `reign.rs` runs it on the
//! engine's thread, the simulator in its own time.
//!
//! A server acts only while its lease holds, measured on its own monotonic clock from before the renewal was
//! sent; it stops acting at two thirds of the lease, so that it has stepped down before anyone can take over.

use std::sync::Arc;
use std::time::Duration;

use muster_core::objects::settings::Settings;
use muster_core::objects::tenant::TenantConfig;
use muster_core::{Actor, Command, State};
use muster_store::{Journal, Savepoints, StoreError};
use tokio::sync::oneshot;
use tracing::warn;

use crate::clock::Clock;
use crate::cluster::CommandRequest;
use crate::engine::{Engine, ProcessedRequests};
use crate::savepoint;

/// How long a lease lasts. Three renewals fit, and a takeover after a crash takes about this long.
pub const LEADER_LEASE: Duration = Duration::from_secs(6);
/// How often time-bound things are looked at.
pub const TICK_INTERVAL: Duration = Duration::from_millis(200);

/// The engine of the leader, and how long it may lead.
pub struct LeaderTerm {
    engine: Engine,
    lease: LeaderLease,
    last_tick: Duration,
}

impl LeaderTerm {
    /// Go on from the newest savepoint and the tail of the journal. The lead was asked for at `since`.
    pub fn recover(
        journal: &mut dyn Journal,
        savepoints: &dyn Savepoints,
        clock: &Arc<dyn Clock>,
        epoch: u64,
        since: Duration,
    ) -> Result<LeaderTerm, StoreError> {
        let mut state = load_newest_savepoint(savepoints)?;
        journal.replay(state.seq, &mut |entry| {
            state.apply(&entry.event);
            Ok(())
        })?;
        let mut lease = LeaderLease { since, clock: clock.clone() };
        // Reading may have taken longer than the lease; then someone else may lead by now.
        lease.renew(journal)?;
        Ok(LeaderTerm { engine: Engine::new(state, clock.clone(), epoch), lease, last_tick: clock.elapsed() })
    }

    /// The tenant `default` exists from the first start, and the configuration of the leader counts.
    pub fn apply_initial_commands(&mut self, journal: &mut dyn Journal, settings: &Settings) -> Result<ProcessedRequests, StoreError> {
        let mut commands = vec![Command::Configure { settings: Box::new(settings.clone()) }];
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

    /// Take a turn with what was asked, if we may still act.
    ///
    /// After an error the working state is ahead of the journal, and this leadership is over.
    pub fn process_requests(&mut self, journal: &mut dyn Journal, mut asks: Vec<CommandRequest>) -> Result<ProcessedRequests, StoreError> {
        let elapsed = self.lease.clock.elapsed();
        if elapsed.saturating_sub(self.last_tick) >= TICK_INTERVAL {
            self.last_tick = elapsed;
            asks.push(system_request(Command::Tick));
        }
        self.lease.check_not_expired()?;
        self.engine.process_requests(journal, asks)
    }

    /// The working state. Equal to what is durable between turns.
    pub fn state(&self) -> &State {
        self.engine.state()
    }

    /// Which leadership this is.
    pub fn epoch(&self) -> u64 {
        self.engine.epoch()
    }

    /// Leave in order: save the state for a quick start, and let a standby take over at once.
    pub fn hand_over(&mut self, journal: &mut dyn Journal, savepoints: &dyn Savepoints) {
        if let Err(fault) = self.engine.record_counted_refusals(journal) {
            // The working state is ahead of the journal now, so it must not be saved.
            warn!(%fault, "refused acts of the last minute were not recorded, and no savepoint was written");
            return;
        }
        let state = self.state();
        if let Err(fault) = savepoints.save(state.seq, &savepoint::write(state)) {
            warn!(%fault, "no savepoint was written; the next start reads more of the journal");
        }
        if let Err(fault) = journal.resign() {
            warn!(%fault, "the lease could not be given away; it runs out by itself");
        }
    }
}

/// The newest savepoint that this release can read, or the empty state.
fn load_newest_savepoint(savepoints: &dyn Savepoints) -> Result<State, StoreError> {
    let mut before = None;
    while let Some(found) = savepoints.newest(before)? {
        match savepoint::read(&found.bytes) {
            Ok(state) => return Ok(state),
            Err(problem) => {
                // The journal holds everything, so an unreadable savepoint only costs time.
                warn!(seq = found.seq, %problem, "passing over a savepoint that cannot be read");
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

/// Our turn to lead, as far as we can be sure of it.
struct LeaderLease {
    /// Before the last good renewal was sent.
    since: Duration,
    clock: Arc<dyn Clock>,
}

impl LeaderLease {
    /// Renew when a third of the lease has passed.
    fn renew_if_due(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.time_since_renewal() < LEADER_LEASE / 3 { Ok(()) } else { self.renew(journal) }
    }

    fn renew(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let sent = self.clock.elapsed();
        journal.renew_lease(LEADER_LEASE.as_millis() as i64)?;
        self.since = sent;
        Ok(())
    }

    /// Whether we may still act.
    fn check_not_expired(&self) -> Result<(), StoreError> {
        if self.time_since_renewal() < LEADER_LEASE * 2 / 3 {
            return Ok(());
        }
        Err(StoreError::NotLeader { why: "the lease was not renewed in time".to_string() })
    }

    fn time_since_renewal(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.since)
    }
}
