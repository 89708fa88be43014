//! Random: any node that has room, and any device of it that has.

use super::super::cluster::{Ask, Cluster, Devices, Spot};
use super::super::policy::Policy;
use muster_sim::random;

/// Draws from a seed. The published runs drew theirs otherwise, so only means compare.
pub struct Random(random::Random);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(random::Random(seed))
    }

    fn one_of(&mut self, places: &[usize]) -> Option<usize> {
        if places.is_empty() { None } else { Some(*self.0.of(places)) }
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
