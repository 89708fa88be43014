//! The interface of a placement policy, and the policies that take the node with the highest score.

use super::cluster::{DeviceSet, PodPlacement, PodRequest, TraceCluster, TraceNode};

/// Places pods one at a time.
pub trait PlacementPolicy {
    /// The placement of a pod; `None` if it fits no node. `shape` is the index of `request` among the distinct
    /// requests of the workload.
    fn place(&mut self, cluster: &TraceCluster, shape: usize, request: &PodRequest) -> Option<PodPlacement>;

    /// Called after a pod was placed on a node.
    fn node_changed(&mut self, cluster: &TraceCluster, node: usize);
}

/// A score of a pod on a node where it fits.
pub trait NodeScore {
    /// The highest score wins, then the lowest rank.
    fn score(&self, node: usize, state: &TraceNode, request: &PodRequest) -> i32;

    /// The GPUs that the pod gets on the node.
    fn devices(&self, _node: usize, state: &TraceNode, request: &PodRequest) -> DeviceSet {
        state.default_devices(request)
    }

    /// Called after a node changed, for scores that cache values per node.
    fn node_changed(&mut self, _node: usize, _state: &TraceNode) {}
}

/// The policy that takes the node with the highest score.
///
/// A score depends on the pod and the node only. Scores are cached per shape and node, and recomputed only for nodes
/// that changed since the shape was last placed.
pub struct HighestScore<S> {
    score: S,
    shapes: Vec<ShapeScores>,
    /// Nodes in the order in which they changed.
    change_log: Vec<usize>,
    /// The last position of each node in the log.
    last_change: Vec<usize>,
}

/// Cached scores of one shape.
#[derive(Clone, Default)]
struct ShapeScores {
    /// The length of the change log that the keys reflect.
    log_position: usize,
    /// Score and rank of each node as one number; [`NO_FIT`] if the shape does not fit.
    node_keys: Vec<i64>,
}

const NO_FIT: i64 = i64::MIN;

impl<S: NodeScore> HighestScore<S> {
    /// For an empty cluster and a number of shapes.
    pub fn new(mut score: S, cluster: &TraceCluster, shapes: usize) -> HighestScore<S> {
        cluster.nodes.iter().enumerate().for_each(|(node, state)| score.node_changed(node, state));
        let log: Vec<usize> = (0..cluster.nodes.len()).collect();
        HighestScore { score, shapes: vec![ShapeScores::default(); shapes], last_change: log.clone(), change_log: log }
    }

    /// Recompute the keys of the nodes that changed.
    fn update_shape(&mut self, cluster: &TraceCluster, shape: usize, request: &PodRequest) {
        let cached = &mut self.shapes[shape];
        cached.node_keys.resize(cluster.nodes.len(), NO_FIT);
        for (at, node) in self.change_log.iter().enumerate().skip(cached.log_position) {
            if self.last_change[*node] == at {
                let state = &cluster.nodes[*node];
                cached.node_keys[*node] = match state.fits(request) {
                    true => sort_key(self.score.score(*node, state, request), cluster.ranks[*node]),
                    false => NO_FIT,
                };
            }
        }
        cached.log_position = self.change_log.len();
    }
}

/// Orders by score, then by descending rank.
fn sort_key(score: i32, rank: u32) -> i64 {
    (i64::from(score) << 32) | i64::from(u32::MAX - rank)
}

impl<S: NodeScore> PlacementPolicy for HighestScore<S> {
    fn place(&mut self, cluster: &TraceCluster, shape: usize, request: &PodRequest) -> Option<PodPlacement> {
        self.update_shape(cluster, shape, request);
        let keys = &self.shapes[shape].node_keys;
        let best = keys.iter().copied().max().filter(|best| *best != NO_FIT)?;
        let node = keys.iter().position(|key| *key == best)?;
        Some(PodPlacement { node, devices: self.score.devices(node, &cluster.nodes[node], request) })
    }

    fn node_changed(&mut self, cluster: &TraceCluster, node: usize) {
        self.score.node_changed(node, &cluster.nodes[node]);
        self.last_change[node] = self.change_log.len();
        self.change_log.push(node);
    }
}
