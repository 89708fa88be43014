//! Trace replay: schedules the jobs of a recorded log with the planner, in simulated time.
//!
//! The jobs are submitted to a [`SimLoop`] at their recorded times and run for their recorded work. A preempted job
//! resumes from its last checkpoint, or from the start if it has none.

mod baseline;
mod gpu_occupancy;
mod job_specs;
mod replay_cluster;

use std::collections::BTreeMap;

use muster_core::facts::command::{Actor, Answer, Command, SubmitJob};
use muster_core::objects::job::PlacedTask;
use muster_core::objects::settings::Objective;
use muster_core::objects::tenant::TenantConfig;
use muster_core::{JobId, Settings, State, TenantId, Timestamp};

use crate::job_log::LoggedJob;
use crate::run_history::{IntervalEnd, RunHistory, RunInterval};
use crate::sim_loop::{AgentDelays, JobBehaviour, JobTransition, SimLoop, WorkAttempt};
use gpu_occupancy::GpuOccupancy;

pub use baseline::{BaselineUnsupported, replay_with_policy};
#[cfg(test)]
pub(crate) use job_specs::job_spec;
pub use replay_cluster::{InvalidClusterSpec, ReplayCluster};

/// If nothing runs and no job will arrive, jobs that have not started after this many rounds never start.
const ROUNDS_WITHOUT_TRANSITION_MAX: usize = 500;
const STEPS_PER_PROGRESS_REPORT: u64 = 256;

/// Assumptions about what the log does not record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReplayAssumptions {
    pub objective: Objective,
    /// The time limit of each job is its recorded work.
    pub are_durations_known: bool,
    /// The checkpoint interval of jobs without a recorded one. Without it, preempted jobs start over.
    pub checkpoint_every_ms: Option<i64>,
}

/// The progress of a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReplayProgress {
    /// Simulated time since the first submission.
    pub elapsed_ms: i64,
    pub finished_jobs: usize,
}

/// Replays the jobs of a log, sorted by submission, with the planner.
pub fn replay_trace(
    jobs: &[LoggedJob],
    cluster: &ReplayCluster,
    assumptions: &ReplayAssumptions,
    report_progress: &mut dyn FnMut(ReplayProgress),
) -> RunHistory {
    let mut replay = TraceReplay::new(jobs, cluster, *assumptions);
    let mut steps: u64 = 0;
    while let Some(next_ms) = replay.next_event_ms() {
        replay.advance_to(next_ms);
        steps += 1;
        if steps.is_multiple_of(STEPS_PER_PROGRESS_REPORT) {
            report_progress(replay.progress());
        }
    }
    report_progress(replay.progress());
    replay.into_history()
}

struct TraceReplay<'a> {
    jobs: &'a [LoggedJob],
    cluster: &'a ReplayCluster,
    assumptions: ReplayAssumptions,
    sim_loop: SimLoop,
    tenants: BTreeMap<&'a str, TenantId>,
    /// The log index of the next submission.
    next_arrival: usize,
    /// Submitted jobs that have not ended.
    live_jobs: BTreeMap<JobId, ReplayedJob>,
    occupancy: GpuOccupancy,
    history: RunHistory,
}

/// A submitted job that has not ended.
#[derive(Debug, Clone, Copy)]
struct ReplayedJob {
    log_index: usize,
    smallest_task_gpus: u32,
    held_gpus: Option<HeldGpus>,
}

/// The GPUs that an attempt holds.
#[derive(Debug, Clone, Copy)]
struct HeldGpus {
    since: Timestamp,
    gpu_milli: u64,
    milliwatts: u64,
}

