//! The cluster file: a simulated cluster, described in a few lines of YAML.
//!
//! ```yaml
//! nodes:
//!   - name: gpu            # with count > 1 the names become gpu01, gpu02, …
//!     count: 4
//!     cpus: 64
//!     memory_gib: 512
//!     gpus: { model: "NVIDIA H100 80GB HBM3", count: 8, memory_mib: 81559 }   # or a list of such groups
//!     rack: r1
//!     labels: { zone: a }
//!   - name: dgx
//!     count: 64
//!     box: dgx-h100        # the whole machine: GPUs, cores, memory, NUMA nodes, switches, NVLink
//!     memory_gib: 1024     # … except for the keys given here
//!     nodes_per_rack: 4    # racks r1 to r16; `rack` sets another prefix than `r`
//!     racks_per_block: 8   # blocks b1 and b2; `block` sets another prefix than `b`
//! ```
//!
//! `cluster/file.rs` parses the text; this file checks it and turns it into registrations. The boxes are in
//! `cluster/boxes.rs`; `numa_nodes`, `sockets` and `pcie_switches` describe other machines.

mod boxes;
mod file;
mod layout;
mod suggestion;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use muster_protocol::agent::{RegisteredGpu, Registration};
use serde_saphyr::{Location, Spanned};

use file::{ClusterFile, GpuGroup, NodeGroup, WithValue};
use layout::NodeLayout;

/// The longest name of a node, as everywhere in muster.
const NAME_LENGTH_MAX: usize = 63;
/// Far above the 2,000 nodes that one simulated agent is meant to serve; catches typing errors only.
const NODES_MAX: u64 = 10_000;
/// More cores than any machine sold.
const CPUS_MAX: u64 = 8_192;
/// 64 TiB, above the largest machines sold.
const MEMORY_GIB_MAX: u64 = 65_536;
/// The core keeps the free devices of a node as bits of a 64-bit word.
const GPUS_PER_NODE_MAX: u64 = 64;
/// 4 TiB, an order above the largest device sold.
const GPU_MEMORY_MIB_MAX: u64 = 4 << 20;
/// More NUMA nodes than any machine sold.
const NUMA_NODES_MAX: u64 = 64;

/// A checked cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    nodes: Vec<Registration>,
}

/// Why a cluster file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot read the cluster file `{path}`: {source}")]
    Unreadable { path: PathBuf, source: io::Error },
    /// A problem at a known place. Line and column are counted from one.
    #[error("line {line}, column {column}: {problem}")]
    AtLine { line: u64, column: u64, problem: ClusterFileProblem },
    /// A problem of the whole file.
    #[error(transparent)]
    WholeFile(#[from] ClusterFileProblem),
}

/// A problem in a cluster file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFileProblem {
    /// Invalid YAML, or a value of the wrong type.
    #[error("{0}")]
    Yaml(String),
    /// Most often a typing error. The hint is the nearest known key, or all of them.
    #[error("unknown key `{key}`; {hint}")]
    UnknownKey { key: String, hint: String },
    /// The hint is the nearest known box, if one is near, and all of them.
    #[error("unknown box `{name}`; {hint}")]
    UnknownBox { name: String, hint: String },
    /// A required key that neither the node group nor its box sets.
    #[error("`{key}` is missing; set it, or set a `box` that defines it")]
    MissingKey { key: &'static str },
    /// A key that has no effect without another.
    #[error("`{key}` needs `{other}`")]
    RequiresKey { key: &'static str, other: &'static str },
    #[error("the cluster has no nodes")]
    NoNodes,
    /// The name is shown with its number.
    #[error(
        "`{name}` is not a valid node name: use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, \
         beginning with a letter or digit"
    )]
    InvalidNodeName { name: String },
    #[error("there are two nodes named `{name}`")]
    DuplicateNodeName { name: String },
    #[error("`{key}` is {value}; it must be between {min} and {max}")]
    OutOfRange { key: &'static str, value: u64, min: u64, max: u64 },
}

impl Cluster {
    /// Reads and checks a cluster file.
    pub fn load(path: &Path) -> Result<Cluster, ClusterError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ClusterError::Unreadable { path: path.to_path_buf(), source })?;
        Cluster::parse(&text)
    }

    /// Checks the text of a cluster file.
    pub fn parse(text: &str) -> Result<Cluster, ClusterError> {
        let file: ClusterFile = file::parse_cluster_file(text)?;
        let mut nodes = Vec::new();
        let mut names = BTreeSet::new();
        for group in &file.nodes {
            check_group(group)?;
            let registrations = expand_group(group, &NodeLayout::from_group(group)?);
            check_names(group, &registrations, &mut names)?;
            nodes.extend(registrations);
            check_range("nodes", &group.count.with_value(nodes.len() as u64), 1, NODES_MAX)?;
        }
        if nodes.is_empty() {
            return Err(ClusterFileProblem::NoNodes.into());
        }
        Ok(Cluster { nodes })
    }

    /// The cluster of `muster dev`: two nodes, `gpu01` and `gpu02`, with four GPUs each.
    pub fn default_dev() -> Cluster {
        let group =
            NodeGroup::from_values("gpu", 2, 32, 256, GpuGroup::from_values("NVIDIA H100 80GB HBM3", 4, 81_559));
        // The group sets every required key, so the layout cannot fail.
        Cluster {
            nodes: NodeLayout::from_group(&group).map(|layout| expand_group(&group, &layout)).unwrap_or_default(),
        }
    }

    /// The registrations of the agents of this cluster. The same text gives the same registrations.
    pub fn registrations(&self) -> Vec<Registration> {
        self.nodes.clone()
    }
}

