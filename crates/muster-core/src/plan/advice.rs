//! Port: what those say of a place who know more than the planner.
//!
//! What was learned of jobs like this on a model, what policies think of a node, what is left of its power: each tells
//! what a place costs in thousandths of a device, less than nothing where it is welcome. The planner weighs it and adds
//! it to what it knows itself. The same question must have the same answer as long as the state is the same, or the same
//! state would not give the same plan.

use crate::capacity::Kind;
use crate::ids::NodeId;
use crate::plan::score::Said;
use crate::queue::Bucket;

/// Who is asked before a place is chosen.
pub trait Advice {
    /// What is said of a gang on a node, in thousandths of a device.
    fn said(&self, gang: &Bucket, node: &NodeId, kind: &Kind) -> Said;

    /// Whether nodes of one kind on which the same is free are told apart. If not, one speaks for all of them, which is
    /// much faster.
    fn tells_nodes_apart(&self) -> bool;
}

/// Nobody says anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Advice for Silent {
    fn said(&self, _: &Bucket, _: &NodeId, _: &Kind) -> Said {
        Said::default()
    }

    fn tells_nodes_apart(&self) -> bool {
        false
    }
}
