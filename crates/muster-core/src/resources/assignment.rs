//! Device assignment: the devices of a node that a task gets, as whole devices, a fraction or a MIG instance.

use crate::gpu::gpu_share::GpuFraction;
use crate::objects::job::{PlacedTask, Resources};
use crate::objects::node::Slot;
use crate::resources::device_mask::{bits, mask};
use crate::resources::fractions::GpuFractions;
use crate::resources::vector::{ResourceVec, instance};

/// The devices that a task holds on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceAssignment {
    /// Whole devices, as a bit mask.
    Whole(u64),
    /// A fraction of a shared device (MPS or time slice).
    Fraction { device: u8, part: GpuFraction },
    /// A MIG instance of a partitioned device.
    Instance {
        device: u8,
        /// The memory slice at which the instance begins.
        start: u8,
    },
}

impl DeviceAssignment {
    /// The assignment of a placed task; `None` if the task names a fraction or an instance on several devices.
    pub fn of(task: &PlacedTask) -> Option<DeviceAssignment> {
        let device = || task.gpus.first().copied().filter(|_| task.gpus.len() == 1);
        match Slot::of(task) {
            Slot::Whole => Some(DeviceAssignment::Whole(mask(&task.gpus))),
            Slot::Instance { start } => Some(DeviceAssignment::Instance { device: device()?, start }),
            Slot::Fraction(part) => Some(DeviceAssignment::Fraction { device: device()?, part }),
        }
    }

    /// No device.
    pub const NONE: DeviceAssignment = DeviceAssignment::Whole(0);

    /// The device resources that the assignment uses, without cores and memory.
    pub fn taken(self) -> ResourceVec {
        match self {
            DeviceAssignment::Whole(gpus) => ResourceVec::of_gpus(gpus),
            DeviceAssignment::Fraction { device, part } => {
                ResourceVec { fractions: GpuFractions::of(device, part), ..ResourceVec::default() }.normalised()
            }
            DeviceAssignment::Instance { device, start } => {
                ResourceVec { instances: instance(device, start), ..ResourceVec::default() }
            }
        }
    }

    /// Device indexes.
    pub fn devices(self) -> Vec<u8> {
        match self {
            DeviceAssignment::Whole(gpus) => bits(gpus),
            DeviceAssignment::Fraction { device, .. } | DeviceAssignment::Instance { device, .. } => {
                vec![device]
            }
        }
    }
}

impl ResourceVec {
    /// The resources of one task with the given device assignment.
    pub fn of_task(each: &Resources, assignment: DeviceAssignment) -> ResourceVec {
        ResourceVec { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..assignment.taken() }
    }
}