fn check_group(group: &NodeGroup) -> Result<(), ClusterError> {
    check_range("count", &group.count, 1, NODES_MAX)?;
    for (key, number, min, max) in [
        ("cpus", &group.cpus, 1, CPUS_MAX),
        ("memory_gib", &group.memory_gib, 1, MEMORY_GIB_MAX),
        ("numa_nodes", &group.numa_nodes, 1, NUMA_NODES_MAX),
        ("sockets", &group.sockets, 1, NUMA_NODES_MAX),
        ("pcie_switches", &group.pcie_switches, 0, GPUS_PER_NODE_MAX),
        ("nodes_per_rack", &group.nodes_per_rack, 1, NODES_MAX),
        ("racks_per_block", &group.racks_per_block, 1, NODES_MAX),
    ] {
        number.iter().try_for_each(|number| check_range(key, number, min, max))?;
    }
    if let (Some(number), None) = (&group.racks_per_block, &group.nodes_per_rack) {
        let problem = ClusterFileProblem::RequiresKey { key: "racks_per_block", other: "nodes_per_rack" };
        return Err(error_at(number.referenced, problem));
    }
    check_gpus(group.gpus.as_ref().map_or(&[][..], |gpus| &gpus.0))
}

fn check_gpus(parts: &[GpuGroup]) -> Result<(), ClusterError> {
    let mut gpus: u64 = 0;
    for part in parts {
        check_range("gpus.count", &part.count, 1, GPUS_PER_NODE_MAX)?;
        gpus += part.count.value;
        check_range("gpus.count", &part.count.with_value(gpus), 1, GPUS_PER_NODE_MAX)?;
        check_range("gpus.memory_mib", &part.memory_mib, 1, GPU_MEMORY_MIB_MAX)?;
    }
    Ok(())
}

/// Checks the final names, with their numbers.
fn check_names(group: &NodeGroup, nodes: &[Registration], taken: &mut BTreeSet<String>) -> Result<(), ClusterError> {
    for node in nodes {
        let name = node.node.clone();
        if !is_node_name(&name) {
            return Err(error_at(group.name.referenced, ClusterFileProblem::InvalidNodeName { name }));
        }
        if !taken.insert(name.clone()) {
            return Err(error_at(group.name.referenced, ClusterFileProblem::DuplicateNodeName { name }));
        }
    }
    Ok(())
}

fn is_node_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_LENGTH_MAX
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

fn check_range(key: &'static str, number: &Spanned<u64>, min: u64, max: u64) -> Result<(), ClusterError> {
    let value = number.value;
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(error_at(number.referenced, ClusterFileProblem::OutOfRange { key, value, min, max }))
}

fn error_at(location: Location, problem: ClusterFileProblem) -> ClusterError {
    if location == Location::UNKNOWN {
        return problem.into();
    }
    ClusterError::AtLine { line: location.line(), column: location.column(), problem }
}

/// The nodes of a checked group.
fn expand_group(group: &NodeGroup, layout: &NodeLayout) -> Vec<Registration> {
    let count = group.count.value;
    let width = count.to_string().len().max(2);
    let name = |number: u64| match count {
        1 => group.name.value.clone(),
        _ => format!("{}{number:0width$}", group.name.value),
    };
    (1..=count).map(|number| node_registration(group, layout, name(number), number)).collect()
}

fn node_registration(group: &NodeGroup, layout: &NodeLayout, node: String, number: u64) -> Registration {
    let (rack, block) = rack_and_block(group, number);
    Registration {
        hostname: node.clone(),
        address: String::new(),
        cpus: u32::try_from(layout.cpus).unwrap_or(u32::MAX),
        memory_mib: layout.memory_mib,
        gpus: (0..).zip(&layout.gpus).map(|(index, gpu)| with_uuid(gpu, &node, index)).collect(),
        numa: layout.numa.clone(),
        rack,
        block,
        power_feed: group.power_feed.clone(),
        labels: group.labels.clone(),
        taints: group.taints.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_string(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: true,
        node,
    }
}

/// The rack and the block of a node. Racks and blocks fill up in order; the last ones may stay partly empty.
fn rack_and_block(group: &NodeGroup, number: u64) -> (Option<String>, Option<String>) {
    let Some(nodes) = &group.nodes_per_rack else { return (group.rack.clone(), group.block.clone()) };
    let rack = (number - 1) / nodes.value;
    let rack_name = format!("{}{}", group.rack.as_deref().unwrap_or("r"), rack + 1);
    let Some(racks) = &group.racks_per_block else { return (Some(rack_name), group.block.clone()) };
    let block_name = format!("{}{}", group.block.as_deref().unwrap_or("b"), rack / racks.value + 1);
    (Some(rack_name), Some(block_name))
}

fn with_uuid(gpu: &RegisteredGpu, node: &str, index: u64) -> RegisteredGpu {
    RegisteredGpu { uuid: gpu_uuid(node, index), ..gpu.clone() }
}

/// The same node and index always give the same UUID, so a restarted server recognises the devices.
fn gpu_uuid(node: &str, index: u64) -> String {
    let text = format!("{node}/gpu-{index}");
    let (high, low) = (fnv1a(&text, 0), fnv1a(&text, 1));
    format!(
        "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

/// FNV-1a, because no hash of the standard library is stable between releases.
fn fnv1a(text: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests;
