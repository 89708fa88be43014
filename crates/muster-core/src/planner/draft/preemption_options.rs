//! The options of a preemptor, one per node, the best first. Kept in the draft of a planning round (step 7) for the next
//! preemptor of the shape.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::NodeId;
use crate::planner::draft::candidates::PreemptionReach;

/// Evicting jobs on one node. The least cost is best, then the fewest victims, then the name of the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EvictionOption {
    /// Work lost, or the sum of SRPT indexes, by the mode of the preemptor.
    pub cost: u64,
    pub victims: usize,
    pub node: NodeId,
}

/// The options of all nodes for preemptors of one shape and one reach.
#[derive(Debug)]
pub(crate) struct EvictionOptions {
    pub reach: PreemptionReach,
    sorted: BTreeSet<EvictionOption>,
    by_node: BTreeMap<NodeId, EvictionOption>,
    /// How many of the draft's dirty nodes are taken into account.
    pub seen: usize,
}

impl EvictionOptions {
    pub fn empty(reach: PreemptionReach, seen: usize) -> EvictionOptions {
        EvictionOptions { reach, sorted: BTreeSet::new(), by_node: BTreeMap::new(), seen }
    }

    pub fn best(&self) -> Option<&EvictionOption> {
        self.sorted.first()
    }

    pub fn put(&mut self, node: &NodeId, option: Option<EvictionOption>) {
        if let Some(former) = self.by_node.remove(node) {
            self.sorted.remove(&former);
        }
        if let Some(option) = option {
            self.sorted.insert(option.clone());
            self.by_node.insert(node.clone(), option);
        }
    }
}
