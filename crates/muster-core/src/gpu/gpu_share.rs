//! Parts of a GPU: what one task has of a device that others may use beside it.
//!
//! People ask for memory, for compute in thousandths and for how strictly neighbours are kept apart; which of the ways
//! to share a device gives that is the planner's choice. Shares are whole numbers and never exceed the device.

use serde::{Deserialize, Serialize};

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
    pub fn as_str(&self) -> &'static str {
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

/// How strictly neighbours on one GPU are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// They may see each other's slowdowns and exhaust the memory together.
    #[default]
    None,
    /// Memory is limited per job.
    Memory,
    /// Memory and compute are apart in hardware.
    Full,
}

impl Isolation {
    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::None => "none",
            Isolation::Memory => "memory",
            Isolation::Full => "full",
        }
    }
}

/// A part of one device, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GpuFraction {
    pub compute: u16,
    pub memory: u16,
}

impl GpuFraction {
    /// All of a device.
    pub const WHOLE: GpuFraction = GpuFraction { compute: WHOLE as u16, memory: WHOLE as u16 };
    pub const NONE: GpuFraction = GpuFraction { compute: 0, memory: 0 };

    /// Both together; never more than the device.
    pub(crate) fn plus(self, more: GpuFraction) -> GpuFraction {
        let sum = |one: u16, other: u16| (one + other).min(WHOLE as u16);
        GpuFraction { compute: sum(self.compute, more.compute), memory: sum(self.memory, more.memory) }
    }

    /// What is left of it.
    pub(crate) fn minus(self, less: GpuFraction) -> GpuFraction {
        GpuFraction {
            compute: self.compute.saturating_sub(less.compute),
            memory: self.memory.saturating_sub(less.memory),
        }
    }

    /// What is in both.
    pub(crate) fn min(self, other: GpuFraction) -> GpuFraction {
        GpuFraction { compute: self.compute.min(other.compute), memory: self.memory.min(other.memory) }
    }

    /// Whether so much is there.
    pub fn holds(self, wanted: GpuFraction) -> bool {
        wanted.compute <= self.compute && wanted.memory <= self.memory
    }

    /// How often so much is there.
    pub fn times(self, wanted: GpuFraction) -> u32 {
        let times = |have: u16, each: u16| have.checked_div(each).unwrap_or(u16::MAX);
        u32::from(times(self.compute, wanted.compute).min(times(self.memory, wanted.memory)))
    }
}
