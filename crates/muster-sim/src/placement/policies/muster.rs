//! The muster planner as a placement policy: each pod is submitted as a job, planned and adopted as in a server, and
//! cancelled if it does not fit. The planner learns the workload mix only from past pods.

use muster_core::gpu::device::GpuFacts;
use muster_core::objects::node::NodeFacts;
use muster_core::{JobId, JobSpec, Settings};

use crate::in_memory_scheduler::InMemoryScheduler;
use crate::placement::cluster::{DeviceSet, ModelSet, PodPlacement, PodRequest, TraceCluster};
use crate::placement::policy::PlacementPolicy;
use crate::synthetic;

/// Memory of a GPU: arbitrary, because the workloads neither record nor request it.
const GPU_MEMORY_MIB: u64 = 16_384;

pub struct MusterPlacement {
    scheduler: InMemoryScheduler,
    /// Index of the node of each rank; of nodes with equal score the planner takes the lowest rank.
    by_rank: Vec<usize>,
}

impl MusterPlacement {
    /// For an empty cluster.
    pub fn new(cluster: &TraceCluster) -> MusterPlacement {
        let mut by_rank: Vec<usize> = (0..cluster.nodes.len()).collect();
        by_rank.sort_by_key(|node| cluster.ranks[*node]);
        // Pods never end, so preemption and reservations have no use.
        let mut scheduler =
            InMemoryScheduler::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        for (rank, node) in by_rank.iter().enumerate() {
            let node = &cluster.nodes[*node];
            scheduler.register(
                rank,
                node_facts(node.cpu_milli_free, node.memory_mib, node.device_milli_free.len(), node.model),
            );
        }
        MusterPlacement { scheduler, by_rank }
    }

    fn placement_of(&self, job: JobId) -> Option<PodPlacement> {
        let (rank, task) = self.scheduler.first_task(job)?;
        let devices = task.gpus.iter().map(|gpu| DeviceSet::single(usize::from(*gpu)));
        Some(PodPlacement { node: self.by_rank[rank], devices: devices.fold(DeviceSet::default(), DeviceSet::union) })
    }
}

impl PlacementPolicy for MusterPlacement {
    fn place(&mut self, _: &TraceCluster, _: usize, request: &PodRequest) -> Option<PodPlacement> {
        let job = self.scheduler.submit(job_spec(request))?;
        self.scheduler.plan_and_adopt();
        let placement = self.placement_of(job);
        if placement.is_none() {
            self.scheduler.cancel(job);
        }
        placement
    }

    fn node_changed(&mut self, _: &TraceCluster, _: usize) {}
}

fn model_name(bit: u32) -> String {
    format!("m{bit}")
}

/// One core of the planner is a thousandth of a core of the trace.
fn node_facts(cpu: u64, memory_mib: u64, gpus: usize, models: ModelSet) -> NodeFacts {
    let template = synthetic::node_facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: model_name(models.0.trailing_zeros()),
        memory_mib: GPU_MEMORY_MIB,
        ..template.gpus[0].clone()
    };
    let (cpus, gpus) = (u32::try_from(cpu).unwrap_or(u32::MAX), (0..gpus).map(gpu).collect());
    NodeFacts { cpus, memory_mib, gpus, rack: None, ..template.clone() }
}

fn job_spec(request: &PodRequest) -> JobSpec {
    let job =
        synthetic::SyntheticJob { tasks: 1, gpus: request.gpus, memory_mib: request.memory_mib, ..Default::default() };
    let mut spec = synthetic::job_spec(job);
    let each = &mut spec.tasks[0].each;
    each.cpus = u32::try_from(request.cpu_milli).unwrap_or(u32::MAX);
    each.gpu_compute_milli = if request.gpus == 1 { request.milli_per_gpu } else { 1_000 };
    if request.models != ModelSet::ANY && request.gpus > 0 {
        each.gpu_models = (0..64).filter(|bit| request.models.0 >> bit & 1 == 1).map(model_name).collect();
    }
    spec
}
