//! The device policies of the benchmark, and the allocators that ignore the links between devices.

use super::serve::{DeviceAllocator, NodeDevices};
use crate::random::Random;

/// How the GPUs of a job are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePolicy {
    /// By the muster planner.
    Planner,
    /// By the muster planner, for jobs that require one NUMA node unless they need more GPUs than one has.
    SameNuma,
    /// The lowest free indexes of the fullest node that fits. The baseline of the comparison.
    Lowest,
    /// Random free GPUs of the fullest node that fits.
    Random,
}

impl DevicePolicy {
    pub const ALL: [DevicePolicy; 4] =
        [DevicePolicy::Planner, DevicePolicy::SameNuma, DevicePolicy::Lowest, DevicePolicy::Random];

    pub fn as_str(self) -> &'static str {
        match self {
            DevicePolicy::Planner => "planner",
            DevicePolicy::SameNuma => "same-numa",
            DevicePolicy::Lowest => "lowest",
            DevicePolicy::Random => "random",
        }
    }
}

/// Allocates from the fullest node that fits, without regard to the topology.
pub struct TopologyBlindAllocator {
    /// The free GPUs of each node, as bits.
    free: Vec<u64>,
    /// `None` for the lowest indexes.
    random: Option<Random>,
}

impl TopologyBlindAllocator {
    pub fn new(gpus: u32, nodes: usize, random: Option<Random>) -> TopologyBlindAllocator {
        TopologyBlindAllocator { free: vec![u64::MAX >> (u64::BITS - gpus); nodes], random }
    }
}

impl DeviceAllocator for TopologyBlindAllocator {
    fn allocate(&mut self, gpus: u32) -> Option<NodeDevices> {
        let free = |node: &usize| self.free[*node].count_ones();
        let fitting = (0..self.free.len()).filter(|node| free(node) >= gpus);
        let node = fitting.min_by_key(|node| (free(node), *node))?;
        let number = || self.random.as_mut().map_or(0, Random::next_u64);
        let devices = pick_bits(self.free[node], gpus, number)?;
        self.free[node] &= !devices;
        Some(NodeDevices { node, devices })
    }

    fn release(&mut self, allocated: NodeDevices) {
        self.free[allocated.node] |= allocated.devices;
    }
}

/// `count` of the set bits: each time the bit that the next number selects. `None` if too few are set.
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
