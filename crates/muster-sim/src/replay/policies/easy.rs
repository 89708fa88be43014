//! EASY backfilling.

use crate::replay::{Live, Nodes, Policy};

/// First in, first out, but who does not delay the first in line may pass it; who runs runs to its end. It is told how
/// long jobs run.
#[derive(Debug, Default)]
pub struct Easy;

impl Policy for Easy {
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        let mut head: Option<Head> = None;
        // Room only gets less from here on: who needs as much as one that did not fit need not be looked at.
        let mut too_many = u32::MAX;
        for at in 0..live.len() {
            let gpus = live[at].spec.gpus;
            if live[at].running || gpus >= too_many {
                continue;
            }
            let fits = match &head {
                _ if !nodes.fits(gpus) => {
                    too_many = gpus;
                    false
                }
                None => nodes.seat(live[at].job, gpus),
                Some(head) => head.lets_pass(&live[at], now_s, nodes),
            };
            live[at].running = fits;
            if !fits && head.is_none() {
                head = Head::of(&live[at], now_s, live, nodes);
            }
        }
    }
}

/// The first in line, and when it starts.
struct Head {
    job: usize,
    gpus: u32,
    starts_s: f64,
    /// Who will have left by then.
    gone: Vec<usize>,
}

impl Head {
    fn of(head: &Live, now_s: f64, live: &[Live], nodes: &Nodes) -> Option<Head> {
        let running = live.iter().filter(|job| job.running);
        let mut ends: Vec<(f64, usize)> = running.map(|job| (now_s + job.left_s, job.job)).collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let (mut nodes, mut gone) = (nodes.clone(), Vec::new());
        for (end_s, job) in ends {
            nodes.release(job);
            gone.push(job);
            if nodes.fits(head.spec.gpus) {
                return Some(Head { job: head.job, gpus: head.spec.gpus, starts_s: end_s, gone });
            }
        }
        None
    }

    /// Seat a job that fits and is over by then, or beside which there is still room then.
    fn lets_pass(&self, job: &Live, now_s: f64, nodes: &mut Nodes) -> bool {
        if now_s + job.left_s > self.starts_s {
            let mut then = nodes.clone();
            then.seat(job.job, job.spec.gpus);
            self.gone.iter().for_each(|gone| then.release(*gone));
            if !then.seat(self.job, self.gpus) {
                return false;
            }
        }
        nodes.seat(job.job, job.spec.gpus)
    }
}
