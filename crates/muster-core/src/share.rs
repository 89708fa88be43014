//! Parts of a GPU: what one task has of a device that others may use beside it.
//!
//! People ask for memory, for compute in thousandths and for how strictly neighbours are kept apart; which of the ways
//! to share a device gives that is the planner's choice. Shares are whole numbers and never exceed the device.

use serde::{Deserialize, Serialize};

use crate::job::{Isolation, Resources};

/// A whole device, in thousandths.
pub const WHOLE: u32 = 1_000;

/// The smallest share: an MPS server takes 48 clients, and 47 of these fill a device.
pub const SHARE_MIN: u32 = 21;

/// Only the first devices of a node are shared: no machine that is sold has more than sixteen.
pub const SHARED_GPUS_MAX: usize = 16;

/// Only the first devices of a node are partitioned: no machine that is sold has more that can be.
pub const PARTITIONED_GPUS_MAX: u32 = 8;

/// What a task has of its device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Compute, in thousandths of the device: as it was asked for, or all of an instance.
    pub compute_milli: u32,
    /// Memory, in thousandths of the device: as it was asked for, rounded up, or all of an instance.
    pub memory_milli: u32,
    /// The same in MiB: what the task may use.
    pub memory_mib: u64,
    /// How the device is shared.
    #[serde(flatten)]
    pub mode: ShareMode,
}

/// The ways to share a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum ShareMode {
    /// An instance of a partitioned device: apart in hardware.
    Mig {
        /// What the instance is called, for example `1g.18gb`.
        profile: String,
        /// Where on the device it begins.
        start: u8,
    },
    /// Side by side, with limits on multiprocessors and memory for each.
    Mps,
    /// In turns. Memory is counted and not enforced.
    TimeSlice,
}

impl ShareMode {
    /// As people read it.
    pub fn word(&self) -> &'static str {
        match self {
            ShareMode::Mig { .. } => "mig",
            ShareMode::Mps => "mps",
            ShareMode::TimeSlice => "time-slice",
        }
    }

    /// Why a device is shared in this way: it follows from what the device can do.
    pub fn why(&self) -> &'static str {
        match self {
            ShareMode::Mig { .. } => "the GPU is partitioned: apart in hardware",
            ShareMode::Mps => "the GPU is not partitioned and can keep each within limits",
            ShareMode::TimeSlice => "the GPU is not partitioned and can keep nobody within limits",
        }
    }
}

impl Resources {
    /// Whether a part of a device is enough.
    pub fn is_shared(&self) -> bool {
        self.gpus > 0 && self.gpu_compute_milli < WHOLE
    }

    /// Devices that it needs for itself.
    pub fn whole_gpus(&self) -> u32 {
        if self.is_shared() { 0 } else { self.gpus }
    }

    /// What it needs of the memory of a device, in thousandths, rounded up; where nothing was said, as much as of its
    /// compute.
    pub fn memory_milli(&self, device_mib: u64) -> u32 {
        match self.gpu_memory_mib {
            0 => self.gpu_compute_milli,
            mib => u32::try_from((mib * u64::from(WHOLE)).div_ceil(device_mib.max(1))).unwrap_or(u32::MAX),
        }
    }

    /// Its share of a device with so much memory, shared in a mode.
    pub fn share_of(&self, device_mib: u64, mode: ShareMode) -> Share {
        let memory_milli = self.memory_milli(device_mib);
        let memory_mib = match self.gpu_memory_mib {
            0 => device_mib * u64::from(memory_milli) / u64::from(WHOLE),
            mib => mib,
        };
        Share { compute_milli: self.gpu_compute_milli, memory_milli, memory_mib, mode }
    }

    /// Whether neighbours that are kept apart like this would do.
    pub fn accepts(&self, mode: &ShareMode) -> bool {
        match mode {
            ShareMode::Mig { .. } => true,
            ShareMode::Mps => self.isolation != Isolation::Full,
            ShareMode::TimeSlice => self.isolation == Isolation::None,
        }
    }
}
