//! Resource vector of one node: an amount of GPUs, MIG instances, GPU fractions, cores and memory, free or used.

use std::collections::BTreeMap;

use crate::gpu::gpu_share::GpuFraction;
use crate::gpu::gpu_share::PARTITIONED_GPUS_MAX;
use crate::ids::NodeId;
use crate::objects::job::{Job, JobSpec, PlacedTask};
use crate::objects::node::{Lease, Node, Slot};
use crate::resources::device_mask::mask;
use crate::resources::fractions::{self as parts, DeviceFractions, GpuFractions};

/// An amount of resources on one node, free or used. Devices are identified; cores and memory are only counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ResourceVec {
    /// Whole devices, as a bit mask.
    pub gpus: u64,
    /// MIG instances of partitioned devices, as a bit mask (sixteen bits per device).
    pub instances: u128,
    /// Fractions of shared devices.
    pub fractions: GpuFractions,
    pub cpus: u64,
    pub memory_mib: u64,
}

impl ResourceVec {
    /// Whole devices only.
    pub fn of_gpus(gpus: u64) -> ResourceVec {
        ResourceVec { gpus, ..ResourceVec::default() }
    }

    pub fn plus(self, more: ResourceVec) -> ResourceVec {
        self.joined(parts::plus(self.devices(), more.devices()), |one, other| one + other, more)
            .with_instances(self.instances | more.instances)
    }

    /// The part that both vectors contain.
    pub fn intersection(self, other: ResourceVec) -> ResourceVec {
        self.joined(parts::min(self.devices(), other.devices()), u64::min, other)
            .with_instances(self.instances & other.instances)
    }

    /// The difference, saturating at zero.
    pub fn minus(self, less: ResourceVec) -> ResourceVec {
        self.joined(parts::minus(self.devices(), less.devices()), u64::saturating_sub, less)
            .with_instances(self.instances & !less.instances)
    }

    /// Whether this contains all of `wanted`.
    pub fn covers(self, wanted: ResourceVec) -> bool {
        parts::holds(self.devices(), wanted.devices())
            && wanted.instances & !self.instances == 0
            && wanted.cpus <= self.cpus
            && wanted.memory_mib <= self.memory_mib
    }

    /// The divisible resources: GPU fractions, cores and memory.
    pub fn divisible(self) -> ResourceVec {
        ResourceVec { gpus: 0, instances: 0, ..self }
    }

    /// Cores and memory only.
    pub fn host(self) -> ResourceVec {
        ResourceVec { cpus: self.cpus, memory_mib: self.memory_mib, ..ResourceVec::default() }
    }

    /// Without cores and memory.
    pub fn without_host(self) -> ResourceVec {
        ResourceVec { cpus: 0, memory_mib: 0, ..self }
    }

    /// Promised space that remains after `released` was given to its owner. Only divisible resources are deducted: a
    /// promised device or instance stays promised until the promise ends.
    pub fn minus_released(self, released: ResourceVec) -> ResourceVec {
        let left = self.divisible().minus(released);
        left.plus(ResourceVec { gpus: self.gpus, instances: self.instances, ..ResourceVec::default() })
    }

    /// The free space that a backfilled job may use beside a reservation that takes `taken` later and leaves `spare`.
    /// Devices that the reservation does not touch are usable as they are; on the others, and of cores and memory, only
    /// `spare` is usable.
    pub fn usable_beside(self, taken: ResourceVec, spare: ResourceVec) -> ResourceVec {
        let reserved = taken.touched_devices();
        let elsewhere = self.without_host().on_devices(!reserved);
        let beside = self.without_host().on_devices(reserved).intersection(spare);
        elsewhere.plus(beside).plus(self.host().intersection(spare.host()))
    }

    /// The part on the devices of the bit mask `gpus`, with all cores and memory.
    pub fn on_devices(self, gpus: u64) -> ResourceVec {
        let rest = ResourceVec::of_gpus(gpus).with_instances(instances_of(gpus));
        ResourceVec { cpus: self.cpus, memory_mib: self.memory_mib, ..self.intersection(rest) }
    }

    /// Devices of which the vector contains the whole, a fraction or an instance, as a bit mask.
    pub fn touched_devices(self) -> u64 {
        let shared = self.fractions.iter().fold(self.gpus, |gpus, (device, _)| gpus | 1 << device);
        let partitioned = (0..PARTITIONED_GPUS_MAX).filter(|device| self.instances >> (16 * device) & 0xffff != 0);
        partitioned.fold(shared, |gpus, device| gpus | 1 << device)
    }

    /// The fraction of a device; `GpuFraction::WHOLE` for a whole device.
    pub fn fraction_of(self, device: u8) -> GpuFraction {
        if self.gpus >> device & 1 == 1 { GpuFraction::WHOLE } else { self.fractions.get(device) }
    }

