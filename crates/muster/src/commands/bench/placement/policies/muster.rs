//! Ours: the product's own planner. Every pod is a job that is submitted, planned for and adopted as in a server; who
//! finds no room is cancelled. Nothing is told to the planner but what came.

use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::{JobId, JobSpec, Settings};

use super::super::cluster::{Ask, Cluster, Devices, Models, Spot};
use super::super::policy::Policy;
use crate::commands::bench::product::Product;
use crate::commands::bench::synthetic;

/// Memory of a device; the workloads do not tell, and ask for none.
const GPU_MEMORY_MIB: u64 = 16_384;

/// The product, and what the replay calls its nodes.
pub struct Muster {
    product: Product,
    /// Which node of the replay stands behind each rank: among equals the lowest wins.
    by_rank: Vec<usize>,
}

impl Muster {
    /// An empty cluster.
    pub fn new(cluster: &Cluster) -> Muster {
        let mut by_rank: Vec<usize> = (0..cluster.nodes.len()).collect();
        by_rank.sort_by_key(|node| cluster.ranks[*node]);
        // Nothing ever leaves, so there is nobody to displace and no future to keep a place in.
        let mut product =
            Product::new(Settings { preemption: false, reservations: 0, ..Settings::default() });
        for (rank, node) in by_rank.iter().enumerate() {
            let node = &cluster.nodes[*node];
            product.register(rank, facts(node.cpu, node.memory_mib, node.devices.len(), node.model));
        }
        Muster { product, by_rank }
    }

    fn spot_of(&self, job: JobId) -> Option<Spot> {
        let (rank, task) = self.product.task(job)?;
        let devices = task.gpus.iter().map(|gpu| Devices::one(usize::from(*gpu)));
        Some(Spot { node: self.by_rank[rank], devices: devices.fold(Devices::default(), Devices::and) })
    }
}

impl Policy for Muster {
    fn spot(&mut self, _: &Cluster, _: usize, ask: &Ask) -> Option<Spot> {
        let job = self.product.submit(spec(ask))?;
        self.product.round();
        let spot = self.spot_of(job);
        if spot.is_none() {
            self.product.cancel(job);
        }
        spot
    }

    fn changed(&mut self, _: &Cluster, _: usize) {}
}

fn model(bit: u32) -> String {
    format!("m{bit}")
}

/// A node. Cores are counted in thousandths, which the planner need not know.
fn facts(cpu: u64, memory_mib: u64, gpus: usize, models: Models) -> NodeFacts {
    let plain = synthetic::facts(0);
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: model(models.0.trailing_zeros()),
        memory_mib: GPU_MEMORY_MIB,
        ..plain.gpus[0].clone()
    };
    let (cpus, gpus) = (u32::try_from(cpu).unwrap_or(u32::MAX), (0..gpus).map(gpu).collect());
    NodeFacts { cpus, memory_mib, gpus, rack: None, ..plain.clone() }
}

fn spec(ask: &Ask) -> JobSpec {
    let plain = synthetic::Ask { tasks: 1, gpus: ask.gpus, memory_mib: ask.memory_mib, ..Default::default() };
    let mut spec = synthetic::spec(plain);
    let each = &mut spec.tasks[0].each;
    each.cpus = u32::try_from(ask.cpu).unwrap_or(u32::MAX);
    each.gpu_compute_milli = if ask.gpus == 1 { ask.milli } else { 1_000 };
    if ask.models != Models::ANY && ask.gpus > 0 {
        each.gpu_models = (0..64).filter(|bit| ask.models.0 >> bit & 1 == 1).map(model).collect();
    }
    spec
}
