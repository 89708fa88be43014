//! Manners of choosing devices, and those that know nothing of the wiring.

use super::serve::{NodeDevices, DeviceAllocator};
use muster_sim::random::Random;

/// How devices are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePolicy {
    /// As the product's planner does.
    Planner,
    /// The same for jobs that demand devices on one NUMA node, unless they need more than one has.
    SameNuma,
    /// The lowest free indexes of the fullest node that has enough: what others are compared with.
    Lowest,
    /// By chance, on the fullest node that has enough.
    Random,
}

impl DevicePolicy {
    pub const ALL: [DevicePolicy; 4] = [DevicePolicy::Planner, DevicePolicy::SameNuma, DevicePolicy::Lowest, DevicePolicy::Random];

    /// As people read it.
    pub fn as_str(self) -> &'static str {
        match self {
            DevicePolicy::Planner => "planner",
            DevicePolicy::SameNuma => "same-numa",
            DevicePolicy::Lowest => "lowest",
            DevicePolicy::Random => "random",
        }
    }
}

/// Nodes of one box, and what is free on them.
pub struct TopologyBlindAllocator {
    free: Vec<u64>,
    /// Nothing for the lowest indexes.
    random: Option<Random>,
}

impl TopologyBlindAllocator {
    pub fn new(gpus: u32, nodes: usize, random: Option<Random>) -> TopologyBlindAllocator {
        TopologyBlindAllocator { free: vec![u64::MAX >> (u64::BITS - gpus); nodes], random }
    }
}

impl DeviceAllocator for TopologyBlindAllocator {
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices> {
        let room = |node: &usize| self.free[*node].count_ones();
        let enough = (0..self.free.len()).filter(|node| room(node) >= gpus);
        let node = enough.min_by_key(|node| (room(node), *node))?;
        let number = || self.random.as_mut().map_or(0, Random::next_u64);
        let devices = pick_bits(self.free[node], gpus, number)?;
        self.free[node] &= !devices;
        Some(NodeDevices { node, devices })
    }

    fn release(&mut self, place: NodeDevices) {
        self.free[place.node] |= place.devices;
    }
}

/// So many of the set bits: each time the one that the number points to.
fn pick_bits(mut mask: u64, count: u32, mut number: impl FnMut() -> u64) -> Option<u64> {
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
