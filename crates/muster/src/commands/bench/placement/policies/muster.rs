//! Ours: the product's own planner. Every pod is a job that is submitted, planned for and adopted as in a server; who
//! finds no room is cancelled. Nothing is told to the planner but what came.

use muster_core::gpu::device::GpuFacts;
use muster_core::objects::node::NodeFacts;
use muster_core::{JobId, JobSpec, Settings};

use super::super::cluster::{PodRequest, TraceCluster, DeviceSet, ModelSet, PodPlacement};
use super::super::policy::PlacementPolicy;
use crate::commands::bench::in_memory_scheduler::InMemoryScheduler;
use crate::commands::bench::synthetic;

/// Memory of a device; the workloads do not tell, and ask for none.
const GPU_MEMORY_MIB: u64 = 16_384;

/// The product, and what the replay calls its nodes.
pub struct MusterPlacement {
    product: InMemoryScheduler,
    /// Which node of the replay stands behind each rank: among equals the lowest wins.
    by_rank: Vec<usize>,
}

impl MusterPlacement {
    /// An empty cluster.
    pub fn new(cluster: &TraceCluster) -> MusterPlacement {
        let mut by_rank: Vec<usize> = (0..cluster.nodes.len()).collect();
        by_rank.sort_by_key(|node| cluster.ranks[*node]);
        // Nothing ever leaves, so there is nobody to displace and no future to keep a place in.
        let mut product =
            InMemoryScheduler::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        for (rank, node) in by_rank.iter().enumerate() {
            let node = &cluster.nodes[*node];
            product.register(rank, node_facts(node.cpu_milli_free, node.memory_mib, node.device_milli_free.len(), node.model));
        }
        MusterPlacement { product, by_rank }
    }

    fn placement_of(&self, job: JobId) -> Option<PodPlacement> {
        let (rank, task) = self.product.first_task(job)?;
        let devices = task.gpus.iter().map(|gpu| DeviceSet::single(usize::from(*gpu)));
        Some(PodPlacement { node: self.by_rank[rank], devices: devices.fold(DeviceSet::default(), DeviceSet::union) })
    }
}

impl PlacementPolicy for MusterPlacement {
    fn place(&mut self, _: &TraceCluster, _: usize, ask: &PodRequest) -> Option<PodPlacement> {
        let job = self.product.submit(job_spec(ask))?;
        self.product.plan_and_adopt();
        let spot = self.placement_of(job);
        if spot.is_none() {
            self.product.cancel(job);
        }
        spot
    }

    fn node_changed(&mut self, _: &TraceCluster, _: usize) {}
}

fn model_name(bit: u32) -> String {
    format!("m{bit}")
}

/// A node. Cores are counted in thousandths, which the planner need not know.
fn node_facts(cpu: u64, memory_mib: u64, gpus: usize, models: ModelSet) -> NodeFacts {
    let plain = synthetic::node_facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: model_name(models.0.trailing_zeros()),
        memory_mib: GPU_MEMORY_MIB,
        ..plain.gpus[0].clone()
    };
    let (cpus, gpus) = (u32::try_from(cpu).unwrap_or(u32::MAX), (0..gpus).map(gpu).collect());
    NodeFacts { cpus, memory_mib, gpus, rack: None, ..plain.clone() }
}

fn job_spec(ask: &PodRequest) -> JobSpec {
    let plain = synthetic::SyntheticJob { tasks: 1, gpus: ask.gpus, memory_mib: ask.memory_mib, ..Default::default() };
    let mut spec = synthetic::job_spec(plain);
    let each = &mut spec.tasks[0].each;
    each.cpus = u32::try_from(ask.cpu_milli).unwrap_or(u32::MAX);
    each.gpu_compute_milli = if ask.gpus == 1 { ask.milli_per_gpu } else { 1_000 };
    if ask.models != ModelSet::ANY && ask.gpus > 0 {
        each.gpu_models = (0..64).filter(|bit| ask.models.0 >> bit & 1 == 1).map(model_name).collect();
    }
    spec
}
