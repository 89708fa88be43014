//! The event loop of a baseline replay: at each event the policy selects the jobs that run.

use super::{ReplayOutcome, TraceJob, UniformNodes};

/// A submitted job that has not ended.
#[derive(Debug, Clone, Copy)]
pub struct LiveJob<'a> {
    pub trace_index: usize,
    pub spec: &'a TraceJob,
    /// The remaining runtime. Policies without known durations do not read it.
    pub remaining_s: f64,
    /// How long the job has held its GPUs.
    pub ran_s: f64,
    pub is_running: bool,
    /// The predicted end, if no event comes before it.
    ends_s: f64,
}

impl LiveJob<'_> {
    /// The remaining work in GPU-seconds.
    pub fn remaining_gpu_s(&self) -> f64 {
        self.remaining_s * f64::from(self.spec.gpus)
    }

    /// The attained service in GPU-seconds.
    pub fn ran_gpu_s(&self) -> f64 {
        self.ran_s * f64::from(self.spec.gpus)
    }
}

/// A policy that selects the running jobs.
pub trait QueuePolicy {
    /// Sets `is_running` of every live job. The policy may reorder the jobs; new arrivals are the last.
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes);

    /// Called when a job has ended and its GPUs are free.
    fn job_ended(&mut self, _now_s: f64, _job: &LiveJob) {}

    /// The time of an additional selection, if the policy wants one.
    fn next_wake_s(&self, _now_s: f64, _live: &[LiveJob]) -> Option<f64> {
        None
    }
}

/// Replays a trace on nodes of 8 GPUs. Jobs that are larger than the cluster are left out.
pub fn replay(jobs: &[TraceJob], nodes: usize, policy: &mut dyn QueuePolicy) -> ReplayOutcome {
    replay_on(jobs, UniformNodes::new(nodes), policy)
}

/// Replays a trace on the given nodes.
pub fn replay_on(jobs: &[TraceJob], nodes: UniformNodes, policy: &mut dyn QueuePolicy) -> ReplayOutcome {
    let mut state = ReplayState::new(jobs, nodes);
    while let Some(next_s) = state.next_event_s(policy) {
        state.advance_to(next_s, policy);
    }
    ReplayOutcome::from_end_times(jobs, &state.ended_s, state.preemptions, state.lost_gpu_s)
}

struct ReplayState<'a> {
    jobs: &'a [TraceJob],
    nodes: UniformNodes,
    now_s: f64,
    /// The jobs that are not submitted yet, in reverse order of submission.
    arrivals: Vec<usize>,
    live_jobs: Vec<LiveJob<'a>>,
    ended_s: Vec<f64>,
    preemptions: u64,
    lost_gpu_s: f64,
}

impl<'a> ReplayState<'a> {
    fn new(jobs: &'a [TraceJob], nodes: UniformNodes) -> ReplayState<'a> {
        let mut arrivals: Vec<usize> = (0..jobs.len()).filter(|job| jobs[*job].gpus <= nodes.gpus()).rev().collect();
        arrivals.sort_by(|one, other| jobs[*other].submit_s.total_cmp(&jobs[*one].submit_s));
        let ended_s = jobs.iter().map(|job| job.submit_s).collect();
        ReplayState {
            jobs,
            nodes,
            now_s: 0.0,
            arrivals,
            live_jobs: Vec::new(),
            ended_s,
            preemptions: 0,
            lost_gpu_s: 0.0,
        }
    }

    /// The time of the next arrival, end, or selection that the policy requested.
    fn next_event_s(&self, policy: &dyn QueuePolicy) -> Option<f64> {
        let arrival = self.arrivals.last().map(|job| self.jobs[*job].submit_s);
        let ends = self.live_jobs.iter().filter(|job| job.is_running).map(|job| job.ends_s);
        let wake = policy.next_wake_s(self.now_s, &self.live_jobs).filter(|_| !self.live_jobs.is_empty());
        ends.chain(arrival).chain(wake).min_by(f64::total_cmp)
    }

    fn advance_to(&mut self, now_s: f64, policy: &mut dyn QueuePolicy) {
        let since_s = now_s - self.now_s;
        self.now_s = now_s;
        self.end_finished(since_s, policy);
        self.credit_work(since_s);
        self.admit_arrivals();
        let was_running: Vec<(usize, bool)> =
            self.live_jobs.iter().map(|job| (job.trace_index, job.is_running)).collect();
        policy.select_running(now_s, &mut self.live_jobs, &mut self.nodes);
        self.preemptions += self.count_preempted(&was_running);
        for job in self.live_jobs.iter_mut().filter(|job| job.is_running) {
            job.ends_s = now_s + job.remaining_s;
        }
    }

    fn end_finished(&mut self, since_s: f64, policy: &mut dyn QueuePolicy) {
        let now_s = self.now_s;
        let (nodes, ended_s) = (&mut self.nodes, &mut self.ended_s);
        self.live_jobs.retain(|job| {
            let has_ended = job.is_running && job.ends_s <= now_s;
            if has_ended {
                nodes.release(job.trace_index);
                ended_s[job.trace_index] = now_s;
                policy.job_ended(now_s, &LiveJob { ran_s: job.ran_s + since_s, remaining_s: 0.0, ..*job });
            }
            !has_ended
        });
    }

    /// The start-up time is deducted between any two events: that is the published rule.
    fn credit_work(&mut self, since_s: f64) {
        for job in self.live_jobs.iter_mut().filter(|job| job.is_running) {
            let done_s = (since_s - job.spec.overhead_s).max(0.0);
            job.remaining_s -= done_s;
            job.ran_s += since_s;
            self.lost_gpu_s += (since_s - done_s) * f64::from(job.spec.gpus);
        }
    }

    fn admit_arrivals(&mut self) {
        while let Some(job) = self.arrivals.pop_if(|job| self.jobs[*job].submit_s <= self.now_s) {
            let spec = &self.jobs[job];
            let (remaining_s, ends_s) = (spec.work_s, f64::INFINITY);
            self.live_jobs.push(LiveJob { trace_index: job, spec, remaining_s, ran_s: 0.0, is_running: false, ends_s });
        }
    }

    /// The number of jobs that ran before and do not run now.
    fn count_preempted(&self, was_running: &[(usize, bool)]) -> u64 {
        let mut is_running_now = vec![false; self.jobs.len()];
        self.live_jobs.iter().for_each(|job| is_running_now[job.trace_index] = job.is_running);
        was_running.iter().filter(|(job, was_running)| *was_running && !is_running_now[*job]).count() as u64
    }
}
