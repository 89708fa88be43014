//! Phase place: the whole gang or nothing. On one node if that is possible, the one on which it costs least; else on
//! as few as possible.

use std::collections::BTreeSet;

use crate::capacity::{Free, Kind};
use crate::ids::NodeId;
use crate::lasting::Ending;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::policy::Word;
use crate::plan::score::{self, Cost, Place, Said, Site};
use crate::plan::seats::WAYS_MAX;
use crate::plan::spread::{self, Usable};
use crate::queue::Bucket;

/// Who looks for a place, with what policies say of it.
type Gang<'a> = (&'a Bucket, Word<'a>);

/// Start the job where it fits best. False if there is no room.
pub(super) fn best_fit(draft: &mut Draft, turn: &Turn, ask: &Ask) -> bool {
    let ending = draft.ending(turn.bucket, turn.job);
    if draft.is_full_for(turn.bucket, ending) {
        return false;
    }
    match find_for(draft, Some((turn.bucket, turn.word)), ask, ending) {
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
    find_for(draft, None, ask, ending)
}

/// The same with what others say of it for a gang.
fn find_for(draft: &Draft, gang: Option<Gang>, ask: &Ask, ending: Ending) -> Option<Spot> {
    let usable = |node: &NodeId, free| draft.usable(node, free, ending);
    let good = || {
        find_among(draft, gang, ask, &|node, free| Some(draft.without_degraded(node, usable(node, free)?)))
    };
    let any = || find_among(draft, gang, ask, &usable);
    if draft.degraded.is_empty() { any() } else { good().or_else(any) }
}

/// The same apart from one node.
pub(super) fn find_apart(draft: &Draft, ask: &Ask, ending: Ending, apart: &NodeId) -> Option<Spot> {
    let usable = |node: &NodeId, free| if node == apart { None } else { draft.usable(node, free, ending) };
    find_among(draft, None, ask, &|node, free| Some(draft.without_degraded(node, usable(node, free)?)))
}

fn find_among(draft: &Draft, gang: Option<Gang>, ask: &Ask, usable: &Usable) -> Option<Spot> {
    let on_one = cheapest_node(draft, gang, ask, usable);
    let across = || spread::find(draft.state, &draft.capacity, ask, usable);
    on_one.or_else(|| if ask.may_span() { across() } else { None })
}

/// The node on which the whole gang costs least. Nodes of one kind on which the same is free are alike, and only the
/// first of them is looked at, unless something on it is kept for others.
fn cheapest_node(draft: &Draft, gang: Option<Gang>, ask: &Ask, usable: &Usable) -> Option<Spot> {
    let classes = ask.wholes().flat_map(|found| {
        let gang = gang.map(|(bucket, word)| (bucket, word.cost_milli(&found.kind)));
        let alike = draft.capacity.alike(&found.kind).filter(|(free, _)| ask.has_enough(found, **free));
        alike.map(move |(free, nodes)| (gang, found, *free, nodes))
    });
    let classes: Vec<_> = classes.collect();
    let ways = WAYS_MAX / classes.len().max(1);
    let fits = classes.iter().filter_map(|(gang, found, free, nodes)| {
        cheapest_of(draft, (*gang, ask, ways), (*found, *free), nodes, usable)
    });
    fits.min_by(|one, other| one.key().cmp(&other.key())).map(|fit| {
        let score = fit.place.terms.told(&draft.state.settings.weights, classes.len() as u32);
        let spot = Spot::on_one(ask, (fit.node, fit.found), &fit.place.seats);
        Spot { score: Some(Box::new(score)), ..spot }
    })
}

/// A node on which the gang fits.
struct Fit<'a> {
    node: &'a NodeId,
    found: &'a Match,
    place: Place,
}

impl Fit<'_> {
    fn key(&self) -> (Cost, &NodeId) {
        (self.place.cost, self.node)
    }
}

/// Of nodes on which the same is free: the one that costs least, the first of several. The gang comes with what policies
/// answered of nodes of that kind.
fn cheapest_of<'a>(
    draft: &'a Draft,
    (gang, ask, ways): (Option<(&Bucket, i64)>, &Ask, usize),
    (found, free): (&'a Match, Free),
    nodes: &'a BTreeSet<NodeId>,
    usable: &Usable,
) -> Option<Fit<'a>> {
    let mut best: Option<Fit> = None;
    for node in nodes {
        let Some(usable) = usable(node, free) else { continue };
        let doubtful = draft.doubtful.get(node).copied().unwrap_or_default();
        let said = gang.map(|gang| draft.said(gang, (node, &found.kind, free))).unwrap_or_default();
        let site = Site { free, usable, doubtful, said };
        if let Some(place) = score::place(ask, found, site, &draft.state.settings.weights, ways) {
            let fit = Fit { node, found, place };
            if best.as_ref().is_none_or(|best| fit.key() < best.key()) {
                best = Some(fit);
            }
        }
        // Nothing on the rest of them is better than on one that is plainly free.
        if usable == free && doubtful == 0 && !draft.tells_nodes_apart {
            break;
        }
    }
    best
}

impl Draft<'_> {
    /// What policies and others say of a gang on a node.
    fn said(&self, (gang, answered): (&Bucket, i64), (node, kind, free): (&NodeId, &Kind, Free)) -> Said {
        let said = self.advice.said(gang, node, kind);
        let policy = said.policy + self.glance.cost(self.state, answered, (node, kind, free));
        Said { policy, ..said }
    }

    pub fn without_degraded(&self, node: &NodeId, free: Free) -> Free {
        let hot = self.degraded.get(node).copied().unwrap_or_default();
        if hot == 0 { free } else { free.on_devices(!hot) }
    }
}
