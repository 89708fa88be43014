//! First in, first out.

use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// Jobs start in the order of submission, without backfill and without preemption.
#[derive(Debug, Default)]
pub struct Fifo;

impl QueuePolicy for Fifo {
    fn select_running(&mut self, _now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        for job in live.iter_mut().filter(|job| !job.is_running) {
            job.is_running = nodes.place_gang(job.trace_index, job.spec.gpus);
            if !job.is_running {
                return;
            }
        }
    }
}
