//! When waiting jobs will start: the planner's own future, played forward twice.
//!
//! Once everyone ends as such jobs usually do, once everyone takes as long as they may. A job starts between the two,
//! as far as can be told now; how far such ranges were wrong before widens them (`foresight`). Rounds are joined the
//! further ahead they are, so the far future costs little and is told roughly.
//!
//! Costs two copies of the state and up to `rounds_max` rounds each, so it is for a thread of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::command::{Actor, Command, Said};
use crate::event::Event;
use crate::ids::JobId;
use crate::job::{Attempt, Exit, Job};
use crate::plan::earliest::EarliestStarts;
use crate::plan::{Planned, plan};
use crate::state::State;
use crate::time::{SECOND, Timestamp};
use crate::verdict::Verdicts;

/// Moments closer together than one part in so many of the time until then are played as one.
const JOINED: i64 = 50;

/// When a job starts, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range {
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub to: Timestamp,
}

impl Range {
    /// The same within what is certain: a job never starts before its earliest start, and a reservation is a moment by
    /// which it starts, so no range begins after it.
    pub fn within(self, earliest: Timestamp, reserved: Option<Timestamp>) -> Range {
        let from = reserved.map_or(self.from, |at| self.from.min(at)).max(earliest);
        Range { from, to: self.to.max(from) }
    }

    /// The moment of a reservation as it is told beside this range. The planner reserves by time limits and cautious
    /// estimates, so the forecast may expect the start sooner, and then the reservation is kept by the end of the range.
    pub fn reservation(self, reserved: Timestamp) -> Timestamp {
        reserved.min(self.to).max(self.from)
    }
}

/// When waiting jobs start, as it was told at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forecast {
    /// When it was made.
    pub at: Timestamp,
    ranges: BTreeMap<JobId, Range>,
    /// How many started in it, and until when it reaches, in the slower of the two futures; nothing if it knows of
    /// everyone who waited.
    reach: Option<(u64, Timestamp)>,
}

impl Forecast {
    /// The range of a job; nothing if the forecast does not reach that far.
    pub fn of(&self, job: JobId) -> Option<Range> {
        self.ranges.get(&job).copied()
    }

    /// A rough range for the job at a position in the order, if nothing better is known: as fast as the others went.
    pub fn of_position(&self, position: u64) -> Option<Range> {
        let (started, until) = self.reach?;
        let per_job = until.since(self.at).checked_div(started as i64)?;
        let middle = per_job.saturating_mul(position as i64);
        Some(Range { from: until.max(self.at.plus(middle / 2)), to: until.plus(middle.saturating_mul(2)) })
    }

    /// All ranges, by job.
    pub fn ranges(&self) -> impl Iterator<Item = (JobId, Range)> {
        self.ranges.iter().map(|(job, range)| (*job, *range))
    }
}

/// Look ahead, for at most so many rounds.
pub fn forecast(state: &State, now: Timestamp, rounds_max: usize) -> Forecast {
    let usual = Future::of(state, now, Pace::Usual).play(rounds_max);
    let mut earliest = EarliestStarts::new(state, now);
    let longest = Future::of(state, now, Pace::Longest).play(rounds_max);
    let mut ranges = BTreeMap::new();
    for (job, one) in &usual.starts {
        // A job that starts in one of the futures only is beyond what can be told.
        if let Some(other) = longest.starts.get(job) {
            let range = Range { from: *one.min(other), to: *one.max(other) };
            let range = state.foresight.stretched(range, now);
            ranges.insert(*job, range.within(earliest.of(*job), usual.reserved.get(job).copied()));
        }
    }
    let reaches_all = longest.starts.len() == longest.waiting.len() || longest.now <= now;
    let reach = (!reaches_all).then_some((longest.starts.len() as u64, longest.now));
    Forecast { at: now, ranges, reach }
}

/// How long everyone takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Usual,
    Longest,
}

/// The cluster as it goes on from here, if nobody new comes.
struct Future {
    state: State,
    now: Timestamp,
    pace: Pace,
    /// Who waited at the beginning.
    waiting: BTreeSet<JobId>,
    starts: BTreeMap<JobId, Timestamp>,
    /// Reservations of the first round.
    reserved: BTreeMap<JobId, Timestamp>,
    ends: BTreeSet<(Timestamp, JobId)>,
}

impl Future {
    fn of(state: &State, now: Timestamp, pace: Pace) -> Future {
        let waiting = state.jobs.values().filter(|job| job.is_queued()).map(|job| job.id).collect();
        let mut future = Future {
            state: state.clone(),
            now: now.max(state.clock),
            pace,
            waiting,
            starts: BTreeMap::new(),
            reserved: BTreeMap::new(),
            ends: BTreeSet::new(),
        };
        // Nobody asks policies there: who sleeps after a failure is taken to start again.
        future.state.policies.failures.clear();
        let active = state.jobs.values().filter_map(|job| Some((job, job.attempt()?)));
        future.ends = active.map(|(job, attempt)| (future.end(job, attempt), job.id)).collect();
        future
    }

