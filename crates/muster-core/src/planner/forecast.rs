//! Forecast: the start ranges of waiting jobs, from two simulations of the planner on copies of the state.
//!
//! In one simulation every job runs for its usual runtime, in the other for its longest. The range of a job lies
//! between its two starts; calibration widens it by the errors of past ranges (`estimate/calibration.rs`). The further
//! ahead rounds are, the more of them are joined, so the far future costs little and is less precise.
//!
//! A forecast costs two copies of the state and up to `rounds_max` rounds each, so it belongs on a thread of its own.

pub(crate) mod earliest_start;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::command::{Actor, Command, TaskReport};
use crate::facts::event::Event;
use crate::ids::JobId;
use crate::objects::job::{Attempt, Exit, Job};
use crate::objects::start_range::StartRange;
use crate::planner::Verdicts;
use crate::planner::forecast::earliest_start::EarliestStarts;
use crate::planner::{Planned, plan};
use crate::state::State;
use crate::time::{SECOND, Timestamp};

/// Attempts that end within one part in this many of a time step after it are processed in the same round.
const JOIN_DIVISOR: i64 = 50;

/// The start ranges of waiting jobs, computed at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Forecast {
    /// Time of the computation.
    pub at: Timestamp,
    ranges: BTreeMap<JobId, StartRange>,
    /// Number of starts and last simulated time in the slower simulation; `None` if it covers every waiting job.
    reach: Option<(u64, Timestamp)>,
}

impl Forecast {
    /// The start range of a job; `None` beyond the reach of the forecast.
    pub fn of(&self, job: JobId) -> Option<StartRange> {
        self.ranges.get(&job).copied()
    }

    /// A rough range for the job at a queue position beyond the reach, extrapolated from the mean time between starts.
    pub fn of_position(&self, position: u64) -> Option<StartRange> {
        let (started, until) = self.reach?;
        let per_job = until.since(self.at).checked_div(started as i64)?;
        let middle = per_job.saturating_mul(position as i64);
        Some(StartRange { from: until.max(self.at.plus(middle / 2)), to: until.plus(middle.saturating_mul(2)) })
    }

    /// All ranges, by job.
    pub fn ranges(&self) -> impl Iterator<Item = (JobId, StartRange)> {
        self.ranges.iter().map(|(job, range)| (*job, *range))
    }
}

/// Forecast the starts of all waiting jobs, with at most `rounds_max` rounds in each simulation.
pub fn forecast(state: &State, now: Timestamp, rounds_max: usize) -> Forecast {
    let usual = SimulatedFuture::of(state, now, Pace::Usual).run(rounds_max);
    let mut earliest = EarliestStarts::new(state, now);
    let longest = SimulatedFuture::of(state, now, Pace::Longest).run(rounds_max);
    let mut ranges = BTreeMap::new();
    for (job, usual_start) in &usual.starts {
        // A job that starts in only one of the simulations is beyond the reach.
        if let Some(longest_start) = longest.starts.get(job) {
            let (from, to) = (*usual_start.min(longest_start), *usual_start.max(longest_start));
            let range = StartRange { from, to };
            let range = state.calibration.calibrated(range, now);
            ranges.insert(*job, range.within(earliest.of(*job), usual.reserved.get(job).copied()));
        }
    }
    let reaches_all = longest.starts.len() == longest.waiting.len() || longest.now <= now;
    let reach = (!reaches_all).then_some((longest.starts.len() as u64, longest.now));
    Forecast { at: now, ranges, reach }
}

/// The runtime of jobs in a simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Usual,
    Longest,
}

/// A simulation of the cluster from now on, without new submissions.
struct SimulatedFuture {
    state: State,
    now: Timestamp,
    pace: Pace,
    /// Jobs that waited at the beginning.
    waiting: BTreeSet<JobId>,
    starts: BTreeMap<JobId, Timestamp>,
    /// Reservations of the first round.
    reserved: BTreeMap<JobId, Timestamp>,
    ends: BTreeSet<(Timestamp, JobId)>,
}

impl SimulatedFuture {
    fn of(state: &State, now: Timestamp, pace: Pace) -> SimulatedFuture {
        let waiting = state.jobs.values().filter(|job| job.is_queued()).map(|job| job.id).collect();
        let mut future = SimulatedFuture {
            state: state.clone(),
            now: now.max(state.clock),
            pace,
            waiting,
            starts: BTreeMap::new(),
            reserved: BTreeMap::new(),
            ends: BTreeSet::new(),
        };
        // Policies are not called in a simulation: a job that waits for a `retry` answer is assumed to start again.
        future.state.policies.failures.clear();
        let active = state.jobs.values().filter_map(|job| Some((job, job.attempt()?)));
        future.ends = active.map(|(job, attempt)| (future.end(job, attempt), job.id)).collect();
        future
    }

