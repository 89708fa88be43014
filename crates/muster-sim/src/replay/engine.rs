//! The event loop: time goes from event to event, and at each of them the policy chooses who runs.

use super::{Nodes, Outcome, TraceJob};

/// A job that has come and is not done.
#[derive(Debug, Clone, Copy)]
pub struct Live<'a> {
    /// Its place in the trace.
    pub job: usize,
    /// What was recorded of it.
    pub spec: &'a TraceJob,
    /// How much longer it runs. Policies that are not told durations do not look here.
    pub left_s: f64,
    /// For how long it held its GPUs.
    pub ran_s: f64,
    /// Whether it runs from now on.
    pub running: bool,
    /// When it ends if nothing happens before.
    ends_s: f64,
}

impl Live<'_> {
    /// GPU-seconds of work that are left.
    pub fn left_gpu_s(&self) -> f64 {
        self.left_s * f64::from(self.spec.gpus)
    }

    /// GPU-seconds that it has had.
    pub fn ran_gpu_s(&self) -> f64 {
        self.ran_s * f64::from(self.spec.gpus)
    }
}

/// Says who runs.
pub trait Policy {
    /// Set `running` of every job that is live to whether it runs from now on. The order of the jobs is the policy's own:
    /// those that have just come are the last.
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes);

    /// A job has ended. Its seat is free already.
    fn ended(&mut self, _now_s: f64, _job: &Live) {}

    /// When it wants to choose again, whatever happens before.
    fn wakes_s(&self, _now_s: f64, _live: &[Live]) -> Option<f64> {
        None
    }
}

/// Play a trace on so many nodes. Jobs that are larger than the cluster never come.
pub fn replay(jobs: &[TraceJob], nodes: usize, policy: &mut dyn Policy) -> Outcome {
    replay_on(jobs, Nodes::new(nodes), policy)
}

/// The same on nodes of another size.
pub fn replay_on(jobs: &[TraceJob], nodes: Nodes, policy: &mut dyn Policy) -> Outcome {
    let mut play = Play::new(jobs, nodes);
    while let Some(next_s) = play.next_event_s(policy) {
        play.go_to(next_s, policy);
    }
    Outcome::of(jobs, &play.ended_s, play.preemptions, play.lost_gpu_s)
}

struct Play<'a> {
    jobs: &'a [TraceJob],
    nodes: Nodes,
    now_s: f64,
    /// Jobs that have not come yet, the last first.
    coming: Vec<usize>,
    live: Vec<Live<'a>>,
    ended_s: Vec<f64>,
    preemptions: u64,
    lost_gpu_s: f64,
}

impl<'a> Play<'a> {
    fn new(jobs: &'a [TraceJob], nodes: Nodes) -> Play<'a> {
        let mut coming: Vec<usize> =
            (0..jobs.len()).filter(|job| jobs[*job].gpus <= nodes.gpus()).rev().collect();
        coming.sort_by(|one, other| jobs[*other].submit_s.total_cmp(&jobs[*one].submit_s));
        let ended_s = jobs.iter().map(|job| job.submit_s).collect();
        Play { jobs, nodes, now_s: 0.0, coming, live: Vec::new(), ended_s, preemptions: 0, lost_gpu_s: 0.0 }
    }

    /// The next arrival, end, or moment the policy asked for.
    fn next_event_s(&self, policy: &dyn Policy) -> Option<f64> {
        let arrival = self.coming.last().map(|job| self.jobs[*job].submit_s);
        let ends = self.live.iter().filter(|job| job.running).map(|job| job.ends_s);
        let wake = policy.wakes_s(self.now_s, &self.live).filter(|_| !self.live.is_empty());
        ends.chain(arrival).chain(wake).min_by(f64::total_cmp)
    }

    fn go_to(&mut self, now_s: f64, policy: &mut dyn Policy) {
        let since_s = now_s - self.now_s;
        self.now_s = now_s;
        self.end(since_s, policy);
        self.credit(since_s);
        self.let_come();
        let ran: Vec<(usize, bool)> = self.live.iter().map(|job| (job.job, job.running)).collect();
        policy.choose(now_s, &mut self.live, &mut self.nodes);
        self.preemptions += self.stopped(&ran);
        for job in self.live.iter_mut().filter(|job| job.running) {
            job.ends_s = now_s + job.left_s;
        }
    }

    fn end(&mut self, since_s: f64, policy: &mut dyn Policy) {
        let now_s = self.now_s;
        let (nodes, ended_s) = (&mut self.nodes, &mut self.ended_s);
        self.live.retain(|job| {
            let over = job.running && job.ends_s <= now_s;
            if over {
                nodes.release(job.job);
                ended_s[job.job] = now_s;
                policy.ended(now_s, &Live { ran_s: job.ran_s + since_s, left_s: 0.0, ..*job });
            }
            !over
        });
    }

    /// The time it takes to start is taken off between any two events: that is the published rule.
    fn credit(&mut self, since_s: f64) {
        for job in self.live.iter_mut().filter(|job| job.running) {
            let done_s = (since_s - job.spec.overhead_s).max(0.0);
            job.left_s -= done_s;
            job.ran_s += since_s;
            self.lost_gpu_s += (since_s - done_s) * f64::from(job.spec.gpus);
        }
    }

    fn let_come(&mut self) {
        while let Some(job) = self.coming.pop_if(|job| self.jobs[*job].submit_s <= self.now_s) {
            let spec = &self.jobs[job];
            let (left_s, ends_s) = (spec.work_s, f64::INFINITY);
            self.live.push(Live { job, spec, left_s, ran_s: 0.0, running: false, ends_s });
        }
    }

    /// How many ran and do not any more.
    fn stopped(&self, ran: &[(usize, bool)]) -> u64 {
        let mut runs = vec![false; self.jobs.len()];
        self.live.iter().for_each(|job| runs[job.job] = job.running);
        ran.iter().filter(|(job, ran)| *ran && !runs[*job]).count() as u64
    }
}
