//! How the devices of a node are wired: NUMA nodes, sockets, PCIe switches and NVLink, kept as bits.
//!
//! It says how close a set of devices is; `wiring/choose.rs` finds the set that suits a job best. Nothing is
//! known of bandwidth here: what is near on the board is near enough to decide by. What is not known keeps
//! nobody apart: devices whose NUMA node is unknown count as neighbours on one of their own.

mod choose;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use choose::{Rank, Spread};

use crate::job::{JobSpec, Topology};
use crate::node::{GPUS_PER_NODE_MAX, GpuFacts, NodeFacts};

/// How the devices of a node are wired. Nodes whose wiring is equal give equal choices.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wiring {
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
pub enum Closeness {
    /// One device, or none.
    Single,
    /// On one NUMA node, joined by NVLink.
    NvlinkNuma,
    /// On one NUMA node.
    Numa,
    /// On one socket, joined by NVLink.
    NvlinkSocket,
    /// On one socket.
    Socket,
    /// Anywhere on the node, joined by NVLink.
    NvlinkNode,
    /// Anywhere on the node.
    Node,
}

/// How close the devices of a task are wished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Wish {
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

impl Closeness {
    /// Whether the devices lie on one NUMA node.
    pub fn is_same_numa(self) -> bool {
        matches!(self, Closeness::Single | Closeness::NvlinkNuma | Closeness::Numa)
    }

    /// Whether the devices are joined by NVLink.
    pub fn is_joined(self) -> bool {
        use Closeness::{NvlinkNode, NvlinkNuma, NvlinkSocket, Single};
        matches!(self, Single | NvlinkNuma | NvlinkSocket | NvlinkNode)
    }

    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Closeness::Single => "single",
            Closeness::NvlinkNuma => "nvlink-numa",
            Closeness::Numa => "numa",
            Closeness::NvlinkSocket => "nvlink-socket",
            Closeness::Socket => "socket",
            Closeness::NvlinkNode => "nvlink-node",
            Closeness::Node => "node",
        }
    }
}

impl Wish {
    /// What a job's topology asks of the devices on one node.
    pub fn of(topology: Topology) -> Wish {
        match topology {
            Topology::Any | Topology::SameRack => Wish::default(),
            Topology::SameNuma => Wish { same_numa: true, ..Wish::default() },
            Topology::Nvlink => Wish { nvlink: Nvlink::Required, ..Wish::default() },
        }
    }

    /// The same with what else a job said about it.
    pub fn of_job(spec: &JobSpec) -> Wish {
        let Wish { same_numa, nvlink } = Wish::of(spec.topology);
        let prefers = nvlink == Nvlink::Welcome && spec.prefer_nvlink;
        Wish {
            same_numa: same_numa || spec.allow_cross_numa == Some(false),
            nvlink: if prefers { Nvlink::Preferred } else { nvlink },
        }
    }

    /// Whether anything is demanded, and not only wished.
    pub fn is_demand(self) -> bool {
        self.same_numa || self.nvlink == Nvlink::Required
    }

    /// The same, as far as it can be had.
    pub fn as_wish(self) -> Wish {
        let nvlink = if self.nvlink == Nvlink::Welcome { Nvlink::Welcome } else { Nvlink::Preferred };
        Wish { same_numa: false, nvlink }
    }

    /// Whether devices so close will do.
    pub fn admits(self, closeness: Closeness) -> bool {
        (!self.same_numa || closeness.is_same_numa())
            && (self.nvlink != Nvlink::Required || closeness.is_joined())
    }

    /// The place of a closeness in the order of preference, the best first.
    fn place(self, closeness: Closeness) -> u8 {
        let apart = self.nvlink == Nvlink::Preferred && !closeness.is_joined();
        closeness as u8 + if apart { Closeness::Node as u8 } else { 0 }
    }

    /// What a closeness costs, in thousandths of each device. Rough, and only there to tell near from far; it never
    /// falls along the order of preference, so the set that is chosen is the cheapest.
    pub fn cost(self, closeness: Closeness) -> u32 {
        let near = match closeness {
            Closeness::Single | Closeness::NvlinkNuma => 0,
            Closeness::Numa | Closeness::NvlinkSocket => 20,
            Closeness::Socket | Closeness::NvlinkNode => 60,
            Closeness::Node => 150,
        };
        let misses_nvlink = self.nvlink != Nvlink::Welcome && !closeness.is_joined();
        near + if misses_nvlink { 100 } else { 0 }
    }
}

impl Wiring {
    /// The wiring of a node, as far as its agent knows it.
    pub fn of(facts: &NodeFacts) -> Wiring {
        let gpus = &facts.gpus[..facts.gpus.len().min(GPUS_PER_NODE_MAX)];
        let numa = grouped(gpus.iter().map(|gpu| Some(gpu.numa_node)));
        let sockets = grouped(gpus.iter().map(|gpu| Some(socket(gpu, facts))));
        let switches = grouped(gpus.iter().map(|gpu| gpu.pcie_switch));
        let mut wiring = Wiring {
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
    pub fn closeness(&self, devices: u64) -> Closeness {
        let devices = devices & self.all;
        let within = |group: &u64| devices & !group == 0;
        let joined = self.is_joined(devices);
        if devices.count_ones() < 2 {
            Closeness::Single
        } else if self.numa.iter().any(|(_, group)| within(group)) {
            if joined { Closeness::NvlinkNuma } else { Closeness::Numa }
        } else if self.sockets.iter().any(within) {
            if joined { Closeness::NvlinkSocket } else { Closeness::Socket }
        } else if joined {
            Closeness::NvlinkNode
        } else {
            Closeness::Node
        }
    }

    /// The NUMA nodes of devices, as far as they are known, for the CPU set and the memory of a task.
    pub fn numa_nodes(&self, devices: u64) -> Vec<u32> {
        let touched = self.numa.iter().filter(|(_, group)| group & devices != 0);
        touched.filter_map(|(number, _)| *number).collect()
    }

    /// The most devices that a task of this wish can have of the free ones. Any smaller number can be had,
    /// too.
    pub fn most(&self, free: u64, wish: Wish) -> u32 {
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

fn socket(gpu: &GpuFacts, facts: &NodeFacts) -> Socket {
    let numa = || facts.numa.get(gpu.numa_node? as usize).map(|numa| numa.socket);
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
