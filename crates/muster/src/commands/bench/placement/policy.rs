//! A policy: where does the next pod go?

use super::cluster::{Ask, Cluster, Devices, Node, Spot};

/// Says where pods go, one at a time.
pub trait Policy {
    /// Where a pod of this shape goes; `None` where no node holds it. A shape is the place of `ask` in the list of
    /// different asks.
    fn spot(&mut self, cluster: &Cluster, shape: usize, ask: &Ask) -> Option<Spot>;

    /// A pod has been placed: this node is not as it was.
    fn changed(&mut self, cluster: &Cluster, node: usize);
}

/// How well a pod fits a node that holds it.
pub trait Score {
    /// The highest wins; among equals, the node of the lowest rank.
    fn score(&self, node: usize, state: &Node, ask: &Ask) -> i32;

    /// The devices it gets there.
    fn devices(&self, _node: usize, state: &Node, ask: &Ask) -> Devices {
        state.usual_devices(ask)
    }

    /// A node is not as it was. For scores that keep something about each.
    fn changed(&mut self, _node: usize, _state: &Node) {}
}

/// The policy that takes the node of the highest score.
///
/// A score depends on the pod and on its node alone, so it is kept for each shape and node, and worked out again
/// only for nodes that have changed since a pod of the shape last came.
pub struct Highest<S> {
    score: S,
    shapes: Vec<Known>,
    /// Nodes in the order in which they changed, and where in it each was last.
    log: Vec<usize>,
    last: Vec<usize>,
}

/// What is known of one shape.
#[derive(Clone, Default)]
struct Known {
    /// How much of the log is in the keys.
    seen: usize,
    /// Score and rank of each node as one number; [`NO_ROOM`] where it does not fit.
    keys: Vec<i64>,
}

const NO_ROOM: i64 = i64::MIN;

impl<S: Score> Highest<S> {
    /// For a cluster that is empty, and so many shapes.
    pub fn new(mut score: S, cluster: &Cluster, shapes: usize) -> Highest<S> {
        cluster.nodes.iter().enumerate().for_each(|(node, state)| score.changed(node, state));
        let log: Vec<usize> = (0..cluster.nodes.len()).collect();
        Highest { score, shapes: vec![Known::default(); shapes], last: log.clone(), log }
    }

    /// Bring the keys of a shape up to date.
    fn learn(&mut self, cluster: &Cluster, shape: usize, ask: &Ask) {
        let known = &mut self.shapes[shape];
        known.keys.resize(cluster.nodes.len(), NO_ROOM);
        for (at, node) in self.log.iter().enumerate().skip(known.seen) {
            if self.last[*node] == at {
                let state = &cluster.nodes[*node];
                known.keys[*node] = match state.holds(ask) {
                    true => key(self.score.score(*node, state, ask), cluster.ranks[*node]),
                    false => NO_ROOM,
                };
            }
        }
        known.seen = self.log.len();
    }
}

/// The higher the score, and then the lower the rank, the greater.
fn key(score: i32, rank: u32) -> i64 {
    (i64::from(score) << 32) | i64::from(u32::MAX - rank)
}

impl<S: Score> Policy for Highest<S> {
    fn spot(&mut self, cluster: &Cluster, shape: usize, ask: &Ask) -> Option<Spot> {
        self.learn(cluster, shape, ask);
        let keys = &self.shapes[shape].keys;
        let best = keys.iter().copied().max().filter(|best| *best != NO_ROOM)?;
        let node = keys.iter().position(|key| *key == best)?;
        Some(Spot { node, devices: self.score.devices(node, &cluster.nodes[node], ask) })
    }

    fn changed(&mut self, cluster: &Cluster, node: usize) {
        self.score.changed(node, &cluster.nodes[node]);
        self.last[node] = self.log.len();
        self.log.push(node);
    }
}
