//! Random: a random node and a random GPU among those where the pod fits.

use crate::placement::cluster::{DeviceSet, PodPlacement, PodRequest, TraceCluster};
use crate::placement::policy::PlacementPolicy;
use crate::random;

/// The published runs used another generator, so only means can be compared.
pub struct RandomPlacement(random::Random);

impl RandomPlacement {
    pub fn new(seed: u64) -> RandomPlacement {
        RandomPlacement(random::Random(seed))
    }

    fn pick_one(&mut self, candidates: &[usize]) -> Option<usize> {
        if candidates.is_empty() { None } else { Some(*self.0.choose(candidates)) }
    }
}

impl PlacementPolicy for RandomPlacement {
    fn place(&mut self, cluster: &TraceCluster, _: usize, request: &PodRequest) -> Option<PodPlacement> {
        let nodes = cluster.nodes.iter().enumerate().filter(|(_, state)| state.fits(request));
        let node = self.pick_one(&nodes.map(|(node, _)| node).collect::<Vec<_>>())?;
        let state = &cluster.nodes[node];
        if !request.is_shared() {
            return Some(PodPlacement { node, devices: state.default_devices(request) });
        }
        let devices = state.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= request.milli_per_gpu);
        let device = self.pick_one(&devices.map(|(at, _)| at).collect::<Vec<_>>())?;
        Some(PodPlacement { node, devices: DeviceSet::single(device) })
    }

    fn node_changed(&mut self, _: &TraceCluster, _: usize) {}
}
