//! Space on one node: what is free, or what something uses.

use std::collections::BTreeMap;

use super::parts::{self, Devices, Parts};
use super::seat::Seat;
use super::{Part, mask};
use crate::ids::NodeId;
use crate::job::{Job, JobSpec, PlacedTask, Resources};
use crate::node::{Lease, Node, Slot};
use crate::share::PARTITIONED_GPUS_MAX;

/// Space on one node: what is free, or what something uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Free {
    /// Whole devices, as bits.
    pub gpus: u64,
    /// Instances of partitioned devices, as bits.
    pub instances: u128,
    /// Parts of devices that are shared.
    pub parts: Parts,
    /// CPU cores.
    pub cpus: u64,
    /// Main memory.
    pub memory_mib: u64,
}

impl Free {
    /// Whole devices and nothing else.
    pub fn of_gpus(gpus: u64) -> Free {
        Free { gpus, ..Free::default() }
    }

    /// Both together.
    pub fn with(self, more: Free) -> Free {
        self.joined(parts::plus(self.devices(), more.devices()), |one, other| one + other, more)
            .with_instances(self.instances | more.instances)
    }

    /// What is in both.
    pub fn shared_with(self, other: Free) -> Free {
        self.joined(parts::min(self.devices(), other.devices()), u64::min, other)
            .with_instances(self.instances & other.instances)
    }

    /// What is left when something is set apart.
    pub fn without(self, apart: Free) -> Free {
        self.joined(parts::minus(self.devices(), apart.devices()), u64::saturating_sub, apart)
            .with_instances(self.instances & !apart.instances)
    }

    /// Whether so much is there.
    pub fn holds(self, wanted: Free) -> bool {
        parts::holds(self.devices(), wanted.devices())
            && wanted.instances & !self.instances == 0
            && wanted.cpus <= self.cpus
            && wanted.memory_mib <= self.memory_mib
    }

    /// What does not come as one piece: parts of devices, cores and memory.
    pub fn divisible(self) -> Free {
        Free { gpus: 0, instances: 0, ..self }
    }

    /// Cores and memory alone.
    pub fn host(self) -> Free {
        Free { cpus: self.cpus, memory_mib: self.memory_mib, ..Free::default() }
    }

    /// The same without cores and memory.
    pub fn without_host(self) -> Free {
        Free { cpus: 0, memory_mib: 0, ..self }
    }

    /// What is still owed when some of it is paid. A device or an instance is owed until its time has come.
    pub fn less_paid(self, paid: Free) -> Free {
        let left = self.divisible().without(paid);
        left.with(Free { gpus: self.gpus, instances: self.instances, ..Free::default() })
    }

    /// What may be used now where something will be taken later and so much will be spare beside it. Devices are told
    /// apart, cores and memory are only counted.
    pub fn beside(self, taken: Free, spare: Free) -> Free {
        let apart = taken.touched();
        let elsewhere = self.without_host().on_devices(!apart);
        let here = self.without_host().on_devices(apart).shared_with(spare);
        elsewhere.with(here).with(self.host().shared_with(spare.host()))
    }

    /// What is on some of the devices, given as bits, and cores and memory.
    pub fn on_devices(self, gpus: u64) -> Free {
        let rest = Free::of_gpus(gpus).with_instances(instances_of(gpus));
        Free { cpus: self.cpus, memory_mib: self.memory_mib, ..self.shared_with(rest) }
    }

    /// Devices of which anything is there, as bits.
    pub fn touched(self) -> u64 {
        let shared = self.parts.iter().fold(self.gpus, |gpus, (device, _)| gpus | 1 << device);
        let partitioned =
            (0..PARTITIONED_GPUS_MAX).filter(|device| self.instances >> (16 * device) & 0xffff != 0);
        partitioned.fold(shared, |gpus, device| gpus | 1 << device)
    }

    /// What is there of a device.
    pub fn part(self, device: u8) -> Part {
        if self.gpus >> device & 1 == 1 { Part::WHOLE } else { self.parts.get(device) }
    }

