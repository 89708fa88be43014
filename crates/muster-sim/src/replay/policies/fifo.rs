//! First in, first out.

use crate::replay::{Live, Nodes, Policy};

/// Jobs start in the order in which they came, nobody passes, and who runs runs to its end.
#[derive(Debug, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn choose(&mut self, _now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        for job in live.iter_mut().filter(|job| !job.running) {
            job.running = nodes.seat(job.job, job.spec.gpus);
            if !job.running {
                return;
            }
        }
    }
}
