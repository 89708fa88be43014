//! Random: any node that has room, and any device of it that has.

use super::super::cluster::{PodRequest, TraceCluster, DeviceSet, PodPlacement};
use super::super::policy::PlacementPolicy;
use muster_sim::random;

/// Draws from a seed. The published runs drew theirs otherwise, so only means compare.
pub struct RandomPlacement(random::Random);

impl RandomPlacement {
    /// From a seed.
    pub fn new(seed: u64) -> RandomPlacement {
        RandomPlacement(random::Random(seed))
    }

    fn pick_one(&mut self, places: &[usize]) -> Option<usize> {
        if places.is_empty() { None } else { Some(*self.0.choose(places)) }
    }
}

impl PlacementPolicy for RandomPlacement {
    fn place(&mut self, cluster: &TraceCluster, _: usize, ask: &PodRequest) -> Option<PodPlacement> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(_, state)| state.fits(ask));
        let node = self.pick_one(&nodes.map(|(node, _)| node).collect::<Vec<_>>())?;
        let state = &cluster.nodes[node];
        if !ask.is_shared() {
            return Some(PodPlacement { node, devices: state.default_devices(ask) });
        }
        let devices = state.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= ask.milli_per_gpu);
        let device = self.pick_one(&devices.map(|(at, _)| at).collect::<Vec<_>>())?;
        Some(PodPlacement { node, devices: DeviceSet::single(device) })
    }

    fn node_changed(&mut self, _: &TraceCluster, _: usize) {}
}
