//! Tiresias (Gu et al., NSDI'19) as it was run for the published numbers: least attained service in three queues.

use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// The attained GPU-seconds after which a job is demoted to the next queue.
const QUEUE_LIMITS_GPU_S: [f64; 2] = [3_250.0, 7_200.0];
/// Sums of seconds have rounding errors: a job this close to a limit has reached it.
const LIMIT_TOLERANCE_GPU_S: f64 = 1e-3;

/// Jobs start in the first queue and are demoted by attained GPU time. Queues are served in order, each in the
/// order in which its jobs started to run; waiting jobs are behind running ones. Only the number of free GPUs
/// counts, not the placement. Durations are unknown.
#[derive(Debug, Default)]
pub struct Tiresias {
    /// Queue and position of each job of the trace; `None` until its submission.
    queue_positions: Vec<Option<(usize, u64)>>,
    next_position: u64,
}

impl QueuePolicy for Tiresias {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        self.enqueue_arrivals(live);
        self.demote(live);
        live.sort_by_key(|job| self.queue_positions[job.trace_index]);
        let mut free = nodes.gpus();
        for job in live.iter_mut() {
            job.is_running = job.spec.gpus <= free;
            free -= if job.is_running { job.spec.gpus } else { 0 };
        }
        for job in live.iter().filter(|job| !job.is_running) {
            self.enqueue(job.trace_index, self.queue(job));
        }
    }

    /// The next time at which a running job reaches the limit of its queue, in whole seconds of its runtime.
    fn next_wake_s(&self, now_s: f64, live: &[LiveJob]) -> Option<f64> {
        let running = live.iter().filter(|job| job.is_running);
        let demotions = running.filter_map(|job| {
            let limit = QUEUE_LIMITS_GPU_S.get(self.queue(job))?;
            Some((limit / f64::from(job.spec.gpus)).ceil() - job.ran_s + now_s)
        });
        demotions.min_by(f64::total_cmp)
    }
}

impl Tiresias {
    /// Appends new jobs in the order of submission.
    fn enqueue_arrivals(&mut self, live: &[LiveJob]) {
        let jobs = live.iter().map(|job| job.trace_index + 1).max().unwrap_or(0);
        self.queue_positions.resize(jobs.max(self.queue_positions.len()), None);
        for job in live {
            if self.queue_positions[job.trace_index].is_none() {
                self.enqueue(job.trace_index, 0);
            }
        }
    }

    /// Demotes the jobs that reached the limit of their queue, in the order of submission.
    fn demote(&mut self, live: &[LiveJob]) {
        let exceeds_limit = |queue: usize, job: &LiveJob| {
            QUEUE_LIMITS_GPU_S.get(queue).is_some_and(|limit| job.ran_gpu_s() >= *limit - LIMIT_TOLERANCE_GPU_S)
        };
        let running = live.iter().filter(|job| job.is_running && exceeds_limit(self.queue(job), job));
        let mut demoted: Vec<(f64, usize, usize)> =
            running.map(|job| (job.spec.submit_s, job.trace_index, self.queue(job))).collect();
        demoted.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        demoted.into_iter().for_each(|(_, job, queue)| self.enqueue(job, queue + 1));
    }

    fn queue(&self, job: &LiveJob) -> usize {
        self.queue_positions.get(job.trace_index).copied().flatten().map_or(0, |(queue, _)| queue)
    }

    /// Appends a job to a queue.
    fn enqueue(&mut self, job: usize, queue: usize) {
        self.next_position += 1;
        self.queue_positions[job] = Some((queue, self.next_position));
    }
}
