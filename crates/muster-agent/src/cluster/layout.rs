//! What the nodes of a group are made of: the box it names, and over that the keys it gives.

use muster_protocol::agent::{Gpu, Numa};

use super::boxes::{self, Links, Machine};
use super::file::{GpuGroup, NodeGroup, Nvlink};
use super::{ClusterError, Wrong, at, nearest};

/// A node without a name. Its devices have no ids yet.
pub(super) struct Layout {
    pub cpus: u64,
    pub memory_mib: u64,
    pub numa: Vec<Numa>,
    pub gpus: Vec<Gpu>,
}

impl Layout {
    /// The nodes of a group whose numbers were checked.
    pub fn of(group: &NodeGroup) -> Result<Layout, ClusterError> {
        let machine = machine(group)?;
        let missing = |key| at(group.name.referenced, Wrong::Missing { key });
        let cpus = group.cpus.as_ref().map(|cpus| cpus.value).or(machine.map(|machine| machine.cpus));
        let memory_gib = group.memory_gib.as_ref().map(|memory| memory.value);
        let memory_gib = memory_gib.or(machine.map(|machine| machine.memory_gib));
        let cpus = cpus.ok_or_else(|| missing("cpus"))?;
        let memory_mib = memory_gib.ok_or_else(|| missing("memory_gib"))?.saturating_mul(1024);
        let sockets = sockets(group, machine);
        let mut gpus = match (&group.gpus, machine) {
            (None, Some(machine)) => ready_made(machine),
            (parts, _) => described(parts.as_ref().map_or(&[][..], |parts| &parts.0)),
        };
        wire(&mut gpus, group, machine, sockets.len());
        let numa = numa_nodes(cpus, memory_mib, &sockets);
        Ok(Layout { cpus, memory_mib, numa, gpus })
    }
}

fn machine(group: &NodeGroup) -> Result<Option<&'static Machine>, ClusterError> {
    let Some(name) = &group.machine else { return Ok(None) };
    let unknown = || {
        let known = boxes::names();
        let hint = nearest::nearest(&name.value, &known).map(|near| format!("did you mean `{near}`? "));
        let hint = format!("{}known boxes are {}", hint.unwrap_or_default(), nearest::quoted(&known));
        at(name.referenced, Wrong::UnknownBox { name: name.value.clone(), hint })
    };
    boxes::named(&name.value).map(Some).ok_or_else(unknown)
}

/// The socket of each NUMA node. Where nothing is said there are two NUMA nodes, each a socket of its own.
fn sockets(group: &NodeGroup, machine: Option<&Machine>) -> Vec<u32> {
    let made = machine.map(|machine| machine.numa_sockets);
    if let (Some(made), None, None) = (made, &group.numa_nodes, &group.sockets) {
        return made.to_vec();
    }
    let made_sockets = made.and_then(|made| made.iter().max()).map(|last| u64::from(*last) + 1);
    let numa_nodes = group.numa_nodes.as_ref().map(|number| number.value);
    let numa_nodes = numa_nodes.unwrap_or(made.map_or(2, |made| made.len() as u64));
    let sockets = group.sockets.as_ref().map(|number| number.value).or(made_sockets);
    let sockets = sockets.unwrap_or(numa_nodes).min(numa_nodes);
    (0..numa_nodes).map(|numa| share(numa, numa_nodes, sockets)).collect()
}

/// Cores and memory, spread evenly.
fn numa_nodes(cpus: u64, memory_mib: u64, sockets: &[u32]) -> Vec<Numa> {
    let count = sockets.len() as u64;
    let part = |total: u64, index: u64| total * (index + 1) / count - total * index / count;
    let numa = |(index, socket): (u64, &u32)| Numa {
        cpus: u32::try_from(part(cpus, index)).unwrap_or(u32::MAX),
        memory_mib: part(memory_mib, index),
        socket: *socket,
    };
    (0..).zip(sockets).map(numa).collect()
}

fn ready_made(machine: &Machine) -> Vec<Gpu> {
    let count = machine.gpu_numa.len() as u64;
    let gpu = |index: u64| Gpu {
        uuid: String::new(),
        model: machine.model.to_string(),
        memory_mib: machine.gpu_memory_mib,
        numa_node: machine.gpu_numa.get(index as usize).copied(),
        nvlink: match machine.links {
            Links::None => Vec::new(),
            Links::Mesh => nvlink(Nvlink::Mesh, 0..count, index),
            Links::Pairs => nvlink(Nvlink::Pairs, 0..count, index),
            Links::Peers(peers) => peers[index as usize].to_vec(),
        },
        socket: None,
        pcie_switch: machine.gpu_switch.get(index as usize).copied(),
        mig: Vec::new(),
        power_limit_milliwatts: Some(machine.gpu_watts * 1_000),
    };
    (0..count).map(gpu).collect()
}

fn described(parts: &[GpuGroup]) -> Vec<Gpu> {
    let mut gpus = Vec::new();
    for part in parts {
        let first = gpus.len() as u64;
        for index in first..first + part.count.value {
            gpus.push(Gpu {
                uuid: String::new(),
                model: part.model.clone(),
                memory_mib: part.memory_mib.value,
                numa_node: None,
                nvlink: nvlink(part.nvlink, first..first + part.count.value, index),
                socket: None,
                pcie_switch: None,
                mig: Vec::new(),
                power_limit_milliwatts: part.power_limit_watts.map(|watts| watts.saturating_mul(1000)),
            });
        }
    }
    gpus
}

/// Devices that are not wired by their box are spread in order over NUMA nodes and switches.
fn wire(gpus: &mut [Gpu], group: &NodeGroup, machine: Option<&Machine>, numa_nodes: usize) {
    let total = gpus.len() as u64;
    let spread = machine.is_none() || group.gpus.is_some() || group.numa_nodes.is_some();
    for (index, gpu) in (0..).zip(gpus) {
        if spread {
            gpu.numa_node = Some(share(index, total, numa_nodes as u64));
        }
        match &group.pcie_switches {
            Some(switches) if switches.value == 0 => gpu.pcie_switch = None,
            Some(switches) => gpu.pcie_switch = Some(share(index, total, switches.value)),
            None => {}
        }
    }
}

/// To which of the parts one of so many belongs when they are dealt out in order.
fn share(index: u64, total: u64, parts: u64) -> u32 {
    u32::try_from(index * parts / total).unwrap_or(u32::MAX)
}

fn nvlink(nvlink: Nvlink, group: std::ops::Range<u64>, index: u64) -> Vec<u8> {
    let linked = |peer: &u64| match nvlink {
        Nvlink::Mesh => *peer != index,
        Nvlink::Pairs => *peer != index && (*peer - group.start) / 2 == (index - group.start) / 2,
        Nvlink::None => false,
    };
    group.clone().filter(linked).filter_map(|peer| u8::try_from(peer).ok()).collect()
}
