//! Replays a log with a baseline policy: gangs of whole GPUs on equal nodes.
//!
//! Baseline policies schedule GPUs only: no models, cores or memory, no tenants, no limits. A preempted job resumes
//! where it was stopped and loses nothing, which favours policies that preempt.

use crate::baseline_replay::{LiveJob, QueuePolicy, TraceJob, UniformNodes, replay_on};
use crate::job_log::LoggedJob;
use crate::run_history::{IdleGpuAccumulator, IntervalEnd, RunHistory, RunInterval};

use super::{ReplayCluster, ReplayProgress, STEPS_PER_PROGRESS_REPORT};

/// Why a baseline policy cannot replay a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BaselineUnsupported {
    #[error("baseline policies need nodes with equal numbers of GPUs")]
    UnequalNodes,
    #[error("baseline policies need jobs with whole GPUs")]
    GpuShares,
}

/// Replays the jobs of a log with a baseline policy.
pub fn replay_with_policy(
    jobs: &[LoggedJob],
    cluster: &ReplayCluster,
    policy: &mut dyn QueuePolicy,
    report_progress: &mut dyn FnMut(ReplayProgress),
) -> Result<RunHistory, BaselineUnsupported> {
    let node_gpus = cluster.uniform_node_gpus().ok_or(BaselineUnsupported::UnequalNodes)?;
    if jobs.iter().any(uses_gpu_shares) {
        return Err(BaselineUnsupported::GpuShares);
    }
    let first_ms = jobs.first().map_or(0, |job| job.submit_ms);
    let trace: Vec<TraceJob> = jobs.iter().map(|job| trace_job(job, first_ms)).collect();
    let history = RunHistory { gpus: cluster.gpus(), ..RunHistory::default() };
    let milliwatts_each = cluster.milliwatts() / u64::from(cluster.gpus().max(1));
    let mut recorded = RecordedPolicy {
        policy,
        report_progress,
        jobs,
        first_ms,
        milliwatts_per_gpu: milliwatts_each,
        running_since_ms: vec![None; jobs.len()],
        idle: IdleGpuAccumulator::default(),
        history,
        finished_jobs: 0,
    };
    replay_on(&trace, UniformNodes::with_gpus_per_node(cluster.nodes().len(), node_gpus), &mut recorded);
    let RecordedPolicy { mut history, idle, .. } = recorded;
    let too_large = (0..jobs.len()).filter(|job| jobs[*job].gpus.total() > history.gpus);
    let why = |job: usize| (job, format!("needs {} GPUs; the cluster has {}", jobs[job].gpus.total(), cluster.gpus()));
    history.refused = too_large.map(why).collect();
    history.idle = idle.total();
    Ok(history)
}

fn uses_gpu_shares(job: &LoggedJob) -> bool {
    let groups = job.spec.iter().flat_map(|spec| &spec.tasks);
    groups.into_iter().any(|group| group.each.gpus > 0 && group.each.gpu_compute_milli < 1_000)
}

fn trace_job(job: &LoggedJob, first_ms: i64) -> TraceJob {
    TraceJob {
        gpus: job.gpus.total(),
        submit_s: (job.submit_ms - first_ms) as f64 / 1_000.0,
        work_s: work_ms_within_limit(job) as f64 / 1_000.0,
        overhead_s: 0.0,
        model: job.name.clone(),
    }
}

/// The work of a job, cut at its time limit.
fn work_ms_within_limit(job: &LoggedJob) -> i64 {
    job.time_limit_ms.map_or(job.work_ms, |limit| limit.min(job.work_ms))
}

/// A policy whose decisions are recorded as a history.
struct RecordedPolicy<'a> {
    policy: &'a mut dyn QueuePolicy,
    report_progress: &'a mut dyn FnMut(ReplayProgress),
    jobs: &'a [LoggedJob],
    first_ms: i64,
    milliwatts_per_gpu: u64,
    /// The start of the current interval of each job.
    running_since_ms: Vec<Option<i64>>,
    idle: IdleGpuAccumulator,
    history: RunHistory,
    finished_jobs: usize,
}

impl RecordedPolicy<'_> {
    fn log_time_ms(&self, now_s: f64) -> i64 {
        self.first_ms + (now_s * 1_000.0).round() as i64
    }

    fn record_running(&mut self, job: usize, running: bool, now_ms: i64) {
        match (self.running_since_ms[job], running) {
            (None, true) => self.running_since_ms[job] = Some(now_ms),
            (Some(since_ms), false) => self.close_interval(job, since_ms, now_ms, IntervalEnd::Preempted),
            _ => {}
        }
    }

    fn close_interval(&mut self, job: usize, from_ms: i64, to_ms: i64, end: IntervalEnd) {
        self.running_since_ms[job] = None;
        let gpus = u64::from(self.jobs[job].gpus.total());
        self.history.intervals.push(RunInterval {
            log_index: job,
            from_ms,
            to_ms,
            gpu_milli: gpus * 1_000,
            milliwatts: gpus * self.milliwatts_per_gpu,
            useful_ms: to_ms - from_ms,
            end,
        });
    }

    fn record_idle(&mut self, now_ms: i64, live: &[LiveJob], nodes: &UniformNodes) {
        let waiting = live.iter().filter(|job| !job.is_running);
        let node_gpus = nodes.gpus() / (nodes.free_by_node().len() as u32).max(1);
        let Some(smallest) = waiting.map(|job| job.spec.gpus.min(node_gpus)).min() else {
            return self.idle.record(now_ms, 0, Some(0));
        };
        let running: u32 = live.iter().filter(|job| job.is_running).map(|job| job.spec.gpus).sum();
        let idle = nodes.gpus() - running;
        // A policy that does not place jobs on nodes has no fragmentation.
        let is_placed = nodes.free_gpus() == idle;
        let too_small = nodes.free_by_node().iter().filter(|gpus| **gpus < smallest);
        let fragments = is_placed.then(|| too_small.map(|gpus| u64::from(*gpus)).sum());
        self.idle.record(now_ms, u64::from(idle), fragments);
    }
}

impl QueuePolicy for RecordedPolicy<'_> {
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        self.policy.select_running(now_s, live, nodes);
        let now_ms = self.log_time_ms(now_s);
        for job in live.iter() {
            self.record_running(job.trace_index, job.is_running, now_ms);
        }
        self.record_idle(now_ms, live, nodes);
        self.history.rounds += 1;
        if self.history.rounds.is_multiple_of(STEPS_PER_PROGRESS_REPORT) {
            (self.report_progress)(ReplayProgress {
                elapsed_ms: now_ms - self.first_ms,
                finished_jobs: self.finished_jobs,
            });
        }
    }

    fn job_ended(&mut self, now_s: f64, job: &LiveJob) {
        let now_ms = self.log_time_ms(now_s);
        let logged = &self.jobs[job.trace_index];
        let end =
            if work_ms_within_limit(logged) < logged.work_ms { IntervalEnd::TimeLimit } else { IntervalEnd::Done };
        if let Some(since_ms) = self.running_since_ms[job.trace_index] {
            self.close_interval(job.trace_index, since_ms, now_ms, end);
        }
        self.finished_jobs += 1;
        self.policy.job_ended(now_s, job);
    }

    fn next_wake_s(&self, now_s: f64, live: &[LiveJob]) -> Option<f64> {
        self.policy.next_wake_s(now_s, live)
    }
}
