//! The product's own planner as one who finds devices. Every job is submitted, planned for and adopted as in a server,
//! and reported as ended when its time is over.

use std::collections::BTreeMap;

use muster_core::gpu::topology::{LocalityRequirement, NodeTopology};
use muster_core::objects::job::{JobSpec, Topology};
use muster_core::objects::node::NodeFacts;
use muster_core::resources::mask;
use muster_core::{JobId, Settings};

use super::serve::{NodeDevices, DeviceAllocator};
use crate::commands::bench::in_memory_scheduler::InMemoryScheduler;
use crate::commands::bench::synthetic::{self, SyntheticJob};

/// A cluster of nodes of one box.
pub struct PlannerAllocator {
    product: InMemoryScheduler,
    /// Jobs of up to so many GPUs demand them on one NUMA node.
    same_numa_max: u32,
    /// The one that has been submitted and found no place yet.
    waiting: Option<JobId>,
    running: BTreeMap<NodeDevices, JobId>,
}

impl PlannerAllocator {
    /// For jobs that leave the choice to the planner.
    pub fn new(facts: &NodeFacts, nodes: usize) -> PlannerAllocator {
        // Jobs come one at a time: nobody is there to displace another, or to keep a place for.
        let mut product =
            InMemoryScheduler::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        (0..nodes).for_each(|rank| product.register(rank, facts.clone()));
        PlannerAllocator { product, same_numa_max: 0, waiting: None, running: BTreeMap::new() }
    }

    /// For jobs that demand devices on one NUMA node, unless they need more than one has.
    pub fn same_numa(facts: &NodeFacts, nodes: usize) -> PlannerAllocator {
        let all = u64::MAX >> (u64::BITS as usize - facts.gpus.len());
        let same_numa_max = NodeTopology::of(&facts.gpus, &facts.numa)
            .most(all, LocalityRequirement { same_numa: true, ..LocalityRequirement::default() });
        PlannerAllocator { same_numa_max, ..PlannerAllocator::new(facts, nodes) }
    }

    fn spec(&self, gpus: u32) -> JobSpec {
        let demands = gpus <= self.same_numa_max;
        let topology = if demands { Topology::SameNuma } else { Topology::Any };
        JobSpec { topology, ..synthetic::job_spec(SyntheticJob { gpus, ..SyntheticJob::default() }) }
    }
}

impl DeviceAllocator for PlannerAllocator {
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices> {
        let job = match self.waiting.take() {
            Some(job) => job,
            None => self.product.submit(self.spec(gpus))?,
        };
        self.product.plan_and_adopt();
        let Some((node, task)) = self.product.first_task(job) else {
            self.waiting = Some(job);
            return None;
        };
        let place = NodeDevices { node, devices: mask(&task.gpus) };
        self.running.insert(place, job);
        Some(place)
    }

    fn release(&mut self, place: NodeDevices) {
        if let Some(job) = self.running.remove(&place) {
            self.product.end(job);
        }
    }
}
