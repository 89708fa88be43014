//! Tiresias (Gu et al., NSDI'19) as it was run for the published numbers: least attained service in three queues.

use crate::baseline_replay::{LiveJob, UniformNodes, QueuePolicy};

/// GPU-seconds after which a job goes to the next queue.
const QUEUE_LIMITS_GPU_S: [f64; 2] = [3_250.0, 7_200.0];
/// Sums of seconds end in fractions: who is that near to a limit has reached it.
const LIMIT_TOLERANCE_GPU_S: f64 = 1e-3;

/// Jobs begin in the first queue and go to the next when they have had so much GPU time. Queues are served in order, each
/// in the order in which jobs began to run; who waits stands behind who runs. Where a gang sits is not asked, only
/// whether as many GPUs are free. It is told nothing about durations.
#[derive(Debug, Default)]
pub struct Tiresias {
    /// For each job of the trace its queue, and its place there; nothing until it has come.
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

    /// The next moment at which a running job has had what its queue allows, in whole seconds of its own.
    fn next_wake_s(&self, now_s: f64, live: &[LiveJob]) -> Option<f64> {
        let running = live.iter().filter(|job| job.is_running);
        let jumps = running.filter_map(|job| {
            let limit = QUEUE_LIMITS_GPU_S.get(self.queue(job))?;
            Some((limit / f64::from(job.spec.gpus)).ceil() - job.ran_s + now_s)
        });
        jumps.min_by(f64::total_cmp)
    }
}

impl Tiresias {
    /// Those who have just come are the last, in the order they came.
    fn enqueue_arrivals(&mut self, live: &[LiveJob]) {
        let jobs = live.iter().map(|job| job.trace_index + 1).max().unwrap_or(0);
        self.queue_positions.resize(jobs.max(self.queue_positions.len()), None);
        for job in live {
            if self.queue_positions[job.trace_index].is_none() {
                self.enqueue(job.trace_index, 0);
            }
        }
    }

    /// Who has had enough of its queue goes to the next, the first who came first.
    fn demote(&mut self, live: &[LiveJob]) {
        let enough = |queue: usize, job: &LiveJob| {
            QUEUE_LIMITS_GPU_S.get(queue).is_some_and(|limit| job.ran_gpu_s() >= *limit - LIMIT_TOLERANCE_GPU_S)
        };
        let running = live.iter().filter(|job| job.is_running && enough(self.queue(job), job));
        let mut demoted: Vec<(f64, usize, usize)> =
            running.map(|job| (job.spec.submit_s, job.trace_index, self.queue(job))).collect();
        demoted.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        demoted.into_iter().for_each(|(_, job, queue)| self.enqueue(job, queue + 1));
    }

    fn queue(&self, job: &LiveJob) -> usize {
        self.queue_positions.get(job.trace_index).copied().flatten().map_or(0, |(queue, _)| queue)
    }

    /// At the end of a queue.
    fn enqueue(&mut self, job: usize, queue: usize) {
        self.next_position += 1;
        self.queue_positions[job] = Some((queue, self.next_position));
    }
}
