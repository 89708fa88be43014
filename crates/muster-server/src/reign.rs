//! The life of the engine's thread: stand by, lead, read the journal, take turns, and over again.
//!
//! A server acts only while its lease holds, measured on its own monotonic clock from before the renewal was
//! sent; it stops acting at two thirds of the lease, so that it has stepped down before anyone can take over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use muster_core::settings::Settings;
use muster_core::tenant::TenantConfig;
use muster_core::{Actor, Command, State};
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::cluster::{Ask, Batch, Cluster, Declined, Role};
use crate::engine::Engine;
use crate::savepoint;

/// How long a lease lasts. Three renewals fit, and a takeover after a crash takes about this long.
const LEASE: Duration = Duration::from_secs(6);
/// How often time-bound things are looked at.
const TICK: Duration = Duration::from_millis(200);
/// Most commands taken in one turn: bounds the size of a transaction.
const TURN_MAX: usize = 4_096;
/// Pause before the database is tried again.
const RETRY: Duration = Duration::from_millis(500);

/// What followers of the journal are told: planner and dispatch.
#[derive(Clone)]
pub enum Feed {
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
    Pause,
}

/// Everything the engine's thread needs.
pub struct Reign {
    /// Saved states to start from.
    pub savepoints: Arc<dyn Savepoints>,
    /// What the doors hold.
    pub cluster: Cluster,
    /// What was asked.
    pub inbox: Receiver<Ask>,
    /// Who follows the journal.
    pub followers: Vec<Sender<Feed>>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What this server is called, for others who stand by.
    pub holder: String,
    /// The settings of this server's configuration; they become the cluster's when it leads.
    pub settings: Settings,
    /// Set when the server must stop.
    pub stop: Arc<AtomicBool>,
}

/// Why the thread ended.
#[derive(Debug)]
pub enum End {
    /// It was asked to.
    Stopped,
    /// Going on would be wrong: a bug or damage. The process must end loudly.
    Broken(StoreError),
}

impl Reign {
    /// Run until stopped or broken.
    pub fn run(mut self, mut journal: Box<dyn Journal>) -> End {
        while !self.stopping() {
            let sent = Instant::now();
            match journal.lead(&self.holder, LEASE.as_millis() as i64) {
                Ok(Leadership::Leading { epoch, .. }) => match self.lead(journal.as_mut(), epoch, sent) {
                    Ok(()) => {}
                    Err(fault) if fault.heals_by_reload() => self.step_back(&fault),
                    Err(broken) => return self.end(broken),
                },
                Ok(Leadership::Standby { holder, .. }) => {
                    self.cluster.set_role(Role::Standby { leader: holder.clone() });
                    self.decline_for(RETRY, &format!("this server stands by; `{holder}` leads"));
                }
                Err(fault) if fault.heals_by_reload() => self.step_back(&fault),
                Err(broken) => return self.end(broken),
            }
        }
        End::Stopped
    }

    fn end(&self, broken: StoreError) -> End {
        self.cluster.set_role(Role::Away { why: broken.to_string() });
        End::Broken(broken)
    }

    /// Lead until the lease, the database or the server ends.
    fn lead(&mut self, journal: &mut dyn Journal, epoch: u64, since: Instant) -> Result<(), StoreError> {
        self.cluster.set_role(Role::Starting);
        let mut lease = Lease { since };
        let state = self.load(journal, &mut lease)?;
        info!(epoch, seq = state.seq, jobs = state.jobs.len(), "leading");
        let mut engine = Engine::new(state, journal, self.clock.clone(), epoch);
        let outcome = self.reign(&mut engine, epoch, lease);
        self.tell(Feed::Pause);
        outcome?;
        self.leave(&mut engine);
        Ok(())
    }

    /// Newest savepoint and the tail of the journal.
    fn load(&self, journal: &mut dyn Journal, lease: &mut Lease) -> Result<State, StoreError> {
        let mut state = newest_state(&*self.savepoints)?;
        journal.replay(state.seq, &mut |entry| {
            state.apply(&entry.event);
            Ok(())
        })?;
        // Reading may have taken longer than the lease; then someone else may lead by now.
        lease.renew(journal)?;
        Ok(state)
    }

