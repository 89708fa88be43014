//! A rehearsal: the jobs of a log meet the product itself, in simulated time.
//!
//! They come to a [`Stage`] as the log says, and each works as long as it did. Who is displaced comes back with the work
//! it had saved, or begins anew where it saves nothing.

mod baseline;
mod floor;
mod site;
mod spec;

use std::collections::BTreeMap;

use muster_core::command::{Actor, Answer, Command, SubmitJob};
use muster_core::job::PlacedTask;
use muster_core::settings::Objective;
use muster_core::tenant::TenantConfig;
use muster_core::{JobId, Settings, State, TenantId, Timestamp};

use crate::history::{End, History, Stretch};
use crate::jobs::LoggedJob;
use crate::stage::{Delays, Happening, Player, Stage, Trial};
use floor::Floor;

pub use baseline::{NotForBaselines, against};
pub use site::{BadWords, Site};
#[cfg(test)]
pub(crate) use spec::of as job_spec;

/// With nothing running and nothing to come, who has not started after so many rounds never will.
const ROUNDS_IN_VAIN: usize = 500;
/// How many steps go by between two words about how far it is.
const STEPS_PER_WORD: u64 = 256;

/// What is assumed where the log does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Assumptions {
    /// What the order of jobs is for.
    pub objective: Objective,
    /// Whether jobs tell how long they run, as their time limit.
    pub told: bool,
    /// How often jobs save their work of which the log does not say it. Without this they begin anew when displaced.
    pub saves_every_ms: Option<i64>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The simulated time since the first job came.
    pub elapsed_ms: i64,
    /// Jobs that are over.
    pub over: usize,
}

/// Let the jobs of a log, in the order in which they came, meet the product.
pub fn rehearse(
    jobs: &[LoggedJob],
    site: &Site,
    assumptions: &Assumptions,
    watch: &mut dyn FnMut(Progress),
) -> History {
    let mut rehearsal = Rehearsal::new(jobs, site, *assumptions);
    let mut steps: u64 = 0;
    while let Some(next_ms) = rehearsal.next_ms() {
        rehearsal.go_to(next_ms);
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_WORD) {
            watch(rehearsal.progress());
        }
    }
    watch(rehearsal.progress());
    rehearsal.into_history()
}

/// Everything there is while it goes on.
struct Rehearsal<'a> {
    jobs: &'a [LoggedJob],
    site: &'a Site,
    assumptions: Assumptions,
    stage: Stage,
    tenants: BTreeMap<&'a str, TenantId>,
    /// The first job that has not come.
    coming: usize,
    /// Jobs that have come and are not over.
    live: BTreeMap<JobId, Live>,
    floor: Floor,
    history: History,
}

/// A job that has come and is not over.
#[derive(Debug, Clone, Copy)]
struct Live {
    /// Its place in the log.
    place: usize,
    /// GPUs of its smallest task.
    least_gpus: u32,
    held: Option<Held>,
}

/// What an attempt holds.
#[derive(Debug, Clone, Copy)]
struct Held {
    since: Timestamp,
    gpu_milli: u64,
    milliwatts: u64,
}

