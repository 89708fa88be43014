//! Phase place: the whole gang or nothing. On one node if that is possible, the one that it leaves fullest; else on
//! as few as possible.

use crate::capacity::{Free, Seat};
use crate::ids::NodeId;
use crate::lasting::Ending;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::spread::{self, Usable};

/// Start the job where it fits best. False if there is no room.
pub(super) fn best_fit(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    let ending = draft.ending(turn.bucket, turn.job);
    if draft.is_full_for(turn.bucket, ending) {
        return false;
    }
    match find(draft, ask, ending) {
        Some(spot) => {
            draft.start(turn.bucket, (turn.job, turn.effective), ask, &spot);
            true
        }
        None => {
            draft.note_full_for(turn.bucket, ending);
            false
        }
    }
}

/// Where the gang fits best without delaying a reservation. Devices in doubt are used only if there is no other way.
pub(super) fn find(draft: &Draft, ask: &Ask, ending: Ending) -> Option<Spot> {
    let usable = |node: &NodeId, free| draft.usable(node, free, ending);
    let good =
        || find_among(draft, ask, &|node, free| Some(draft.without_degraded(node, usable(node, free)?)));
    let any = || find_among(draft, ask, &usable);
    if draft.degraded.is_empty() { any() } else { good().or_else(any) }
}

fn find_among(draft: &Draft, ask: &Ask, usable: &Usable) -> Option<Spot> {
    let fullest = ask.wholes().filter_map(|found| fullest_of_kind(draft, ask, found, usable));
    let best = fullest.min_by_key(|fit| (fit.free_gpus, fit.node));
    let on_one = best.map(|fit| Spot::on_one(ask, (fit.node, fit.found), &fit.seats));
    let across = || spread::find(draft.state, &draft.capacity, ask, usable);
    on_one.or_else(|| if ask.may_span() { across() } else { None })
}

/// A node on which the gang fits.
struct Fit<'a> {
    free_gpus: u32,
    node: &'a NodeId,
    found: &'a Match,
    seats: Vec<Seat>,
}

/// The node of a kind with the fewest free GPUs on which the gang fits, then by name.
fn fullest_of_kind<'a>(draft: &'a Draft, ask: &Ask, found: &'a Match, usable: &Usable) -> Option<Fit<'a>> {
    let candidates = draft.capacity.with_free(&found.kind, ask.whole_gpus());
    candidates.into_iter().find_map(|(free_gpus, node)| {
        let seats = ask.fit(found, usable(node, draft.free_on(node)?)?)?;
        Some(Fit { free_gpus, node, found, seats })
    })
}

impl Draft<'_> {
    pub fn without_degraded(&self, node: &NodeId, free: Free) -> Free {
        let hot = self.degraded.get(node).copied().unwrap_or_default();
        if hot == 0 { free } else { free.on_devices(!hot) }
    }
}
