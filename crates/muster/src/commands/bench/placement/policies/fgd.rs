//! Fragmentation gradient descent: the node on which the least becomes useless to typical pods.

use super::super::cluster::{Ask, Cluster, Devices, Node};
use super::super::policy::Score;
use super::super::typical::Typical;

/// Keeps the fragments of every node, so that a score needs only what they would be afterwards.
pub struct Fgd {
    typical: Typical,
    before: Vec<f64>,
}

impl Fgd {
    /// For pods that come like these.
    pub fn new(typical: &Typical, cluster: &Cluster) -> Fgd {
        Fgd { typical: typical.clone(), before: vec![0.0; cluster.nodes.len()] }
    }

    /// The score of these devices, whole in 0..100: what differs by less is left to the rank, by which it packs.
    fn with(&self, node: usize, state: &Node, ask: &Ask, devices: Devices) -> i32 {
        let mut after = [0; 64];
        let after = &mut after[..state.devices.len()];
        after.copy_from_slice(&state.devices);
        for (_, free) in after.iter_mut().enumerate().filter(|(at, _)| devices.has(*at)) {
            *free -= ask.milli;
        }
        let left = self.typical.fragments_of(state.model, state.cpu - ask.cpu, after);
        let gained = (self.before[node] - left) / 1_000.0;
        (100.0 / (1.0 + (-gained).exp())) as i32
    }

    /// The best score and the first devices that have it.
    fn best(&self, node: usize, state: &Node, ask: &Ask) -> (i32, Devices) {
        if !ask.is_shared() {
            let devices = state.usual_devices(ask);
            return (self.with(node, state, ask, devices), devices);
        }
        let mut best = (i32::MIN, Devices::default());
        for (at, free) in state.devices.iter().enumerate().filter(|(_, free)| **free >= ask.milli) {
            // A device as free as an earlier one has its score, and comes after it.
            if state.devices[..at].contains(free) {
                continue;
            }
            let score = self.with(node, state, ask, Devices::one(at));
            if score > best.0 {
                best = (score, Devices::one(at));
            }
        }
        best
    }
}

impl Score for Fgd {
    fn score(&self, node: usize, state: &Node, ask: &Ask) -> i32 {
        self.best(node, state, ask).0
    }

    fn devices(&self, node: usize, state: &Node, ask: &Ask) -> Devices {
        self.best(node, state, ask).1
    }

    fn changed(&mut self, node: usize, state: &Node) {
        self.before[node] = self.typical.fragments(state);
    }
}
