//! Where a task sits on a node: which devices it has, and what of them.

use super::free::{Free, instance};
use super::{Part, Parts, bits, mask};
use crate::job::PlacedTask;
use crate::node::Slot;

/// What a task has of the devices of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Seat {
    /// Whole devices, as bits.
    Whole(u64),
    /// A part of a device that is shared.
    Part {
        /// Which device.
        device: u8,
        /// How much of it.
        part: Part,
    },
    /// An instance of a partitioned device.
    Instance {
        /// Which device.
        device: u8,
        /// Where on it the instance begins.
        start: u8,
    },
}

impl Seat {
    /// The seat of a task that was placed; nothing if it names parts of several devices.
    pub fn of(task: &PlacedTask) -> Option<Seat> {
        let device = || task.gpus.first().copied().filter(|_| task.gpus.len() == 1);
        match Slot::of(task) {
            Slot::Whole => Some(Seat::Whole(mask(&task.gpus))),
            Slot::Instance { start } => Some(Seat::Instance { device: device()?, start }),
            Slot::Part(part) => Some(Seat::Part { device: device()?, part }),
        }
    }

    /// No device at all.
    pub const NONE: Seat = Seat::Whole(0);

    /// What it takes of devices.
    pub fn space(self) -> Free {
        match self {
            Seat::Whole(gpus) => Free::of_gpus(gpus),
            Seat::Part { device, part } => {
                Free { parts: Parts::of(device, part), ..Free::default() }.normal()
            }
            Seat::Instance { device, start } => {
                Free { instances: instance(device, start), ..Free::default() }
            }
        }
    }

    /// The indexes of its devices.
    pub fn devices(self) -> Vec<u8> {
        match self {
            Seat::Whole(gpus) => bits(gpus),
            Seat::Part { device, .. } | Seat::Instance { device, .. } => vec![device],
        }
    }
}
