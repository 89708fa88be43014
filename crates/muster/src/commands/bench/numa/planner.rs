//! The product's own planner as one who finds devices. Every job is submitted, planned for and adopted as in a server,
//! and reported as ended when its time is over.

use std::collections::BTreeMap;

use muster_core::capacity::mask;
use muster_core::job::{JobSpec, Topology};
use muster_core::node::NodeFacts;
use muster_core::wiring::{Wiring, Wish};
use muster_core::{JobId, Settings};

use super::serve::{Place, Places};
use crate::commands::bench::product::Product;
use crate::commands::bench::synthetic::{self, Ask};

/// A cluster of nodes of one box.
pub struct Planner {
    product: Product,
    /// Jobs of up to so many GPUs demand them on one NUMA node.
    same_numa_max: u32,
    /// The one that has been submitted and found no place yet.
    waiting: Option<JobId>,
    running: BTreeMap<Place, JobId>,
}

impl Planner {
    /// For jobs that leave the choice to the planner.
    pub fn new(facts: &NodeFacts, nodes: usize) -> Planner {
        // Jobs come one at a time: nobody is there to displace another, or to keep a place for.
        let mut product =
            Product::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        (0..nodes).for_each(|rank| product.register(rank, facts.clone()));
        Planner { product, same_numa_max: 0, waiting: None, running: BTreeMap::new() }
    }

    /// For jobs that demand devices on one NUMA node, unless they need more than one has.
    pub fn same_numa(facts: &NodeFacts, nodes: usize) -> Planner {
        let all = u64::MAX >> (u64::BITS as usize - facts.gpus.len());
        let same_numa_max = Wiring::of(facts).most(all, Wish { same_numa: true, ..Wish::default() });
        Planner { same_numa_max, ..Planner::new(facts, nodes) }
    }

    fn spec(&self, gpus: u32) -> JobSpec {
        let demands = gpus <= self.same_numa_max;
        let topology = if demands { Topology::SameNuma } else { Topology::Any };
        JobSpec { topology, ..synthetic::spec(Ask { gpus, ..Ask::default() }) }
    }
}

impl Places for Planner {
    fn take(&mut self, gpus: u32) -> Option<Place> {
        let job = match self.waiting.take() {
            Some(job) => job,
            None => self.product.submit(self.spec(gpus))?,
        };
        self.product.round();
        let Some((node, task)) = self.product.task(job) else {
            self.waiting = Some(job);
            return None;
        };
        let place = Place { node, devices: mask(&task.gpus) };
        self.running.insert(place, job);
        Some(place)
    }

    fn give_back(&mut self, place: Place) {
        if let Some(job) = self.running.remove(&place) {
            self.product.end(job);
        }
    }
}
