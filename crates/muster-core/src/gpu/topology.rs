//! How the devices of a node are wired: NUMA nodes, sockets, PCIe switches and NVLink, kept as bits.
//!
//! It says how close a set of devices is; `wiring/choose.rs` finds the set that suits a job best. Nothing is
//! known of bandwidth here: what is near on the board is near enough to decide by. What is not known keeps
//! nobody apart: devices whose NUMA node is unknown count as neighbours on one of their own.

mod choose;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use choose::{DeviceSetRank, Spread};

use crate::gpu::device::{GPUS_PER_NODE_MAX, GpuFacts, NumaFacts};

/// How the devices of a node are wired. Nodes whose wiring is equal give equal choices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTopology {
    /// The devices there are.
    all: u64,
    /// The devices of each NUMA node, by its number; those of an unknown one stand together.
    numa: Vec<(Option<u32>, u64)>,
    /// The devices of each socket.
    sockets: Vec<u64>,
    /// The devices of each PCIe switch that has several. A device that hangs on none, or whose switch is not
    /// known, is in none.
    switches: Vec<u64>,
    /// The devices each device reaches by NVLink.
    nvlink: Vec<u64>,
    /// Devices that can be exchanged for each other without a difference. Derived.
    classes: Vec<u64>,
}

/// How close a set of devices is, the closest first. Joined by NVLink means that one can go from each of them
/// to each other one over NVLinks among themselves.
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

/// How close the devices of a task are wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LocalityRequirement {
    /// They must lie on one NUMA node.
    pub same_numa: bool,
    /// What NVLink is worth to it.
    pub nvlink: Nvlink,
}

/// What NVLink is worth to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Nvlink {
    /// Welcome among sets that are equally close.
    #[default]
    Welcome,
    /// Worth more than one NUMA node or one socket.
    Preferred,
    /// Its devices must be joined by NVLink.
    Required,
}

impl Locality {
    /// Whether the devices lie on one NUMA node.
    pub fn is_same_numa(self) -> bool {
        matches!(self, Locality::Single | Locality::NvlinkNuma | Locality::Numa)
    }

    /// Whether the devices are joined by NVLink.
    pub fn is_joined(self) -> bool {
        use Locality::{NvlinkNode, NvlinkNuma, NvlinkSocket, Single};
        matches!(self, Single | NvlinkNuma | NvlinkSocket | NvlinkNode)
    }

    /// As people read it.
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
    /// Whether anything is demanded, and not only wished.
    pub fn is_required(self) -> bool {
        self.same_numa || self.nvlink == Nvlink::Required
    }

    /// The same, as far as it can be had.
    pub fn as_preference(self) -> LocalityRequirement {
        let nvlink = if self.nvlink == Nvlink::Welcome { Nvlink::Welcome } else { Nvlink::Preferred };
        LocalityRequirement { same_numa: false, nvlink }
    }

    /// Whether devices so close will do.
    pub fn allows(self, closeness: Locality) -> bool {
        (!self.same_numa || closeness.is_same_numa())
            && (self.nvlink != Nvlink::Required || closeness.is_joined())
    }

    /// The place of a closeness in the order of preference, the best first.
    fn preference(self, closeness: Locality) -> u8 {
        let apart = self.nvlink == Nvlink::Preferred && !closeness.is_joined();
        closeness as u8 + if apart { Locality::Node as u8 } else { 0 }
    }

    /// What a closeness costs, in thousandths of each device. Rough, and only there to tell near from far; it never
    /// falls along the order of preference, so the set that is chosen is the cheapest.
    pub fn cost(self, closeness: Locality) -> u32 {
        let near = match closeness {
            Locality::Single | Locality::NvlinkNuma => 0,
            Locality::Numa | Locality::NvlinkSocket => 20,
            Locality::Socket | Locality::NvlinkNode => 60,
            Locality::Node => 150,
        };
        let misses_nvlink = self.nvlink != Nvlink::Welcome && !closeness.is_joined();
        near + if misses_nvlink { 100 } else { 0 }
    }
}

