//! Tiresias (Gu et al., NSDI'19) as it was run for the published numbers: least attained service in three queues.

use crate::replay::{Live, Nodes, Policy};

/// GPU-seconds after which a job goes to the next queue.
const LIMITS: [f64; 2] = [3_250.0, 7_200.0];
/// Sums of seconds end in fractions: who is that near to a limit has reached it.
const NEAR: f64 = 1e-3;

/// Jobs begin in the first queue and go to the next when they have had so much GPU time. Queues are served in order, each
/// in the order in which jobs began to run; who waits stands behind who runs. Where a gang sits is not asked, only
/// whether as many GPUs are free. It is told nothing about durations.
#[derive(Debug, Default)]
pub struct Tiresias {
    /// For each job of the trace its queue, and its place there; nothing until it has come.
    places: Vec<Option<(usize, u64)>>,
    next_place: u64,
}

impl Policy for Tiresias {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        self.let_come(live);
        self.demote(live);
        live.sort_by_key(|job| self.places[job.job]);
        let mut free = nodes.gpus();
        for job in live.iter_mut() {
            job.running = job.spec.gpus <= free;
            free -= if job.running { job.spec.gpus } else { 0 };
        }
        for job in live.iter().filter(|job| !job.running) {
            self.put(job.job, self.queue(job));
        }
    }

    /// The next moment at which a running job has had what its queue allows, in whole seconds of its own.
    fn wakes_s(&self, now_s: f64, live: &[Live]) -> Option<f64> {
        let running = live.iter().filter(|job| job.running);
        let jumps = running.filter_map(|job| {
            let limit = LIMITS.get(self.queue(job))?;
            Some((limit / f64::from(job.spec.gpus)).ceil() - job.ran_s + now_s)
        });
        jumps.min_by(f64::total_cmp)
    }
}

impl Tiresias {
    /// Those who have just come are the last, in the order they came.
    fn let_come(&mut self, live: &[Live]) {
        let jobs = live.iter().map(|job| job.job + 1).max().unwrap_or(0);
        self.places.resize(jobs.max(self.places.len()), None);
        for job in live {
            if self.places[job.job].is_none() {
                self.put(job.job, 0);
            }
        }
    }

    /// Who has had enough of its queue goes to the next, the first who came first.
    fn demote(&mut self, live: &[Live]) {
        let enough = |queue: usize, job: &Live| {
            LIMITS.get(queue).is_some_and(|limit| job.ran_gpu_s() >= *limit - NEAR)
        };
        let running = live.iter().filter(|job| job.running && enough(self.queue(job), job));
        let mut demoted: Vec<(f64, usize, usize)> =
            running.map(|job| (job.spec.submit_s, job.job, self.queue(job))).collect();
        demoted.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        demoted.into_iter().for_each(|(_, job, queue)| self.put(job, queue + 1));
    }

    fn queue(&self, job: &Live) -> usize {
        self.places.get(job.job).copied().flatten().map_or(0, |(queue, _)| queue)
    }

    /// At the end of a queue.
    fn put(&mut self, job: usize, queue: usize) {
        self.next_place += 1;
        self.places[job] = Some((queue, self.next_place));
    }
}
