//! Step 7, phase place: the score of a placement, a weighted sum of named cost terms.
//!
//! Every term is in thousandths of a device, so that terms can be added: expected fragmentation, locality (slow links
//! between devices), health (risk of warning GPUs) and policy. The lowest sum wins; among equals the fullest node, then
//! the first by name.

use crate::estimate::fragmentation::FragmentationModel;
use crate::gpu::topology::LocalityRequirement;
use crate::objects::score::{Score, Term, TermName};
use crate::objects::settings::Weights;
use crate::objects::shape::Shape;
use crate::resources::{DeviceAssignment, Kind, ResourceVec};

/// The cost of a device that is warm or has had an error, compared with a healthy one.
const WARNING_GPU_MILLI: f64 = 50.0;

/// The cost terms of a placement, before weighting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    fragmentation: f64,
    locality: f64,
    health: f64,
    policy: f64,
}

/// The sort key of placements: the cost in millionths of a device, then the emptiness of the node.
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

    /// The weighted terms as users see them. `compared` is the number of node classes compared.
    pub fn breakdown(&self, weights: &Weights, compared: u32) -> Score {
        let terms = self.each(weights).map(|(name, milli)| Term { name, milli: milli.round() as i64 });
        Score { terms: terms.into_iter().filter(|term| term.milli != 0).collect(), compared }
    }

    pub fn cost(&self, kind: &Kind, space: NodeSpace, weights: &Weights) -> Cost {
        Cost { micro: self.weighed_micro(weights), emptiness: kind.emptiness(space.free) }
    }

    /// True if neither locality nor health adds a cost.
    pub(crate) fn costs_only_fragmentation(&self) -> bool {
        self.locality == 0.0 && self.health == 0.0
    }

    pub(crate) fn weighed_micro(&self, weights: &Weights) -> i64 {
        (self.each(weights).iter().map(|(_, milli)| milli).sum::<f64>() * 1_000.0).round() as i64
    }
}

/// The space of a node, with what else the score depends on.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpace {
    pub free: ResourceVec,
    /// The part of the free space that the gang may use.
    pub usable: ResourceVec,
    /// Devices that are warm or have had an error, as bits.
    pub warning_gpus: u64,
    /// The cost that policies add, in thousandths of a device.
    pub policy: f64,
}

/// The cost terms of a placement on a node of a kind, with an assignment for each task of the gang.
pub fn cost_terms(
    shape: &Shape,
    kind: &Kind,
    model: &FragmentationModel,
    space: NodeSpace,
    assignments: &[DeviceAssignment],
) -> Terms {
    let groups = shape.groups.iter().flat_map(|(count, each)| (0..*count).map(move |_| each));
    let (mut after, mut unused, mut locality, mut taken) = (space.free, 0, 0.0, 0);
    for (each, assignment) in groups.zip(assignments) {
        after = after.minus(ResourceVec::of_task(each, *assignment));
        unused += kind.unused_of(each, *assignment);
        locality += locality_cost(kind, shape.locality, *assignment);
        taken |= assignment.taken().touched_devices();
    }
    let fragmentation = |free| kind.fragmentation_milli(model, free);
    Terms {
        fragmentation: fragmentation(after) - fragmentation(space.free) + f64::from(unused),
        locality,
        health: WARNING_GPU_MILLI * f64::from((taken & space.warning_gpus).count_ones()),
        policy: space.policy,
    }
}

/// The cost of slow links between the devices of a task: the part of each device that idles waiting for the others.
fn locality_cost(kind: &Kind, requirement: LocalityRequirement, assignment: DeviceAssignment) -> f64 {
    let DeviceAssignment::Whole(gpus) = assignment else { return 0.0 };
    f64::from(requirement.cost(kind.topology.locality(gpus)) * gpus.count_ones())
}
