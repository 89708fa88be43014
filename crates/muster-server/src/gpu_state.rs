//! The state of a GPU in one word, for the API and the metrics.

use muster_core::State;
use muster_core::objects::node::Node;

/// The state of a GPU as the API and the metrics name it.
pub fn gpu_state(state: &State, node: &Node, index: usize) -> &'static str {
    let claimed = || state.claims.values().any(|claim| claim.holds(&node.id, index as u8));
    match node.is_held(index) {
        true if node.sole_holder(index).is_none() => "shared",
        true => "held",
        false if node.gpu_health[index].cooling_until.is_some() => "cooling",
        false if !node.is_schedulable() || !node.gpu_usable(index) => "out",
        false if claimed() => "claimed",
        false if !node.instances(index as u8).is_empty() => "partitioned",
        false => "free",
    }
}
