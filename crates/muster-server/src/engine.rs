//! Step 3, take turns: the only place where the cluster changes.
//!
//! A turn takes every command that waits, decides and applies them one after the other, writes all events in
//! one transaction, and only then publishes and replies. If the write fails nothing was promised: the working
//! state is dropped and read anew from the journal before anything else happens.

use std::sync::Arc;

use muster_core::{Actor, Answer, Command, Event, State, Timestamp};
use muster_store::{Entry, Journal, StoreError};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::cluster::{Ask, Batch, Declined};
use crate::refused_acts::RefusedActs;

/// The working state.
pub struct Engine {
    state: State,
    clock: Arc<dyn Clock>,
    epoch: u64,
    refused: RefusedActs,
}

/// What one turn came to.
pub struct Turn {
    /// What is durable now; `None` if nothing happened.
    pub batch: Option<Arc<Batch>>,
    /// Answers to hand out after the batch is published.
    pub replies: Replies,
}

/// Answers that wait for the commit.
#[derive(Default)]
pub struct Replies(Vec<Reply>);

/// One answer and where it goes.
type Reply = (oneshot::Sender<Result<Answer, Declined>>, Result<Answer, Declined>);

impl Replies {
    /// Hand out the answers. Whoever has stopped waiting is passed over.
    pub fn send(self) {
        for (reply, answer) in self.0 {
            let _ = reply.send(answer);
        }
    }

    /// Tell everyone that nothing was promised.
    fn decline(self, why: &str) {
        for (reply, _) in self.0 {
            let _ = reply.send(Err(Declined::Unavailable { why: why.to_string() }));
        }
    }
}

impl Engine {
    /// An engine that goes on from a state read from the journal, under its own epoch.
    pub fn new(state: State, clock: Arc<dyn Clock>, epoch: u64) -> Engine {
        Engine { state, clock, epoch, refused: RefusedActs::default() }
    }

    /// The working state. Equal to what is durable between turns.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Under which leadership it decides.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Take a turn with everything that was asked.
    ///
    /// After an error the working state is ahead of the journal and must not be used again.
    pub fn turn(&mut self, journal: &mut dyn Journal, asks: Vec<Ask>) -> Result<Turn, StoreError> {
        let mut entries = Vec::new();
        let mut replies = Replies::default();
        for ask in asks {
            let answer = self.decide(&ask.by, ask.command, &mut entries);
            replies.0.push((ask.reply, answer));
        }
        let now = self.clock.now().max(self.state.clock);
        let due = self.refused.due(now);
        self.apply(due, now, &mut entries);
        if entries.is_empty() {
            return Ok(Turn { batch: None, replies });
        }
        self.assert_laws();
        if let Err(fault) = journal.append(&entries) {
            replies.decline(&format!("nothing was promised: {fault}"));
            return Err(fault);
        }
        Ok(Turn { batch: Some(Arc::new(Batch { entries })), replies })
    }

    /// Decide and apply: the next command meets the state this one left.
    fn decide(&mut self, by: &Actor, command: Command, entries: &mut Vec<Entry>) -> Result<Answer, Declined> {
        let now = self.clock.now().max(self.state.clock);
        let command = self.stamp(command);
        let (events, answer) = self.state.decide_audited(by, &command, now);
        let events = events.into_iter().filter_map(|event| self.refused.admit(event)).collect();
        self.apply(events, now, entries);
        Ok(answer?)
    }

    fn apply(&mut self, events: Vec<Event>, at: Timestamp, entries: &mut Vec<Entry>) {
        for event in events {
            self.state.apply(&event);
            entries.push(Entry { seq: self.state.seq, epoch: self.epoch, at, event });
        }
    }

    /// Record the refused acts that are only counted so far. For the end of a leadership: nobody else knows of them.
    pub fn record_refused(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        let rest = self.refused.rest();
        self.apply(rest, self.clock.now().max(self.state.clock), &mut entries);
        if entries.is_empty() { Ok(()) } else { journal.append(&entries).map(drop) }
    }

    /// Plans are adopted under our own epoch, whoever drew them.
    fn stamp(&self, command: Command) -> Command {
        match command {
            Command::AdoptPlan { plan, .. } => Command::AdoptPlan { plan, epoch: self.epoch },
            other => other,
        }
    }

    /// Debug builds look for a broken law before anything is written, while the cluster is small; the look is
    /// O(state).
    fn assert_laws(&self) {
        if cfg!(debug_assertions) && self.state.jobs.len() < 500 {
            let broken = self.state.check();
            assert!(broken.is_empty(), "broken laws: {broken:?}");
        }
    }
}
