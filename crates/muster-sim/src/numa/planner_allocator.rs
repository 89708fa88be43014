//! The muster planner as a device allocator: each job is submitted, planned and adopted as in a server, and reported as
//! ended when it releases its GPUs.

use std::collections::BTreeMap;

use muster_core::gpu::topology::{LocalityRequirement, NodeTopology};
use muster_core::objects::job::{JobSpec, Topology};
use muster_core::objects::node::NodeFacts;
use muster_core::resources::mask;
use muster_core::{JobId, Settings};

use super::serve::{DeviceAllocator, NodeDevices};
use crate::in_memory_scheduler::InMemoryScheduler;
use crate::synthetic::{self, SyntheticJob};

/// A cluster of identical nodes.
pub struct PlannerAllocator {
    scheduler: InMemoryScheduler,
    /// Jobs with at most this many GPUs require one NUMA node.
    same_numa_max: u32,
    /// The job that was submitted and is not placed yet.
    waiting: Option<JobId>,
    running: BTreeMap<NodeDevices, JobId>,
}

impl PlannerAllocator {
    /// For jobs without a locality requirement.
    pub fn new(facts: &NodeFacts, nodes: usize) -> PlannerAllocator {
        // One job waits at a time, so preemption and reservations have no use.
        let mut scheduler =
            InMemoryScheduler::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        (0..nodes).for_each(|rank| scheduler.register(rank, facts.clone()));
        PlannerAllocator { scheduler, same_numa_max: 0, waiting: None, running: BTreeMap::new() }
    }

    /// For jobs that require one NUMA node, unless they need more GPUs than one has.
    pub fn same_numa(facts: &NodeFacts, nodes: usize) -> PlannerAllocator {
        let all = u64::MAX >> (u64::BITS as usize - facts.gpus.len());
        let same_numa_max = NodeTopology::of(&facts.gpus, &facts.numa)
            .most(all, LocalityRequirement { same_numa: true, ..LocalityRequirement::default() });
        PlannerAllocator { same_numa_max, ..PlannerAllocator::new(facts, nodes) }
    }

    fn spec(&self, gpus: u32) -> JobSpec {
        let topology = if gpus <= self.same_numa_max { Topology::SameNuma } else { Topology::Any };
        JobSpec { topology, ..synthetic::job_spec(SyntheticJob { gpus, ..SyntheticJob::default() }) }
    }
}

impl DeviceAllocator for PlannerAllocator {
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices> {
        let job = match self.waiting.take() {
            Some(job) => job,
            None => self.scheduler.submit(self.spec(gpus))?,
        };
        self.scheduler.plan_and_adopt();
        let Some((node, task)) = self.scheduler.first_task(job) else {
            self.waiting = Some(job);
            return None;
        };
        let allocated = NodeDevices { node, devices: mask(&task.gpus) };
        self.running.insert(allocated, job);
        Some(allocated)
    }

    fn release(&mut self, allocated: NodeDevices) {
        if let Some(job) = self.running.remove(&allocated) {
            self.scheduler.end(job);
        }
    }
}
