//! Ours: the product's own planner. Every pod is a job that is submitted, planned for and adopted as in a server; who
//! finds no room is cancelled. Nothing is told to the planner but what came.

use muster_core::command::{Actor, Answer, Command};
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::plan::plan;
use muster_core::{JobId, JobSpec, NodeId, Settings, State, TenantId, Timestamp};

use super::super::cluster::{Ask, Cluster, Devices, Models, Spot};
use super::super::policy::Policy;
use crate::commands::bench::synthetic;

/// Memory of a device; the workloads do not tell, and ask for none.
const GPU_MEMORY_MIB: u64 = 16_384;

/// The state of a cluster without a server around it.
pub struct Muster {
    state: State,
    /// Which node of the replay stands behind each rank: among equals the lowest name wins, and names are ranks.
    by_rank: Vec<usize>,
}

impl Muster {
    /// An empty cluster.
    pub fn new(cluster: &Cluster) -> Muster {
        let mut by_rank: Vec<usize> = (0..cluster.nodes.len()).collect();
        by_rank.sort_by_key(|node| cluster.ranks[*node]);
        let mut muster = Muster { state: State::default(), by_rank };
        muster.tell(&Command::CreateTenant {
            id: tenant(),
            config: Box::new(muster_core::tenant::TenantConfig::unlimited("bench")),
        });
        // Nothing ever leaves, so there is nobody to displace and no future to keep a place in.
        let settings = Settings { preemption: false, reservations: 0, ..Settings::default() };
        muster.tell(&Command::Configure { settings: Box::new(settings) });
        for rank in 0..muster.by_rank.len() {
            let node = &cluster.nodes[muster.by_rank[rank]];
            let facts = Box::new(facts(node.cpu, node.memory_mib, node.devices.len(), node.model));
            muster.tell(&Command::RegisterNode { node: name(rank), facts });
        }
        muster
    }

    fn tell(&mut self, command: &Command) -> Option<Answer> {
        let decision = self.state.decide(&Actor::system(), command, Timestamp(0)).ok()?;
        decision.events.iter().for_each(|event| self.state.apply(event));
        Some(decision.answer)
    }

    fn submit(&mut self, ask: &Ask) -> Option<JobId> {
        match self.tell(&Command::SubmitJob(synthetic::submission(spec(ask))))? {
            Answer::Job(job) => Some(job),
            _ => None,
        }
    }

    fn spot_of(&self, job: JobId) -> Option<Spot> {
        let task = self.state.jobs.get(&job)?.attempt()?.tasks.first()?;
        let rank: usize = task.node.as_str().strip_prefix('n')?.parse().ok()?;
        let devices = task.gpus.iter().map(|gpu| Devices::one(usize::from(*gpu)));
        Some(Spot { node: self.by_rank[rank], devices: devices.fold(Devices::default(), Devices::and) })
    }
}

impl Policy for Muster {
    fn spot(&mut self, _: &Cluster, _: usize, ask: &Ask) -> Option<Spot> {
        let job = self.submit(ask)?;
        let plan = Box::new(plan(&self.state, Timestamp(0)).plan);
        self.tell(&Command::AdoptPlan { plan, epoch: 1 });
        let spot = self.spot_of(job);
        if spot.is_none() {
            self.tell(&Command::CancelJob { job });
        }
        spot
    }

    fn changed(&mut self, _: &Cluster, _: usize) {}
}

fn tenant() -> TenantId {
    synthetic::tenant_name(0).parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn name(rank: usize) -> NodeId {
    format!("n{rank:06}").parse().unwrap_or_else(|_| unreachable!("a plain name"))
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
