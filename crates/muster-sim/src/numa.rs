//! Topology-aware GPU selection: how much it shortens training steps, and what it adds to waiting.
//!
//! A stream of jobs of 1 to 8 GPUs is served in order on nodes of one machine type, once for each device policy.
//! `bandwidth.rs` models the step time on the GPUs that a job got. The baselines are the lowest free indexes and
//! random GPUs.

mod allocators;
mod bandwidth;
mod job_stream;
mod planner_allocator;
mod results;
mod serve;

pub use allocators::DevicePolicy;
pub use bandwidth::{FABRICS, FabricBandwidths, NodeBandwidths, TrainingStep};
pub use results::NumaRow;

use muster_agent::{Cluster, ClusterError};
use muster_core::objects::node::NodeFacts;

use crate::random::Random;
use allocators::TopologyBlindAllocator;
use job_stream::{StreamJob, job_stream};
use planner_allocator::PlannerAllocator;
use serve::{ServedJob, serve};

/// The job streams of a run and the cluster that serves them.
#[derive(Debug, Clone, Copy)]
pub struct NumaWorkload {
    pub nodes: usize,
    /// Waits vary much between streams, so several are averaged.
    pub streams: u64,
    pub jobs_per_stream: usize,
    /// The seed of the first stream; the others follow.
    pub seed: u64,
}

/// The node of a machine type, as its agent describes it.
pub fn node_facts(machine: &str) -> Result<NodeFacts, ClusterError> {
    let cluster = Cluster::parse(&format!("nodes: [{{name: n, box: {machine}}}]"))?;
    Ok(muster_server::agents::node_facts(cluster.registrations().swap_remove(0)))
}

/// The streams of one load, served by each device policy on nodes of one machine type.
pub fn rows_for_load(
    workload: &NumaWorkload,
    facts: &NodeFacts,
    bandwidths: &NodeBandwidths,
    step: TrainingStep,
    load: f64,
) -> Vec<NumaRow> {
    let gpus = facts.gpus.len();
    let seeds = workload.seed..workload.seed + workload.streams;
    let stream = |seed| job_stream(seed, workload.jobs_per_stream, load, workload.nodes * gpus, gpus as u32);
    let streams: Vec<(u64, Vec<StreamJob>)> = seeds.map(|seed| (seed, stream(seed))).collect();
    let serve_all = |policy: DevicePolicy| {
        let served = streams.iter().map(|(seed, jobs)| serve_stream(jobs, facts, workload.nodes, policy, *seed));
        (policy, served.collect())
    };
    results::rows(bandwidths, step, load, &DevicePolicy::ALL.map(serve_all))
}

fn serve_stream(
    jobs: &[StreamJob],
    facts: &NodeFacts,
    nodes: usize,
    policy: DevicePolicy,
    seed: u64,
) -> Vec<ServedJob> {
    let gpus = facts.gpus.len() as u32;
    match policy {
        DevicePolicy::Planner => serve(jobs, &mut PlannerAllocator::new(facts, nodes)),
        DevicePolicy::SameNuma => serve(jobs, &mut PlannerAllocator::same_numa(facts, nodes)),
        DevicePolicy::Lowest => serve(jobs, &mut TopologyBlindAllocator::new(gpus, nodes, None)),
        DevicePolicy::Random => serve(jobs, &mut TopologyBlindAllocator::new(gpus, nodes, Some(Random(seed)))),
    }
}

#[cfg(test)]
mod tests;