    fn run(mut self, rounds_max: usize) -> SimulatedFuture {
        for round in 0..rounds_max {
            let verdicts = self.round();
            if round == 0 {
                let reserved = |job: &JobId| Some((*job, verdicts.reserved_at(*job)?));
                self.reserved = self.waiting.iter().filter_map(reserved).collect();
            }
            if self.starts.len() == self.waiting.len() || !self.advance() {
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
        for event in self.apply_command(&Command::AdoptPlan { plan: Box::new(plan), epoch: 0 }) {
            match event {
                Event::JobPlaced { job, .. } => self.start(job),
                // A job that must stop does stop.
                Event::AttemptStopping { job, .. } => self.stop(job),
                _ => {}
            }
        }
        verdicts
    }

    fn start(&mut self, id: JobId) {
        let Some((job, attempt)) = self.state.jobs.get(&id).and_then(|job| Some((job, job.attempt()?))) else {
            return;
        };
        self.ends.insert((self.end(job, attempt), id));
        if self.waiting.contains(&id) {
            self.starts.entry(id).or_insert(self.now);
        }
        self.report(id, &TaskReport::Started);
    }

    fn stop(&mut self, id: JobId) {
        self.ends.retain(|(_, job)| *job != id);
        let takes_ms = match self.pace {
            Pace::Usual => SECOND,
            Pace::Longest => self.state.settings.stop_grace_ms,
        };
        self.ends.insert((self.now.plus(takes_ms), id));
    }

    /// Advance to the next end of an attempt, wake time of a job or end of a window. False if there is none.
    fn advance(&mut self) -> bool {
        let end = self.ends.first().map(|(end, _)| *end);
        let windows = self.state.windows.values().map(|window| window.until).filter(|until| *until > self.now);
        let next = end.into_iter().chain(self.state.queue.next_wake()).chain(windows).min();
        let Some(next) = next else { return false };
        let began = self.now;
        self.now = next.max(began.plus(1));
        let joined = self.now.plus(self.now.since(began) / JOIN_DIVISOR);
        while let Some((end, job)) = self.ends.first().copied().filter(|(end, _)| *end <= joined) {
            self.ends.remove(&(end, job));
            let stopped = self.attempt(job).is_some_and(|attempt| attempt.stopping.is_some());
            let exit = if stopped { Exit::Signal { signal: 15 } } else { Exit::Code { code: 0 } };
            self.report(job, &TaskReport::Ended { exit, stopped, ended_ms_ago: None });
        }
        self.apply_command(&Command::Tick);
        true
    }

    fn attempt(&self, job: JobId) -> Option<&Attempt> {
        self.state.jobs.get(&job).and_then(Job::attempt)
    }

    /// Send a report from the agent of every node of a job.
    fn report(&mut self, job: JobId, report: &TaskReport) {
        let Some((number, nodes)) = self.attempt(job).map(|attempt| (attempt.number, attempt.nodes())) else {
            return;
        };
        for node in nodes {
            self.apply_command(&Command::ReportTask { node, job, attempt: number, report: report.clone() });
        }
    }

    fn apply_command(&mut self, command: &Command) -> Vec<Event> {
        let decision = self.state.decide(&Actor::system(), command, self.now);
        let events = decision.map(|decision| decision.events).unwrap_or_default();
        events.iter().for_each(|event| self.state.apply(event));
        events
    }

    /// The end of an attempt in this simulation.
    fn end(&self, job: &Job, attempt: &Attempt) -> Timestamp {
        if let Some(stopping) = &attempt.stopping {
            return stopping.since.plus(stopping.grace_ms).max(self.now.plus(SECOND));
        }
        let began = attempt.started_at.unwrap_or(attempt.placed_at);
        let end = began.plus(self.lasts_ms(job));
        // An attempt that has overrun ends soon at the usual pace, and runs as long again at the longest pace.
        let ran_ms = self.now.since(began);
        let more_ms = if self.pace == Pace::Usual { ran_ms / 8 } else { ran_ms };
        if end > self.now { end } else { self.now.plus(more_ms.max(SECOND)) }
    }

    fn lasts_ms(&self, job: &Job) -> i64 {
        let (model, limit_ms) = (self.state.runtime_model(&job.spec.tenant, &job.spec.user), job.spec.time_limit_ms);
        match self.pace {
            Pace::Usual => model.usual_ms(&job.spec.name, limit_ms),
            Pace::Longest => model.longest_ms(&job.spec.name, limit_ms),
        }
    }
}
