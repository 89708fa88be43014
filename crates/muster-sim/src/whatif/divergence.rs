//! Finds the fork of a what-if: follows the journal with the real and the changed state until the planner decides
//! differently.

use muster_core::facts::command::{Actor, Command, SubmitJob};
use muster_core::facts::event::Event;
use muster_core::facts::plan::Plan;
use muster_core::planner::plan;
use muster_core::time::SECOND;
use muster_core::{State, Timestamp};
use muster_server::whatif::WhatIfError;

use super::applied_change::AppliedChange;
use super::journal_history::JournalHistory;
use super::recorded_commands::recorded_submission;
use super::work_history::WorkHistory;
use crate::sim_loop::REPLAN_INTERVAL_MS_MAX;

/// The least time between two comparisons of plans.
const COMPARE_INTERVAL_MS_MIN: i64 = SECOND;

/// The point where the changed history leaves the real one.
#[derive(Debug, Clone)]
pub struct HistoryFork {
    pub at: Timestamp,
    /// The first entry after the fork.
    pub index: usize,
    /// The real state.
    pub real: State,
    /// The state under the change.
    pub changed: State,
    /// The work of jobs until the fork.
    pub work: WorkHistory,
}

/// The first time at which a decision differs; `None` if no decision does.
pub fn first_difference(
    journal: &JournalHistory,
    applied: &AppliedChange,
    until: Timestamp,
) -> Result<Option<HistoryFork>, WhatIfError> {
    if applied.is_empty() {
        return Ok(None);
    }
    let mut tracker = DivergenceTracker::new(journal, applied);
    if applied.replans_from_start() {
        return Ok(Some(tracker.fork(journal.since, 0)));
    }
    for (index, entry) in journal.entries.iter().enumerate() {
        if entry.at > until {
            return Ok(tracker.first_difference_before(until).map(|at| tracker.fork(at, index)));
        }
        if let Some(at) = tracker.first_difference_before(entry.at) {
            return Ok(Some(tracker.fork(at, index)));
        }
        if tracker.would_refuse(&entry.event, entry.at) || tracker.differs_at_adoption(&entry.event, entry.at) {
            return Ok(Some(tracker.fork(entry.at, index)));
        }
        tracker.apply_event(&entry.event, entry.at);
    }
    let index = journal.entries.len();
    Ok(tracker.first_difference_before(until).map(|at| tracker.fork(at, index)))
}

/// A fork before an entry, without a change.
#[cfg(test)]
pub fn fork_at(journal: &JournalHistory, index: usize) -> HistoryFork {
    let applied = AppliedChange::default();
    let mut tracker = DivergenceTracker::new(journal, &applied);
    journal.entries[..index].iter().for_each(|entry| tracker.apply_event(&entry.event, entry.at));
    tracker.fork(journal.entries[index].at, index)
}

struct DivergenceTracker<'a> {
    applied: &'a AppliedChange,
    real: State,
    changed: State,
    work: WorkHistory,
    last_comparison: Timestamp,
    /// The last change since the last comparison that calls for planning.
    changed_at: Option<Timestamp>,
}

impl<'a> DivergenceTracker<'a> {
    fn new(journal: &JournalHistory, applied: &'a AppliedChange) -> DivergenceTracker<'a> {
        let mut changed = journal.start_state.clone();
        applied.events.iter().for_each(|event| changed.apply(event));
        DivergenceTracker {
            applied,
            real: journal.start_state.clone(),
            changed,
            work: journal.work_at_start.clone(),
            last_comparison: journal.since.plus(-COMPARE_INTERVAL_MS_MIN),
            changed_at: Some(journal.since),
        }
    }

    /// Compares the plans as often as a planner would have run before a time; returns the time of the first
    /// difference.
    fn first_difference_before(&mut self, before: Timestamp) -> Option<Timestamp> {
        while let Some(at) = self.next_comparison().filter(|at| *at < before) {
            if self.plans_differ_at(at) {
                return Some(at);
            }
        }
        None
    }

    /// True if a plan that was adopted at the instant of a change would have been different.
    fn differs_at_adoption(&mut self, event: &Event, at: Timestamp) -> bool {
        let is_adoption = matches!(event, Event::JobPlaced { .. } | Event::ClaimMade { .. });
        is_adoption && self.changed_at.is_some() && self.plans_differ_at(at)
    }

    fn plans_differ_at(&mut self, at: Timestamp) -> bool {
        self.last_comparison = at;
        self.changed_at = None;
        let decisions = |state: &State| without_scores(plan(state, at.max(state.clock)).plan);
        decisions(&self.real) != decisions(&self.changed)
    }

    fn next_comparison(&self) -> Option<Timestamp> {
        let periodic = || (!self.changed.queue.is_empty()).then(|| self.last_comparison.plus(REPLAN_INTERVAL_MS_MAX));
        self.changed_at.map(|at| at.max(self.last_comparison.plus(COMPARE_INTERVAL_MS_MIN))).or_else(periodic)
    }

    /// True if an accepted job would have been refused.
    fn would_refuse(&self, event: &Event, at: Timestamp) -> bool {
        let Some((by, submission)) = recorded_submission(&self.changed, event) else { return false };
        let command = Command::SubmitJob(SubmitJob { key: None, ..submission });
        self.changed.decide(&Actor::local(by), &command, at).is_err()
    }

    fn apply_event(&mut self, event: &Event, at: Timestamp) {
        self.real.apply(event);
        if !self.applied.suppresses(event) {
            self.changed.apply(&self.applied.amended_event(event));
        }
        if let Some(command) = self.applied.follow_up_command(event)
            && let Ok(decision) = self.changed.decide(&Actor::system(), &command, at)
        {
            decision.events.iter().for_each(|event| self.changed.apply(event));
        }
        self.work.add_event(event);
        if !needs_no_planning(event) {
            self.changed_at = Some(at);
        }
    }

    fn fork(&self, at: Timestamp, index: usize) -> HistoryFork {
        let (real, changed) = (self.real.clone(), self.changed.clone());
        HistoryFork { at, index, real, changed, work: self.work.clone() }
    }
}

/// True if an event does not call for planning.
fn needs_no_planning(event: &Event) -> bool {
    matches!(
        event,
        Event::JobPlaced { .. }
            | Event::ClaimMade { .. }
            | Event::PlanAdopted { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptStopping { .. }
            | Event::StartForecast { .. }
            | Event::WaitNoted { .. }
            | Event::Acted { .. }
    )
}

/// The decisions of a plan, without scores and snapshot.
fn without_scores(plan: Plan) -> Plan {
    let mut plan = Plan { snapshot: 0, now: Timestamp(0), ..plan };
    plan.starts.iter_mut().for_each(|start| start.score = None);
    plan
}
