//! Phase keep: a job that has waited too long and does not fit has a node kept for it. Nobody else is placed
//! there, so the node empties, and the wait is bounded by the longest job that runs on it.
//!
//! Which node that is is decided anew each round. It does not wander for ever: what is free on the kept node
//! only grows, so another is chosen only when it has more.

use std::cmp::Reverse;

use crate::capacity::Free;
use crate::ids::NodeId;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::Draft;
use crate::plan::order::Turn;
use crate::state::State;

/// In a long queue most jobs are overdue. At most one node in this many stands idle for them at a time, the
/// oldest job first; as each starts, the next has its turn.
const ONE_NODE_IN: usize = 8;

/// Keep a node for a job that is overdue: the one with the most free GPUs that could hold it, then by name.
pub(super) fn keep_a_node(draft: &mut Draft, turn: &Turn, ask: &Ask) {
    if !turn.overdue || draft.kept.len() >= kept_max(draft.state) {
        return;
    }
    let kinds = ask.wholes();
    let feasible = kinds.flat_map(|found| candidates(draft, ask, found));
    if let Some((_, Reverse(node))) = feasible.max() {
        let node = node.clone();
        draft.keep(node, turn.job);
    }
}

fn kept_max(state: &State) -> usize {
    (state.nodes.len() / ONE_NODE_IN).max(1)
}

/// Nodes of a kind that could hold the gang once everyone there has ended, with their free GPUs.
fn candidates<'a>(
    draft: &'a Draft,
    ask: &'a Ask,
    found: &'a Match,
) -> impl Iterator<Item = (u32, Reverse<&'a NodeId>)> {
    let open = draft.capacity.with_free(&found.kind, 0);
    let fits = move |node: &NodeId| ask.fit(found, emptied(draft.state, found, node)).is_some();
    open.filter(move |(_, node)| fits(node)).map(|(free, node)| (free, Reverse(node)))
}

fn emptied(state: &State, found: &Match, node: &NodeId) -> Free {
    Free { gpus: state.usable_gpus(node), ..found.kind.empty() }
}
