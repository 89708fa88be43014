//! Shortest job first.

use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// The shortest waiting job that fits starts, without preemption. Durations are known.
#[derive(Debug, Default)]
pub struct Sjf;

impl QueuePolicy for Sjf {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        live.sort_by(|one, other| one.spec.work_s.total_cmp(&other.spec.work_s));
        for job in live.iter_mut().filter(|job| !job.is_running) {
            job.is_running = nodes.place_gang(job.trace_index, job.spec.gpus);
        }
    }
}
