//! Which GPUs stand free, and whether anyone who waits could use them.

use std::collections::BTreeMap;

use muster_core::objects::job::PlacedTask;
use muster_core::{JobId, NodeId};

use super::ReplayCluster;
use crate::run_history::{IdleGpuTime, IdleGpuAccumulator};

/// The GPUs of the cluster, and who waits for some.
pub struct GpuOccupancy {
    node_indexes: BTreeMap<NodeId, usize>,
    /// How many hold each device, by node.
    holders: Vec<Vec<u32>>,
    /// GPUs that nobody holds, by node.
    free_gpus_by_node: Vec<usize>,
    /// How many nodes have so many of them.
    nodes_by_free_gpus: Vec<u64>,
    devices_by_job: BTreeMap<JobId, Vec<(usize, u8)>>,
    /// How many wait whose smallest task needs so many GPUs.
    waiting_by_smallest_task: BTreeMap<u32, usize>,
    idle: IdleGpuAccumulator,
}

impl GpuOccupancy {
    /// All free, and nobody waits.
    pub fn new(site: &ReplayCluster) -> GpuOccupancy {
        let mut floor = GpuOccupancy {
            node_indexes: BTreeMap::new(),
            holders: Vec::new(),
            free_gpus_by_node: Vec::new(),
            nodes_by_free_gpus: Vec::new(),
            devices_by_job: BTreeMap::new(),
            waiting_by_smallest_task: BTreeMap::new(),
            idle: IdleGpuAccumulator::default(),
        };
        for (place, (node, facts)) in site.nodes().iter().enumerate() {
            let gpus = facts.gpus.len();
            floor.node_indexes.insert(node.clone(), place);
            floor.holders.push(vec![0; gpus]);
            floor.free_gpus_by_node.push(gpus);
            floor.nodes_by_free_gpus.resize(floor.nodes_by_free_gpus.len().max(gpus + 1), 0);
            floor.nodes_by_free_gpus[gpus] += 1;
        }
        floor
    }

    /// One more waits, whose smallest task needs so many GPUs.
    pub fn add_waiting(&mut self, least_gpus: u32) {
        *self.waiting_by_smallest_task.entry(least_gpus).or_default() += 1;
    }

    /// It does not wait any more.
    pub fn remove_waiting(&mut self, least_gpus: u32) {
        let count = self.waiting_by_smallest_task.get_mut(&least_gpus).map(|count| {
            *count -= 1;
            *count
        });
        if count == Some(0) {
            self.waiting_by_smallest_task.remove(&least_gpus);
        }
    }

    /// A job takes its devices.
    pub fn allocate(&mut self, job: JobId, tasks: &[PlacedTask]) {
        let places = &self.node_indexes;
        let seats = tasks.iter().flat_map(PlacedTask::devices);
        let seats: Vec<(usize, u8)> = seats.map(|(node, gpu)| (places[node], gpu)).collect();
        for (node, gpu) in &seats {
            let holders = &mut self.holders[*node][usize::from(*gpu)];
            *holders += 1;
            if *holders == 1 {
                self.set_free(*node, self.free_gpus_by_node[*node] - 1);
            }
        }
        self.devices_by_job.insert(job, seats);
    }

    /// A job gives them back.
    pub fn release(&mut self, job: JobId) {
        for (node, gpu) in self.devices_by_job.remove(&job).into_iter().flatten() {
            let holders = &mut self.holders[node][usize::from(gpu)];
            *holders -= 1;
            if *holders == 0 {
                self.set_free(node, self.free_gpus_by_node[node] + 1);
            }
        }
    }

    fn set_free(&mut self, node: usize, free: usize) {
        self.nodes_by_free_gpus[self.free_gpus_by_node[node]] -= 1;
        self.nodes_by_free_gpus[free] += 1;
        self.free_gpus_by_node[node] = free;
    }

    /// From now on it is as it is.
    pub fn record_idle(&mut self, now_ms: i64) {
        let Some(least) = self.waiting_by_smallest_task.keys().next().map(|least| *least as usize) else {
            return self.idle.record(now_ms, 0, Some(0));
        };
        let gpus = |(free, nodes): (usize, &u64)| free as u64 * nodes;
        let all = self.nodes_by_free_gpus.iter().enumerate().map(gpus).sum();
        let fragments = self.nodes_by_free_gpus.iter().enumerate().take(least).map(gpus).sum();
        self.idle.record(now_ms, all, Some(fragments));
    }

    /// What stood free while someone waited.
    pub fn idle_gpu_time(&self) -> IdleGpuTime {
        self.idle.total()
    }
}