    fn play(mut self, rounds_max: usize) -> Future {
        for round in 0..rounds_max {
            let verdicts = self.round();
            if round == 0 {
                let reserved = |job: &JobId| Some((*job, verdicts.reserved_at(*job)?));
                self.reserved = self.waiting.iter().filter_map(reserved).collect();
            }
            if self.starts.len() == self.waiting.len() || !self.go_on() {
                break;
            }
        }
        self
    }

    fn round(&mut self) -> Verdicts {
        let Planned { plan, verdicts } = plan(&self.state, self.now);
        if plan.is_empty() {
            return verdicts;
        }
        for event in self.tell(&Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }) {
            match event {
                Event::JobPlaced { job, .. } => self.start(job),
                // Who is told to stop does so.
                Event::AttemptStopping { job, .. } => self.stop(job),
                _ => {}
            }
        }
        verdicts
    }

    fn start(&mut self, id: JobId) {
        let Some((job, attempt)) = self.state.jobs.get(&id).and_then(|job| Some((job, job.attempt()?)))
        else {
            return;
        };
        self.ends.insert((self.end(job, attempt), id));
        if self.waiting.contains(&id) {
            self.starts.entry(id).or_insert(self.now);
        }
        self.report(id, &Said::Started);
    }

    fn stop(&mut self, id: JobId) {
        self.ends.retain(|(_, job)| *job != id);
        let takes_ms = match self.pace {
            Pace::Usual => SECOND,
            Pace::Longest => self.state.settings.stop_grace_ms,
        };
        self.ends.insert((self.now.plus(takes_ms), id));
    }

    /// Go to the next moment at which something ends, wakes or is free again. False if there is none.
    fn go_on(&mut self) -> bool {
        let end = self.ends.first().map(|(end, _)| *end);
        let windows =
            self.state.windows.values().map(|window| window.until).filter(|until| *until > self.now);
        let next = end.into_iter().chain(self.state.queue.next_wake()).chain(windows).min();
        let Some(next) = next else { return false };
        let began = self.now;
        self.now = next.max(began.plus(1));
        let joined = self.now.plus(self.now.since(began) / JOINED);
        while let Some((end, job)) = self.ends.first().copied().filter(|(end, _)| *end <= joined) {
            self.ends.remove(&(end, job));
            let stopped = self.attempt(job).is_some_and(|attempt| attempt.stopping.is_some());
            let exit = if stopped { Exit::Signal { signal: 15 } } else { Exit::Code { code: 0 } };
            self.report(job, &Said::Ended { exit, stopped, ended_ms_ago: None });
        }
        self.tell(&Command::Tick);
        true
    }

    fn attempt(&self, job: JobId) -> Option<&Attempt> {
        self.state.jobs.get(&job).and_then(Job::attempt)
    }

    /// Every agent that has a part in a job speaks.
    fn report(&mut self, job: JobId, said: &Said) {
        let Some((number, nodes)) = self.attempt(job).map(|attempt| (attempt.number, attempt.nodes())) else {
            return;
        };
        for node in nodes {
            self.tell(&Command::ReportTask { node, job, attempt: number, said: said.clone() });
        }
    }

    fn tell(&mut self, command: &Command) -> Vec<Event> {
        let decision = self.state.decide(&Actor::system(), command, self.now);
        let events = decision.map(|decision| decision.events).unwrap_or_default();
        events.iter().for_each(|event| self.state.apply(event));
        events
    }

    /// When an attempt ends in this future.
    fn end(&self, job: &Job, attempt: &Attempt) -> Timestamp {
        if let Some(stopping) = &attempt.stopping {
            return stopping.since.plus(stopping.grace_ms).max(self.now.plus(SECOND));
        }
        let began = attempt.started_at.unwrap_or(attempt.placed_at);
        let end = began.plus(self.lasts_ms(job));
        // Who has outlived it ends soon, or takes a good deal longer.
        let ran_ms = self.now.since(began);
        let more_ms = if self.pace == Pace::Usual { ran_ms / 8 } else { ran_ms };
        if end > self.now { end } else { self.now.plus(more_ms.max(SECOND)) }
    }

    fn lasts_ms(&self, job: &Job) -> i64 {
        let known = self.state.usual_and_longest_ms(&job.spec);
        let default_ms = self.state.settings.default_runtime_ms;
        match (self.pace, job.spec.time_limit_ms, known) {
            (Pace::Usual, limit, Some((usual, _))) => usual.min(limit.unwrap_or(i64::MAX)),
            (Pace::Usual, limit, None) => limit.unwrap_or(default_ms) / 2,
            (Pace::Longest, Some(limit), _) => limit,
            (Pace::Longest, None, Some((_, longest))) => longest,
            (Pace::Longest, None, None) => default_ms,
        }
    }
}
