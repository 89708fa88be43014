//! What a task that shares a GPU takes of a device.

use crate::gpu::gpu_share::{Isolation, Share, ShareMode, WHOLE};
use crate::objects::job::Resources;

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
