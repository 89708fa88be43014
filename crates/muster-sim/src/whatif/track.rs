//! Two states side by side on the track of what happened, one of them changed, until the planner would decide otherwise.

use muster_core::command::{Actor, Command, SubmitJob};
use muster_core::event::Event;
use muster_core::plan::{Plan, plan};
use muster_core::time::SECOND;
use muster_core::{State, Timestamp};
use muster_server::http::Fault;

use super::change::Otherwise;
use super::chronicle::Chronicle;
use super::future::submission;
use super::works::Works;
use crate::stage::LOOK_AGAIN_MS;

/// Least time between two looks.
const LOOK_MS: i64 = SECOND;

/// Where two histories part.
#[derive(Debug, Clone)]
pub struct Fork {
    /// When.
    pub at: Timestamp,
    /// The first entry that happened after it.
    pub index: usize,
    /// What was true then.
    pub real: State,
    /// What would have been true.
    pub changed: State,
    /// How long jobs had worked.
    pub works: Works,
}

/// The first moment at which something would have been decided otherwise; nothing if there is none.
pub fn first_difference(
    chronicle: &Chronicle,
    otherwise: &Otherwise,
    until: Timestamp,
) -> Result<Option<Fork>, Fault> {
    if otherwise.is_empty() {
        return Ok(None);
    }
    let mut track = Track::new(chronicle, otherwise);
    if otherwise.begins_anew() {
        return Ok(Some(track.fork(chronicle.since, 0)));
    }
    for (index, entry) in chronicle.entries.iter().enumerate() {
        if entry.at > until {
            return Ok(track.looks_until(until).map(|at| track.fork(at, index)));
        }
        if let Some(at) = track.looks_until(entry.at) {
            return Ok(Some(track.fork(at, index)));
        }
        if track.refuses(&entry.event, entry.at) || track.differs_at_adoption(&entry.event, entry.at) {
            return Ok(Some(track.fork(entry.at, index)));
        }
        track.note(&entry.event, entry.at);
    }
    let index = chronicle.entries.len();
    Ok(track.looks_until(until).map(|at| track.fork(at, index)))
}

/// A fork where nothing differs, before an entry.
#[cfg(test)]
pub fn fork_at(chronicle: &Chronicle, index: usize) -> Fork {
    let otherwise = Otherwise::default();
    let mut track = Track::new(chronicle, &otherwise);
    chronicle.entries[..index].iter().for_each(|entry| track.note(&entry.event, entry.at));
    track.fork(chronicle.entries[index].at, index)
}

struct Track<'a> {
    otherwise: &'a Otherwise,
    real: State,
    changed: State,
    works: Works,
    last_look: Timestamp,
    /// When something last happened since.
    stirred: Option<Timestamp>,
}

impl<'a> Track<'a> {
    fn new(chronicle: &Chronicle, otherwise: &'a Otherwise) -> Track<'a> {
        let mut changed = chronicle.start.clone();
        otherwise.events.iter().for_each(|event| changed.apply(event));
        Track {
            otherwise,
            real: chronicle.start.clone(),
            changed,
            works: chronicle.works_then.clone(),
            last_look: chronicle.since.plus(-LOOK_MS),
            stirred: Some(chronicle.since),
        }
    }

    /// Look as often as a planner would have before a moment; when it would have decided otherwise.
    fn looks_until(&mut self, moment: Timestamp) -> Option<Timestamp> {
        while let Some(at) = self.next_look().filter(|at| *at < moment) {
            if self.differs(at) {
                return Some(at);
            }
        }
        None
    }

    /// Whether a plan that was adopted at the very moment at which something happened would have been another one.
    fn differs_at_adoption(&mut self, event: &Event, at: Timestamp) -> bool {
        let adopts = matches!(event, Event::JobPlaced { .. } | Event::ClaimMade { .. });
        adopts && self.stirred.is_some() && self.differs(at)
    }

    fn differs(&mut self, at: Timestamp) -> bool {
        self.last_look = at;
        self.stirred = None;
        let decided = |state: &State| without_scores(plan(state, at.max(state.clock)).plan);
        decided(&self.real) != decided(&self.changed)
    }

    fn next_look(&self) -> Option<Timestamp> {
        let waits = || (!self.changed.queue.is_empty()).then(|| self.last_look.plus(LOOK_AGAIN_MS));
        self.stirred.map(|at| at.max(self.last_look.plus(LOOK_MS))).or_else(waits)
    }

    /// Whether a job that was accepted would not have been.
    fn refuses(&self, event: &Event, at: Timestamp) -> bool {
        let Some((by, ask)) = submission(&self.changed, event) else { return false };
        let command = Command::SubmitJob(SubmitJob { key: None, ..ask });
        self.changed.decide(&Actor::local(by), &command, at).is_err()
    }

    fn note(&mut self, event: &Event, at: Timestamp) {
        self.real.apply(event);
        if !self.otherwise.passes_over(event) {
            self.changed.apply(&self.otherwise.amended_event(event));
        }
        if let Some(command) = self.otherwise.consequence(event)
            && let Ok(decision) = self.changed.decide(&Actor::system(), &command, at)
        {
            decision.events.iter().for_each(|event| self.changed.apply(event));
        }
        self.works.note(event);
        if !is_followed_by_nothing(event) {
            self.stirred = Some(at);
        }
    }

    fn fork(&self, at: Timestamp, index: usize) -> Fork {
        let (real, changed) = (self.real.clone(), self.changed.clone());
        Fork { at, index, real, changed, works: self.works.clone() }
    }
}

/// Whether an event gives the planner nothing to do.
fn is_followed_by_nothing(event: &Event) -> bool {
    matches!(
        event,
        Event::JobPlaced { .. }
            | Event::ClaimMade { .. }
            | Event::PlanAdopted { .. }
            | Event::AttemptStarted { .. }
            | Event::AttemptStopping { .. }
            | Event::StartForeseen { .. }
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
