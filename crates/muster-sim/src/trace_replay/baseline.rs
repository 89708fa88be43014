//! The published policies on the same log: gangs of whole GPUs on nodes that are alike.
//!
//! They know nothing but GPUs: no models, cores or memory, no tenants, no limits. Who is stopped goes on where it was
//! stopped and loses nothing, which flatters those that stop jobs.

use crate::run_history::{IntervalEnd, IdleGpuAccumulator, RunHistory, RunInterval};
use crate::job_log::LoggedJob;
use crate::baseline_replay::{LiveJob, UniformNodes, QueuePolicy, TraceJob, replay_on};

use super::{ReplayProgress, STEPS_PER_PROGRESS_REPORT, ReplayCluster};

/// Why the published policies cannot be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BaselineUnsupported {
    /// They know only one size.
    #[error("the published policies are for nodes that have the same number of GPUs")]
    UnequalNodes,
    /// They know only whole GPUs.
    #[error("the published policies are for jobs that have whole GPUs")]
    GpuShares,
}

/// Let the jobs of a log meet a published policy.
pub fn replay_with_policy(
    jobs: &[LoggedJob],
    site: &ReplayCluster,
    policy: &mut dyn QueuePolicy,
    watch: &mut dyn FnMut(ReplayProgress),
) -> Result<RunHistory, BaselineUnsupported> {
    let each = site.uniform_node_gpus().ok_or(BaselineUnsupported::UnequalNodes)?;
    if jobs.iter().any(uses_gpu_shares) {
        return Err(BaselineUnsupported::GpuShares);
    }
    let first_ms = jobs.first().map_or(0, |job| job.submit_ms);
    let trace: Vec<TraceJob> = jobs.iter().map(|job| trace_job(job, first_ms)).collect();
    let history = RunHistory { gpus: site.gpus(), ..RunHistory::default() };
    let milliwatts_each = site.milliwatts() / u64::from(site.gpus().max(1));
    let mut watched = RecordedPolicy {
        policy,
        report_progress: watch,
        jobs,
        first_ms,
        milliwatts_per_gpu: milliwatts_each,
        running_since_ms: vec![None; jobs.len()],
        idle: IdleGpuAccumulator::default(),
        history,
        finished_jobs: 0,
    };
    replay_on(&trace, UniformNodes::with_gpus_per_node(site.nodes().len(), each), &mut watched);
    let RecordedPolicy { mut history, idle: free, .. } = watched;
    let larger = (0..jobs.len()).filter(|job| jobs[*job].gpus.total() > history.gpus);
    let why =
        |job: usize| (job, format!("it needs {} GPUs, there are {}", jobs[job].gpus.total(), site.gpus()));
    history.refused = larger.map(why).collect();
    history.idle = free.total();
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

/// As long as it works, or until its limit.
fn work_ms_within_limit(job: &LoggedJob) -> i64 {
    job.time_limit_ms.map_or(job.work_ms, |limit| limit.min(job.work_ms))
}

/// A policy, and what is seen of it.
struct RecordedPolicy<'a> {
    policy: &'a mut dyn QueuePolicy,
    report_progress: &'a mut dyn FnMut(ReplayProgress),
    jobs: &'a [LoggedJob],
    first_ms: i64,
    milliwatts_per_gpu: u64,
    /// Since when each job runs.
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
        let Some(least) = waiting.map(|job| job.spec.gpus.min(node_gpus)).min() else {
            return self.idle.record(now_ms, 0, Some(0));
        };
        let running: u32 = live.iter().filter(|job| job.is_running).map(|job| job.spec.gpus).sum();
        let free = nodes.gpus() - running;
        // Who does not seat jobs says nothing about fragments.
        let seated = nodes.free_gpus() == free;
        let of_no_use = nodes.free_by_node().iter().filter(|gpus| **gpus < least);
        let fragments = seated.then(|| of_no_use.map(|gpus| u64::from(*gpus)).sum());
        self.idle.record(now_ms, u64::from(free), fragments);
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
            (self.report_progress)(ReplayProgress { elapsed_ms: now_ms - self.first_ms, finished_jobs: self.finished_jobs });
        }
    }

    fn job_ended(&mut self, now_s: f64, job: &LiveJob) {
        let now_ms = self.log_time_ms(now_s);
        let logged = &self.jobs[job.trace_index];
        let end = if work_ms_within_limit(logged) < logged.work_ms { IntervalEnd::TimeLimit } else { IntervalEnd::Done };
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
