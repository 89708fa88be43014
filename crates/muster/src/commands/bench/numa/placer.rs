//! Manners of choosing devices, and those that know nothing of the wiring.

use super::serve::{Place, Places};
use muster_sim::random::Random;

/// How devices are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// As the product's planner does.
    Planner,
    /// The same for jobs that demand devices on one NUMA node, unless they need more than one has.
    SameNuma,
    /// The lowest free indexes of the fullest node that has enough: what others are compared with.
    Lowest,
    /// By chance, on the fullest node that has enough.
    Random,
}

impl Manner {
    pub const ALL: [Manner; 4] = [Manner::Planner, Manner::SameNuma, Manner::Lowest, Manner::Random];

    /// As people read it.
    pub fn word(self) -> &'static str {
        match self {
            Manner::Planner => "planner",
            Manner::SameNuma => "same-numa",
            Manner::Lowest => "lowest",
            Manner::Random => "random",
        }
    }
}

/// Nodes of one box, and what is free on them.
pub struct Blind {
    free: Vec<u64>,
    /// Nothing for the lowest indexes.
    random: Option<Random>,
}

impl Blind {
    pub fn new(gpus: u32, nodes: usize, random: Option<Random>) -> Blind {
        Blind { free: vec![u64::MAX >> (u64::BITS - gpus); nodes], random }
    }
}

impl Places for Blind {
    fn take(&mut self, gpus: u32) -> Option<Place> {
        let room = |node: &usize| self.free[*node].count_ones();
        let enough = (0..self.free.len()).filter(|node| room(node) >= gpus);
        let node = enough.min_by_key(|node| (room(node), *node))?;
        let number = || self.random.as_mut().map_or(0, Random::number);
        let devices = some_bits(self.free[node], gpus, number)?;
        self.free[node] &= !devices;
        Some(Place { node, devices })
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
