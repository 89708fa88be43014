//! Phase place: the whole gang or nothing. On one node if that is possible, the one on which it costs least; else on
//! as few as possible.

pub(crate) mod devices;
pub(crate) mod elastic;
pub(crate) mod multi_node;
pub mod policy_score;
pub mod score;

use std::collections::BTreeSet;

use crate::estimate::expected_end::ExpectedEnd;
use crate::ids::NodeId;
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::place::devices::ASSIGNMENTS_TRIED_MAX;
use crate::planner::place::multi_node as spread;
use crate::planner::place::multi_node::Usable;
use crate::planner::place::score::{Cost, NodeSpace, ScoredPlacement};
use crate::planner::request::{KindMatch, Request};
use crate::queue::Bucket;
use crate::resources::{Kind, ResourceVec};
use crate::state::policy_answers::PolicyAnswer;

/// Who looks for a place, with what policies say of it.
type Gang<'a> = (&'a Bucket, PolicyAnswer<'a>);

/// Start the job where it fits best. False if there is no room.
pub(crate) fn start_at_best_fit(draft: &mut Draft, turn: &QueueHead, ask: &Request) -> bool {
    let ending = draft.expected_end(turn.bucket, turn.job);
    if draft.has_no_fit(turn.bucket, ending) {
        return false;
    }
    match find_for(draft, Some((turn.bucket, turn.policy)), ask, ending) {
        Some(spot) => {
            draft.start(turn.bucket, (turn.job, turn.effective_priority), ask, &spot);
            true
        }
        None => {
            draft.note_no_fit(turn.bucket, ending);
            false
        }
    }
}

/// Where the gang fits best without delaying a reservation. Devices in doubt are used only if there is no other way.
pub(crate) fn find_placement(draft: &Draft, ask: &Request, ending: ExpectedEnd) -> Option<Placement> {
    find_for(draft, None, ask, ending)
}

/// The same with what others say of it for a gang.
fn find_for(draft: &Draft, gang: Option<Gang>, ask: &Request, ending: ExpectedEnd) -> Option<Placement> {
    let usable = |node: &NodeId, free| draft.usable(node, free, ending);
    let good = || {
        find_among(draft, gang, ask, &|node, free| Some(draft.without_degraded(node, usable(node, free)?)))
    };
    let any = || find_among(draft, gang, ask, &usable);
    if draft.degraded_gpus.is_empty() { any() } else { good().or_else(any) }
}

/// The same apart from one node.
pub(crate) fn find_excluding(
    draft: &Draft,
    ask: &Request,
    ending: ExpectedEnd,
    apart: &NodeId,
) -> Option<Placement> {
    let usable = |node: &NodeId, free| if node == apart { None } else { draft.usable(node, free, ending) };
    find_among(draft, None, ask, &|node, free| Some(draft.without_degraded(node, usable(node, free)?)))
}

fn find_among(draft: &Draft, gang: Option<Gang>, ask: &Request, usable: &Usable) -> Option<Placement> {
    let on_one = cheapest_node(draft, gang, ask, usable);
    let across = || spread::find(draft.state, &draft.resources, ask, usable);
    on_one.or_else(|| if ask.may_span() { across() } else { None })
}

/// The node on which the whole gang costs least. Nodes of one kind on which the same is free are alike, and only the
/// first of them is looked at, unless something on it is kept for others.
fn cheapest_node(draft: &Draft, gang: Option<Gang>, ask: &Request, usable: &Usable) -> Option<Placement> {
    let classes = ask.single_node_matches().flat_map(|found| {
        let gang = gang.map(|(_, word)| word.cost_milli(&found.kind));
        let alike = draft.resources.classes_of(&found.kind).filter(|(free, _)| ask.has_enough(found, **free));
        alike.map(move |(free, nodes)| (gang, found, *free, nodes))
    });
    let classes: Vec<_> = classes.collect();
    let ways = ASSIGNMENTS_TRIED_MAX / classes.len().max(1);
    let fits = classes.iter().filter_map(|(gang, found, free, nodes)| {
        cheapest_of_class(draft, (*gang, ask, ways), (*found, *free), nodes, usable)
    });
    fits.min_by(|one, other| one.key().cmp(&other.key())).map(|fit| {
        let score = fit.placement.terms.breakdown(&draft.state.settings.weights, classes.len() as u32);
        let spot = Placement::on_one(ask, (fit.node, fit.found), &fit.placement.assignments);
        Placement { score: Some(Box::new(score)), ..spot }
    })
}

/// A node on which the gang fits.
struct NodeFit<'a> {
    node: &'a NodeId,
    found: &'a KindMatch,
    placement: ScoredPlacement,
}

impl NodeFit<'_> {
    fn key(&self) -> (Cost, &NodeId) {
        (self.placement.cost, self.node)
    }
}

/// Of nodes on which the same is free: the one that costs least, the first of several. The gang comes with what policies
/// answered of nodes of that kind.
fn cheapest_of_class<'a>(
    draft: &'a Draft,
    (gang, ask, ways): (Option<i64>, &Request, usize),
    (found, free): (&'a KindMatch, ResourceVec),
    nodes: &'a BTreeSet<NodeId>,
    usable: &Usable,
) -> Option<NodeFit<'a>> {
    let mut best: Option<NodeFit> = None;
    for node in nodes {
        let Some(usable) = usable(node, free) else { continue };
        let doubtful = draft.warning_gpus.get(node).copied().unwrap_or_default();
        let policy = gang.map(|gang| draft.policy_cost(gang, (node, &found.kind, free))).unwrap_or_default();
        let site = NodeSpace { free, usable, warning_gpus: doubtful, policy };
        if let Some(place) = score::score_placement(ask, found, site, &draft.state.settings.weights, ways) {
            let fit = NodeFit { node, found, placement: place };
            if best.as_ref().is_none_or(|best| fit.key() < best.key()) {
                best = Some(fit);
            }
        }
        // Nothing on the rest of them is better than on one that is plainly free.
        if usable == free && doubtful == 0 && !draft.distinguishes_nodes {
            break;
        }
    }
    best
}

impl Draft<'_> {
    /// What the policies in force add to the cost of a gang on a node.
    fn policy_cost(&self, answered_milli: i64, place: (&NodeId, &Kind, ResourceVec)) -> f64 {
        self.cluster_summary.cost(self.state, answered_milli, place)
    }

    pub fn without_degraded(&self, node: &NodeId, free: ResourceVec) -> ResourceVec {
        let hot = self.degraded_gpus.get(node).copied().unwrap_or_default();
        if hot == 0 { free } else { free.on_devices(!hot) }
    }
}
