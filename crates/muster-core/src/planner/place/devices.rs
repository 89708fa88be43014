//! Step 7, phase place: the device assignment of a gang on one node with the lowest cost.
//!
//! A single task that shares a device is tried on every device and every instance. A single task with whole devices
//! gets the best set by topology; only a set with fewer warning GPUs can cost less, so each choice of those is tried.
//! For a gang all assignments are tried if they are few. If they are many, the gang gets the default assignment
//! ([`fit`]): one task after the other.

use crate::objects::job::Resources;
use crate::objects::settings::Weights;
use crate::planner::place::score::{Cost, NodeSpace, Terms, cost_terms};
use crate::planner::request::{KindMatch, Request};
use crate::resources::{DeviceAssignment, ResourceVec, fit};

/// Most assignments that are tried for one placement, on all nodes together, at about a microsecond each.
pub const ASSIGNMENTS_TRIED_MAX: usize = 1_024;
/// With more warning GPUs than this, only two choices are tried: avoid all of them, or none.
const WARNING_GPUS_TRIED_MAX: u32 = 4;

/// A placement of a whole gang on one node, with its cost.
#[derive(Debug, Clone)]
pub(crate) struct ScoredPlacement {
    pub cost: Cost,
    pub assignments: Vec<DeviceAssignment>,
    pub terms: Terms,
}

/// The cheapest placement of a gang on a node and its cost, with at most `tried_max` assignments tried; `None` if the
/// gang does not fit.
pub(crate) fn cheapest_placement(
    request: &Request,
    found: &KindMatch,
    space: NodeSpace,
    weights: &Weights,
    tried_max: usize,
) -> Option<ScoredPlacement> {
    let placements = avoiding_warning_gpus(space).filter_map(|usable| {
        let space = NodeSpace { usable, ..space };
        let assignments = cheapest_assignments(request, found, space, weights, tried_max)?;
        let terms = cost_terms(&request.shape, &found.kind, &found.fragmentation, space, &assignments);
        Some(ScoredPlacement { cost: terms.cost(&found.kind, space, weights), assignments, terms })
    });
    placements.min_by_key(|placement| placement.cost)
}

/// The usable space of a node minus each subset of its warning GPUs: all of them first, the empty subset last.
fn avoiding_warning_gpus(space: NodeSpace) -> impl Iterator<Item = ResourceVec> {
    let warning = space.warning_gpus & space.usable.touched_devices();
    let smaller = move |set: &u64| set.checked_sub(1).map(|less| less & warning);
    let sets: Vec<u64> = match warning.count_ones() {
        0..=WARNING_GPUS_TRIED_MAX => std::iter::successors(Some(warning), smaller).collect(),
        _ => vec![warning, 0],
    };
    sets.into_iter().map(move |avoided| if avoided == 0 { space.usable } else { space.usable.on_devices(!avoided) })
}

/// The cheapest assignments of a gang on a node, one per task, if at most `tried_max` must be tried, else the default
/// ones; `None` if the gang does not fit.
fn cheapest_assignments(
    request: &Request,
    found: &KindMatch,
    space: NodeSpace,
    weights: &Weights,
    tried_max: usize,
) -> Option<Vec<DeviceAssignment>> {
    if let [(1, each)] = &request.shape.groups[..]
        && each.is_shared()
    {
        return Some(vec![cheapest_share(request, found, space, each, weights)?]);
    }
    let default = fit(&request.shape, &found.eligible, space.usable)?;
    if default.len() == 1 {
        return Some(default);
    }
    let search = AssignmentSearch {
        request,
        found,
        space,
        weights,
        left: space.usable,
        assigned: Vec::new(),
        tried: 0,
        tried_max,
        best: None,
    };
    Some(search.better_than(default))
}

/// The cheapest assignment of a single task that shares a device, the first in the default order among equals.
fn cheapest_share(
    request: &Request,
    found: &KindMatch,
    space: NodeSpace,
    each: &Resources,
    weights: &Weights,
) -> Option<DeviceAssignment> {
    let wanted = ResourceVec { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..ResourceVec::default() };
    if !space.usable.host().covers(wanted) {
        return None;
    }
    let eligible = &found.eligible[0];
    let mut assignments: Vec<DeviceAssignment> = eligible.assignments(each, space.usable).collect();
    assignments.sort_by_key(|assignment| eligible.order(space.usable, *assignment));
    let micro = |assignment: &DeviceAssignment| {
        costs(request, found, space, std::slice::from_ref(assignment)).weighed_micro(weights)
    };
    assignments.into_iter().min_by_key(micro)
}

