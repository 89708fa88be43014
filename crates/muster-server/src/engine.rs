//! Step 3, serialise: the engine, the only place where the state of the cluster changes.
//!
//! The engine takes all waiting commands as one batch, decides and applies them one after the other, and writes all
//! events in one transaction; only then are they published and the callers answered. If the write fails, no command of
//! the batch was confirmed: the working state is dropped and recovered from the journal before anything else happens.

use std::sync::Arc;

use muster_core::{Actor, Answer, Command, Event, State, Timestamp};
use muster_store::{Entry, Journal, StoreError};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::cluster::{Batch, CommandError, CommandRequest};
use crate::refusal_audit::RefusalAggregator;

/// The working state of the leader.
pub struct Engine {
    state: State,
    clock: Arc<dyn Clock>,
    epoch: u64,
    refusals: RefusalAggregator,
}

/// The result of one batch of commands.
pub struct ProcessedRequests {
    /// The durable events; `None` if the commands caused none.
    pub batch: Option<Arc<Batch>>,
    /// Answers to send after the batch is published.
    pub replies: Replies,
}

/// Answers held back until their events are durable and published.
#[derive(Default)]
pub struct Replies(Vec<PendingReply>);

type PendingReply = (oneshot::Sender<Result<Answer, CommandError>>, Result<Answer, CommandError>);

impl Replies {
    pub fn send(self) {
        for (reply, answer) in self.0 {
            // An error means that the caller has stopped waiting.
            let _ = reply.send(answer);
        }
    }

    /// Answer every caller with an error: its command was not recorded.
    fn decline_all(self, why: &str) {
        for (reply, _) in self.0 {
            let _ = reply.send(Err(CommandError::Unavailable { why: why.to_string() }));
        }
    }
}

impl Engine {
    /// An engine that continues from a recovered state, under its own epoch.
    pub fn new(state: State, clock: Arc<dyn Clock>, epoch: u64) -> Engine {
        Engine { state, clock, epoch, refusals: RefusalAggregator::default() }
    }

    /// The working state. Between batches it equals the durable state.
    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Decide, apply and record a batch of commands.
    ///
    /// After an error the working state is ahead of the journal and must not be used again.
    pub fn process_requests(
        &mut self,
        journal: &mut dyn Journal,
        requests: Vec<CommandRequest>,
    ) -> Result<ProcessedRequests, StoreError> {
        let mut entries = Vec::new();
        let mut replies = Replies::default();
        for request in requests {
            let answer = self.decide_and_apply(&request.by, request.command, &mut entries);
            replies.0.push((request.reply, answer));
        }
        let now = self.clock.now().max(self.state.clock);
        let due = self.refusals.take_due_records(now);
        self.apply(due, now, &mut entries);
        if entries.is_empty() {
            return Ok(ProcessedRequests { batch: None, replies });
        }
        self.assert_laws();
        if let Err(fault) = journal.append(&entries) {
            replies.decline_all(&format!("the command was not recorded: {fault}"));
            return Err(fault);
        }
        Ok(ProcessedRequests { batch: Some(Arc::new(Batch { entries })), replies })
    }

    /// Decide a command and apply its events, so that the next command sees the state this one leaves.
    fn decide_and_apply(
        &mut self,
        by: &Actor,
        command: Command,
        entries: &mut Vec<Entry>,
    ) -> Result<Answer, CommandError> {
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

    /// Record the refusals that are only counted so far. Called at the end of a leader's term: the counts are in memory
    /// only.
    pub fn record_counted_refusals(&mut self, journal: &mut dyn Journal) -> Result<(), StoreError> {
        let mut entries = Vec::new();
        let rest = self.refusals.take_all_records();
        self.apply(rest, self.clock.now().max(self.state.clock), &mut entries);
        if entries.is_empty() { Ok(()) } else { journal.append(&entries).map(drop) }
    }

    /// A plan is adopted under the epoch of this engine, whatever epoch the command carries.
    fn stamp_epoch(&self, command: Command) -> Command {
        match command {
            Command::AdoptPlan { plan, .. } => Command::AdoptPlan { plan, epoch: self.epoch },
            other => other,
        }
    }

    /// Debug builds check all laws before anything is written, while the cluster is small: the check is O(state).
    fn assert_laws(&self) {
        if cfg!(debug_assertions) && self.state.jobs.len() < 500 {
            let broken = self.state.check();
            assert!(broken.is_empty(), "broken laws: {broken:?}");
        }
    }
}
