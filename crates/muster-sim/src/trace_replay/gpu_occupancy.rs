//! The idle GPUs of a trace replay, and whether a waiting job could use them.

use std::collections::BTreeMap;

use muster_core::objects::job::PlacedTask;
use muster_core::{JobId, NodeId};

use super::ReplayCluster;
use crate::run_history::{IdleGpuAccumulator, IdleGpuTime};

/// The allocated GPUs of the cluster, and the waiting jobs.
pub struct GpuOccupancy {
    node_indexes: BTreeMap<NodeId, usize>,
    /// The number of holders of each device, by node.
    holders: Vec<Vec<u32>>,
    free_gpus_by_node: Vec<usize>,
    /// The number of nodes by their free GPUs.
    nodes_by_free_gpus: Vec<u64>,
    devices_by_job: BTreeMap<JobId, Vec<(usize, u8)>>,
    /// The number of waiting jobs by the GPUs of their smallest task.
    waiting_by_smallest_task: BTreeMap<u32, usize>,
    idle: IdleGpuAccumulator,
}

impl GpuOccupancy {
    /// A cluster without jobs.
    pub fn new(cluster: &ReplayCluster) -> GpuOccupancy {
        let mut occupancy = GpuOccupancy {
            node_indexes: BTreeMap::new(),
            holders: Vec::new(),
            free_gpus_by_node: Vec::new(),
            nodes_by_free_gpus: Vec::new(),
            devices_by_job: BTreeMap::new(),
            waiting_by_smallest_task: BTreeMap::new(),
            idle: IdleGpuAccumulator::default(),
        };
        for (index, (node, facts)) in cluster.nodes().iter().enumerate() {
            let gpus = facts.gpus.len();
            occupancy.node_indexes.insert(node.clone(), index);
            occupancy.holders.push(vec![0; gpus]);
            occupancy.free_gpus_by_node.push(gpus);
            occupancy.nodes_by_free_gpus.resize(occupancy.nodes_by_free_gpus.len().max(gpus + 1), 0);
            occupancy.nodes_by_free_gpus[gpus] += 1;
        }
        occupancy
    }

    /// Adds a waiting job.
    pub fn add_waiting(&mut self, smallest_task_gpus: u32) {
        *self.waiting_by_smallest_task.entry(smallest_task_gpus).or_default() += 1;
    }

    /// Removes a waiting job.
    pub fn remove_waiting(&mut self, smallest_task_gpus: u32) {
        let count = self.waiting_by_smallest_task.get_mut(&smallest_task_gpus).map(|count| {
            *count -= 1;
            *count
        });
        if count == Some(0) {
            self.waiting_by_smallest_task.remove(&smallest_task_gpus);
        }
    }

    /// Allocates the devices of a job.
    pub fn allocate(&mut self, job: JobId, tasks: &[PlacedTask]) {
        let node_indexes = &self.node_indexes;
        let devices = tasks.iter().flat_map(PlacedTask::devices);
        let devices: Vec<(usize, u8)> = devices.map(|(node, gpu)| (node_indexes[node], gpu)).collect();
        for (node, gpu) in &devices {
            let holders = &mut self.holders[*node][usize::from(*gpu)];
            *holders += 1;
            if *holders == 1 {
                self.set_free(*node, self.free_gpus_by_node[*node] - 1);
            }
        }
        self.devices_by_job.insert(job, devices);
    }

    /// Releases the devices of a job.
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

    /// Records the idle GPUs from now on. GPUs on nodes with fewer free GPUs than the smallest waiting task are
    /// fragmented.
    pub fn record_idle(&mut self, now_ms: i64) {
        let Some(smallest_task) =
            self.waiting_by_smallest_task.keys().next().map(|smallest_task| *smallest_task as usize)
        else {
            return self.idle.record(now_ms, 0, Some(0));
        };
        let gpus = |(free, nodes): (usize, &u64)| free as u64 * nodes;
        let idle = self.nodes_by_free_gpus.iter().enumerate().map(gpus).sum();
        let fragments = self.nodes_by_free_gpus.iter().enumerate().take(smallest_task).map(gpus).sum();
        self.idle.record(now_ms, idle, Some(fragments));
    }

    /// The GPU time that was idle while jobs waited.
    pub fn idle_gpu_time(&self) -> IdleGpuTime {
        self.idle.total()
    }
}
