//! GPU fractions by device, in thousandths of compute and memory, and the arithmetic on them.

use crate::gpu::gpu_share::{GpuFraction, SHARED_GPUS_MAX};

/// The fraction of each device. A whole device is a bit in [`ResourceVec::gpus`](super::ResourceVec) and has no entry
/// here, so each amount has one representation and equal vectors compare equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GpuFractions([GpuFraction; SHARED_GPUS_MAX]);

impl GpuFractions {
    /// A fraction of one device.
    pub fn of(device: u8, part: GpuFraction) -> GpuFractions {
        let mut parts = GpuFractions::default();
        if let Some(slot) = parts.0.get_mut(usize::from(device)) {
            *slot = part;
        }
        parts
    }

    /// The fraction of a device.
    pub fn get(&self, device: u8) -> GpuFraction {
        self.0.get(usize::from(device)).copied().unwrap_or_default()
    }

    /// True if no device has a fraction.
    pub fn is_empty(&self) -> bool {
        self.0 == [GpuFraction::NONE; SHARED_GPUS_MAX]
    }

    /// Devices with a fraction, each with its fraction.
    pub fn iter(&self) -> impl Iterator<Item = (u8, GpuFraction)> {
        (0..).zip(self.0).filter(|(_, part)| *part != GpuFraction::NONE)
    }
}

/// Whole devices as a bit mask, and fractions of other devices.
pub(super) type DeviceFractions = (u64, GpuFractions);

/// The fraction of a device; `GpuFraction::WHOLE` for a whole device.
fn part_of((gpus, parts): DeviceFractions, device: usize) -> GpuFraction {
    if gpus >> device & 1 == 1 { GpuFraction::WHOLE } else { parts.0[device] }
}

/// Combine two amounts device by device with `of`. `gpus` is the result for whole devices; it stands where neither
/// amount has fractions, and for devices that cannot be shared.
fn join(
    one: DeviceFractions,
    other: DeviceFractions,
    gpus: u64,
    of: fn(GpuFraction, GpuFraction) -> GpuFraction,
) -> DeviceFractions {
    if one.1.is_empty() && other.1.is_empty() {
        return (gpus, GpuFractions::default());
    }
    let (mut gpus, mut parts) = (gpus, GpuFractions::default());
    for device in 0..SHARED_GPUS_MAX {
        gpus &= !(1 << device);
        match of(part_of(one, device), part_of(other, device)) {
            GpuFraction::WHOLE => gpus |= 1 << device,
            part => parts.0[device] = part,
        }
    }
    (gpus, parts)
}

/// The sum, at most the whole device.
pub(super) fn plus(one: DeviceFractions, other: DeviceFractions) -> DeviceFractions {
    join(one, other, one.0 | other.0, GpuFraction::plus)
}

/// The first less the second.
pub(super) fn minus(one: DeviceFractions, other: DeviceFractions) -> DeviceFractions {
    join(one, other, one.0 & !other.0, GpuFraction::minus)
}

/// The minimum, device by device.
pub(super) fn min(one: DeviceFractions, other: DeviceFractions) -> DeviceFractions {
    join(one, other, one.0 & other.0, GpuFraction::min)
}

/// Whether the first covers `wanted` on every device.
pub(super) fn holds(one: DeviceFractions, wanted: DeviceFractions) -> bool {
    if wanted.1.is_empty() {
        return wanted.0 & !one.0 == 0;
    }
    let shared = (0..SHARED_GPUS_MAX).all(|device| part_of(one, device).holds(part_of(wanted, device)));
    shared && (wanted.0 & !one.0) >> SHARED_GPUS_MAX == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(compute: u16, memory: u16) -> GpuFraction {
        GpuFraction { compute, memory }
    }

    #[test]
    fn a_device_is_whole_again_once_all_fractions_are_released() {
        let (used, more) = (GpuFractions::of(1, part(300, 500)), GpuFractions::of(1, part(700, 500)));
        let left = minus((0b11, GpuFractions::default()), (0, used));
        assert_eq!(left, (0b01, GpuFractions::of(1, part(700, 500))));
        assert_eq!(minus(left, (0, more)), (0b01, GpuFractions::default()));
        assert_eq!(plus(left, (0, used)), (0b11, GpuFractions::default()));
        assert_eq!(plus((0, used), (0, more)), (0b10, GpuFractions::default()), "the sum is the whole device");
    }

    #[test]
    fn a_whole_device_holds_any_fraction_and_no_fraction_holds_a_whole_device() {
        let some = (0, GpuFractions::of(0, part(400, 400)));
        assert!(holds((1, GpuFractions::default()), some));
        assert!(!holds(some, (1, GpuFractions::default())));
        assert!(holds(some, (0, GpuFractions::of(0, part(400, 1)))));
        assert!(!holds(some, (0, GpuFractions::of(0, part(401, 1)))));
        assert_eq!(min((1, GpuFractions::default()), some), some);
        assert!(!holds((u64::MAX >> 1, GpuFractions::default()), (1 << 63, GpuFractions::of(0, part(1, 1)))));
    }
}