    /// Publish what was read, then take turns until told to stop.
    fn reign(&mut self, engine: &mut Engine<'_>, epoch: u64, mut lease: Lease) -> Result<(), StoreError> {
        self.cluster.reset(engine.state().clone());
        self.tell(Feed::Reset { state: Box::new(engine.state().clone()), epoch });
        self.take_turn(engine, self.first_asks(engine.state()))?;
        self.cluster.set_role(Role::Leading { epoch });
        let mut ticked = Instant::now();
        while !self.stopping() {
            lease.keep(engine.journal())?;
            let mut asks = self.wait_for_asks();
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                asks.push(from_system(Command::Tick));
            }
            lease.check()?;
            self.take_turn(engine, asks)?;
        }
        Ok(())
    }

    fn take_turn(&self, engine: &mut Engine<'_>, asks: Vec<Ask>) -> Result<(), StoreError> {
        let turn = engine.turn(asks)?;
        if let Some(batch) = turn.batch {
            self.cluster.publish(batch.clone());
            self.tell(Feed::Batch(batch));
        }
        turn.replies.send();
        Ok(())
    }

    /// The tenant `default` exists from the first start, and the configuration of the leader counts.
    fn first_asks(&self, state: &State) -> Vec<Ask> {
        let mut commands = vec![Command::Configure { settings: Box::new(self.settings.clone()) }];
        if state.tenants.is_empty()
            && let Ok(id) = "default".parse()
        {
            commands.push(Command::CreateTenant { id, config: Box::new(TenantConfig::unlimited("default")) });
        }
        commands.into_iter().map(from_system).collect()
    }

    /// The commands that wait, or none after a tick.
    fn wait_for_asks(&self) -> Vec<Ask> {
        let mut asks = match self.inbox.recv_timeout(TICK) {
            Ok(ask) => vec![ask],
            Err(RecvTimeoutError::Timeout) => return Vec::new(),
            Err(RecvTimeoutError::Disconnected) => {
                self.stop.store(true, Ordering::Relaxed);
                return Vec::new();
            }
        };
        asks.extend(self.inbox.try_iter().take(TURN_MAX - 1));
        asks
    }

    /// Leave in order: save the state for a quick start, and let a standby take over at once.
    fn leave(&self, engine: &mut Engine<'_>) {
        let state = engine.state();
        if let Err(fault) = self.savepoints.save(state.seq, &savepoint::write(state)) {
            warn!(%fault, "no savepoint was written; the next start reads more of the journal");
        }
        if let Err(fault) = engine.journal().resign() {
            warn!(%fault, "the lease could not be given away; it runs out by itself");
        }
        self.cluster.set_role(Role::Away { why: "the server is stopping".to_string() });
    }

    /// Nothing can be promised now: say so, and try again in a moment.
    fn step_back(&self, fault: &StoreError) {
        error!(%fault, "stepping back; the state will be read anew");
        self.cluster.set_role(Role::Away { why: fault.to_string() });
        self.decline_for(RETRY, &fault.to_string());
    }

    /// Turn everyone away for a while.
    fn decline_for(&self, time: Duration, why: &str) {
        let until = Instant::now() + time;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            match self.inbox.recv_timeout(left.min(Duration::from_millis(50))) {
                Ok(ask) => drop(ask.reply.send(Err(Declined::Unavailable { why: why.to_string() }))),
                Err(RecvTimeoutError::Timeout) if self.stopping() => return,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.stop.store(true, Ordering::Relaxed),
            }
        }
    }

    fn tell(&self, feed: Feed) {
        for follower in &self.followers {
            // A follower that has ended needs no more news.
            let _ = follower.send(feed.clone());
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
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
    since: Instant,
}

impl Lease {
    /// Renew when a third of the lease has passed.
    fn keep(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        if self.since.elapsed() < LEASE / 3 { Ok(()) } else { self.renew(journal) }
    }

    fn renew(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let sent = Instant::now();
        journal.renew(LEASE.as_millis() as i64)?;
        self.since = sent;
        Ok(())
    }

    /// Whether we may still act.
    fn check(&self) -> Result<(), StoreError> {
        if self.since.elapsed() < LEASE * 2 / 3 {
            return Ok(());
        }
        Err(StoreError::Deposed { why: "the lease was not renewed in time".to_string() })
    }
}
