//! A rehearsal: the jobs of a log meet the product itself, in simulated time.
//!
//! They come to a [`Stage`] as the log says, and each works as long as it did. Who is displaced comes back with the work
//! it had saved, or begins anew where it saves nothing.

mod baseline;
mod gpu_occupancy;
mod replay_cluster;
mod job_specs;

use std::collections::BTreeMap;

use muster_core::facts::command::{Actor, Answer, Command, SubmitJob};
use muster_core::objects::job::PlacedTask;
use muster_core::objects::settings::Objective;
use muster_core::objects::tenant::TenantConfig;
use muster_core::{JobId, Settings, State, TenantId, Timestamp};

use crate::run_history::{IntervalEnd, RunHistory, RunInterval};
use crate::job_log::LoggedJob;
use crate::sim_loop::{AgentDelays, JobTransition, JobBehaviour, SimLoop, WorkAttempt};
use gpu_occupancy::GpuOccupancy;

pub use baseline::{BaselineUnsupported, replay_with_policy};
pub use replay_cluster::{InvalidClusterSpec, ReplayCluster};
#[cfg(test)]
pub(crate) use job_specs::job_spec as job_spec;

/// With nothing running and nothing to come, who has not started after so many rounds never will.
const ROUNDS_WITHOUT_TRANSITION_MAX: usize = 500;
/// How many steps go by between two words about how far it is.
const STEPS_PER_PROGRESS_REPORT: u64 = 256;

/// What is assumed where the log does not tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayAssumptions {
    /// What the order of jobs is for.
    pub objective: Objective,
    /// Whether jobs tell how long they run, as their time limit.
    pub are_durations_known: bool,
    /// How often jobs save their work of which the log does not say it. Without this they begin anew when displaced.
    pub checkpoint_every_ms: Option<i64>,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayProgress {
    /// The simulated time since the first job came.
    pub elapsed_ms: i64,
    /// Jobs that are over.
    pub finished_jobs: usize,
}

/// Let the jobs of a log, in the order in which they came, meet the product.
pub fn replay_trace(
    jobs: &[LoggedJob],
    site: &ReplayCluster,
    assumptions: &ReplayAssumptions,
    watch: &mut dyn FnMut(ReplayProgress),
) -> RunHistory {
    let mut rehearsal = TraceReplay::new(jobs, site, *assumptions);
    let mut steps: u64 = 0;
    while let Some(next_ms) = rehearsal.next_event_ms() {
        rehearsal.advance_to(next_ms);
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_PROGRESS_REPORT) {
            watch(rehearsal.progress());
        }
    }
    watch(rehearsal.progress());
    rehearsal.into_history()
}

/// Everything there is while it goes on.
struct TraceReplay<'a> {
    jobs: &'a [LoggedJob],
    cluster: &'a ReplayCluster,
    assumptions: ReplayAssumptions,
    sim_loop: SimLoop,
    tenants: BTreeMap<&'a str, TenantId>,
    /// The first job that has not come.
    next_arrival: usize,
    /// Jobs that have come and are not over.
    live_jobs: BTreeMap<JobId, ReplayedJob>,
    occupancy: GpuOccupancy,
    history: RunHistory,
}

/// A job that has come and is not over.
#[derive(Debug, Clone, Copy)]
struct ReplayedJob {
    /// Its place in the log.
    log_index: usize,
    /// GPUs of its smallest task.
    smallest_task_gpus: u32,
    held_gpus: Option<HeldGpus>,
}

/// What an attempt holds.
#[derive(Debug, Clone, Copy)]
struct HeldGpus {
    since: Timestamp,
    gpu_milli: u64,
    milliwatts: u64,
}

