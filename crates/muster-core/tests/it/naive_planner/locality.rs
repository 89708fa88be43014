//! Locality of the GPUs of a task, read from the facts of the node.

use muster_core::gpu::device::GpuFacts;
use muster_core::objects::job::{Job, Topology};
use muster_core::objects::node::NodeFacts;

/// True if devices that a job uses together meet its required locality.
pub(super) fn meets_requirement(job: &Job, facts: &NodeFacts, gpus: &[u8]) -> bool {
    let same_numa = job.spec.topology == Topology::SameNuma || job.spec.allow_cross_numa == Some(false);
    let nvlink = job.spec.topology == Topology::Nvlink;
    (!same_numa || are_on_one_numa_node(facts, gpus)) && (!nvlink || are_joined(facts, gpus))
}

/// The cost of slow links, in thousandths of each device.
pub(super) fn cost_milli(job: &Job, facts: &NodeFacts, gpus: &[u8]) -> u32 {
    let joined = are_joined(facts, gpus);
    let distance = match (are_on_one_numa_node(facts, gpus), are_on_one_socket(facts, gpus), joined) {
        (true, _, true) => 0,
        (true, _, false) | (false, true, true) => 20,
        (false, true, false) | (false, false, true) => 60,
        (false, false, false) => 150,
    };
    let wants_nvlink = job.spec.topology == Topology::Nvlink || job.spec.prefer_nvlink;
    distance + if wants_nvlink && !joined { 100 } else { 0 }
}

/// Devices with an unknown NUMA node count as one NUMA node of their own.
fn are_on_one_numa_node(facts: &NodeFacts, gpus: &[u8]) -> bool {
    let numa = |gpu: &u8| facts.gpus[usize::from(*gpu)].numa_node;
    gpus.iter().all(|gpu| numa(gpu) == numa(&gpus[0]))
}

fn are_on_one_socket(facts: &NodeFacts, gpus: &[u8]) -> bool {
    let socket = |gpu: &u8| socket_of(&facts.gpus[usize::from(*gpu)], facts);
    gpus.iter().all(|gpu| socket(gpu) == socket(&gpus[0]))
}

/// The socket of a device. If it is unknown, each NUMA node counts as a socket.
fn socket_of(gpu: &GpuFacts, facts: &NodeFacts) -> (Option<u32>, Option<u32>) {
    let of_numa = gpu.numa_node.and_then(|numa| facts.numa.get(numa as usize)).map(|numa| numa.socket);
    match gpu.socket.or(of_numa) {
        Some(socket) => (Some(socket), None),
        None => (None, gpu.numa_node),
    }
}

/// True if the NVLinks among the devices connect all of them. A link that one device reports is a link of both.
fn are_joined(facts: &NodeFacts, gpus: &[u8]) -> bool {
    let linked =
        |a: u8, b: u8| facts.gpus[usize::from(a)].nvlink.contains(&b) || facts.gpus[usize::from(b)].nvlink.contains(&a);
    let mut reached: Vec<u8> = gpus.first().copied().into_iter().collect();
    while let Some(next) =
        gpus.iter().find(|gpu| !reached.contains(gpu) && reached.iter().any(|one| linked(*one, **gpu)))
    {
        reached.push(*next);
    }
    reached.len() == gpus.len()
}
