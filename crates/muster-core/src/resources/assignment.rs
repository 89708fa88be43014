//! Where a task sits on a node: which devices it has, and what of them.

use crate::gpu::gpu_share::GpuFraction;
use crate::objects::job::PlacedTask;
use crate::objects::node::Slot;
use crate::resources::fractions::GpuFractions;
use crate::resources::index::{bits, mask};
use crate::resources::vector::{ResourceVec, instance};

/// What a task has of the devices of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceAssignment {
    /// Whole devices, as bits.
    Whole(u64),
    /// A part of a device that is shared.
    Fraction {
        device: u8,
        /// How much of it.
        part: GpuFraction,
    },
    /// An instance of a partitioned device.
    Instance {
        device: u8,
        /// Where on it the instance begins.
        start: u8,
    },
}

impl DeviceAssignment {
    /// The seat of a task that was placed; nothing if it names parts of several devices.
    pub fn of(task: &PlacedTask) -> Option<DeviceAssignment> {
        let device = || task.gpus.first().copied().filter(|_| task.gpus.len() == 1);
        match Slot::of(task) {
            Slot::Whole => Some(DeviceAssignment::Whole(mask(&task.gpus))),
            Slot::Instance { start } => Some(DeviceAssignment::Instance { device: device()?, start }),
            Slot::Fraction(part) => Some(DeviceAssignment::Fraction { device: device()?, part }),
        }
    }

    /// No device at all.
    pub const NONE: DeviceAssignment = DeviceAssignment::Whole(0);

    /// What it takes of devices.
    pub fn taken(self) -> ResourceVec {
        match self {
            DeviceAssignment::Whole(gpus) => ResourceVec::of_gpus(gpus),
            DeviceAssignment::Fraction { device, part } => {
                ResourceVec { fractions: GpuFractions::of(device, part), ..ResourceVec::default() }
                    .normalised()
            }
            DeviceAssignment::Instance { device, start } => {
                ResourceVec { instances: instance(device, start), ..ResourceVec::default() }
            }
        }
    }

    /// The indexes of its devices.
    pub fn devices(self) -> Vec<u8> {
        match self {
            DeviceAssignment::Whole(gpus) => bits(gpus),
            DeviceAssignment::Fraction { device, .. } | DeviceAssignment::Instance { device, .. } => {
                vec![device]
            }
        }
    }
}