impl NodeTopology {
    /// The wiring of a node, as far as its agent knows it.
    pub fn of(gpus: &[GpuFacts], numa_nodes: &[NumaFacts]) -> NodeTopology {
        let gpus = &gpus[..gpus.len().min(GPUS_PER_NODE_MAX)];
        let numa = grouped(gpus.iter().map(|gpu| Some(gpu.numa_node)));
        let sockets = grouped(gpus.iter().map(|gpu| Some(socket(gpu, numa_nodes))));
        let switches = grouped(gpus.iter().map(|gpu| gpu.pcie_switch));
        let mut wiring = NodeTopology {
            all: numa.values().fold(0, |all, group| all | group),
            numa: numa.into_iter().collect(),
            sockets: in_order(sockets.into_values()),
            // A switch with one device joins nothing: it is as good as none.
            switches: in_order(switches.into_values().filter(|group| group.count_ones() > 1)),
            nvlink: links(gpus),
            classes: Vec::new(),
        };
        wiring.classes = wiring.interchangeable();
        wiring
    }

    /// How close devices are to each other.
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

    /// The NUMA nodes of devices, as far as they are known, for the CPU set and the memory of a task.
    pub fn numa_nodes(&self, devices: u64) -> Vec<u32> {
        let touched = self.numa.iter().filter(|(_, group)| group & devices != 0);
        touched.filter_map(|(number, _)| *number).collect()
    }

    /// The most devices that a task of this wish can have of the free ones. Any smaller number can be had,
    /// too.
    pub fn most(&self, free: u64, wish: LocalityRequirement) -> u32 {
        let free = free & self.all;
        let regions = self.numa.iter().map(|(_, group)| group & free);
        let widest = |region: u64| match wish.nvlink {
            Nvlink::Required => self.islands(region).map(u64::count_ones).max().unwrap_or(0),
            Nvlink::Welcome | Nvlink::Preferred => region.count_ones(),
        };
        if wish.same_numa { regions.map(widest).max().unwrap_or(0) } else { widest(free) }
    }

    /// Whether one can go from each device to each other one over NVLinks among them.
    fn is_joined(&self, devices: u64) -> bool {
        self.reached(devices) == devices
    }

    /// The devices of a set that are joined to its first one, with it.
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

    /// A set of devices, parted into those that are joined.
    fn islands(&self, devices: u64) -> impl Iterator<Item = u64> + '_ {
        let mut left = devices;
        std::iter::from_fn(move || {
            let island = self.reached(left);
            left &= !island;
            (island != 0).then_some(island)
        })
    }

    /// Devices on the same NUMA node, socket and switch, with the same NVLink peers apart from each other.
    /// Two that are each like a third are alike themselves, so one of a class stands for all.
    fn interchangeable(&self) -> Vec<u64> {
        let together = |a: usize, b: usize| {
            let mut groups =
                self.numa.iter().map(|(_, group)| group).chain(&self.sockets).chain(&self.switches);
            groups.all(|group| (group >> a) & 1 == (group >> b) & 1)
        };
        let alike =
            |a: usize, b: usize| together(a, b) && self.nvlink[a] & !(1 << b) == self.nvlink[b] & !(1 << a);
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

/// Where a device is plugged in, for telling sockets apart.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Socket {
    /// So it was said.
    Known(u32),
    /// Nothing was said: each NUMA node counts as one.
    OfNuma(Option<u32>),
}

fn socket(gpu: &GpuFacts, numa_nodes: &[NumaFacts]) -> Socket {
    let numa = || numa_nodes.get(gpu.numa_node? as usize).map(|numa| numa.socket);
    gpu.socket.or_else(numa).map_or(Socket::OfNuma(gpu.numa_node), Socket::Known)
}

/// The devices of each key, as bits.
fn grouped<K: Ord>(keys: impl Iterator<Item = Option<K>>) -> BTreeMap<K, u64> {
    let mut groups = BTreeMap::new();
    for (device, key) in keys.enumerate() {
        if let Some(key) = key {
            *groups.entry(key).or_default() |= 1 << device;
        }
    }
    groups
}

/// Groups without their numbers, so that boards are equal that only count in another order.
fn in_order(groups: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut groups: Vec<u64> = groups.collect();
    groups.sort_unstable();
    groups
}

/// The NVLink peers of each device. A link that only one side reports is a link; one to nowhere is none.
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
