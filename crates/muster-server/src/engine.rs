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
use crate::cluster::{CommandRequest, Batch, CommandError};
use crate::refusal_audit::RefusalAggregator;

/// The working state.
pub struct Engine {
    state: State,
    clock: Arc<dyn Clock>,
    epoch: u64,
    refusals: RefusalAggregator,
}

/// What one turn came to.
pub struct ProcessedRequests {
    /// What is durable now; `None` if nothing happened.
    pub batch: Option<Arc<Batch>>,
    /// Answers to hand out after the batch is published.
    pub replies: Replies,
}

/// Answers that wait for the commit.
#[derive(Default)]
pub struct Replies(Vec<PendingReply>);

/// One answer and where it goes.
type PendingReply = (oneshot::Sender<Result<Answer, CommandError>>, Result<Answer, CommandError>);

impl Replies {
    /// Hand out the answers. Whoever has stopped waiting is passed over.
    pub fn send(self) {
        for (reply, answer) in self.0 {
            let _ = reply.send(answer);
        }
    }

    /// Tell everyone that nothing was promised.
    fn decline_all(self, why: &str) {
        for (reply, _) in self.0 {
            let _ = reply.send(Err(CommandError::Unavailable { why: why.to_string() }));
        }
    }
}

impl Engine {
    /// An engine that goes on from a state read from the journal, under its own epoch.
    pub fn new(state: State, clock: Arc<dyn Clock>, epoch: u64) -> Engine {
        Engine { state, clock, epoch, refusals: RefusalAggregator::default() }
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
    pub fn process_requests(&mut self, journal: &mut dyn Journal, asks: Vec<CommandRequest>) -> Result<ProcessedRequests, StoreError> {
        let mut entries = Vec::new();
        let mut replies = Replies::default();
        for ask in asks {
            let answer = self.decide_and_apply(&ask.by, ask.command, &mut entries);
            replies.0.push((ask.reply, answer));
        }
        let now = self.clock.now().max(self.state.clock);
        let due = self.refusals.take_due_records(now);
        self.apply(due, now, &mut entries);
        if entries.is_empty() {
            return Ok(ProcessedRequests { batch: None, replies });
        }
        self.assert_laws();
        if let Err(fault) = journal.append(&entries) {
            replies.decline_all(&format!("nothing was promised: {fault}"));
            return Err(fault);
        }
        Ok(ProcessedRequests { batch: Some(Arc::new(Batch { entries })), replies })
    }

    /// Decide and apply: the next command meets the state this one left.
    fn decide_and_apply(&mut self, by: &Actor, command: Command, entries: &mut Vec<Entry>) -> Result<Answer, CommandError> {
        let now = self.clock.now().max(self.state.clock);
        let command = self.stamp_epoch(command);
        let (events, answer) = self.state.decide_audited(by, &command, now);
        let events = events.into_iter().filter_map(|event| self.refusals.record_or_count(event)).collect();
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
    pub fn record_counted_refusals(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        let rest = self.refusals.take_all_records();
        self.apply(rest, self.clock.now().max(self.state.clock), &mut entries);
        if entries.is_empty() { Ok(()) } else { journal.append(&entries).map(drop) }
    }

    /// Plans are adopted under our own epoch, whoever drew them.
    fn stamp_epoch(&self, command: Command) -> Command {
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
