//! A policy: where does the next pod go?

use super::cluster::{PodRequest, TraceCluster, DeviceSet, TraceNode, PodPlacement};

/// Says where pods go, one at a time.
pub trait PlacementPolicy {
    /// Where a pod of this shape goes; `None` where no node holds it. A shape is the place of `ask` in the list of
    /// different asks.
    fn place(&mut self, cluster: &TraceCluster, shape: usize, ask: &PodRequest) -> Option<PodPlacement>;

    /// A pod has been placed: this node is not as it was.
    fn node_changed(&mut self, cluster: &TraceCluster, node: usize);
}

/// How well a pod fits a node that holds it.
pub trait NodeScore {
    /// The highest wins; among equals, the node of the lowest rank.
    fn score(&self, node: usize, state: &TraceNode, ask: &PodRequest) -> i32;

    /// The devices it gets there.
    fn devices(&self, _node: usize, state: &TraceNode, ask: &PodRequest) -> DeviceSet {
        state.default_devices(ask)
    }

    /// A node is not as it was. For scores that keep something about each.
    fn node_changed(&mut self, _node: usize, _state: &TraceNode) {}
}

/// The policy that takes the node of the highest score.
///
/// A score depends on the pod and on its node alone, so it is kept for each shape and node, and worked out again
/// only for nodes that have changed since a pod of the shape last came.
pub struct HighestScore<S> {
    score: S,
    shapes: Vec<ShapeScores>,
    /// Nodes in the order in which they changed, and where in it each was last.
    change_log: Vec<usize>,
    last_change: Vec<usize>,
}

/// What is known of one shape.
#[derive(Clone, Default)]
struct ShapeScores {
    /// How much of the log is in the keys.
    log_position: usize,
    /// Score and rank of each node as one number; [`NO_ROOM`] where it does not fit.
    node_keys: Vec<i64>,
}

const NO_FIT: i64 = i64::MIN;

impl<S: NodeScore> HighestScore<S> {
    /// For a cluster that is empty, and so many shapes.
    pub fn new(mut score: S, cluster: &TraceCluster, shapes: usize) -> HighestScore<S> {
        cluster.nodes.iter().enumerate().for_each(|(node, state)| score.node_changed(node, state));
        let log: Vec<usize> = (0..cluster.nodes.len()).collect();
        HighestScore { score, shapes: vec![ShapeScores::default(); shapes], last_change: log.clone(), change_log: log }
    }

    /// Bring the keys of a shape up to date.
    fn update_shape(&mut self, cluster: &TraceCluster, shape: usize, ask: &PodRequest) {
        let known = &mut self.shapes[shape];
        known.node_keys.resize(cluster.nodes.len(), NO_FIT);
        for (at, node) in self.change_log.iter().enumerate().skip(known.log_position) {
            if self.last_change[*node] == at {
                let state = &cluster.nodes[*node];
                known.node_keys[*node] = match state.fits(ask) {
                    true => sort_key(self.score.score(*node, state, ask), cluster.ranks[*node]),
                    false => NO_FIT,
                };
            }
        }
        known.log_position = self.change_log.len();
    }
}

/// The higher the score, and then the lower the rank, the greater.
fn sort_key(score: i32, rank: u32) -> i64 {
    (i64::from(score) << 32) | i64::from(u32::MAX - rank)
}

impl<S: NodeScore> PlacementPolicy for HighestScore<S> {
    fn place(&mut self, cluster: &TraceCluster, shape: usize, ask: &PodRequest) -> Option<PodPlacement> {
        self.update_shape(cluster, shape, ask);
        let keys = &self.shapes[shape].node_keys;
        let best = keys.iter().copied().max().filter(|best| *best != NO_FIT)?;
        let node = keys.iter().position(|key| *key == best)?;
        Some(PodPlacement { node, devices: self.score.devices(node, &cluster.nodes[node], ask) })
    }

    fn node_changed(&mut self, cluster: &TraceCluster, node: usize) {
        self.score.node_changed(node, &cluster.nodes[node]);
        self.last_change[node] = self.change_log.len();
        self.change_log.push(node);
    }
}
