//! Random: any node that has room, and any device of it that has.

use super::super::cluster::{Ask, Cluster, Devices, Spot};
use super::super::policy::Policy;

/// A stream of numbers from a seed: a Weyl sequence, its bits mixed (splitmix64). The published runs drew theirs
/// otherwise, so only means compare.
pub struct Random {
    state: u64,
}

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    fn below(&mut self, end: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }

    fn one_of(&mut self, places: &[usize]) -> Option<usize> {
        if places.is_empty() { None } else { Some(places[self.below(places.len())]) }
    }
}

impl Policy for Random {
    fn spot(&mut self, cluster: &Cluster, _: usize, ask: &Ask) -> Option<Spot> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(_, state)| state.holds(ask));
        let node = self.one_of(&nodes.map(|(node, _)| node).collect::<Vec<_>>())?;
        let state = &cluster.nodes[node];
        if !ask.is_shared() {
            return Some(Spot { node, devices: state.usual_devices(ask) });
        }
        let devices = state.devices.iter().enumerate().filter(|(_, free)| **free >= ask.milli);
        let device = self.one_of(&devices.map(|(at, _)| at).collect::<Vec<_>>())?;
        Some(Spot { node, devices: Devices::one(device) })
    }

    fn changed(&mut self, _: &Cluster, _: usize) {}
}
