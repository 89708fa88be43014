//! Parts of devices, by device: thousandths of compute and of memory.

use crate::share::{SHARED_GPUS_MAX, WHOLE};

/// A part of one device, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Part {
    /// Of its multiprocessors.
    pub compute: u16,
    /// Of its memory.
    pub memory: u16,
}

impl Part {
    /// All of a device.
    pub const WHOLE: Part = Part { compute: WHOLE as u16, memory: WHOLE as u16 };
    /// Nothing of it.
    pub const NONE: Part = Part { compute: 0, memory: 0 };

    /// Both together; never more than the device.
    fn plus(self, more: Part) -> Part {
        let sum = |one: u16, other: u16| (one + other).min(WHOLE as u16);
        Part { compute: sum(self.compute, more.compute), memory: sum(self.memory, more.memory) }
    }

    /// What is left of it.
    fn minus(self, less: Part) -> Part {
        Part {
            compute: self.compute.saturating_sub(less.compute),
            memory: self.memory.saturating_sub(less.memory),
        }
    }

    /// What is in both.
    fn min(self, other: Part) -> Part {
        Part { compute: self.compute.min(other.compute), memory: self.memory.min(other.memory) }
    }

    /// Whether so much is there.
    pub fn holds(self, wanted: Part) -> bool {
        wanted.compute <= self.compute && wanted.memory <= self.memory
    }

    /// How often so much is there.
    pub fn times(self, wanted: Part) -> u32 {
        let times = |have: u16, each: u16| have.checked_div(each).unwrap_or(u16::MAX);
        u32::from(times(self.compute, wanted.compute).min(times(self.memory, wanted.memory)))
    }
}

/// What is there of each device. A device that is there as a whole is a bit in [`Free::gpus`](super::Free), and nothing
/// here: so two equal spaces are equal in every bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Parts([Part; SHARED_GPUS_MAX]);

impl Parts {
    /// A part of one device.
    pub fn of(device: u8, part: Part) -> Parts {
        let mut parts = Parts::default();
        if let Some(slot) = parts.0.get_mut(usize::from(device)) {
            *slot = part;
        }
        parts
    }

    /// What is there of a device.
    pub fn get(&self, device: u8) -> Part {
        self.0.get(usize::from(device)).copied().unwrap_or_default()
    }

    /// Whether there is nothing of any device.
    pub fn is_empty(&self) -> bool {
        self.0 == [Part::NONE; SHARED_GPUS_MAX]
    }

    /// Devices of which a part is there, each with the part.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Part)> {
        (0..).zip(self.0).filter(|(_, part)| *part != Part::NONE)
    }
}

/// Devices that are there as a whole, as bits, and parts of others.
pub(super) type Devices = (u64, Parts);

/// The parts of a device that is there as a whole or in part.
fn part_of((gpus, parts): Devices, device: usize) -> Part {
    if gpus >> device & 1 == 1 { Part::WHOLE } else { parts.0[device] }
}

/// Two spaces joined device by device.
fn join(one: Devices, other: Devices, gpus: u64, of: fn(Part, Part) -> Part) -> Devices {
    if one.1.is_empty() && other.1.is_empty() {
        return (gpus, Parts::default());
    }
    let (mut gpus, mut parts) = (gpus, Parts::default());
    for device in 0..SHARED_GPUS_MAX {
        gpus &= !(1 << device);
        match of(part_of(one, device), part_of(other, device)) {
            Part::WHOLE => gpus |= 1 << device,
            part => parts.0[device] = part,
        }
    }
    (gpus, parts)
}

/// Both together.
pub(super) fn plus(one: Devices, other: Devices) -> Devices {
    join(one, other, one.0 | other.0, Part::plus)
}

/// What is left of the first.
pub(super) fn minus(one: Devices, other: Devices) -> Devices {
    join(one, other, one.0 & !other.0, Part::minus)
}

/// What is in both.
pub(super) fn min(one: Devices, other: Devices) -> Devices {
    join(one, other, one.0 & other.0, Part::min)
}

/// Whether so much is there.
pub(super) fn holds(one: Devices, wanted: Devices) -> bool {
    if wanted.1.is_empty() {
        return wanted.0 & !one.0 == 0;
    }
    let shared = (0..SHARED_GPUS_MAX).all(|device| part_of(one, device).holds(part_of(wanted, device)));
    shared && (wanted.0 & !one.0) >> SHARED_GPUS_MAX == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(compute: u16, memory: u16) -> Part {
        Part { compute, memory }
    }

    #[test]
    fn what_is_given_back_makes_a_device_whole_again() {
        let (used, more) = (Parts::of(1, part(300, 500)), Parts::of(1, part(700, 500)));
        let left = minus((0b11, Parts::default()), (0, used));
        assert_eq!(left, (0b01, Parts::of(1, part(700, 500))));
        assert_eq!(minus(left, (0, more)), (0b01, Parts::default()));
        assert_eq!(plus(left, (0, used)), (0b11, Parts::default()));
        assert_eq!(plus((0, used), (0, more)), (0b10, Parts::default()), "all parts are the whole");
    }

    #[test]
    fn a_whole_device_holds_every_part_and_a_part_no_whole_one() {
        let some = (0, Parts::of(0, part(400, 400)));
        assert!(holds((1, Parts::default()), some));
        assert!(!holds(some, (1, Parts::default())));
        assert!(holds(some, (0, Parts::of(0, part(400, 1)))));
        assert!(!holds(some, (0, Parts::of(0, part(401, 1)))));
        assert_eq!(min((1, Parts::default()), some), some);
        assert!(!holds((u64::MAX >> 1, Parts::default()), (1 << 63, Parts::of(0, part(1, 1)))));
    }
}