    /// What one task uses on its devices.
    pub fn of_task(each: &Resources, seat: Seat) -> Free {
        Free { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..seat.space() }
    }

    /// What one task uses.
    pub fn used_by(spec: &JobSpec, task: &PlacedTask) -> Free {
        let each = &spec.tasks[task.group as usize].each;
        Free { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..Free::held_by(task) }
    }

    /// What one task uses of devices.
    pub fn held_by(task: &PlacedTask) -> Free {
        let slot = Slot::of(task);
        task.gpus.iter().fold(Free::default(), |sum, device| sum.with(slot.on(*device)))
    }

    /// What tasks use together on each of their nodes.
    pub fn by_node<'a>(
        spec: &JobSpec,
        tasks: impl IntoIterator<Item = &'a PlacedTask>,
    ) -> BTreeMap<&'a NodeId, Free> {
        let mut nodes: BTreeMap<&NodeId, Free> = BTreeMap::new();
        for task in tasks {
            let here = nodes.entry(&task.node).or_default();
            *here = here.with(Free::used_by(spec, task));
        }
        nodes
    }

    /// What an attempt uses on one node.
    pub fn used_on(node: &NodeId, job: &Job) -> Free {
        let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        let here = tasks.filter(|task| task.node == *node);
        here.fold(Free::default(), |sum, task| sum.with(Free::used_by(&job.spec, task)))
    }

    /// What is free on a node, whether or not it takes work now.
    pub(super) fn of(node: &Node, empty: Free) -> Free {
        let usable = (0..node.facts.gpus.len()).filter(|index| node.gpu_usable(*index));
        let usable = usable.fold(0, |mask, index| mask | 1 << index);
        let held = |(device, leases): (u8, &Vec<Lease>)| {
            leases.iter().fold(Free::default(), |sum, lease| sum.with(lease.slot.on(device)))
        };
        let held = (0..).zip(&node.holders).map(held).fold(Free::default(), Free::with);
        // Who holds an instance of a device that is none any more holds the device.
        let gone = |(device, leases): &(u8, &Vec<Lease>)| {
            let instance = |lease: &Lease| matches!(lease.slot, Slot::Instance { .. });
            leases
                .iter()
                .any(|lease| instance(lease) && lease.slot.on(*device).instances & empty.instances == 0)
        };
        let gone =
            (0..).zip(&node.holders).filter(gone).fold(0, |mask, (device, _): (u8, _)| mask | 1 << device);
        Free {
            cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
            memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
            ..empty.on_devices(usable & !gone).without(held)
        }
    }

    fn devices(self) -> Devices {
        (self.gpus, self.parts)
    }

    fn joined(self, (gpus, parts): Devices, host: fn(u64, u64) -> u64, other: Free) -> Free {
        Free {
            gpus,
            parts,
            instances: 0,
            cpus: host(self.cpus, other.cpus),
            memory_mib: host(self.memory_mib, other.memory_mib),
        }
    }

    fn with_instances(self, instances: u128) -> Free {
        Free { instances, ..self }
    }

    /// All of a device is the device.
    pub(super) fn normal(self) -> Free {
        self.with(Free::default())
    }
}

impl Slot {
    /// What it is of a device.
    pub(crate) fn on(self, device: u8) -> Free {
        match self {
            Slot::Whole => Free::of_gpus(mask(&[device])),
            Slot::Instance { start } => Free::default().with_instances(instance(device, start)),
            Slot::Part(part) => Free { parts: Parts::of(device, part), ..Free::default() }.normal(),
        }
    }
}

/// The bit of an instance: sixteen for each device, one for each place where one may begin.
pub(super) fn instance(device: u8, start: u8) -> u128 {
    let known = u32::from(device) < PARTITIONED_GPUS_MAX && start < 16;
    if known { 1 << (16 * u32::from(device) + u32::from(start)) } else { 0 }
}

/// All instances of some devices.
fn instances_of(gpus: u64) -> u128 {
    let devices = (0..PARTITIONED_GPUS_MAX).filter(|device| gpus >> device & 1 == 1);
    devices.fold(0, |all, device| all | 0xffff << (16 * device))
}
