//! Topology of the GPUs of a node: NUMA nodes, sockets, PCIe switches and NVLink, stored as bit masks.
//!
//! This file computes the locality of a set of devices; `topology/choose.rs` selects the best set for a task. Bandwidth
//! is not modelled: distance on the board is accurate enough for the choice. Unknown topology never separates devices:
//! devices whose NUMA node is unknown count as one NUMA node of their own.

mod choose;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use choose::{DeviceSetRank, DeviceSetSpread};

use crate::gpu::device::{GPUS_PER_NODE_MAX, GpuFacts, NumaFacts};

/// The topology of a node's devices. Nodes with equal topology give equal choices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTopology {
    /// All devices of the node.
    all: u64,
    /// Devices per NUMA node, by number; devices with an unknown NUMA node form one group.
    numa: Vec<(Option<u32>, u64)>,
    /// Devices per socket.
    sockets: Vec<u64>,
    /// Devices per PCIe switch, of switches with several devices. A device without a switch, or with an unknown one, is
    /// in no group.
    switches: Vec<u64>,
    /// NVLink peers of each device.
    nvlink: Vec<u64>,
    /// Classes of interchangeable devices. Derived.
    classes: Vec<u64>,
}

/// How close a set of devices is, the closest first. Joined by NVLink means that the NVLinks within the set connect all
/// of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Locality {
    /// One device, or none.
    Single,
    /// On one NUMA node, joined by NVLink.
    NvlinkNuma,
    /// On one NUMA node.
    Numa,
    /// On one socket, joined by NVLink.
    NvlinkSocket,
    Socket,
    /// Anywhere on the node, joined by NVLink.
    NvlinkNode,
    /// Anywhere on the node.
    Node,
}

/// The locality that a task requires or prefers for its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalityRequirement {
    /// All devices must be on one NUMA node.
    pub same_numa: bool,
    pub nvlink: Nvlink,
}

/// How much a task values NVLink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nvlink {
    /// A tie-break between sets that are equally close.
    #[default]
    Welcome,
    /// Preferred over one NUMA node or one socket.
    Preferred,
    /// The devices must be joined by NVLink.
    Required,
}

impl Locality {
    pub fn is_same_numa(self) -> bool {
        matches!(self, Locality::Single | Locality::NvlinkNuma | Locality::Numa)
    }

    /// True if the devices are joined by NVLink.
    pub fn is_joined(self) -> bool {
        use Locality::{NvlinkNode, NvlinkNuma, NvlinkSocket, Single};
        matches!(self, Single | NvlinkNuma | NvlinkSocket | NvlinkNode)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Locality::Single => "single",
            Locality::NvlinkNuma => "nvlink-numa",
            Locality::Numa => "numa",
            Locality::NvlinkSocket => "nvlink-socket",
            Locality::Socket => "socket",
            Locality::NvlinkNode => "nvlink-node",
            Locality::Node => "node",
        }
    }
}

impl LocalityRequirement {
    /// True if it contains a hard requirement and not only preferences.
    pub fn is_required(self) -> bool {
        self.same_numa || self.nvlink == Nvlink::Required
    }

    /// The same with every requirement turned into a preference.
    pub fn as_preference(self) -> LocalityRequirement {
        let nvlink = if self.nvlink == Nvlink::Welcome { Nvlink::Welcome } else { Nvlink::Preferred };
        LocalityRequirement { same_numa: false, nvlink }
    }

    /// True if devices with this locality meet the requirement.
    pub fn allows(self, locality: Locality) -> bool {
        (!self.same_numa || locality.is_same_numa()) && (self.nvlink != Nvlink::Required || locality.is_joined())
    }

    /// The rank of a locality in the order of preference; lower is better.
    fn preference(self, locality: Locality) -> u8 {
        let misses_nvlink = self.nvlink == Nvlink::Preferred && !locality.is_joined();
        locality as u8 + if misses_nvlink { Locality::Node as u8 } else { 0 }
    }

    /// The cost of a locality, in thousandths of each device. A rough figure that only separates near from far. It
    /// never decreases along the order of preference, so the chosen set is also the cheapest.
    pub fn cost(self, locality: Locality) -> u32 {
        let distance = match locality {
            Locality::Single | Locality::NvlinkNuma => 0,
            Locality::Numa | Locality::NvlinkSocket => 20,
            Locality::Socket | Locality::NvlinkNode => 60,
            Locality::Node => 150,
        };
        let misses_nvlink = self.nvlink != Nvlink::Welcome && !locality.is_joined();
        distance + if misses_nvlink { 100 } else { 0 }
    }
}

impl NodeTopology {
    /// The topology of a node, as far as its agent reports it.
    pub fn of(gpus: &[GpuFacts], numa_nodes: &[NumaFacts]) -> NodeTopology {
        let gpus = &gpus[..gpus.len().min(GPUS_PER_NODE_MAX)];
        let numa = grouped(gpus.iter().map(|gpu| Some(gpu.numa_node)));
        let sockets = grouped(gpus.iter().map(|gpu| Some(socket(gpu, numa_nodes))));
        let switches = grouped(gpus.iter().map(|gpu| gpu.pcie_switch));
        let mut topology = NodeTopology {
            all: numa.values().fold(0, |all, group| all | group),
            numa: numa.into_iter().collect(),
            sockets: in_order(sockets.into_values()),
            // A switch with one device connects nothing, so it counts as no switch.
            switches: in_order(switches.into_values().filter(|group| group.count_ones() > 1)),
            nvlink: links(gpus),
            classes: Vec::new(),
        };
        topology.classes = topology.interchangeable();
        topology
    }

