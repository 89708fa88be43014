//! Shortest job first.

use crate::replay::{Live, Nodes, Policy};

/// Of those who wait the shortest that fits starts, and who runs runs to its end; it is told how long jobs run.
#[derive(Debug, Default)]
pub struct Sjf;

impl Policy for Sjf {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        live.sort_by(|one, other| one.spec.work_s.total_cmp(&other.spec.work_s));
        for job in live.iter_mut().filter(|job| !job.running) {
            job.running = nodes.seat(job.job, job.spec.gpus);
        }
    }
}
