//! Phase place: the whole gang on one node or nothing, on the node that it leaves fullest.

use crate::capacity::Free;
use crate::ids::NodeId;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;

/// Start the job where it fits best. False if there is no room.
pub(super) fn best_fit(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    if draft.is_full_for(turn.bucket) {
        return false;
    }
    match find(draft, ask) {
        Some(spot) => {
            draft.start(turn.bucket, (turn.job, turn.effective), ask, &spot);
            true
        }
        None => {
            draft.note_full_for(turn.bucket);
            false
        }
    }
}

/// The node with the fewest free GPUs on which the gang fits, then by name.
pub(super) fn find(draft: &Draft, ask: &Ask) -> Option<Spot> {
    let good = || best_of_kinds(draft, ask, |node, free| draft.without_degraded(node, free));
    let any = || best_of_kinds(draft, ask, |_, free| free);
    if draft.degraded.is_empty() { any() } else { good().or_else(any) }
}

fn best_of_kinds(draft: &Draft, ask: &Ask, usable: impl Fn(&NodeId, Free) -> Free) -> Option<Spot> {
    let fullest = ask.matches.iter().filter_map(|found| fullest_of_kind(draft, ask, found, &usable));
    let best = fullest.min_by(|a, b| (a.0, &a.1.node).cmp(&(b.0, &b.1.node)));
    best.map(|(_, spot)| spot)
}

/// The best of one kind, with its number of free GPUs.
fn fullest_of_kind(
    draft: &Draft,
    ask: &Ask,
    found: &Match,
    usable: impl Fn(&NodeId, Free) -> Free,
) -> Option<(u32, Spot)> {
    let candidates = draft.capacity.with_free(&found.kind, ask.gpus());
    candidates.into_iter().find_map(|(count, node)| {
        let free = usable(node, draft.free_on(node)?);
        let chosen = ask.fit(found, free)?;
        Some((count, Spot { node: node.clone(), chosen }))
    })
}

impl Draft<'_> {
    fn without_degraded(&self, node: &NodeId, free: Free) -> Free {
        let hot = self.degraded.get(node).copied().unwrap_or_default();
        Free { gpus: free.gpus & !hot, ..free }
    }
}
