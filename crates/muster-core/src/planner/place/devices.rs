//! Phase score, on one node: who of a gang sits on which devices, so that it costs least.
//!
//! A single task is tried on every part and every instance; whole devices are the best set by wiring, and then nothing
//! can be cheaper but a set with fewer devices in doubt, so each choice of those is tried. Of a gang all ways to sit are
//! tried where they are few; where they are many the gang sits as usual, one task after the other.

use crate::objects::job::Resources;
use crate::objects::settings::Weights;
use crate::planner::place::score::{NodeSpace, Terms, cost_terms};
use crate::planner::request::{KindMatch, Request};
use crate::resources::{DeviceAssignment, ResourceVec, fit};

/// So many ways for a gang to sit are looked at in one placement, on all nodes together, about a microsecond each.
pub const ASSIGNMENTS_TRIED_MAX: usize = 1_024;
/// Of more devices in doubt than these it is not tried which to use: none, or any.
const WARNING_GPUS_TRIED_MAX: u32 = 4;

/// What is used of a site when some of the devices in doubt are spared: all of them first, and last none.
pub(crate) fn avoiding_warning_gpus(site: NodeSpace) -> impl Iterator<Item = ResourceVec> {
    let doubtful = site.warning_gpus & site.usable.touched_devices();
    let smaller = move |set: &u64| set.checked_sub(1).map(|less| less & doubtful);
    let sets: Vec<u64> = match doubtful.count_ones() {
        0..=WARNING_GPUS_TRIED_MAX => std::iter::successors(Some(doubtful), smaller).collect(),
        _ => vec![doubtful, 0],
    };
    sets.into_iter()
        .map(move |spared| if spared == 0 { site.usable } else { site.usable.on_devices(!spared) })
}

/// The cheapest seats for a gang on a node, found by looking at so many ways at most; nothing if it does not fit.
pub(crate) fn cheapest_assignments(
    ask: &Request,
    found: &KindMatch,
    space: NodeSpace,
    weights: &Weights,
    tried_max: usize,
) -> Option<Vec<DeviceAssignment>> {
    if let [(1, each)] = &ask.shape.groups[..]
        && each.is_shared()
    {
        return Some(vec![cheapest_share(ask, found, space, each, weights)?]);
    }
    let usual = fit(&ask.shape, &found.eligible, space.usable)?;
    if usual.len() == 1 {
        return Some(usual);
    }
    let search = AssignmentSearch {
        ask,
        found,
        site: space,
        weights,
        left: space.usable,
        assigned: Vec::new(),
        tried: 0,
        ways_max: tried_max,
        best: None,
    };
    Some(search.better_than(usual))
}

/// For one task: the seat that costs least, the usual one among equals.
fn cheapest_share(
    ask: &Request,
    found: &KindMatch,
    site: NodeSpace,
    each: &Resources,
    weights: &Weights,
) -> Option<DeviceAssignment> {
    let wanted =
        ResourceVec { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..ResourceVec::default() };
    if !site.usable.host().covers(wanted) {
        return None;
    }
    let eligible = &found.eligible[0];
    let mut seats: Vec<DeviceAssignment> = eligible.assignments(each, site.usable).collect();
    seats.sort_by_key(|seat| eligible.order(site.usable, *seat));
    let micro =
        |seat: &DeviceAssignment| costs(ask, found, site, std::slice::from_ref(seat)).weighed_micro(weights);
    seats.into_iter().min_by_key(micro)
}

fn costs(ask: &Request, found: &KindMatch, site: NodeSpace, seats: &[DeviceAssignment]) -> Terms {
    cost_terms(&ask.shape, (&found.kind, &found.fragmentation), site, seats)
}

/// All ways for a gang to sit, one task after the other.
struct AssignmentSearch<'a> {
    ask: &'a Request,
    found: &'a KindMatch,
    site: NodeSpace,
    weights: &'a Weights,
    left: ResourceVec,
    assigned: Vec<DeviceAssignment>,
    tried: usize,
    ways_max: usize,
    best: Option<(i64, Vec<DeviceAssignment>)>,
}

impl AssignmentSearch<'_> {
    /// The cheapest way, unless the usual one is as cheap or there are too many.
    fn better_than(mut self, usual: Vec<DeviceAssignment>) -> Vec<DeviceAssignment> {
        let terms = costs(self.ask, self.found, self.site, &usual);
        let shares = self.ask.shape.groups.iter().any(|(_, each)| each.is_shared());
        // Whole devices cause the same fragmentation wherever they are.
        if !shares && terms.costs_only_fragmentation() {
            return usual;
        }
        self.assign_remaining(&self.groups());
        let cheaper = self
            .best
            .filter(|(micro, _)| self.tried <= self.ways_max && *micro < terms.weighed_micro(self.weights));
        cheaper.map_or(usual, |(_, seats)| seats)
    }

    /// The group of each task.
    fn groups(&self) -> Vec<usize> {
        let groups = self.ask.shape.groups.iter().enumerate();
        groups.flat_map(|(group, (count, _))| (0..*count).map(move |_| group)).collect()
    }

    fn assign_remaining(&mut self, groups: &[usize]) {
        let Some(group) = groups.get(self.assigned.len()).copied() else { return self.consider() };
        let each = &self.ask.shape.groups[group].1;
        // Tasks of one group are alike, so they sit in ascending order.
        let alike = self.assigned.len().checked_sub(1).filter(|before| groups[*before] == group);
        let after = alike.map(|before| self.assigned[before]);
        let Some(every) = self.found.eligible[group].every_seat(each, self.left, self.ways_max) else {
            self.tried = usize::MAX;
            return;
        };
        for seat in every {
            if after.is_some_and(|after| seat < after) || self.equals_earlier_device(seat) {
                continue;
            }
            if self.tried > self.ways_max {
                return;
            }
            let left = self.left;
            self.left = left.minus(seat.taken());
            self.assigned.push(seat);
            self.assign_remaining(groups);
            self.assigned.pop();
            self.left = left;
        }
    }

    /// Whether a device with the same left, and as sound, comes before that of a part.
    fn equals_earlier_device(&self, seat: DeviceAssignment) -> bool {
        let DeviceAssignment::Fraction { device, .. } = seat else { return false };
        let sound = |device: u8| self.site.warning_gpus >> device & 1;
        let same = |other: u8| {
            let gpus = &self.found.kind.gpus;
            self.left.fraction_of(other) == self.left.fraction_of(device)
                && self.site.free.fraction_of(other) == self.site.free.fraction_of(device)
                && sound(other) == sound(device)
                && gpus[usize::from(other)] == gpus[usize::from(device)]
        };
        (0..device).any(same)
    }

    fn consider(&mut self) {
        self.tried += 1;
        let kind = &self.found.kind;
        let together = self.assigned.iter().fold(0, |all, seat| all | seat.taken().gpus);
        if self.ask.shape.locality.is_required()
            && !self.ask.shape.locality.allows(kind.topology.locality(together))
        {
            return;
        }
        let micro = costs(self.ask, self.found, self.site, &self.assigned).weighed_micro(self.weights);
        if self.best.as_ref().is_none_or(|(best, _)| micro < *best) {
            self.best = Some((micro, self.assigned.clone()));
        }
    }
}
