//! EASY backfilling.

use crate::replay::{Live, Nodes, Policy};

/// First in, first out, but who does not delay the first in line may pass it; who runs runs to its end. It is told how
/// long jobs run.
#[derive(Debug, Default)]
pub struct Easy;

impl Policy for Easy {
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        let mut head: Option<Head> = None;
        for at in 0..live.len() {
            if live[at].running {
                continue;
            }
            let fits = match &head {
                None => nodes.seat(live[at].job, live[at].spec.gpus),
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
            if nodes.clone().seat(head.job, head.spec.gpus) {
                return Some(Head { job: head.job, gpus: head.spec.gpus, starts_s: end_s, gone });
            }
        }
        None
    }

    /// Seat a job that is over by then, or beside which there is still room then.
    fn lets_pass(&self, job: &Live, now_s: f64, nodes: &mut Nodes) -> bool {
        let mut then = nodes.clone();
        if !then.seat(job.job, job.spec.gpus) {
            return false;
        }
        if now_s + job.left_s > self.starts_s {
            self.gone.iter().for_each(|gone| then.release(*gone));
            if !then.seat(self.job, self.gpus) {
                return false;
            }
        }
        nodes.seat(job.job, job.spec.gpus)
    }
}
