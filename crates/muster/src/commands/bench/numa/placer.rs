//! Manners of choosing devices.

use muster_core::wiring::{Wiring, Wish};

use super::serve::{Place, Places};
use crate::commands::bench::random::Random;

/// How devices are chosen. Unless it says otherwise, the node is the fullest one that has enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// By chance.
    Random,
    /// The lowest free indexes: what others are compared with.
    Lowest,
    /// By the wiring.
    Wired,
    /// By the wiring, on the node where they are closest or all linked by NVLink; among those the fullest.
    Nearest,
    /// By the wiring, and never on two NUMA nodes where the job would fit on one.
    SameNuma,
}

impl Manner {
    pub const ALL: [Manner; 5] =
        [Manner::Random, Manner::Lowest, Manner::Wired, Manner::Nearest, Manner::SameNuma];

    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Manner::Random => "random",
            Manner::Lowest => "lowest",
            Manner::Wired => "wired",
            Manner::Nearest => "nearest",
            Manner::SameNuma => "same-numa",
        }
    }
}

/// Nodes of one box, and what is free on them.
pub struct Placer {
    wiring: Wiring,
    all: u64,
    free: Vec<u64>,
    manner: Manner,
    random: Random,
}

impl Placer {
    pub fn new(wiring: Wiring, gpus: u32, nodes: usize, manner: Manner, seed: u64) -> Placer {
        let all = u64::MAX >> (u64::BITS - gpus);
        Placer { wiring, all, free: vec![all; nodes], manner, random: Random(seed) }
    }

    /// The devices it would choose of those that are free on a node.
    fn choose(&mut self, free: u64, gpus: u32) -> Option<u64> {
        match self.manner {
            Manner::Random => some_bits(free, gpus, || self.random.next()),
            Manner::Lowest => some_bits(free, gpus, || 0),
            Manner::Wired | Manner::Nearest => self.wiring.choose(free, gpus, Wish::default()),
            Manner::SameNuma => {
                let strict = Wish { same_numa: true, ..Wish::default() };
                let wish = if self.wiring.most(self.all, strict) < gpus { Wish::default() } else { strict };
                self.wiring.choose(free, gpus, wish)
            }
        }
    }

    /// How far away devices are, where that matters for the choice of the node. A full node is worth more than a
    /// NUMA node to devices that are all linked to each other.
    fn distance(&self, free: u64, devices: u64) -> u8 {
        let rank = self.wiring.rank(free, devices, Wish::default());
        let linked = rank.is_some_and(|rank| rank.unlinked == 0);
        if self.manner == Manner::Nearest && !linked { self.wiring.closeness(devices) as u8 } else { 0 }
    }
}

impl Places for Placer {
    fn take(&mut self, gpus: u32) -> Option<Place> {
        let mut best: Option<(u8, u32, Place)> = None;
        for node in 0..self.free.len() {
            let free = self.free[node];
            let room = free.count_ones();
            // Most nodes are out without a look at their wiring.
            let fuller = best.is_none_or(|(distance, least, _)| distance > 0 || room < least);
            if room < gpus || !fuller {
                continue;
            }
            let Some(devices) = self.choose(free, gpus) else { continue };
            let offer = (self.distance(free, devices), room, Place { node, devices });
            best = Some(best.map_or(offer, |best| best.min(offer)));
        }
        let (_, _, place) = best?;
        self.free[place.node] &= !place.devices;
        Some(place)
    }

    fn give_back(&mut self, place: Place) {
        self.free[place.node] |= place.devices;
    }
}

/// So many of the set bits: each time the one that the number points to.
fn some_bits(mut mask: u64, count: u32, mut number: impl FnMut() -> u64) -> Option<u64> {
    if mask.count_ones() < count {
        return None;
    }
    let mut taken = 0;
    for _ in 0..count {
        let skip = number() % u64::from(mask.count_ones());
        let bit = (0..skip).fold(mask, |left, _| left & (left - 1));
        let lowest = bit & bit.wrapping_neg();
        taken |= lowest;
        mask &= !lowest;
    }
    Some(taken)
}
