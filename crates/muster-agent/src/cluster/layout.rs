//! The layout of the nodes of a group: the values of its box, overridden by its own keys.

use muster_protocol::agent::{RegisteredGpu, RegisteredNumaNode};

use super::boxes::{self, BoxNvlink, BoxSpec};
use super::file::{GpuGroup, NodeGroup, Nvlink};
use super::{ClusterError, ClusterFileProblem, error_at, suggestion};

/// The hardware of a node, without its name and the UUIDs of its devices.
pub(super) struct NodeLayout {
    pub cpus: u64,
    pub memory_mib: u64,
    pub numa: Vec<RegisteredNumaNode>,
    pub gpus: Vec<RegisteredGpu>,
}

impl NodeLayout {
    /// The layout of a group whose numbers were checked.
    pub fn from_group(group: &NodeGroup) -> Result<NodeLayout, ClusterError> {
        let box_spec = box_of_group(group)?;
        let missing = |key| error_at(group.name.referenced, ClusterFileProblem::MissingKey { key });
        let cpus = group.cpus.as_ref().map(|cpus| cpus.value).or(box_spec.map(|box_spec| box_spec.cpus));
        let memory_gib = group.memory_gib.as_ref().map(|memory| memory.value);
        let memory_gib = memory_gib.or(box_spec.map(|box_spec| box_spec.memory_gib));
        let cpus = cpus.ok_or_else(|| missing("cpus"))?;
        let memory_mib = memory_gib.ok_or_else(|| missing("memory_gib"))?.saturating_mul(1024);
        let sockets = numa_sockets(group, box_spec);
        let mut gpus = match (&group.gpus, box_spec) {
            (None, Some(box_spec)) => gpus_of_box(box_spec),
            (parts, _) => gpus_of_groups(parts.as_ref().map_or(&[][..], |parts| &parts.0)),
        };
        assign_numa_and_switches(&mut gpus, group, box_spec, sockets.len());
        let numa = numa_nodes(cpus, memory_mib, &sockets);
        Ok(NodeLayout { cpus, memory_mib, numa, gpus })
    }
}

fn box_of_group(group: &NodeGroup) -> Result<Option<&'static BoxSpec>, ClusterError> {
    let Some(name) = &group.box_name else { return Ok(None) };
    let unknown = || {
        let hint = suggestion::unknown_box_hint(&name.value, &boxes::box_names());
        error_at(name.referenced, ClusterFileProblem::UnknownBox { name: name.value.clone(), hint })
    };
    boxes::box_named(&name.value).map(Some).ok_or_else(unknown)
}

/// The socket of each NUMA node. Default: two NUMA nodes, each on its own socket.
fn numa_sockets(group: &NodeGroup, box_spec: Option<&BoxSpec>) -> Vec<u32> {
    let box_numa_sockets = box_spec.map(|box_spec| box_spec.numa_sockets);
    if let (Some(box_numa_sockets), None, None) = (box_numa_sockets, &group.numa_nodes, &group.sockets) {
        return box_numa_sockets.to_vec();
    }
    let box_sockets =
        box_numa_sockets.and_then(|box_numa_sockets| box_numa_sockets.iter().max()).map(|last| u64::from(*last) + 1);
    let numa_nodes = group.numa_nodes.as_ref().map(|number| number.value);
    let numa_nodes = numa_nodes.unwrap_or(box_numa_sockets.map_or(2, |box_numa_sockets| box_numa_sockets.len() as u64));
    let sockets = group.sockets.as_ref().map(|number| number.value).or(box_sockets);
    let sockets = sockets.unwrap_or(numa_nodes).min(numa_nodes);
    (0..numa_nodes).map(|numa| part_index(numa, numa_nodes, sockets)).collect()
}

/// The NUMA nodes, with cores and memory spread evenly.
fn numa_nodes(cpus: u64, memory_mib: u64, sockets: &[u32]) -> Vec<RegisteredNumaNode> {
    let count = sockets.len() as u64;
    let part = |total: u64, index: u64| total * (index + 1) / count - total * index / count;
    let numa = |(index, socket): (u64, &u32)| RegisteredNumaNode {
        cpus: u32::try_from(part(cpus, index)).unwrap_or(u32::MAX),
        memory_mib: part(memory_mib, index),
        socket: *socket,
    };
    (0..).zip(sockets).map(numa).collect()
}

fn gpus_of_box(box_spec: &BoxSpec) -> Vec<RegisteredGpu> {
    let count = box_spec.gpu_numa.len() as u64;
    let gpu = |index: u64| RegisteredGpu {
        uuid: String::new(),
        model: box_spec.model.to_string(),
        memory_mib: box_spec.gpu_memory_mib,
        numa_node: box_spec.gpu_numa.get(index as usize).copied(),
        nvlink: match box_spec.nvlink {
            BoxNvlink::None => Vec::new(),
            BoxNvlink::Mesh => nvlink_peers(Nvlink::Mesh, 0..count, index),
            BoxNvlink::Pairs => nvlink_peers(Nvlink::Pairs, 0..count, index),
            BoxNvlink::Peers(peers) => peers[index as usize].to_vec(),
        },
        socket: None,
        pcie_switch: box_spec.gpu_switch.get(index as usize).copied(),
        mig: Vec::new(),
        power_limit_milliwatts: Some(box_spec.gpu_watts * 1_000),
    };
    (0..count).map(gpu).collect()
}

fn gpus_of_groups(parts: &[GpuGroup]) -> Vec<RegisteredGpu> {
    let mut gpus = Vec::new();
    for part in parts {
        let first = gpus.len() as u64;
        for index in first..first + part.count.value {
            gpus.push(RegisteredGpu {
                uuid: String::new(),
                model: part.model.clone(),
                memory_mib: part.memory_mib.value,
                numa_node: None,
                nvlink: nvlink_peers(part.nvlink, first..first + part.count.value, index),
                socket: None,
                pcie_switch: None,
                mig: Vec::new(),
                power_limit_milliwatts: part.power_limit_watts.map(|watts| watts.saturating_mul(1000)),
            });
        }
    }
    gpus
}

/// Spreads the devices whose NUMA nodes and switches no box defines, in order.
fn assign_numa_and_switches(
    gpus: &mut [RegisteredGpu],
    group: &NodeGroup,
    box_spec: Option<&BoxSpec>,
    numa_nodes: usize,
) {
    let total = gpus.len() as u64;
    let spread = box_spec.is_none() || group.gpus.is_some() || group.numa_nodes.is_some();
    for (index, gpu) in (0..).zip(gpus) {
        if spread {
            gpu.numa_node = Some(part_index(index, total, numa_nodes as u64));
        }
        match &group.pcie_switches {
            Some(switches) if switches.value == 0 => gpu.pcie_switch = None,
            Some(switches) => gpu.pcie_switch = Some(part_index(index, total, switches.value)),
            None => {}
        }
    }
}

/// The part of element `index` when `total` elements are split in order into `parts` equal parts.
fn part_index(index: u64, total: u64, parts: u64) -> u32 {
    u32::try_from(index * parts / total).unwrap_or(u32::MAX)
}

fn nvlink_peers(nvlink: Nvlink, group: std::ops::Range<u64>, index: u64) -> Vec<u8> {
    let linked = |peer: &u64| match nvlink {
        Nvlink::Mesh => *peer != index,
        Nvlink::Pairs => *peer != index && (*peer - group.start) / 2 == (index - group.start) / 2,
        Nvlink::None => false,
    };
    group.clone().filter(linked).filter_map(|peer| u8::try_from(peer).ok()).collect()
}
