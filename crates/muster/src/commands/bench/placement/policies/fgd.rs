//! Fragmentation gradient descent: the node on which the least becomes useless to typical pods.

use super::super::cluster::{PodRequest, TraceCluster, DeviceSet, TraceNode};
use super::super::policy::NodeScore;
use super::super::fragmentation::TargetWorkload;

/// Keeps the fragments of every node, so that a score needs only what they would be afterwards.
pub struct Fgd {
    typical: TargetWorkload,
    fragmentation_before: Vec<f64>,
}

impl Fgd {
    /// For pods that come like these.
    pub fn new(typical: &TargetWorkload, cluster: &TraceCluster) -> Fgd {
        Fgd { typical: typical.clone(), fragmentation_before: vec![0.0; cluster.nodes.len()] }
    }

    /// The score of these devices, whole in 0..100: what differs by less is left to the rank, by which it packs.
    fn score_with_devices(&self, node: usize, state: &TraceNode, ask: &PodRequest, devices: DeviceSet) -> i32 {
        let mut after = [0; 64];
        let after = &mut after[..state.device_milli_free.len()];
        after.copy_from_slice(&state.device_milli_free);
        for (_, free) in after.iter_mut().enumerate().filter(|(at, _)| devices.contains(*at)) {
            *free -= ask.milli_per_gpu;
        }
        let left = self.typical.fragmentation_milli_of(state.model, state.cpu_milli_free - ask.cpu_milli, after);
        let gained = (self.fragmentation_before[node] - left) / 1_000.0;
        (100.0 / (1.0 + (-gained).exp())) as i32
    }

    /// The best score and the first devices that have it.
    fn best_devices(&self, node: usize, state: &TraceNode, ask: &PodRequest) -> (i32, DeviceSet) {
        if !ask.is_shared() {
            let devices = state.default_devices(ask);
            return (self.score_with_devices(node, state, ask, devices), devices);
        }
        let mut best = (i32::MIN, DeviceSet::default());
        for (at, free) in state.device_milli_free.iter().enumerate().filter(|(_, free)| **free >= ask.milli_per_gpu) {
            // A device as free as an earlier one has its score, and comes after it.
            if state.device_milli_free[..at].contains(free) {
                continue;
            }
            let score = self.score_with_devices(node, state, ask, DeviceSet::single(at));
            if score > best.0 {
                best = (score, DeviceSet::single(at));
            }
        }
        best
    }
}

impl NodeScore for Fgd {
    fn score(&self, node: usize, state: &TraceNode, ask: &PodRequest) -> i32 {
        self.best_devices(node, state, ask).0
    }

    fn devices(&self, node: usize, state: &TraceNode, ask: &PodRequest) -> DeviceSet {
        self.best_devices(node, state, ask).1
    }

    fn node_changed(&mut self, node: usize, state: &TraceNode) {
        self.fragmentation_before[node] = self.typical.fragmentation_milli(state);
    }
}
