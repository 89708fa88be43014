//! Fragmentation gradient descent (FGD): the node on which the placement adds the least fragmentation for the target
//! workload.

use crate::placement::cluster::{DeviceSet, PodRequest, TraceCluster, TraceNode};
use crate::placement::fragmentation::TargetWorkload;
use crate::placement::policy::NodeScore;

/// Caches the fragmentation of every node, so that a score computes only the value after the placement.
pub struct Fgd {
    target: TargetWorkload,
    fragmentation_before: Vec<f64>,
}

impl Fgd {
    pub fn new(target: &TargetWorkload, cluster: &TraceCluster) -> Fgd {
        Fgd { target: target.clone(), fragmentation_before: vec![0.0; cluster.nodes.len()] }
    }

    /// The score of these GPUs, an integer in 0..100 as published: smaller differences are ties, which the rank
    /// decides.
    fn score_with_devices(&self, node: usize, state: &TraceNode, request: &PodRequest, devices: DeviceSet) -> i32 {
        let mut after = [0; 64];
        let after = &mut after[..state.device_milli_free.len()];
        after.copy_from_slice(&state.device_milli_free);
        for (_, free) in after.iter_mut().enumerate().filter(|(at, _)| devices.contains(*at)) {
            *free -= request.milli_per_gpu;
        }
        let left = self.target.fragmentation_milli_of(state.model, state.cpu_milli_free - request.cpu_milli, after);
        let gained = (self.fragmentation_before[node] - left) / 1_000.0;
        (100.0 / (1.0 + (-gained).exp())) as i32
    }

    /// The best score and the first GPUs that have it.
    fn best_devices(&self, node: usize, state: &TraceNode, request: &PodRequest) -> (i32, DeviceSet) {
        if !request.is_shared() {
            let devices = state.default_devices(request);
            return (self.score_with_devices(node, state, request, devices), devices);
        }
        let mut best = (i32::MIN, DeviceSet::default());
        for (at, free) in state.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= request.milli_per_gpu)
        {
            // A GPU as free as an earlier one has the same score, and the earlier one wins.
            if state.device_milli_free[..at].contains(free) {
                continue;
            }
            let score = self.score_with_devices(node, state, request, DeviceSet::single(at));
            if score > best.0 {
                best = (score, DeviceSet::single(at));
            }
        }
        best
    }
}

impl NodeScore for Fgd {
    fn score(&self, node: usize, state: &TraceNode, request: &PodRequest) -> i32 {
        self.best_devices(node, state, request).0
    }

    fn devices(&self, node: usize, state: &TraceNode, request: &PodRequest) -> DeviceSet {
        self.best_devices(node, state, request).1
    }

    fn node_changed(&mut self, node: usize, state: &TraceNode) {
        self.fragmentation_before[node] = self.target.fragmentation_milli(state);
    }
}
