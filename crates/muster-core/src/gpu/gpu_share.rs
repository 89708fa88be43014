//! GPU shares: the part of one device that a task holds while other jobs use the rest (MIG, MPS, time slicing).
//!
//! A user asks for memory, compute in thousandths and an isolation level; the planner chooses the sharing mode that
//! meets them. Shares are integers, and the shares on a device never exceed it.

use serde::{Deserialize, Serialize};

/// A whole device, in thousandths.
pub const WHOLE: u32 = 1_000;

/// The smallest share, in thousandths: an MPS server accepts 48 clients, and 47 shares of this size fill a device.
pub const SHARE_MIN: u32 = 21;

/// Only the first devices of a node are shared: no machine on the market has more than sixteen.
pub const SHARED_GPUS_MAX: usize = 16;

/// Only the first devices of a node are partitioned: no machine on the market has more that support MIG.
pub const PARTITIONED_GPUS_MAX: u32 = 8;

/// The part of a device that a task holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Compute in thousandths of the device: the request, or all of a MIG instance.
    pub compute_milli: u32,
    /// Memory in thousandths of the device: the request rounded up, or all of a MIG instance.
    pub memory_milli: u32,
    /// Memory in MiB that the task may use.
    pub memory_mib: u64,
    #[serde(flatten)]
    pub mode: ShareMode,
}

/// The sharing modes of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "kebab-case")]
pub enum ShareMode {
    /// A MIG instance: separated in hardware.
    Mig {
        /// MIG profile, for example `1g.18gb`.
        profile: String,
        /// First memory slice of the instance.
        start: u8,
    },
    /// Concurrently under NVIDIA MPS, with limits on multiprocessors and memory per client.
    Mps,
    /// By time slicing. Memory is counted and not enforced.
    TimeSlice,
}

impl ShareMode {
    pub fn as_str(&self) -> &'static str {
        match self {
            ShareMode::Mig { .. } => "mig",
            ShareMode::Mps => "mps",
            ShareMode::TimeSlice => "time-slice",
        }
    }

    /// Why the device is shared in this mode, for people: the mode follows from what the device supports.
    pub fn why(&self) -> &'static str {
        match self {
            ShareMode::Mig { .. } => "the GPU is partitioned: isolated in hardware",
            ShareMode::Mps => "the GPU is not partitioned: MPS enforces the limits",
            ShareMode::TimeSlice => "the GPU is not partitioned and its model cannot enforce limits",
        }
    }
}

/// How strictly jobs on one GPU are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// Jobs may slow each other down and together exhaust the memory.
    #[default]
    None,
    /// Memory has a limit per job.
    Memory,
    /// Memory and compute are separated in hardware.
    Full,
}

impl Isolation {
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
    pub const WHOLE: GpuFraction = GpuFraction { compute: WHOLE as u16, memory: WHOLE as u16 };
    pub const NONE: GpuFraction = GpuFraction { compute: 0, memory: 0 };

    /// The sum, at most a whole device.
    pub(crate) fn plus(self, more: GpuFraction) -> GpuFraction {
        let sum = |one: u16, other: u16| (one + other).min(WHOLE as u16);
        GpuFraction { compute: sum(self.compute, more.compute), memory: sum(self.memory, more.memory) }
    }

    /// The difference, at least zero.
    pub(crate) fn minus(self, less: GpuFraction) -> GpuFraction {
        GpuFraction {
            compute: self.compute.saturating_sub(less.compute),
            memory: self.memory.saturating_sub(less.memory),
        }
    }

    /// The smaller of each.
    pub(crate) fn min(self, other: GpuFraction) -> GpuFraction {
        GpuFraction { compute: self.compute.min(other.compute), memory: self.memory.min(other.memory) }
    }

    /// True if `wanted` fits.
    pub fn holds(self, wanted: GpuFraction) -> bool {
        wanted.compute <= self.compute && wanted.memory <= self.memory
    }

    /// How many times `wanted` fits.
    pub fn times(self, wanted: GpuFraction) -> u32 {
        let times = |have: u16, each: u16| have.checked_div(each).unwrap_or(u16::MAX);
        u32::from(times(self.compute, wanted.compute).min(times(self.memory, wanted.memory)))
    }
}