impl<'a> TraceReplay<'a> {
    fn new(jobs: &'a [LoggedJob], site: &'a ReplayCluster, assumptions: ReplayAssumptions) -> TraceReplay<'a> {
        let now = Timestamp(jobs.first().map_or(0, |job| job.submit_ms));
        let mut rehearsal = TraceReplay {
            jobs,
            cluster: site,
            assumptions,
            sim_loop: SimLoop::new(State::empty(), now, AgentDelays::IMMEDIATE),
            tenants: job_specs::tenant_ids(jobs),
            next_arrival: 0,
            live_jobs: BTreeMap::new(),
            occupancy: GpuOccupancy::new(site),
            history: RunHistory { gpus: site.gpus(), ..RunHistory::default() },
        };
        rehearsal.set_up();
        rehearsal
    }

    /// The settings, the nodes, and a tenant for each name in the log, which may have everything.
    fn set_up(&mut self) {
        let settings =
            Settings { objective: self.assumptions.objective, stop_grace_ms: 0, ..Settings::default() };
        self.sim_loop.execute_as_system(&Command::Configure { settings: Box::new(settings) });
        for (node, facts) in self.cluster.nodes() {
            self.sim_loop.execute_as_system(&Command::RegisterNode { node: node.clone(), facts: Box::new(facts.clone()) });
        }
        for (name, id) in &self.tenants {
            let config = Box::new(TenantConfig::unlimited(name));
            self.sim_loop.execute_as_system(&Command::CreateTenant { id: id.clone(), config });
        }
    }

    /// The next arrival, end, or round.
    fn next_event_ms(&mut self) -> Option<i64> {
        let arrival = self.jobs.get(self.next_arrival).map(|job| job.submit_ms);
        let next_ms = self.sim_loop.next_event_ms();
        let in_vain = self.sim_loop.rounds_without_transition > ROUNDS_WITHOUT_TRANSITION_MAX;
        if in_vain && arrival.is_none() && !self.sim_loop.has_live_timers() {
            return None;
        }
        [arrival, next_ms].into_iter().flatten().min()
    }

    fn advance_to(&mut self, now_ms: i64) {
        self.sim_loop.advance_to(now_ms);
        self.submit_arrivals();
        self.sim_loop.plan_if_due();
        for happening in std::mem::take(&mut self.sim_loop.transitions) {
            self.record_transition(happening);
        }
        self.occupancy.record_idle(self.sim_loop.now.0);
    }

    fn submit_arrivals(&mut self) {
        while let Some(job) = self.jobs.get(self.next_arrival).filter(|job| job.submit_ms <= self.sim_loop.now.0) {
            let place = self.next_arrival;
            self.next_arrival += 1;
            let tenant = self.tenants[job.tenant.as_str()].clone();
            let spec = job_specs::job_spec(job, tenant, self.cluster, &self.assumptions);
            let least_gpus = spec.tasks.iter().map(|group| group.each.gpus).filter(|gpus| *gpus > 0).min();
            let live = ReplayedJob { log_index: place, smallest_task_gpus: least_gpus.unwrap_or(0), held_gpus: None };
            let ask = SubmitJob {
                spec: spec.into(),
                array: None,
                hold: false,
                key: None,
                known_outcomes: BTreeMap::new(),
                known_key: None,
                is_operator: true,
            };
            match self.sim_loop.execute(&Actor::system(), &Command::SubmitJob(ask)) {
                Ok(Answer::Job(id)) => {
                    self.occupancy.add_waiting(live.smallest_task_gpus);
                    self.live_jobs.insert(id, live);
                    self.sim_loop.set_behaviour(id, JobBehaviour::new([WorkAttempt::completes_after(job.work_ms)], 0));
                }
                Ok(_) => {}
                Err(refusal) => self.history.refused.push((place, refusal.to_string())),
            }
        }
    }

    fn record_transition(&mut self, happening: JobTransition) {
        match happening {
            JobTransition::Placed { job, tasks } => {
                self.history.digest.add_start(job, &tasks, self.sim_loop.now);
                self.record_start(job, &tasks);
            }
            JobTransition::Released { job, useful_ms, is_own_exit: by_itself, is_requeued: comes_back } => {
                if !by_itself {
                    self.history.digest.add_stop(job, self.sim_loop.now);
                }
                let end = match (comes_back, by_itself) {
                    (true, _) => IntervalEnd::Preempted,
                    (false, true) => IntervalEnd::Done,
                    (false, false) => IntervalEnd::TimeLimit,
                };
                self.record_end(job, useful_ms, end);
            }
        }
    }

    fn record_start(&mut self, job: JobId, tasks: &[PlacedTask]) {
        let milliwatts = self.sim_loop.state.milliwatts_of(tasks);
        let Some(live) = self.live_jobs.get_mut(&job) else { return };
        let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
        live.held_gpus = Some(HeldGpus { since: self.sim_loop.now, gpu_milli, milliwatts });
        self.occupancy.remove_waiting(live.smallest_task_gpus);
        self.occupancy.allocate(job, tasks);
    }

    fn record_end(&mut self, job: JobId, useful_ms: i64, end: IntervalEnd) {
        self.occupancy.release(job);
        let Some(live) = self.live_jobs.get_mut(&job) else { return };
        let Some(HeldGpus { since, gpu_milli, milliwatts }) = live.held_gpus.take() else { return };
        let (place, least_gpus) = (live.log_index, live.smallest_task_gpus);
        let (from_ms, to_ms) = (since.0, self.sim_loop.now.0);
        let stretch = RunInterval { log_index: place, from_ms, to_ms, gpu_milli, milliwatts, useful_ms, end };
        self.history.intervals.push(stretch);
        match end {
            IntervalEnd::Preempted => self.occupancy.add_waiting(least_gpus),
            IntervalEnd::Done | IntervalEnd::TimeLimit => {
                self.live_jobs.remove(&job);
            }
        }
    }

    fn progress(&self) -> ReplayProgress {
        let first_ms = self.jobs.first().map_or(0, |job| job.submit_ms);
        ReplayProgress { elapsed_ms: self.sim_loop.now.0 - first_ms, finished_jobs: self.next_arrival - self.live_jobs.len() }
    }

    /// Who is still there has never started.
    fn into_history(self) -> RunHistory {
        let mut history = self.history;
        let never = "nothing runs any more, and still there is no room for it";
        history.refused.extend(self.live_jobs.values().map(|live| (live.log_index, never.to_string())));
        history.refused.sort();
        history.rounds = self.sim_loop.round_count;
        history.idle = self.occupancy.idle_gpu_time();
        history
    }
}

#[cfg(test)]
mod tests;
