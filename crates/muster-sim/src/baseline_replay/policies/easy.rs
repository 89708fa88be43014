//! EASY backfill.

use crate::baseline_replay::{LiveJob, QueuePolicy, UniformNodes};

/// First in, first out; a job that does not delay the reservation of the head may backfill. No preemption.
/// Durations are known.
#[derive(Debug, Default)]
pub struct Easy;

impl QueuePolicy for Easy {
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        let mut head: Option<HeadReservation> = None;
        // Free GPUs only decrease from here on: a job as large as one that did not fit is skipped.
        let mut no_fit_gpus = u32::MAX;
        for index in 0..live.len() {
            let gpus = live[index].spec.gpus;
            if live[index].is_running || gpus >= no_fit_gpus {
                continue;
            }
            let fits = match &head {
                _ if !nodes.fits(gpus) => {
                    no_fit_gpus = gpus;
                    false
                }
                None => nodes.place_gang(live[index].trace_index, gpus),
                Some(head) => head.try_backfill(&live[index], now_s, nodes),
            };
            live[index].is_running = fits;
            if !fits && head.is_none() {
                head = HeadReservation::compute(&live[index], now_s, live, nodes);
            }
        }
    }
}

/// The reservation of the first waiting job.
struct HeadReservation {
    job: usize,
    gpus: u32,
    starts_s: f64,
    /// The jobs that end before the reserved start.
    ended_by_then: Vec<usize>,
}

impl HeadReservation {
    fn compute(head: &LiveJob, now_s: f64, live: &[LiveJob], nodes: &UniformNodes) -> Option<HeadReservation> {
        let running = live.iter().filter(|job| job.is_running);
        let mut ends: Vec<(f64, usize)> = running.map(|job| (now_s + job.remaining_s, job.trace_index)).collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let (mut nodes, mut released) = (nodes.clone(), Vec::new());
        for (end_s, job) in ends {
            nodes.release(job);
            released.push(job);
            if nodes.fits(head.spec.gpus) {
                return Some(HeadReservation {
                    job: head.trace_index,
                    gpus: head.spec.gpus,
                    starts_s: end_s,
                    ended_by_then: released,
                });
            }
        }
        None
    }

    /// Places a job that ends before the reserved start, or that leaves enough GPUs for the head then.
    fn try_backfill(&self, job: &LiveJob, now_s: f64, nodes: &mut UniformNodes) -> bool {
        if now_s + job.remaining_s > self.starts_s {
            let mut nodes_then = nodes.clone();
            nodes_then.place_gang(job.trace_index, job.spec.gpus);
            self.ended_by_then.iter().for_each(|released| nodes_then.release(*released));
            if !nodes_then.place_gang(self.job, self.gpus) {
                return false;
            }
        }
        nodes.place_gang(job.trace_index, job.spec.gpus)
    }
}
