//! The cluster of a trace replay: from a cluster file, from a spec such as `16x8xV100`, or sized for a log.

use std::collections::BTreeMap;

use muster_agent::Cluster;
use muster_core::NodeId;
use muster_core::gpu::model;
use muster_core::objects::node::NodeFacts;
use muster_server::agents::node_facts;

use crate::job_log::LoggedJob;

/// Short name, full name, memory in MiB and power limit in watts of each known GPU model.
const GPU_MODELS: [(&str, &str, u32, u32); 9] = [
    ("k80", "Tesla K80", 11_441, 150),
    ("p100", "Tesla P100-SXM2-16GB", 16_280, 300),
    ("t4", "Tesla T4", 15_360, 70),
    ("v100", "Tesla V100-SXM2-32GB", 32_768, 300),
    ("a40", "NVIDIA A40", 46_068, 300),
    ("l40s", "NVIDIA L40S", 46_068, 350),
    ("a100", "NVIDIA A100-SXM4-80GB", 81_920, 400),
    ("h100", "NVIDIA H100 80GB HBM3", 81_559, 700),
    ("h200", "NVIDIA H200", 143_771, 700),
];
/// The memory of an unknown GPU model.
const UNKNOWN_GPU_MEMORY_MIB: u32 = 16_384;
/// Cores and memory per GPU: more than any job needs, because most logs do not record them.
const CPUS_PER_GPU: u32 = 32;
const MEMORY_GIB_PER_GPU: u32 = 256;
/// A cluster sized for a log covers the demand for this percentage of the time in which jobs are submitted.
const DEMAND_COVERED_PERCENT: i128 = 95;
/// GPUs per node if the spec does not say.
const NODE_GPUS_DEFAULT: u32 = 8;

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayCluster {
    nodes: Vec<(NodeId, NodeFacts)>,
}

/// The error for a spec that is not a cluster.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{spec}` is not a cluster specification: {why}")]
pub struct InvalidClusterSpec {
    pub spec: String,
    pub why: String,
}

impl ReplayCluster {
    /// The cluster of a cluster file.
    pub fn from_cluster(cluster: &Cluster) -> ReplayCluster {
        let node = |registration: muster_protocol::agent::Registration| {
            Some((registration.node.parse().ok()?, node_facts(registration)))
        };
        ReplayCluster { nodes: cluster.registrations().into_iter().filter_map(node).collect() }
    }

    /// Parses a spec such as `16x8xV100`: nodes × GPUs per node × model, several separated by commas. `4xH100`
    /// means four nodes with eight GPUs.
    pub fn parse(spec: &str) -> Result<ReplayCluster, InvalidClusterSpec> {
        let invalid = |why: String| InvalidClusterSpec { spec: spec.to_string(), why };
        let groups = spec.split(',').enumerate().map(|(index, group_spec)| group_yaml(index, group_spec.trim()));
        let groups = groups.collect::<Result<Vec<String>, String>>().map_err(invalid)?;
        let text = format!("nodes:\n{}", groups.concat());
        Cluster::parse(&text)
            .map(|cluster| ReplayCluster::from_cluster(&cluster))
            .map_err(|error| invalid(error.to_string()))
    }

    /// The spec of a cluster for a log: large enough for the demand in 95 % of the submission period, and for the
    /// largest job.
    pub fn spec_for_jobs(jobs: &[LoggedJob]) -> String {
        let node_gpus = jobs.iter().map(largest_task_gpus).max().unwrap_or(0).max(NODE_GPUS_DEFAULT);
        let largest_job_gpus = jobs.iter().map(|job| job.gpus.total()).max().unwrap_or(1);
        let gpus = usual_gpu_demand(jobs).max(u64::from(largest_job_gpus));
        format!("{}x{node_gpus}xV100", gpus.div_ceil(u64::from(node_gpus)).max(1))
    }

    pub fn nodes(&self) -> &[(NodeId, NodeFacts)] {
        &self.nodes
    }

    /// The number of GPUs of all nodes.
    pub fn gpus(&self) -> u32 {
        self.nodes.iter().map(|(_, facts)| facts.gpus.len() as u32).sum()
    }

    /// GPUs of the largest node.
    pub fn largest_node_gpus(&self) -> u32 {
        self.nodes.iter().map(|(_, facts)| facts.gpus.len() as u32).max().unwrap_or(0)
    }

    /// The number of GPUs per node; `None` if the nodes differ.
    pub fn uniform_node_gpus(&self) -> Option<u32> {
        let each = self.largest_node_gpus();
        self.nodes.iter().all(|(_, facts)| facts.gpus.len() as u32 == each).then_some(each)
    }