    pub fn locality(&self, devices: u64) -> Locality {
        let devices = devices & self.all;
        let within = |group: &u64| devices & !group == 0;
        let joined = self.is_joined(devices);
        if devices.count_ones() < 2 {
            Locality::Single
        } else if self.numa.iter().any(|(_, group)| within(group)) {
            if joined { Locality::NvlinkNuma } else { Locality::Numa }
        } else if self.sockets.iter().any(within) {
            if joined { Locality::NvlinkSocket } else { Locality::Socket }
        } else if joined {
            Locality::NvlinkNode
        } else {
            Locality::Node
        }
    }

    /// The known NUMA nodes of the devices, for the CPU set and the memory of a task.
    pub fn numa_nodes(&self, devices: u64) -> Vec<u32> {
        let touched = self.numa.iter().filter(|(_, group)| group & devices != 0);
        touched.filter_map(|(number, _)| *number).collect()
    }

    /// The largest number of free devices that a task with this requirement can get. Every smaller number is possible,
    /// too.
    pub fn most(&self, free: u64, requirement: LocalityRequirement) -> u32 {
        let free = free & self.all;
        let regions = self.numa.iter().map(|(_, group)| group & free);
        let widest = |region: u64| match requirement.nvlink {
            Nvlink::Required => self.islands(region).map(u64::count_ones).max().unwrap_or(0),
            Nvlink::Welcome | Nvlink::Preferred => region.count_ones(),
        };
        if requirement.same_numa { regions.map(widest).max().unwrap_or(0) } else { widest(free) }
    }

    /// True if the NVLinks within the set connect all of its devices.
    fn is_joined(&self, devices: u64) -> bool {
        self.reached(devices) == devices
    }

    /// The devices of a set that NVLinks within it connect to its first device, including that device.
    fn reached(&self, devices: u64) -> u64 {
        let mut reached = devices & devices.wrapping_neg();
        let mut fresh = reached;
        while fresh != 0 {
            let next = ones(fresh).fold(0, |next, device| next | self.nvlink[device]);
            fresh = next & devices & !reached;
            reached |= fresh;
            if reached == devices {
                break;
            }
        }
        reached
    }

    /// The connected components of a set under NVLink.
    fn islands(&self, devices: u64) -> impl Iterator<Item = u64> + '_ {
        let mut left = devices;
        std::iter::from_fn(move || {
            let island = self.reached(left);
            left &= !island;
            (island != 0).then_some(island)
        })
    }

    /// Classes of devices on the same NUMA node, socket and switch, with the same NVLink peers except for each other.
    /// This is an equivalence relation, so comparing with one device of a class is enough.
    fn interchangeable(&self) -> Vec<u64> {
        let same_groups = |a: usize, b: usize| {
            let mut groups = self.numa.iter().map(|(_, group)| group).chain(&self.sockets).chain(&self.switches);
            groups.all(|group| (group >> a) & 1 == (group >> b) & 1)
        };
        let alike = |a: usize, b: usize| same_groups(a, b) && self.nvlink[a] & !(1 << b) == self.nvlink[b] & !(1 << a);
        let mut classes: Vec<u64> = Vec::new();
        for device in ones(self.all) {
            match classes.iter_mut().find(|class| alike(class.trailing_zeros() as usize, device)) {
                Some(class) => *class |= 1 << device,
                None => classes.push(1 << device),
            }
        }
        classes
    }
}

/// The socket of a device, used as a grouping key.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Socket {
    /// Reported for the device or for its NUMA node.
    Known(u32),
    /// Not reported: each NUMA node counts as a socket.
    OfNuma(Option<u32>),
}

fn socket(gpu: &GpuFacts, numa_nodes: &[NumaFacts]) -> Socket {
    let numa = || numa_nodes.get(gpu.numa_node? as usize).map(|numa| numa.socket);
    gpu.socket.or_else(numa).map_or(Socket::OfNuma(gpu.numa_node), Socket::Known)
}

/// The devices of each key, as bit masks; a device without a key is in no group.
fn grouped<K: Ord>(keys: impl Iterator<Item = Option<K>>) -> BTreeMap<K, u64> {
    let mut groups = BTreeMap::new();
    for (device, key) in keys.enumerate() {
        if let Some(key) = key {
            *groups.entry(key).or_default() |= 1 << device;
        }
    }
    groups
}

/// The groups without their numbers, sorted, so that nodes that differ only in numbering are equal.
fn in_order(groups: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut groups: Vec<u64> = groups.collect();
    groups.sort_unstable();
    groups
}

/// The NVLink peers of each device. A link reported by one side counts; a link to an unknown device does not.
fn links(gpus: &[GpuFacts]) -> Vec<u64> {
    let mut links = vec![0; gpus.len()];
    for (device, gpu) in gpus.iter().enumerate() {
        for peer in gpu.nvlink.iter().map(|peer| usize::from(*peer)) {
            if peer < gpus.len() && peer != device {
                links[device] |= 1 << peer;
                links[peer] |= 1 << device;
            }
        }
    }
    links
}

/// The indexes of the set bits.
fn ones(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = mask.trailing_zeros() as usize;
        (mask != 0).then(|| {
            mask &= mask - 1;
            index
        })
    })
}

#[cfg(test)]
mod tests;
