//! Two states side by side on the track of what happened, one of them changed, until the planner would decide otherwise.

use muster_core::facts::command::{Actor, Command, SubmitJob};
use muster_core::facts::event::Event;
use muster_core::facts::plan::Plan;
use muster_core::planner::plan;
use muster_core::time::SECOND;
use muster_core::{State, Timestamp};
use muster_server::whatif::WhatIfError;

use super::applied_change::AppliedChange;
use super::continuation::recorded_submission;
use super::journal_history::JournalHistory;
use super::work_history::WorkHistory;
use crate::sim_loop::REPLAN_INTERVAL_MS_MAX;

/// Least time between two looks.
const COMPARE_INTERVAL_MS_MIN: i64 = SECOND;

/// Where two histories part.
#[derive(Debug, Clone)]
pub struct HistoryFork {
    /// When.
    pub at: Timestamp,
    /// The first entry that happened after it.
    pub index: usize,
    /// What was true then.
    pub real: State,
    /// What would have been true.
    pub changed: State,
    /// How long jobs had worked.
    pub works: WorkHistory,
}

/// The first moment at which something would have been decided otherwise; nothing if there is none.
pub fn first_difference(
    chronicle: &JournalHistory,
    otherwise: &AppliedChange,
    until: Timestamp,
) -> Result<Option<HistoryFork>, WhatIfError> {
    if otherwise.is_empty() {
        return Ok(None);
    }
    let mut track = DivergenceTracker::new(chronicle, otherwise);
    if otherwise.replans_from_start() {
        return Ok(Some(track.fork(chronicle.since, 0)));
    }
    for (index, entry) in chronicle.entries.iter().enumerate() {
        if entry.at > until {
            return Ok(track.first_difference_before(until).map(|at| track.fork(at, index)));
        }
        if let Some(at) = track.first_difference_before(entry.at) {
            return Ok(Some(track.fork(at, index)));
        }
        if track.would_refuse(&entry.event, entry.at) || track.differs_at_adoption(&entry.event, entry.at) {
            return Ok(Some(track.fork(entry.at, index)));
        }
        track.apply_event(&entry.event, entry.at);
    }
    let index = chronicle.entries.len();
    Ok(track.first_difference_before(until).map(|at| track.fork(at, index)))
}

/// A fork where nothing differs, before an entry.
#[cfg(test)]
pub fn fork_at(chronicle: &JournalHistory, index: usize) -> HistoryFork {
    let otherwise = AppliedChange::default();
    let mut track = DivergenceTracker::new(chronicle, &otherwise);
    chronicle.entries[..index].iter().for_each(|entry| track.apply_event(&entry.event, entry.at));
    track.fork(chronicle.entries[index].at, index)
}

struct DivergenceTracker<'a> {
    otherwise: &'a AppliedChange,
    real: State,
    changed: State,
    works: WorkHistory,
    last_comparison: Timestamp,
    /// When something last happened since.
    changed_at: Option<Timestamp>,
}

impl<'a> DivergenceTracker<'a> {
    fn new(chronicle: &JournalHistory, otherwise: &'a AppliedChange) -> DivergenceTracker<'a> {
        let mut changed = chronicle.start_state.clone();
        otherwise.events.iter().for_each(|event| changed.apply(event));
        DivergenceTracker {
            otherwise,
            real: chronicle.start_state.clone(),
            changed,
            works: chronicle.work_at_start.clone(),
            last_comparison: chronicle.since.plus(-COMPARE_INTERVAL_MS_MIN),
            changed_at: Some(chronicle.since),
        }
    }

    /// Look as often as a planner would have before a moment; when it would have decided otherwise.
    fn first_difference_before(&mut self, moment: Timestamp) -> Option<Timestamp> {
        while let Some(at) = self.next_comparison().filter(|at| *at < moment) {
            if self.plans_differ_at(at) {
                return Some(at);
            }
        }
        None
    }

    /// Whether a plan that was adopted at the very moment at which something happened would have been another one.
    fn differs_at_adoption(&mut self, event: &Event, at: Timestamp) -> bool {
        let adopts = matches!(event, Event::JobPlaced { .. } | Event::ClaimMade { .. });
        adopts && self.changed_at.is_some() && self.plans_differ_at(at)
    }

    fn plans_differ_at(&mut self, at: Timestamp) -> bool {
        self.last_comparison = at;
        self.changed_at = None;
        let decided = |state: &State| without_scores(plan(state, at.max(state.clock)).plan);
        decided(&self.real) != decided(&self.changed)
    }

    fn next_comparison(&self) -> Option<Timestamp> {
        let waits =
            || (!self.changed.queue.is_empty()).then(|| self.last_comparison.plus(REPLAN_INTERVAL_MS_MAX));
        self.changed_at.map(|at| at.max(self.last_comparison.plus(COMPARE_INTERVAL_MS_MIN))).or_else(waits)
    }

    /// Whether a job that was accepted would not have been.
    fn would_refuse(&self, event: &Event, at: Timestamp) -> bool {
        let Some((by, ask)) = recorded_submission(&self.changed, event) else { return false };
        let command = Command::SubmitJob(SubmitJob { key: None, ..ask });
        self.changed.decide(&Actor::local(by), &command, at).is_err()
    }

    fn apply_event(&mut self, event: &Event, at: Timestamp) {
        self.real.apply(event);
        if !self.otherwise.suppresses(event) {
            self.changed.apply(&self.otherwise.amended_event(event));
        }
        if let Some(command) = self.otherwise.follow_up_command(event)
            && let Ok(decision) = self.changed.decide(&Actor::system(), &command, at)
        {
            decision.events.iter().for_each(|event| self.changed.apply(event));
        }
        self.works.add_event(event);
        if !needs_no_planning(event) {
            self.changed_at = Some(at);
        }
    }

    fn fork(&self, at: Timestamp, index: usize) -> HistoryFork {
        let (real, changed) = (self.real.clone(), self.changed.clone());
        HistoryFork { at, index, real, changed, works: self.works.clone() }
    }
}

/// Whether an event gives the planner nothing to do.
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

/// What is decided: what it would have scored is not.
fn without_scores(plan: Plan) -> Plan {
    let mut plan = Plan { snapshot: 0, now: Timestamp(0), ..plan };
    plan.starts.iter_mut().for_each(|start| start.score = None);
    plan
}