fn costs(request: &Request, found: &KindMatch, space: NodeSpace, assignments: &[DeviceAssignment]) -> Terms {
    cost_terms(&request.shape, &found.kind, &found.fragmentation, space, assignments)
}

/// The search over all assignments of a gang, one task after the other.
struct AssignmentSearch<'a> {
    request: &'a Request,
    found: &'a KindMatch,
    space: NodeSpace,
    weights: &'a Weights,
    left: ResourceVec,
    assigned: Vec<DeviceAssignment>,
    tried: usize,
    tried_max: usize,
    best: Option<(i64, Vec<DeviceAssignment>)>,
}

impl AssignmentSearch<'_> {
    /// The cheapest assignments; the default ones if they are as cheap, or if there are too many to try.
    fn better_than(mut self, default: Vec<DeviceAssignment>) -> Vec<DeviceAssignment> {
        let terms = costs(self.request, self.found, self.space, &default);
        let shares = self.request.shape.groups.iter().any(|(_, each)| each.is_shared());
        // Whole devices cause the same fragmentation wherever they are.
        if !shares && terms.costs_only_fragmentation() {
            return default;
        }
        self.assign_remaining(&self.groups());
        let cheaper =
            self.best.filter(|(micro, _)| self.tried <= self.tried_max && *micro < terms.weighed_micro(self.weights));
        cheaper.map_or(default, |(_, assignments)| assignments)
    }

    /// The group of each task.
    fn groups(&self) -> Vec<usize> {
        let groups = self.request.shape.groups.iter().enumerate();
        groups.flat_map(|(group, (count, _))| (0..*count).map(move |_| group)).collect()
    }

    fn assign_remaining(&mut self, groups: &[usize]) {
        let Some(group) = groups.get(self.assigned.len()).copied() else { return self.consider() };
        let each = &self.request.shape.groups[group].1;
        // Tasks of one group are interchangeable, so only ascending assignments are tried.
        let previous = self.assigned.len().checked_sub(1).filter(|previous| groups[*previous] == group);
        let previous = previous.map(|task| self.assigned[task]);
        let Some(assignments) = self.found.eligible[group].every_assignment(each, self.left, self.tried_max) else {
            self.tried = usize::MAX;
            return;
        };
        for assignment in assignments {
            if previous.is_some_and(|previous| assignment < previous) || self.equals_earlier_device(assignment) {
                continue;
            }
            if self.tried > self.tried_max {
                return;
            }
            let left = self.left;
            self.left = left.minus(assignment.taken());
            self.assigned.push(assignment);
            self.assign_remaining(groups);
            self.assigned.pop();
            self.left = left;
        }
    }

    /// True if an equal device with the same free fraction and health precedes the device of a fraction.
    fn equals_earlier_device(&self, assignment: DeviceAssignment) -> bool {
        let DeviceAssignment::Fraction { device, .. } = assignment else { return false };
        let warning = |device: u8| self.space.warning_gpus >> device & 1;
        let same = |other: u8| {
            let gpus = &self.found.kind.gpus;
            self.left.fraction_of(other) == self.left.fraction_of(device)
                && self.space.free.fraction_of(other) == self.space.free.fraction_of(device)
                && warning(other) == warning(device)
                && gpus[usize::from(other)] == gpus[usize::from(device)]
        };
        (0..device).any(same)
    }

    fn consider(&mut self) {
        self.tried += 1;
        let kind = &self.found.kind;
        let gpus = self.assigned.iter().fold(0, |all, assignment| all | assignment.taken().gpus);
        if self.request.shape.locality.is_required()
            && !self.request.shape.locality.allows(kind.topology.locality(gpus))
        {
            return;
        }
        let micro = costs(self.request, self.found, self.space, &self.assigned).weighed_micro(self.weights);
        if self.best.as_ref().is_none_or(|(best, _)| micro < *best) {
            self.best = Some((micro, self.assigned.clone()));
        }
    }
}
