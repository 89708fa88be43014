//! The continuation of a history from a fork on: the recorded actions of users and nodes are repeated, and
//! everything else is decided again.

use std::sync::Arc;

use muster_core::facts::command::{Actor, Answer, Command, SubmitJob};
use muster_core::facts::event::Event;
use muster_core::{JobId, State, Timestamp};
use muster_server::policies::{Interpreter, PolicyQuerier};
use muster_store::Entry;

use super::applied_change::AppliedChange;
use super::divergence::HistoryFork;
use super::journal_history::JournalHistory;
use super::recorded_commands::{recorded_command, recorded_submission};
use super::tally::HistoryTally;
use crate::job_log::jobs_of_submission;
use crate::sim_loop::SimLoop;

/// The result of a continuation.
pub struct ContinuationOutcome {
    pub tally: HistoryTally,
    /// Refused jobs, and why.
    pub refused: Vec<(JobId, String)>,
}

/// A history that is simulated from a fork on.
pub struct Continuation<'a> {
    journal: &'a JournalHistory,
    applied: &'a AppliedChange,
    /// The recorded entries that are not repeated yet.
    remaining_entries: &'a [Entry],
    sim_loop: SimLoop,
    tally: HistoryTally,
    refused: Vec<(JobId, String)>,
}

impl<'a> Continuation<'a> {
    /// A continuation from a fork, with the tally before it.
    pub fn new(
        journal: &'a JournalHistory,
        fork: &'a HistoryFork,
        applied: &'a AppliedChange,
        state: &State,
        tally: HistoryTally,
    ) -> Continuation<'a> {
        let mut sim_loop = SimLoop::new(state.clone(), fork.at, journal.delays);
        sim_loop.recorded_events = Some(Vec::new());
        for job in state.jobs.keys() {
            sim_loop.resume_job(*job, journal.work.behaviour_from(Some(&fork.work), *job));
        }
        sim_loop.mark_changed();
        let remaining = &journal.entries[fork.index..];
        Continuation { journal, applied, remaining_entries: remaining, sim_loop, tally, refused: Vec::new() }
    }

    /// Sets the interpreter of policies.
    pub fn with_interpreter(mut self, interpreter: Option<&Arc<dyn Interpreter>>) -> Continuation<'a> {
        self.sim_loop.policy_querier = interpreter.cloned().map(PolicyQuerier::new);
        self
    }

    /// Simulates until a time.
    pub fn run_until(mut self, until: Timestamp) -> ContinuationOutcome {
        loop {
            let next_entry_ms = self.remaining_entries.first().map(|entry| entry.at.0);
            let next = [next_entry_ms, self.sim_loop.next_event_ms()].into_iter().flatten().min();
            let Some(next_ms) = next.filter(|next_ms| *next_ms <= until.0) else { break };
            self.sim_loop.advance_to(next_ms);
            while let Some((entry, rest)) =
                self.remaining_entries.split_first().filter(|(entry, _)| entry.at.0 <= next_ms)
            {
                self.remaining_entries = rest;
                self.apply_entry(entry);
            }
            self.sim_loop.plan_if_due();
            self.sim_loop.transitions.clear();
            let events = self.sim_loop.recorded_events.replace(Vec::new());
            events.iter().flatten().for_each(|event| self.tally.add_event(event));
        }
        self.tally.close(until);
        ContinuationOutcome { tally: self.tally, refused: self.refused }
    }

    /// Repeats a recorded action of a user or a node.
    fn apply_entry(&mut self, entry: &Entry) {
        if let Some((by, submission)) = recorded_submission(&self.sim_loop.state, &entry.event) {
            return self.submit(&entry.event, &Actor::local(by), submission);
        }
        let action = recorded_command(&entry.event);
        let Some((by, command)) = action.and_then(|(by, command)| Some((by, self.applied.amended_command(command)?)))
        else {
            return;
        };
        // A refused command has become needless, for example because the job to stop has already ended.
        if self.sim_loop.execute(&Actor::local(by), &command).is_ok() {
            self.sim_loop.mark_changed();
        }
        self.applied
            .follow_up_command(&entry.event)
            .iter()
            .for_each(|command| self.sim_loop.execute_as_system(command));
    }

    fn submit(&mut self, event: &Event, by: &Actor, submission: SubmitJob) {
        let Event::JobSubmitted { job, array, .. } = event else { return };
        // A refused job leaves a gap, so that the other jobs keep their ids.
        self.sim_loop.state.next_job = job.number;
        if let Some(why) = self.sim_loop.policy_refusal(&submission.spec) {
            return self.refused.push((*job, why));
        }
        match self.sim_loop.execute(by, &Command::SubmitJob(submission)) {
            Ok(Answer::Job(_)) => {
                for member in jobs_of_submission(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.sim_loop.set_behaviour(member, self.journal.work.behaviour_from(None, member));
                }
            }
            Ok(_) => {}
            Err(refusal) => self.refused.push((*job, refusal.to_string())),
        }
    }
}
