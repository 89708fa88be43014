//! The event loop: time goes from event to event, and at each of them the policy chooses who runs.

use super::{UniformNodes, ReplayOutcome, TraceJob};

/// A job that has come and is not done.
#[derive(Debug, Clone, Copy)]
pub struct LiveJob<'a> {
    /// Its place in the trace.
    pub trace_index: usize,
    /// What was recorded of it.
    pub spec: &'a TraceJob,
    /// How much longer it runs. Policies that are not told durations do not look here.
    pub remaining_s: f64,
    /// For how long it held its GPUs.
    pub ran_s: f64,
    /// Whether it runs from now on.
    pub is_running: bool,
    /// When it ends if nothing happens before.
    ends_s: f64,
}

impl LiveJob<'_> {
    /// GPU-seconds of work that are left.
    pub fn remaining_gpu_s(&self) -> f64 {
        self.remaining_s * f64::from(self.spec.gpus)
    }

    /// GPU-seconds that it has had.
    pub fn ran_gpu_s(&self) -> f64 {
        self.ran_s * f64::from(self.spec.gpus)
    }
}

/// Says who runs.
pub trait QueuePolicy {
    /// Set `running` of every job that is live to whether it runs from now on. The order of the jobs is the policy's own:
    /// those that have just come are the last.
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes);

    /// A job has ended. Its seat is free already.
    fn job_ended(&mut self, _now_s: f64, _job: &LiveJob) {}

    /// When it wants to choose again, whatever happens before.
    fn next_wake_s(&self, _now_s: f64, _live: &[LiveJob]) -> Option<f64> {
        None
    }
}

/// Play a trace on so many nodes. Jobs that are larger than the cluster never come.
pub fn replay(jobs: &[TraceJob], nodes: usize, policy: &mut dyn QueuePolicy) -> ReplayOutcome {
    replay_on(jobs, UniformNodes::new(nodes), policy)
}

/// The same on nodes of another size.
pub fn replay_on(jobs: &[TraceJob], nodes: UniformNodes, policy: &mut dyn QueuePolicy) -> ReplayOutcome {
    let mut play = ReplayState::new(jobs, nodes);
    while let Some(next_s) = play.next_event_s(policy) {
        play.advance_to(next_s, policy);
    }
    ReplayOutcome::from_end_times(jobs, &play.ended_s, play.preemptions, play.lost_gpu_s)
}

struct ReplayState<'a> {
    jobs: &'a [TraceJob],
    nodes: UniformNodes,
    now_s: f64,
    /// Jobs that have not come yet, the last first.
    arrivals: Vec<usize>,
    live_jobs: Vec<LiveJob<'a>>,
    ended_s: Vec<f64>,
    preemptions: u64,
    lost_gpu_s: f64,
}

impl<'a> ReplayState<'a> {
    fn new(jobs: &'a [TraceJob], nodes: UniformNodes) -> ReplayState<'a> {
        let mut coming: Vec<usize> =
            (0..jobs.len()).filter(|job| jobs[*job].gpus <= nodes.gpus()).rev().collect();
        coming.sort_by(|one, other| jobs[*other].submit_s.total_cmp(&jobs[*one].submit_s));
        let ended_s = jobs.iter().map(|job| job.submit_s).collect();
        ReplayState { jobs, nodes, now_s: 0.0, arrivals: coming, live_jobs: Vec::new(), ended_s, preemptions: 0, lost_gpu_s: 0.0 }
    }

    /// The next arrival, end, or moment the policy asked for.
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
        let ran: Vec<(usize, bool)> = self.live_jobs.iter().map(|job| (job.trace_index, job.is_running)).collect();
        policy.select_running(now_s, &mut self.live_jobs, &mut self.nodes);
        self.preemptions += self.count_preempted(&ran);
        for job in self.live_jobs.iter_mut().filter(|job| job.is_running) {
            job.ends_s = now_s + job.remaining_s;
        }
    }

    fn end_finished(&mut self, since_s: f64, policy: &mut dyn QueuePolicy) {
        let now_s = self.now_s;
        let (nodes, ended_s) = (&mut self.nodes, &mut self.ended_s);
        self.live_jobs.retain(|job| {
            let over = job.is_running && job.ends_s <= now_s;
            if over {
                nodes.release(job.trace_index);
                ended_s[job.trace_index] = now_s;
                policy.job_ended(now_s, &LiveJob { ran_s: job.ran_s + since_s, remaining_s: 0.0, ..*job });
            }
            !over
        });
    }

    /// The time it takes to start is taken off between any two events: that is the published rule.
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
            let (left_s, ends_s) = (spec.work_s, f64::INFINITY);
            self.live_jobs.push(LiveJob { trace_index: job, spec, remaining_s: left_s, ran_s: 0.0, is_running: false, ends_s });
        }
    }

    /// How many ran and do not any more.
    fn count_preempted(&self, ran: &[(usize, bool)]) -> u64 {
        let mut runs = vec![false; self.jobs.len()];
        self.live_jobs.iter().for_each(|job| runs[job.trace_index] = job.is_running);
        ran.iter().filter(|(job, ran)| *ran && !runs[*job]).count() as u64
    }
}
