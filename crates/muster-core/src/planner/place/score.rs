//! Phase score: what it costs to place a task here and not there, in terms that have names.
//!
//! Every term is told in thousandths of a device, so that they can be added: what is going to be left over, what is lost
//! by slow links, what is risked on devices in doubt. The least sum wins; among equals the node that is fullest already,
//! then the name. Policies add a term of their own.

use crate::estimate::fragmentation::FragmentationModel;
use crate::gpu::topology::LocalityRequirement;
use crate::objects::score::Score;
use crate::objects::score::Term;
use crate::objects::score::TermName;
use crate::objects::settings::Weights;
use crate::objects::shape::Shape;
use crate::planner::place::devices as seats;
use crate::planner::request::{KindMatch, Request};
use crate::resources::{DeviceAssignment, Kind, ResourceVec};

/// What a device that is warm or has had an error costs beside one that is in order.
const WARNING_GPU_MILLI: f64 = 50.0;

/// What a place costs, term by term, before it is weighed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    fragmentation: f64,
    locality: f64,
    health: f64,
    policy: f64,
}

/// What decides: millionths of a device that it costs, then how empty the node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cost {
    micro: i64,
    emptiness: (u64, u64),
}

impl Terms {
    fn each(&self, weights: &Weights) -> [(TermName, f64); 4] {
        let weighed = |value: f64, weight: u32| value * f64::from(weight) / 1_000.0;
        [
            (TermName::Fragmentation, weighed(self.fragmentation, weights.fragmentation)),
            (TermName::Locality, weighed(self.locality, weights.locality)),
            (TermName::Health, weighed(self.health, weights.health)),
            (TermName::Policy, weighed(self.policy, weights.policy)),
        ]
    }

    /// The terms as people see them.
    pub fn breakdown(&self, weights: &Weights, compared: u32) -> Score {
        let terms = self.each(weights).map(|(name, milli)| Term { name, milli: milli.round() as i64 });
        Score { terms: terms.into_iter().filter(|term| term.milli != 0).collect(), compared }
    }

    pub fn cost(&self, kind: &Kind, site: NodeSpace, weights: &Weights) -> Cost {
        Cost { micro: self.weighed_micro(weights), emptiness: kind.emptiness(site.free) }
    }

    /// Whether it costs nothing but what is left over.
    pub(crate) fn costs_only_fragmentation(&self) -> bool {
        self.locality == 0.0 && self.health == 0.0
    }

    pub(crate) fn weighed_micro(&self, weights: &Weights) -> i64 {
        (self.each(weights).iter().map(|(_, milli)| milli).sum::<f64>() * 1_000.0).round() as i64
    }
}

/// A place for a whole gang on one node.
#[derive(Debug, Clone)]
pub(crate) struct ScoredPlacement {
    pub cost: Cost,
    pub assignments: Vec<DeviceAssignment>,
    pub terms: Terms,
}

/// A node as it is looked at.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpace {
    /// What is free on it.
    pub free: ResourceVec,
    /// What of that may be used.
    pub usable: ResourceVec,
    /// Devices that are warm or have had errors, as bits.
    pub warning_gpus: u64,
    /// What the policies in force add to its cost, in thousandths of a device.
    pub policy: f64,
}

/// The best seats for a gang on a node, found by looking at so many ways to sit at most, and what they cost; nothing if
/// it does not fit.
pub(crate) fn score_placement(
    ask: &Request,
    found: &KindMatch,
    site: NodeSpace,
    weights: &Weights,
    ways: usize,
) -> Option<ScoredPlacement> {
    let places = seats::avoiding_warning_gpus(site).filter_map(|usable| {
        let site = NodeSpace { usable, ..site };
        let seats = seats::cheapest_assignments(ask, found, site, weights, ways)?;
        let terms = cost_terms(&ask.shape, (&found.kind, &found.fragmentation), site, &seats);
        Some(ScoredPlacement { cost: terms.cost(&found.kind, site, weights), assignments: seats, terms })
    });
    places.min_by_key(|place| place.cost)
}

/// What a place costs, with a seat for each task of the gang.
pub fn cost_terms(
    shape: &Shape,
    (kind, prospect): (&Kind, &FragmentationModel),
    site: NodeSpace,
    seats: &[DeviceAssignment],
) -> Terms {
    let groups = shape.groups.iter().flat_map(|(count, each)| (0..*count).map(move |_| each));
    let (mut after, mut unused, mut locality, mut taken) = (site.free, 0, 0.0, 0);
    for (each, seat) in groups.zip(seats) {
        after = after.minus(ResourceVec::of_task(each, *seat));
        unused += kind.unused_of(each, *seat);
        locality += locality_cost(kind, shape.locality, *seat);
        taken |= seat.taken().touched_devices();
    }
    let waste = |free| kind.fragmentation_milli(prospect, free);
    Terms {
        fragmentation: waste(after) - waste(site.free) + f64::from(unused),
        locality,
        health: WARNING_GPU_MILLI * f64::from((taken & site.warning_gpus).count_ones()),
        policy: site.policy,
    }
}

/// What slow links between the devices of a task cost: as if so much of each device stood idle while it waits for the
/// others.
fn locality_cost(kind: &Kind, wish: LocalityRequirement, seat: DeviceAssignment) -> f64 {
    let DeviceAssignment::Whole(gpus) = seat else { return 0.0 };
    f64::from(wish.cost(kind.topology.locality(gpus)) * gpus.count_ones())
}
