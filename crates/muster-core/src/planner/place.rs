//! Step 7, phase place: gang placement, whole or not at all: on the node with the lowest cost, else on as few nodes as
//! possible.

pub(crate) mod devices;
pub(crate) mod elastic;
pub(crate) mod multi_node;
pub mod score;

use std::collections::BTreeSet;

use crate::estimate::expected_end::ExpectedEnd;
use crate::ids::NodeId;
use crate::planner::draft::{Draft, Placement};
use crate::planner::order::QueueHead;
use crate::planner::place::devices::{ASSIGNMENTS_TRIED_MAX, ScoredPlacement};
use crate::planner::place::multi_node::Usable;
use crate::planner::place::score::{Cost, NodeSpace};
use crate::planner::request::{KindMatch, Request};
use crate::resources::ResourceVec;
use crate::state::policy_answers::PolicyAnswer;

/// Start a queue head where it fits best. False if it fits nowhere.
pub(crate) fn start_at_best_fit(draft: &mut Draft, head: &QueueHead, request: &Request) -> bool {
    let end = draft.expected_end(head.bucket, head.job);
    if draft.has_no_fit(head.bucket, end) {
        return false;
    }
    match find_for(draft, Some(head.policy), request, end) {
        Some(placement) => {
            draft.start(head.bucket, head.job, head.effective_priority, request, &placement);
            true
        }
        None => {
            draft.note_no_fit(head.bucket, end);
            false
        }
    }
}

/// The best placement of a gang that delays no reservation. Degraded GPUs are used only if there is no other placement.
pub(crate) fn find_placement(draft: &Draft, request: &Request, end: ExpectedEnd) -> Option<Placement> {
    find_for(draft, None, request, end)
}

/// The same, with the cost that policies add for the gang.
fn find_for(draft: &Draft, policy: Option<PolicyAnswer>, request: &Request, end: ExpectedEnd) -> Option<Placement> {
    let usable = |node: &NodeId, free| draft.usable(node, free, end);
    let healthy = |node: &NodeId, free| Some(draft.space.without_degraded(node, usable(node, free)?));
    let any = || find_among(draft, policy, request, &usable);
    match draft.space.has_degraded_gpus() {
        true => find_among(draft, policy, request, &healthy).or_else(any),
        false => any(),
    }
}

/// The best placement on healthy GPUs of any node but one.
pub(crate) fn find_excluding(
    draft: &Draft,
    request: &Request,
    end: ExpectedEnd,
    excluded: &NodeId,
) -> Option<Placement> {
    let usable = |node: &NodeId, free| match node == excluded {
        true => None,
        false => Some(draft.space.without_degraded(node, draft.usable(node, free, end)?)),
    };
    find_among(draft, None, request, &usable)
}

fn find_among(draft: &Draft, policy: Option<PolicyAnswer>, request: &Request, usable: &Usable) -> Option<Placement> {
    let on_one = cheapest_node(draft, policy, request, usable);
    let on_many = || multi_node::find(draft.state, &draft.space.resources, request, usable);
    on_one.or_else(|| if request.may_span() { on_many() } else { None })
}

/// Nodes of one kind with equal free space: one stands for all, unless a reservation, a warning GPU or a policy
/// distinguishes them.
struct NodeClass<'a> {
    found: &'a KindMatch,
    free: ResourceVec,
    nodes: &'a BTreeSet<NodeId>,
    /// The answer of a `score` hook for the gang on nodes of this kind.
    answered_milli: Option<i64>,
}

/// The placement of the whole gang on the node with the lowest cost.
fn cheapest_node(draft: &Draft, policy: Option<PolicyAnswer>, request: &Request, usable: &Usable) -> Option<Placement> {
    let classes = request.single_node_matches().flat_map(|found| {
        let answered_milli = policy.map(|policy| policy.cost_milli(&found.kind));
        let classes = draft.space.resources.classes_of(&found.kind);
        let classes = classes.filter(|(free, _)| request.has_enough(found, **free));
        classes.map(move |(free, nodes)| NodeClass { found, free: *free, nodes, answered_milli })
    });
    let classes: Vec<NodeClass> = classes.collect();
    let assignments_max = ASSIGNMENTS_TRIED_MAX / classes.len().max(1);
    let fits = classes.iter().filter_map(|class| cheapest_of_class(draft, request, class, assignments_max, usable));
    fits.min_by(|one, other| one.key().cmp(&other.key())).map(|fit| {
        let score = fit.placement.terms.breakdown(&draft.state.settings.weights, classes.len() as u32);
        let placement = Placement::on_one_node(request, fit.node, fit.found, &fit.placement.assignments);
        Placement { score: Some(Box::new(score)), ..placement }
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

/// The node of a class with the lowest cost, the first by name among equals.
fn cheapest_of_class<'a>(
    draft: &'a Draft,
    request: &Request,
    class: &NodeClass<'a>,
    assignments_max: usize,
    usable: &Usable,
) -> Option<NodeFit<'a>> {
    let (found, free) = (class.found, class.free);
    let mut best: Option<NodeFit> = None;
    for node in class.nodes {
        let Some(usable) = usable(node, free) else { continue };
        let warning_gpus = draft.space.warning_gpus_on(node);
        let cost = |answered| draft.cluster_summary.cost(draft.state, answered, node, &found.kind, free);
        let policy = class.answered_milli.map(cost).unwrap_or_default();
        let space = NodeSpace { free, usable, warning_gpus, policy };
        let weights = &draft.state.settings.weights;
        let placement = devices::cheapest_placement(request, found, space, weights, assignments_max);
        if let Some(fit) = placement.map(|placement| NodeFit { node, found, placement })
            && best.as_ref().is_none_or(|best| fit.key() < best.key())
        {
            best = Some(fit);
        }
        // No other node of the class costs less than one without reservations and warning GPUs.
        if usable == free && warning_gpus == 0 && !draft.distinguishes_nodes {
            break;
        }
    }
    best
}
