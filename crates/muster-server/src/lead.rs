//! One leadership, from the first word to the last. Nothing here waits or knows a thread: `reign.rs` runs it on the
//! engine's thread, the simulator in its own time.
//!
//! A server acts only while its lease holds, measured on its own monotonic clock from before the renewal was
//! sent; it stops acting at two thirds of the lease, so that it has stepped down before anyone can take over.

use std::sync::Arc;
use std::time::Duration;

use muster_core::settings::Settings;
use muster_core::tenant::TenantConfig;
use muster_core::{Actor, Command, State};
use muster_store::{Journal, Savepoints, StoreError};
use tokio::sync::oneshot;
use tracing::warn;

use crate::clock::Clock;
use crate::cluster::Ask;
use crate::engine::{Engine, Turn};
use crate::savepoint;

/// How long a lease lasts. Three renewals fit, and a takeover after a crash takes about this long.
pub const LEASE: Duration = Duration::from_secs(6);
/// How often time-bound things are looked at.
pub const TICK: Duration = Duration::from_millis(200);

/// The engine of the leader, and how long it may lead.
pub struct Lead {
    engine: Engine,
    lease: Lease,
    ticked: Duration,
}

impl Lead {
    /// Go on from the newest savepoint and the tail of the journal. The lead was asked for at `since`.
    pub fn begin(
        journal: &mut dyn Journal,
        savepoints: &dyn Savepoints,
        clock: &Arc<dyn Clock>,
        epoch: u64,
        since: Duration,
    ) -> Result<Lead, StoreError> {
        let mut state = newest_state(savepoints)?;
        journal.replay(state.seq, &mut |entry| {
            state.apply(&entry.event);
            Ok(())
        })?;
        let mut lease = Lease { since, clock: clock.clone() };
        // Reading may have taken longer than the lease; then someone else may lead by now.
        lease.renew(journal)?;
        Ok(Lead { engine: Engine::new(state, clock.clone(), epoch), lease, ticked: clock.elapsed() })
    }

    /// The tenant `default` exists from the first start, and the configuration of the leader counts.
    pub fn first_turn(&mut self, journal: &mut dyn Journal, settings: &Settings) -> Result<Turn, StoreError> {
        let mut commands = vec![Command::Configure { settings: Box::new(settings.clone()) }];
        if self.state().tenants.is_empty()
            && let Ok(id) = "default".parse()
        {
            commands.push(Command::CreateTenant { id, config: Box::new(TenantConfig::unlimited("default")) });
        }
        self.engine.turn(journal, commands.into_iter().map(from_system).collect())
    }

    /// Renew the lease when a third of it has passed.
    pub fn keep(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        self.lease.keep(journal)
    }

    /// Take a turn with what was asked, if we may still act.
    ///
    /// After an error the working state is ahead of the journal, and this leadership is over.
    pub fn turn(&mut self, journal: &mut dyn Journal, mut asks: Vec<Ask>) -> Result<Turn, StoreError> {
        let elapsed = self.lease.clock.elapsed();
        if elapsed.saturating_sub(self.ticked) >= TICK {
            self.ticked = elapsed;
            asks.push(from_system(Command::Tick));
        }
        self.lease.check()?;
        self.engine.turn(journal, asks)
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
    pub fn leave(&mut self, journal: &mut dyn Journal, savepoints: &dyn Savepoints) {
        if let Err(fault) = self.engine.record_refused(journal) {
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
fn newest_state(savepoints: &dyn Savepoints) -> Result<State, StoreError> {
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

fn from_system(command: Command) -> Ask {
    let (reply, _) = oneshot::channel();
    Ask { by: Actor::system(), command, reply }
}

/// Our turn to lead, as far as we can be sure of it.
struct Lease {
    /// Before the last good renewal was sent.
    since: Duration,
    clock: Arc<dyn Clock>,
}

impl Lease {
    /// Renew when a third of the lease has passed.
    fn keep(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.age() < LEASE / 3 { Ok(()) } else { self.renew(journal) }
    }

    fn renew(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let sent = self.clock.elapsed();
        journal.renew(LEASE.as_millis() as i64)?;
        self.since = sent;
        Ok(())
    }

    /// Whether we may still act.
    fn check(&self) -> Result<(), StoreError> {
        if self.age() < LEASE * 2 / 3 {
            return Ok(());
        }
        Err(StoreError::Deposed { why: "the lease was not renewed in time".to_string() })
    }

    fn age(&self) -> Duration {
        self.clock.elapsed().saturating_sub(self.since)
    }
}