impl<'a> TraceReplay<'a> {
    fn new(jobs: &'a [LoggedJob], cluster: &'a ReplayCluster, assumptions: ReplayAssumptions) -> TraceReplay<'a> {
        let now = Timestamp(jobs.first().map_or(0, |job| job.submit_ms));
        let mut replay = TraceReplay {
            jobs,
            cluster,
            assumptions,
            sim_loop: SimLoop::new(State::empty(), now, AgentDelays::IMMEDIATE),
            tenants: job_specs::tenant_ids(jobs),
            next_arrival: 0,
            live_jobs: BTreeMap::new(),
            occupancy: GpuOccupancy::new(cluster),
            history: RunHistory { gpus: cluster.gpus(), ..RunHistory::default() },
        };
        replay.set_up();
        replay
    }

    /// Creates the settings, the nodes, and an unlimited tenant for each name in the log.
    fn set_up(&mut self) {
        let settings = Settings { objective: self.assumptions.objective, stop_grace_ms: 0, ..Settings::default() };
        self.sim_loop.execute_as_system(&Command::Configure { settings: Box::new(settings) });
        for (node, facts) in self.cluster.nodes() {
            self.sim_loop
                .execute_as_system(&Command::RegisterNode { node: node.clone(), facts: Box::new(facts.clone()) });
        }
        for (name, id) in &self.tenants {
            let config = Box::new(TenantConfig::unlimited(name));
            self.sim_loop.execute_as_system(&Command::CreateTenant { id: id.clone(), config });
        }
    }

    /// The time of the next submission, end or round.
    fn next_event_ms(&mut self) -> Option<i64> {
        let arrival = self.jobs.get(self.next_arrival).map(|job| job.submit_ms);
        let next_ms = self.sim_loop.next_event_ms();
        let is_stuck = self.sim_loop.rounds_without_transition > ROUNDS_WITHOUT_TRANSITION_MAX;
        if is_stuck && arrival.is_none() && !self.sim_loop.has_live_timers() {
            return None;
        }
        [arrival, next_ms].into_iter().flatten().min()
    }

    fn advance_to(&mut self, now_ms: i64) {
        self.sim_loop.advance_to(now_ms);
        self.submit_arrivals();
        self.sim_loop.plan_if_due();
        for transition in std::mem::take(&mut self.sim_loop.transitions) {
            self.record_transition(transition);
        }
        self.occupancy.record_idle(self.sim_loop.now.0);
    }

    fn submit_arrivals(&mut self) {
        while let Some(job) = self.jobs.get(self.next_arrival).filter(|job| job.submit_ms <= self.sim_loop.now.0) {
            let log_index = self.next_arrival;
            self.next_arrival += 1;
            let tenant = self.tenants[job.tenant.as_str()].clone();
            let spec = job_specs::job_spec(job, tenant, self.cluster, &self.assumptions);
            let smallest_task_gpus = spec.tasks.iter().map(|group| group.each.gpus).filter(|gpus| *gpus > 0).min();
            let replayed =
                ReplayedJob { log_index, smallest_task_gpus: smallest_task_gpus.unwrap_or(0), held_gpus: None };
            let submission = SubmitJob {
                spec: spec.into(),
                array: None,
                hold: false,
                key: None,
                known_outcomes: BTreeMap::new(),
                known_key: None,
                is_operator: true,
            };
            match self.sim_loop.execute(&Actor::system(), &Command::SubmitJob(submission)) {
                Ok(Answer::Job(id)) => {
                    self.occupancy.add_waiting(replayed.smallest_task_gpus);
                    self.live_jobs.insert(id, replayed);
                    self.sim_loop.set_behaviour(id, JobBehaviour::new([WorkAttempt::completes_after(job.work_ms)], 0));
                }
                Ok(_) => {}
                Err(refusal) => self.history.refused.push((log_index, refusal.to_string())),
            }
        }
    }

    fn record_transition(&mut self, transition: JobTransition) {
        match transition {
            JobTransition::Placed { job, tasks } => {
                self.history.digest.add_start(job, &tasks, self.sim_loop.now);
                self.record_start(job, &tasks);
            }
            JobTransition::Released { job, useful_ms, is_own_exit, is_requeued } => {
                if !is_own_exit {
                    self.history.digest.add_stop(job, self.sim_loop.now);
                }
                let end = match (is_requeued, is_own_exit) {
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
        let Some(replayed) = self.live_jobs.get_mut(&job) else { return };
        let gpu_milli = tasks.iter().map(PlacedTask::gpu_milli).sum();
        replayed.held_gpus = Some(HeldGpus { since: self.sim_loop.now, gpu_milli, milliwatts });
        self.occupancy.remove_waiting(replayed.smallest_task_gpus);
        self.occupancy.allocate(job, tasks);
    }

    fn record_end(&mut self, job: JobId, useful_ms: i64, end: IntervalEnd) {
        self.occupancy.release(job);
        let Some(replayed) = self.live_jobs.get_mut(&job) else { return };
        let Some(HeldGpus { since, gpu_milli, milliwatts }) = replayed.held_gpus.take() else { return };
        let (log_index, smallest_task_gpus) = (replayed.log_index, replayed.smallest_task_gpus);
        let (from_ms, to_ms) = (since.0, self.sim_loop.now.0);
        let interval = RunInterval { log_index, from_ms, to_ms, gpu_milli, milliwatts, useful_ms, end };
        self.history.intervals.push(interval);
        match end {
            IntervalEnd::Preempted => self.occupancy.add_waiting(smallest_task_gpus),
            IntervalEnd::Done | IntervalEnd::TimeLimit => {
                self.live_jobs.remove(&job);
            }
        }
    }

    fn progress(&self) -> ReplayProgress {
        let first_ms = self.jobs.first().map_or(0, |job| job.submit_ms);
        ReplayProgress {
            elapsed_ms: self.sim_loop.now.0 - first_ms,
            finished_jobs: self.next_arrival - self.live_jobs.len(),
        }
    }

    /// Jobs that are still live have never started.
    fn into_history(self) -> RunHistory {
        let mut history = self.history;
        let reason = "never started, although the cluster is idle";
        history.refused.extend(self.live_jobs.values().map(|replayed| (replayed.log_index, reason.to_string())));
        history.refused.sort();
        history.rounds = self.sim_loop.round_count;
        history.idle = self.occupancy.idle_gpu_time();
        history
    }
}

#[cfg(test)]
mod tests;
