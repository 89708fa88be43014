//! The life of the engine's thread: stand by, lead, take turns, and over again. What leading means is in `lead.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use muster_core::State;
use muster_core::settings::Settings;
use muster_store::{Journal, Leadership, Savepoints, StoreError};
use tracing::{error, info};

use crate::clock::Clock;
use crate::cluster::{Ask, Batch, Cluster, Declined, Role};
use crate::data_folder::Marker;
use crate::engine::Turn;
use crate::lead::{LEASE, Lead, TICK};

/// Most commands taken in one turn: bounds the size of a transaction.
const TURN_MAX: usize = 4_096;
/// Pause before the database is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Pause before the log repeats a fault that lasts.
const REPEAT: Duration = Duration::from_secs(5);

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
    /// Which cluster the data folder belongs to.
    pub marker: Marker,
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
        let mut lasting = Lasting::default();
        while !self.stopping() {
            match self.stand(journal.as_mut()) {
                Ok(Some(leader)) => {
                    self.cluster.set_role(Role::Standby { leader: leader.clone() });
                    self.decline_for(RETRY, &format!("this server stands by; `{leader}` leads"));
                }
                Ok(None) => {}
                Err(fault) if fault.heals_by_reload() => self.step_back(&fault, &mut lasting),
                Err(broken) => return self.end(broken),
            }
        }
        End::Stopped
    }

    /// Lead if nobody else does, until that is over; else say who leads.
    fn stand(&mut self, journal: &mut dyn Journal) -> Result<Option<String>, StoreError> {
        self.marker.check(journal)?;
        let sent = self.clock.elapsed();
        match journal.lead(&self.holder, LEASE.as_millis() as i64)? {
            Leadership::Leading { epoch, .. } => self.lead(journal, epoch, sent).map(|()| None),
            Leadership::Standby { holder, .. } => Ok(Some(holder)),
        }
    }

    fn end(&self, broken: StoreError) -> End {
        error!(%broken, "the engine ends, because going on would be wrong");
        self.cluster.set_role(Role::Away { why: broken.to_string() });
        End::Broken(broken)
    }

    /// Lead until the lease, the database or the server ends.
    fn lead(&mut self, journal: &mut dyn Journal, epoch: u64, since: Duration) -> Result<(), StoreError> {
        self.cluster.set_role(Role::Starting);
        self.marker.found(journal)?;
        let mut lead = Lead::begin(journal, &*self.savepoints, &self.clock, epoch, since)?;
        info!(epoch, seq = lead.state().seq, jobs = lead.state().jobs.len(), "leading");
        let outcome = self.reign(journal, &mut lead);
        self.tell(Feed::Pause);
        outcome?;
        lead.leave(journal, &*self.savepoints);
        self.cluster.set_role(Role::Away { why: "the server is stopping".to_string() });
        Ok(())
    }

    /// Publish what was read, then take turns until told to stop.
    fn reign(&mut self, journal: &mut dyn Journal, lead: &mut Lead) -> Result<(), StoreError> {
        let epoch = lead.epoch();
        self.cluster.reset(lead.state().clone());
        self.tell(Feed::Reset { state: Box::new(lead.state().clone()), epoch });
        self.publish(lead.first_turn(journal, &self.settings)?);
        self.cluster.set_role(Role::Leading { epoch });
        while !self.stopping() {
            lead.keep(journal)?;
            let asks = self.wait_for_asks();
            self.publish(lead.turn(journal, asks)?);
        }
        Ok(())
    }

    fn publish(&self, turn: Turn) {
        if let Some(batch) = turn.batch {
            self.cluster.publish(batch.clone());
            self.tell(Feed::Batch(batch));
        }
        turn.replies.send();
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

    /// Nothing can be promised now: say so, and try again in a moment.
    fn step_back(&self, fault: &StoreError, lasting: &mut Lasting) {
        let why = fault.to_string();
        if lasting.is_due(&why) {
            error!(%fault, "stepping back; trying again until the database answers, then the state is read again");
        }
        self.cluster.set_role(Role::Away { why: why.clone() });
        self.decline_for(RETRY, &why);
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

/// A fault that lasts is logged at once and then every few seconds.
#[derive(Default)]
struct Lasting {
    last: Option<(String, Instant)>,
}

impl Lasting {
    fn is_due(&mut self, why: &str) -> bool {
        let known = self.last.as_ref().is_some_and(|(last, at)| last == why && at.elapsed() < REPEAT);
        if !known {
            self.last = Some((why.to_string(), Instant::now()));
        }
        !known
    }
}
