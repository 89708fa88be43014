//! A simulated cluster, described in a few lines of YAML.
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
//!     box: dgx-h100        # all of the machine: GPUs, cores, memory, NUMA nodes, switches, NVLink
//!     memory_gib: 1024     # … but for what is given here
//!     nodes_per_rack: 4    # racks r1 to r16; another word than `r` with `rack`
//!     racks_per_block: 8   # blocks b1 and b2; another word than `b` with `block`
//! ```
//!
//! The text is read in `cluster/file.rs`; here it is checked and turned into registrations. The boxes are in
//! `cluster/boxes.rs`; `numa_nodes`, `sockets` and `pcie_switches` describe others.

mod boxes;
mod file;
mod layout;
mod nearest;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use muster_protocol::agent::{Gpu, Registration};
use serde_saphyr::{Location, Spanned};

use file::{ClusterFile, GpuGroup, NodeGroup, With};
use layout::Layout;

/// Longest name of a node, as everywhere in muster.
const NAME_LENGTH_MAX: usize = 63;
/// Far above what one simulated agent is meant to serve (2,000); it only stops typing errors.
const NODES_MAX: u64 = 10_000;
/// More cores than any machine sold.
const CPUS_MAX: u64 = 8_192;
/// 64 TiB, above the largest machines sold.
const MEMORY_GIB_MAX: u64 = 65_536;
/// Free devices of a node are kept as bits of one word.
const GPUS_PER_NODE_MAX: u64 = 64;
/// 4 TiB, an order above the largest device sold.
const GPU_MEMORY_MIB_MAX: u64 = 4 << 20;
/// More NUMA nodes than any machine sold.
const NUMA_NODES_MAX: u64 = 64;

/// A simulated cluster, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    nodes: Vec<Registration>,
}

/// Why a description is not a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The file could not be read.
    #[error("cannot read the cluster file `{path}`: {source}")]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Something in the text is wrong, at a place we know.
    #[error("line {line}, column {column}: {wrong}")]
    At {
        /// Counted from one.
        line: u64,
        /// Counted from one.
        column: u64,
        /// What is wrong there.
        wrong: Wrong,
    },
    /// Something is wrong with the text as a whole.
    #[error(transparent)]
    Whole(#[from] Wrong),
}

/// What can be wrong in a description.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// Not the YAML we expect.
    #[error("{0}")]
    Yaml(String),
    /// A key nobody knows, most often a typing error.
    #[error("unknown key `{key}`; {hint}")]
    UnknownKey {
        /// As written.
        key: String,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// A box nobody knows.
    #[error("unknown box `{name}`; {hint}")]
    UnknownBox {
        /// As written.
        name: String,
        /// The nearest one, if one is near, and all of them.
        hint: String,
    },
    /// Something that is not told by a box either.
    #[error("`{key}` is missing: give it, or name a `box` that has it")]
    Missing {
        /// Which key.
        key: &'static str,
    },
    /// A key that says nothing without another.
    #[error("`{key}` needs `{other}`")]
    Needs {
        /// Which key.
        key: &'static str,
        /// The one that is not there.
        other: &'static str,
    },
    /// No node is described.
    #[error("the cluster has no nodes")]
    NoNodes,
    /// A name that cannot name a node.
    #[error(
        "`{name}` is not a valid node name: use 1 to 63 of a-z, 0-9, `-`, `_` and `.`, \
         beginning with a letter or digit"
    )]
    BadName {
        /// As written, with its number.
        name: String,
    },
    /// Two nodes would have the same name.
    #[error("there are two nodes named `{name}`")]
    DuplicateName {
        /// Which.
        name: String,
    },
    /// An absurd number.
    #[error("`{key}` is {value}; it must lie between {min} and {max}")]
    OutOfRange {
        /// Which key.
        key: &'static str,
        /// As written.
        value: u64,
        /// Least that makes sense.
        min: u64,
        /// Most that makes sense.
        max: u64,
    },
}

impl Cluster {
    /// Read a description from a file.
    pub fn load(path: &Path) -> Result<Cluster, ClusterError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ClusterError::Unreadable { path: path.to_path_buf(), source })?;
        Cluster::parse(&text)
    }

    /// Read a description.
    pub fn parse(text: &str) -> Result<Cluster, ClusterError> {
        let file: ClusterFile = file::read(text)?;
        let mut nodes = Vec::new();
        let mut names = BTreeSet::new();
        for group in &file.nodes {
            check_group(group)?;
            let alike = expand(group, &Layout::of(group)?);
            check_names(group, &alike, &mut names)?;
            nodes.extend(alike);
            in_range("nodes", &group.count.with(nodes.len() as u64), 1, NODES_MAX)?;
        }
        if nodes.is_empty() {
            return Err(Wrong::NoNodes.into());
        }
        Ok(Cluster { nodes })
    }

    /// The cluster of `muster dev`: two nodes, `gpu01` and `gpu02`, with four GPUs each.
    pub fn default_dev() -> Cluster {
        let group = NodeGroup::plain("gpu", 2, 32, 256, GpuGroup::plain("NVIDIA H100 80GB HBM3", 4, 81_559));
        // Everything is given, so nothing can be missing.
        Cluster { nodes: Layout::of(&group).map(|layout| expand(&group, &layout)).unwrap_or_default() }
    }

    /// What the agents of this cluster say their machines are. The same text gives the same answer.
    pub fn registrations(&self) -> Vec<Registration> {
        self.nodes.clone()
    }
}