    /// The resources that a placed task uses.
    pub fn used_by(spec: &JobSpec, task: &PlacedTask) -> ResourceVec {
        let each = &spec.tasks[task.group as usize].each;
        ResourceVec { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..ResourceVec::devices_of(task) }
    }

    /// The devices that a placed task uses.
    pub fn devices_of(task: &PlacedTask) -> ResourceVec {
        let slot = Slot::of(task);
        task.gpus.iter().fold(ResourceVec::default(), |sum, device| sum.plus(slot.on(*device)))
    }

    /// The sum of the resources that tasks use, by node.
    pub fn by_node<'a>(
        spec: &JobSpec,
        tasks: impl IntoIterator<Item = &'a PlacedTask>,
    ) -> BTreeMap<&'a NodeId, ResourceVec> {
        let mut nodes: BTreeMap<&NodeId, ResourceVec> = BTreeMap::new();
        for task in tasks {
            let used = nodes.entry(&task.node).or_default();
            *used = used.plus(ResourceVec::used_by(spec, task));
        }
        nodes
    }

    /// The resources that the attempt of a job uses on one node.
    pub fn used_on(node: &NodeId, job: &Job) -> ResourceVec {
        let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
        let on_node = tasks.filter(|task| task.node == *node);
        on_node.fold(ResourceVec::default(), |sum, task| sum.plus(ResourceVec::used_by(&job.spec, task)))
    }

    /// The free resources of a node, whether or not the node is schedulable. `empty` is an empty node of its kind.
    pub(super) fn of(node: &Node, empty: ResourceVec) -> ResourceVec {
        let usable = (0..node.facts.gpus.len()).filter(|index| node.gpu_usable(*index));
        let usable = usable.fold(0, |mask, index| mask | 1 << index);
        let held = |(device, leases): (u8, &Vec<Lease>)| {
            leases.iter().fold(ResourceVec::default(), |sum, lease| sum.plus(lease.slot.on(device)))
        };
        let held = (0..).zip(&node.holders).map(held).fold(ResourceVec::default(), ResourceVec::plus);
        // A lease on a MIG instance that no longer exists holds the whole device.
        let removed = |(device, leases): &(u8, &Vec<Lease>)| {
            let instance = |lease: &Lease| matches!(lease.slot, Slot::Instance { .. });
            leases.iter().any(|lease| instance(lease) && lease.slot.on(*device).instances & empty.instances == 0)
        };
        let removed = (0..).zip(&node.holders).filter(removed).fold(0, |mask, (device, _): (u8, _)| mask | 1 << device);
        ResourceVec {
            cpus: u64::from(node.facts.cpus).saturating_sub(node.cpus_held),
            memory_mib: node.facts.memory_mib.saturating_sub(node.memory_mib_held),
            ..empty.on_devices(usable & !removed).minus(held)
        }
    }

    fn devices(self) -> DeviceFractions {
        (self.gpus, self.fractions)
    }

    fn joined(self, (gpus, parts): DeviceFractions, host: fn(u64, u64) -> u64, other: ResourceVec) -> ResourceVec {
        ResourceVec {
            gpus,
            fractions: parts,
            instances: 0,
            cpus: host(self.cpus, other.cpus),
            memory_mib: host(self.memory_mib, other.memory_mib),
        }
    }

    fn with_instances(self, instances: u128) -> ResourceVec {
        ResourceVec { instances, ..self }
    }

    /// Turn a fraction of 1,000 thousandths into the whole device.
    pub(super) fn normalised(self) -> ResourceVec {
        self.plus(ResourceVec::default())
    }
}

impl Slot {
    /// The slot on a device as a resource vector.
    pub(crate) fn on(self, device: u8) -> ResourceVec {
        match self {
            Slot::Whole => ResourceVec::of_gpus(mask(&[device])),
            Slot::Instance { start } => ResourceVec::default().with_instances(instance(device, start)),
            Slot::Fraction(part) => {
                ResourceVec { fractions: GpuFractions::of(device, part), ..ResourceVec::default() }.normalised()
            }
        }
    }
}

/// The bit of a MIG instance: each device has sixteen bits, one for each memory slice at which an instance may begin.
pub(super) fn instance(device: u8, start: u8) -> u128 {
    let known = u32::from(device) < PARTITIONED_GPUS_MAX && start < 16;
    if known { 1 << (16 * u32::from(device) + u32::from(start)) } else { 0 }
}

/// The bits of all instances on the devices of the bit mask `gpus`.
fn instances_of(gpus: u64) -> u128 {
    let devices = (0..PARTITIONED_GPUS_MAX).filter(|device| gpus >> device & 1 == 1);
    devices.fold(0, |all, device| all | 0xffff << (16 * device))
}