impl<'a> Rehearsal<'a> {
    fn new(jobs: &'a [LoggedJob], site: &'a Site, assumptions: Assumptions) -> Rehearsal<'a> {
        let now = Timestamp(jobs.first().map_or(0, |job| job.submit_ms));
        let mut rehearsal = Rehearsal {
            jobs,
            site,
            assumptions,
            stage: Stage::new(State::empty(), now, Delays::NONE),
            tenants: spec::tenant_names(jobs),
            coming: 0,
            live: BTreeMap::new(),
            floor: Floor::new(site),
            history: History { gpus: site.gpus(), ..History::default() },
        };
        rehearsal.set_up();
        rehearsal
    }

    /// The settings, the nodes, and a tenant for each name in the log, which may have everything.
    fn set_up(&mut self) {
        let settings =
            Settings { objective: self.assumptions.objective, stop_grace_ms: 0, ..Settings::default() };
        self.stage.tell(&Command::Configure { settings: Box::new(settings) });
        for (node, facts) in self.site.nodes() {
            self.stage.tell(&Command::RegisterNode { node: node.clone(), facts: Box::new(facts.clone()) });
        }
        for (name, id) in &self.tenants {
            let config = Box::new(TenantConfig::unlimited(name));
            self.stage.tell(&Command::CreateTenant { id: id.clone(), config });
        }
    }

    /// The next arrival, end, or round.
    fn next_ms(&mut self) -> Option<i64> {
        let arrival = self.jobs.get(self.coming).map(|job| job.submit_ms);
        let next_ms = self.stage.next_ms();
        let in_vain = self.stage.in_vain > ROUNDS_IN_VAIN;
        if in_vain && arrival.is_none() && !self.stage.is_anything_due() {
            return None;
        }
        [arrival, next_ms].into_iter().flatten().min()
    }

    fn go_to(&mut self, now_ms: i64) {
        self.stage.go_to(now_ms);
        self.let_come();
        self.stage.plan();
        for happening in std::mem::take(&mut self.stage.happened) {
            self.record(happening);
        }
        self.floor.note_free(self.stage.now.0);
    }

    fn let_come(&mut self) {
        while let Some(job) = self.jobs.get(self.coming).filter(|job| job.submit_ms <= self.stage.now.0) {
            let place = self.coming;
            self.coming += 1;
            let tenant = self.tenants[job.tenant.as_str()].clone();
            let spec = spec::of(job, tenant, self.site, &self.assumptions);
            let least_gpus = spec.tasks.iter().map(|group| group.each.gpus).filter(|gpus| *gpus > 0).min();
            let live = Live { place, least_gpus: least_gpus.unwrap_or(0), held: None };
            let ask = SubmitJob {
                spec: spec.into(),
                array: None,
                hold: false,
                key: None,
                known_outcomes: BTreeMap::new(),
                known_key: None,
                is_operator: true,
            };
            match self.stage.ask(&Actor::system(), &Command::SubmitJob(ask)) {
                Ok(Answer::Job(id)) => {
                    self.floor.waits(live.least_gpus);
                    self.live.insert(id, live);
                    self.stage.play(id, Player::new([Trial::done_after(job.work_ms)], 0));
                }
                Ok(_) => {}
                Err(refusal) => self.history.refused.push((place, refusal.to_string())),
            }
        }
    }

    fn record(&mut self, happening: Happening) {
        match happening {
            Happening::Placed { job, tasks } => {
                self.history.digest.add_start(job, &tasks, self.stage.now);
                self.record_start(job, &tasks);
            }
            Happening::Left { job, useful_ms, by_itself, comes_back } => {
                if !by_itself {
                    self.history.digest.add_stop(job, self.stage.now);
                }
                let end = match (comes_back, by_itself) {
                    (true, _) => End::Displaced,
                    (false, true) => End::Done,
                    (false, false) => End::TimeLimit,
                };
                self.record_end(job, useful_ms, end);
            }
        }
    }

    fn record_start(&mut self, job: JobId, tasks: &[PlacedTask]) {
        let milliwatts = self.stage.state.milliwatts_of(tasks);
        let Some(live) = self.live.get_mut(&job) else { return };
        let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
        live.held = Some(Held { since: self.stage.now, gpu_milli, milliwatts });
        self.floor.waits_no_more(live.least_gpus);
        self.floor.take(job, tasks);
    }

    fn record_end(&mut self, job: JobId, useful_ms: i64, end: End) {
        self.floor.give_back(job);
        let Some(live) = self.live.get_mut(&job) else { return };
        let Some(Held { since, gpu_milli, milliwatts }) = live.held.take() else { return };
        let (place, least_gpus) = (live.place, live.least_gpus);
        let (from_ms, to_ms) = (since.0, self.stage.now.0);
        let stretch = Stretch { job: place, from_ms, to_ms, gpu_milli, milliwatts, useful_ms, end };
        self.history.stretches.push(stretch);
        match end {
            End::Displaced => self.floor.waits(least_gpus),
            End::Done | End::TimeLimit => {
                self.live.remove(&job);
            }
        }
    }

    fn progress(&self) -> Progress {
        let first_ms = self.jobs.first().map_or(0, |job| job.submit_ms);
        Progress { elapsed_ms: self.stage.now.0 - first_ms, over: self.coming - self.live.len() }
    }

    /// Who is still there has never started.
    fn into_history(self) -> History {
        let mut history = self.history;
        let never = "nothing runs any more, and still there is no room for it";
        history.refused.extend(self.live.values().map(|live| (live.place, never.to_string())));
        history.refused.sort();
        history.rounds = self.stage.rounds;
        history.free = self.floor.free();
        history
    }
}

#[cfg(test)]
mod tests;
