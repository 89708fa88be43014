//! EASY backfilling.

use crate::baseline_replay::{LiveJob, UniformNodes, QueuePolicy};

/// First in, first out, but who does not delay the first in line may pass it; who runs runs to its end. It is told how
/// long jobs run.
#[derive(Debug, Default)]
pub struct Easy;

impl QueuePolicy for Easy {
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        let mut head: Option<HeadReservation> = None;
        // Room only gets less from here on: who needs as much as one that did not fit need not be looked at.
        let mut too_many = u32::MAX;
        for at in 0..live.len() {
            let gpus = live[at].spec.gpus;
            if live[at].is_running || gpus >= too_many {
                continue;
            }
            let fits = match &head {
                _ if !nodes.fits(gpus) => {
                    too_many = gpus;
                    false
                }
                None => nodes.place_gang(live[at].trace_index, gpus),
                Some(head) => head.try_backfill(&live[at], now_s, nodes),
            };
            live[at].is_running = fits;
            if !fits && head.is_none() {
                head = HeadReservation::compute(&live[at], now_s, live, nodes);
            }
        }
    }
}

/// The first in line, and when it starts.
struct HeadReservation {
    job: usize,
    gpus: u32,
    starts_s: f64,
    /// Who will have left by then.
    ended_by_then: Vec<usize>,
}

impl HeadReservation {
    fn compute(head: &LiveJob, now_s: f64, live: &[LiveJob], nodes: &UniformNodes) -> Option<HeadReservation> {
        let running = live.iter().filter(|job| job.is_running);
        let mut ends: Vec<(f64, usize)> = running.map(|job| (now_s + job.remaining_s, job.trace_index)).collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let (mut nodes, mut gone) = (nodes.clone(), Vec::new());
        for (end_s, job) in ends {
            nodes.release(job);
            gone.push(job);
            if nodes.fits(head.spec.gpus) {
                return Some(HeadReservation { job: head.trace_index, gpus: head.spec.gpus, starts_s: end_s, ended_by_then: gone });
            }
        }
        None
    }

    /// Seat a job that fits and is over by then, or beside which there is still room then.
    fn try_backfill(&self, job: &LiveJob, now_s: f64, nodes: &mut UniformNodes) -> bool {
        if now_s + job.remaining_s > self.starts_s {
            let mut then = nodes.clone();
            then.place_gang(job.trace_index, job.spec.gpus);
            self.ended_by_then.iter().for_each(|gone| then.release(*gone));
            if !then.place_gang(self.job, self.gpus) {
                return false;
            }
        }
        nodes.place_gang(job.trace_index, job.spec.gpus)
    }
}
