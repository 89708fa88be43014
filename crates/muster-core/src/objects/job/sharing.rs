//! GPU shares of a task: the part of a device that its resources request.

use crate::gpu::gpu_share::{Isolation, Share, ShareMode, WHOLE};
use crate::objects::job::Resources;

impl Resources {
    /// True if the task requests less than a whole device.
    pub fn is_shared(&self) -> bool {
        self.gpus > 0 && self.gpu_compute_milli < WHOLE
    }

    /// Devices that the task does not share.
    pub fn whole_gpus(&self) -> u32 {
        if self.is_shared() { 0 } else { self.gpus }
    }

    /// Requested memory in thousandths of a device, rounded up; if none is requested, the same fraction as of compute.
    pub fn memory_milli(&self, device_mib: u64) -> u32 {
        match self.gpu_memory_mib {
            0 => self.gpu_compute_milli,
            mib => u32::try_from((mib * u64::from(WHOLE)).div_ceil(device_mib.max(1))).unwrap_or(u32::MAX),
        }
    }

    /// The share of a device with `device_mib` of memory in the given mode.
    pub fn share_of(&self, device_mib: u64, mode: ShareMode) -> Share {
        let memory_milli = self.memory_milli(device_mib);
        let memory_mib = match self.gpu_memory_mib {
            0 => device_mib * u64::from(memory_milli) / u64::from(WHOLE),
            mib => mib,
        };
        Share { compute_milli: self.gpu_compute_milli, memory_milli, memory_mib, mode }
    }

    /// True if the sharing mode provides the requested isolation.
    pub fn accepts(&self, mode: &ShareMode) -> bool {
        match mode {
            ShareMode::Mig { .. } => true,
            ShareMode::Mps => self.isolation != Isolation::Full,
            ShareMode::TimeSlice => self.isolation == Isolation::None,
        }
    }
}