fn check_group(group: &NodeGroup) -> Result<(), ClusterError> {
    in_range("count", &group.count, 1, NODES_MAX)?;
    for (key, number, min, max) in [
        ("cpus", &group.cpus, 1, CPUS_MAX),
        ("memory_gib", &group.memory_gib, 1, MEMORY_GIB_MAX),
        ("numa_nodes", &group.numa_nodes, 1, NUMA_NODES_MAX),
        ("sockets", &group.sockets, 1, NUMA_NODES_MAX),
        ("pcie_switches", &group.pcie_switches, 0, GPUS_PER_NODE_MAX),
        ("nodes_per_rack", &group.nodes_per_rack, 1, NODES_MAX),
        ("racks_per_block", &group.racks_per_block, 1, NODES_MAX),
    ] {
        number.iter().try_for_each(|number| in_range(key, number, min, max))?;
    }
    if let (Some(number), None) = (&group.racks_per_block, &group.nodes_per_rack) {
        let wrong = Wrong::Needs { key: "racks_per_block", other: "nodes_per_rack" };
        return Err(at(number.referenced, wrong));
    }
    check_gpus(group.gpus.as_ref().map_or(&[][..], |gpus| &gpus.0))
}

fn check_gpus(parts: &[GpuGroup]) -> Result<(), ClusterError> {
    let mut gpus: u64 = 0;
    for part in parts {
        in_range("gpus.count", &part.count, 1, GPUS_PER_NODE_MAX)?;
        gpus += part.count.value;
        in_range("gpus.count", &part.count.with(gpus), 1, GPUS_PER_NODE_MAX)?;
        in_range("gpus.memory_mib", &part.memory_mib, 1, GPU_MEMORY_MIB_MAX)?;
    }
    Ok(())
}

/// Names are checked as they come out, with their numbers: that is what others will see.
fn check_names(
    group: &NodeGroup,
    nodes: &[Registration],
    taken: &mut BTreeSet<String>,
) -> Result<(), ClusterError> {
    for node in nodes {
        let name = node.node.clone();
        if !is_name(&name) {
            return Err(at(group.name.referenced, Wrong::BadName { name }));
        }
        if !taken.insert(name.clone()) {
            return Err(at(group.name.referenced, Wrong::DuplicateName { name }));
        }
    }
    Ok(())
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= NAME_LENGTH_MAX
        && text.bytes().next().is_some_and(plain)
        && text.bytes().all(|byte| plain(byte) || matches!(byte, b'-' | b'_' | b'.'))
}

fn in_range(key: &'static str, number: &Spanned<u64>, min: u64, max: u64) -> Result<(), ClusterError> {
    let value = number.value;
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(at(number.referenced, Wrong::OutOfRange { key, value, min, max }))
}

fn at(location: Location, wrong: Wrong) -> ClusterError {
    if location == Location::UNKNOWN {
        return wrong.into();
    }
    ClusterError::At { line: location.line(), column: location.column(), wrong }
}

/// The nodes of a group that was checked.
fn expand(group: &NodeGroup, layout: &Layout) -> Vec<Registration> {
    let count = group.count.value;
    let width = count.to_string().len().max(2);
    let name = |number: u64| match count {
        1 => group.name.value.clone(),
        _ => format!("{}{number:0width$}", group.name.value),
    };
    (1..=count).map(|number| registration(group, layout, name(number), number)).collect()
}

fn registration(group: &NodeGroup, layout: &Layout, node: String, number: u64) -> Registration {
    let (rack, block) = place(group, number);
    Registration {
        hostname: node.clone(),
        address: String::new(),
        cpus: u32::try_from(layout.cpus).unwrap_or(u32::MAX),
        memory_mib: layout.memory_mib,
        gpus: (0..).zip(&layout.gpus).map(|(index, gpu)| identified(gpu, &node, index)).collect(),
        numa: layout.numa.clone(),
        rack,
        block,
        power_feed: group.power_feed.clone(),
        labels: group.labels.clone(),
        taints: group.taints.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_string(),
        incarnation: String::new(),
        simulated: true,
        node,
    }
}

/// The rack and the block of a node. They fill up in order, the last ones may stay partly empty.
fn place(group: &NodeGroup, number: u64) -> (Option<String>, Option<String>) {
    let Some(nodes) = &group.nodes_per_rack else { return (group.rack.clone(), group.block.clone()) };
    let rack = (number - 1) / nodes.value;
    let rack_name = format!("{}{}", group.rack.as_deref().unwrap_or("r"), rack + 1);
    let Some(racks) = &group.racks_per_block else { return (Some(rack_name), group.block.clone()) };
    let block_name = format!("{}{}", group.block.as_deref().unwrap_or("b"), rack / racks.value + 1);
    (Some(rack_name), Some(block_name))
}

fn identified(gpu: &Gpu, node: &str, index: u64) -> Gpu {
    Gpu { uuid: uuid(node, index), ..gpu.clone() }
}

/// The same node and index always give the same id, so a restarted server meets the devices it knows.
fn uuid(node: &str, index: u64) -> String {
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

/// FNV-1a, because the standard library promises no hash that stays the same between releases.
fn fnv1a(text: &str, seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    text.bytes().fold(start, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests;
