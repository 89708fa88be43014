//! Serving a stream of jobs in the order in which they come.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::stream::Job;

/// Who finds devices for jobs. It alone knows what is free.
pub trait Places {
    /// Take so many devices of one node, if they can be had now.
    fn take(&mut self, gpus: u32) -> Option<Place>;
    /// Have devices back.
    fn give_back(&mut self, place: Place);
}

/// Devices of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub node: usize,
    /// As bits.
    pub devices: u64,
}

/// What became of a job.
#[derive(Debug, Clone, Copy)]
pub struct Served {
    pub gpus: u32,
    pub devices: u64,
    pub waited_ms: u64,
}

/// Serve jobs strictly in order: nobody passes one that waits. Every job must fit on an empty node.
pub fn serve(jobs: &[Job], places: &mut impl Places) -> Vec<Served> {
    let mut running: BinaryHeap<Reverse<(u64, Place)>> = BinaryHeap::new();
    let mut now_ms = 0;
    let mut served = Vec::new();
    for job in jobs {
        now_ms = job.arrives_ms.max(now_ms);
        while let Some(Reverse((_, place))) = running.pop_if_ended(now_ms) {
            places.give_back(place);
        }
        let place = loop {
            if let Some(place) = places.take(job.gpus) {
                break place;
            }
            // Nothing to wait for: it will never fit, and is left out.
            let Some(Reverse((end_ms, ended))) = running.pop() else { return served };
            now_ms = end_ms;
            places.give_back(ended);
        };
        running.push(Reverse((now_ms + job.lasts_ms, place)));
        served.push(Served { gpus: job.gpus, devices: place.devices, waited_ms: now_ms - job.arrives_ms });
    }
    served
}

trait PopIfEnded {
    /// The next one, if it has ended by now.
    fn pop_if_ended(&mut self, now_ms: u64) -> Option<Reverse<(u64, Place)>>;
}

impl PopIfEnded for BinaryHeap<Reverse<(u64, Place)>> {
    fn pop_if_ended(&mut self, now_ms: u64) -> Option<Reverse<(u64, Place)>> {
        let Reverse((end_ms, _)) = self.peek()?;
        if *end_ms <= now_ms { self.pop() } else { None }
    }
}