    /// True if a GPU of the cluster matches the model name.
    pub fn has_model(&self, wanted: &str) -> bool {
        self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).any(|gpu| model::matches(wanted, &gpu.model))
    }

    /// The sum of the power limits of all GPUs.
    pub fn milliwatts(&self) -> u64 {
        self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).map(|gpu| gpu.milliwatts()).sum()
    }

    /// For people: `128 GPUs of 16 nodes (Tesla V100-SXM2-32GB)`.
    pub fn summary(&self) -> String {
        let mut models: Vec<&str> =
            self.nodes.iter().flat_map(|(_, facts)| &facts.gpus).map(|gpu| gpu.model.as_str()).collect();
        models.sort_unstable();
        models.dedup();
        let nodes = match self.nodes.len() {
            1 => "one node".to_string(),
            nodes => format!("{nodes} nodes"),
        };
        format!("{} GPUs of {nodes} ({})", self.gpus(), models.join(", "))
    }
}

/// The GPUs in use if every job ran at its submission, exceeded in at most 5 % of the submission period.
fn usual_gpu_demand(jobs: &[LoggedJob]) -> u64 {
    let last_ms = jobs.iter().map(|job| job.submit_ms).max().unwrap_or(0);
    let mut changes: Vec<(i64, i64)> = Vec::new();
    for job in jobs {
        let gpus = i64::from(job.gpus.total());
        changes.push((job.submit_ms, gpus));
        changes.push((job.submit_ms.saturating_add(job.work_ms), -gpus));
    }
    changes.sort_unstable();
    let (mut lengths, mut since_ms, mut gpus) = (BTreeMap::new(), i64::MAX, 0);
    for (at_ms, change) in changes.into_iter().filter(|(at_ms, _)| *at_ms <= last_ms) {
        *lengths.entry(gpus).or_default() += (at_ms - since_ms.min(at_ms)).max(0);
        (since_ms, gpus) = (at_ms, gpus + change);
    }
    let total_ms: i64 = lengths.values().sum();
    let mut covered_ms = 0;
    let covered = lengths.iter().find(|(_, ms)| {
        covered_ms += **ms;
        i128::from(covered_ms) * 100 >= i128::from(total_ms) * DEMAND_COVERED_PERCENT
    });
    // All jobs are submitted at one instant: the demand right after it.
    let gpus = if total_ms == 0 { gpus } else { covered.map_or(gpus, |(gpus, _)| *gpus) };
    u64::try_from(gpus).unwrap_or(0)
}

fn largest_task_gpus(job: &LoggedJob) -> u32 {
    match job.gpus {
        crate::job_log::GangShape::Tasks { each, .. } => each,
        crate::job_log::GangShape::Total(_) => 0,
    }
}

/// A node group of a spec as YAML of a cluster file.
fn group_yaml(index: usize, group_spec: &str) -> Result<String, String> {
    let number = |text: &str, what: &str| {
        let number = text.parse::<u32>().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("`{text}` is not a number of {what}; write for example `16x8xV100`"))
    };
    let (nodes, rest) = group_spec.split_once(['x', 'X']).unwrap_or((group_spec, ""));
    let nodes = number(nodes, "nodes")?;
    let begins_with_number = rest.starts_with(|letter: char| letter.is_ascii_digit());
    let (gpus, short_name) = match rest.split_once(['x', 'X']) {
        Some((gpus, short_name)) if begins_with_number => (number(gpus, "GPUs")?, short_name.trim()),
        None if begins_with_number => (number(rest, "GPUs")?, "V100"),
        // `4xH100`: nodes with eight GPUs.
        _ => (NODE_GPUS_DEFAULT, rest.trim()),
    };
    if short_name.is_empty() || short_name.contains(['"', '\\', '\n']) {
        return Err("a model is missing; write for example `16x8xV100`".to_string());
    }
    let known = GPU_MODELS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(short_name));
    let (model, memory, power) = match known {
        Some((_, model, memory, watts)) => (*model, *memory, format!(", power_limit_watts: {watts}")),
        None => (short_name, UNKNOWN_GPU_MEMORY_MIB, String::new()),
    };
    let letter = char::from(b'a' + (index % 26) as u8);
    Ok(format!(
        "  - name: {letter}{}n\n    count: {nodes}\n    cpus: {}\n    memory_gib: {}\n    \
         gpus: {{ model: \"{model}\", count: {gpus}, memory_mib: {memory}{power} }}\n",
        index / 26,
        (gpus * CPUS_PER_GPU).min(8_192),
        (gpus * MEMORY_GIB_PER_GPU).min(65_536),
    ))
}
