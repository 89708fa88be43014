//! The published policies on the same log: gangs of whole GPUs on nodes that are alike.
//!
//! They know nothing but GPUs: no models, cores or memory, no tenants, no limits. Who is stopped goes on where it was
//! stopped and loses nothing, which flatters those that stop jobs.

use crate::history::{End, FreeSum, History, Stretch};
use crate::jobs::LoggedJob;
use crate::replay::{Live, Nodes, Policy, TraceJob, replay_on};

use super::{Progress, STEPS_PER_WORD, Site};

/// Why the published policies cannot be played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotForBaselines {
    /// They know only one size.
    #[error("the published policies are for nodes that have the same number of GPUs")]
    Nodes,
    /// They know only whole GPUs.
    #[error("the published policies are for jobs that have whole GPUs")]
    Shares,
}

/// Let the jobs of a log meet a published policy.
pub fn against(
    jobs: &[LoggedJob],
    site: &Site,
    policy: &mut dyn Policy,
    watch: &mut dyn FnMut(Progress),
) -> Result<History, NotForBaselines> {
    let each = site.uniform_gpus().ok_or(NotForBaselines::Nodes)?;
    if jobs.iter().any(has_parts) {
        return Err(NotForBaselines::Shares);
    }
    let first_ms = jobs.first().map_or(0, |job| job.submit_ms);
    let trace: Vec<TraceJob> = jobs.iter().map(|job| trace_job(job, first_ms)).collect();
    let history = History { gpus: site.gpus(), ..History::default() };
    let milliwatts_each = site.milliwatts() / u64::from(site.gpus().max(1));
    let mut watched = Watched {
        policy,
        watch,
        jobs,
        first_ms,
        milliwatts_each,
        since_ms: vec![None; jobs.len()],
        free: FreeSum::default(),
        history,
        over: 0,
    };
    replay_on(&trace, Nodes::of(site.nodes().len(), each), &mut watched);
    let Watched { mut history, free, .. } = watched;
    let larger = (0..jobs.len()).filter(|job| jobs[*job].gpus.total() > history.gpus);
    let why =
        |job: usize| (job, format!("it needs {} GPUs, there are {}", jobs[job].gpus.total(), site.gpus()));
    history.refused = larger.map(why).collect();
    history.free = free.sum();
    Ok(history)
}

fn has_parts(job: &LoggedJob) -> bool {
    let groups = job.spec.iter().flat_map(|spec| &spec.tasks);
    groups.into_iter().any(|group| group.each.gpus > 0 && group.each.gpu_compute_milli < 1_000)
}

fn trace_job(job: &LoggedJob, first_ms: i64) -> TraceJob {
    TraceJob {
        gpus: job.gpus.total(),
        submit_s: (job.submit_ms - first_ms) as f64 / 1_000.0,
        work_s: worked_ms(job) as f64 / 1_000.0,
        overhead_s: 0.0,
        model: job.name.clone(),
    }
}

/// As long as it works, or until its limit.
fn worked_ms(job: &LoggedJob) -> i64 {
    job.time_limit_ms.map_or(job.work_ms, |limit| limit.min(job.work_ms))
}

/// A policy, and what is seen of it.
struct Watched<'a> {
    policy: &'a mut dyn Policy,
    watch: &'a mut dyn FnMut(Progress),
    jobs: &'a [LoggedJob],
    first_ms: i64,
    milliwatts_each: u64,
    /// Since when each job runs.
    since_ms: Vec<Option<i64>>,
    free: FreeSum,
    history: History,
    over: usize,
}

impl Watched<'_> {
    fn ms(&self, now_s: f64) -> i64 {
        self.first_ms + (now_s * 1_000.0).round() as i64
    }

    fn note(&mut self, job: usize, running: bool, now_ms: i64) {
        match (self.since_ms[job], running) {
            (None, true) => self.since_ms[job] = Some(now_ms),
            (Some(since_ms), false) => self.close(job, since_ms, now_ms, End::Displaced),
            _ => {}
        }
    }

    fn close(&mut self, job: usize, from_ms: i64, to_ms: i64, end: End) {
        self.since_ms[job] = None;
        let gpus = u64::from(self.jobs[job].gpus.total());
        self.history.stretches.push(Stretch {
            job,
            from_ms,
            to_ms,
            gpu_milli: gpus * 1_000,
            milliwatts: gpus * self.milliwatts_each,
            useful_ms: to_ms - from_ms,
            end,
        });
    }

    fn note_free(&mut self, now_ms: i64, live: &[Live], nodes: &Nodes) {
        let waiting = live.iter().filter(|job| !job.running);
        let node_gpus = nodes.gpus() / (nodes.free_by_node().len() as u32).max(1);
        let Some(least) = waiting.map(|job| job.spec.gpus.min(node_gpus)).min() else {
            return self.free.set(now_ms, 0, Some(0));
        };
        let running: u32 = live.iter().filter(|job| job.running).map(|job| job.spec.gpus).sum();
        let free = nodes.gpus() - running;
        // Who does not seat jobs says nothing about fragments.
        let seated = nodes.free_gpus() == free;
        let of_no_use = nodes.free_by_node().iter().filter(|gpus| **gpus < least);
        let fragments = seated.then(|| of_no_use.map(|gpus| u64::from(*gpus)).sum());
        self.free.set(now_ms, u64::from(free), fragments);
    }
}

impl Policy for Watched<'_> {
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        self.policy.choose(now_s, live, nodes);
        let now_ms = self.ms(now_s);
        for job in live.iter() {
            self.note(job.job, job.running, now_ms);
        }
        self.note_free(now_ms, live, nodes);
        self.history.rounds += 1;
        if self.history.rounds.is_multiple_of(STEPS_PER_WORD) {
            (self.watch)(Progress { elapsed_ms: now_ms - self.first_ms, over: self.over });
        }
    }

    fn ended(&mut self, now_s: f64, job: &Live) {
        let now_ms = self.ms(now_s);
        let logged = &self.jobs[job.job];
        let end = if worked_ms(logged) < logged.work_ms { End::TimeLimit } else { End::Done };
        if let Some(since_ms) = self.since_ms[job.job] {
            self.close(job.job, since_ms, now_ms, end);
        }
        self.over += 1;
        self.policy.ended(now_s, job);
    }

    fn wakes_s(&self, now_s: f64, live: &[Live]) -> Option<f64> {
        self.policy.wakes_s(now_s, live)
    }
}
