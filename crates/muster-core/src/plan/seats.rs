//! Phase score, on one node: who of a gang sits on which devices, so that it costs least.
//!
//! A single task is tried on every part and every instance; whole devices are the best set by wiring, and then nothing
//! can be cheaper but a set with fewer devices in doubt, so each choice of those is tried. Of a gang all ways to sit are
//! tried where they are few; where they are many the gang sits as usual, one task after the other.

use crate::capacity::{Free, Seat, fit};
use crate::job::Resources;
use crate::plan::ask::{Ask, Match};
use crate::plan::score::{Site, Terms, terms};
use crate::settings::Weights;

/// So many ways for a gang to sit are looked at in one placement, on all nodes together, about a microsecond each.
pub const WAYS_MAX: usize = 1_024;
/// Of more devices in doubt than these it is not tried which to use: none, or any.
const DOUBTFUL_MAX: u32 = 4;

/// What is used of a site when some of the devices in doubt are spared: all of them first, and last none.
pub(super) fn sparing(site: Site) -> impl Iterator<Item = Free> {
    let doubtful = site.doubtful & site.usable.touched();
    let smaller = move |set: &u64| set.checked_sub(1).map(|less| less & doubtful);
    let sets: Vec<u64> = match doubtful.count_ones() {
        0..=DOUBTFUL_MAX => std::iter::successors(Some(doubtful), smaller).collect(),
        _ => vec![doubtful, 0],
    };
    sets.into_iter()
        .map(move |spared| if spared == 0 { site.usable } else { site.usable.on_devices(!spared) })
}

/// The cheapest seats for a gang on a node, found by looking at so many ways at most; nothing if it does not fit.
pub(super) fn cheapest(
    ask: &Ask,
    found: &Match,
    site: Site,
    weights: &Weights,
    ways_max: usize,
) -> Option<Vec<Seat>> {
    if let [(1, each)] = &ask.shape.groups[..]
        && each.is_shared()
    {
        return Some(vec![cheapest_share(ask, found, site, each, weights)?]);
    }
    let usual = fit(&ask.shape, &found.eligible, site.usable)?;
    if usual.len() == 1 {
        return Some(usual);
    }
    let search = Search {
        ask,
        found,
        site,
        weights,
        left: site.usable,
        seats: Vec::new(),
        ways: 0,
        ways_max,
        best: None,
    };
    Some(search.better_than(usual))
}

/// For one task: the seat that costs least, the usual one among equals.
fn cheapest_share(ask: &Ask, found: &Match, site: Site, each: &Resources, weights: &Weights) -> Option<Seat> {
    let wanted = Free { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..Free::default() };
    if !site.usable.host().holds(wanted) {
        return None;
    }
    let eligible = &found.eligible[0];
    let mut seats: Vec<Seat> = eligible.seats(each, site.usable).collect();
    seats.sort_by_key(|seat| eligible.order(site.usable, *seat));
    let micro = |seat: &Seat| costs(ask, found, site, std::slice::from_ref(seat)).micro(weights);
    seats.into_iter().min_by_key(micro)
}

fn costs(ask: &Ask, found: &Match, site: Site, seats: &[Seat]) -> Terms {
    terms(&ask.shape, (&found.kind, &found.prospect), site, seats)
}

/// All ways for a gang to sit, one task after the other.
struct Search<'a> {
    ask: &'a Ask,
    found: &'a Match,
    site: Site,
    weights: &'a Weights,
    left: Free,
    seats: Vec<Seat>,
    ways: usize,
    ways_max: usize,
    best: Option<(i64, Vec<Seat>)>,
}

impl Search<'_> {
    /// The cheapest way, unless the usual one is as cheap or there are too many.
    fn better_than(mut self, usual: Vec<Seat>) -> Vec<Seat> {
        let terms = costs(self.ask, self.found, self.site, &usual);
        let shares = self.ask.shape.groups.iter().any(|(_, each)| each.is_shared());
        // Whole devices cost the same waste wherever they are.
        if !shares && terms.is_free_but_for_waste() {
            return usual;
        }
        self.seat_the_rest(&self.groups());
        let cheaper =
            self.best.filter(|(micro, _)| self.ways <= self.ways_max && *micro < terms.micro(self.weights));
        cheaper.map_or(usual, |(_, seats)| seats)
    }

    /// The group of each task.
    fn groups(&self) -> Vec<usize> {
        let groups = self.ask.shape.groups.iter().enumerate();
        groups.flat_map(|(group, (count, _))| (0..*count).map(move |_| group)).collect()
    }

    fn seat_the_rest(&mut self, groups: &[usize]) {
        let Some(group) = groups.get(self.seats.len()).copied() else { return self.consider() };
        let each = &self.ask.shape.groups[group].1;
        // Tasks of one group are alike, so they sit in ascending order.
        let alike = self.seats.len().checked_sub(1).filter(|before| groups[*before] == group);
        let after = alike.map(|before| self.seats[before]);
        let Some(every) = self.found.eligible[group].every_seat(each, self.left, self.ways_max) else {
            self.ways = usize::MAX;
            return;
        };
        for seat in every {
            if after.is_some_and(|after| seat < after) || self.is_seen(seat) {
                continue;
            }
            if self.ways > self.ways_max {
                return;
            }
            let left = self.left;
            self.left = left.without(seat.space());
            self.seats.push(seat);
            self.seat_the_rest(groups);
            self.seats.pop();
            self.left = left;
        }
    }

    /// Whether a device with the same left, and as sound, comes before that of a part.
    fn is_seen(&self, seat: Seat) -> bool {
        let Seat::Part { device, .. } = seat else { return false };
        let sound = |device: u8| self.site.doubtful >> device & 1;
        let same = |other: u8| {
            let gpus = &self.found.kind.gpus;
            self.left.part(other) == self.left.part(device)
                && self.site.free.part(other) == self.site.free.part(device)
                && sound(other) == sound(device)
                && gpus[usize::from(other)] == gpus[usize::from(device)]
        };
        (0..device).any(same)
    }

    fn consider(&mut self) {
        self.ways += 1;
        let kind = &self.found.kind;
        let together = self.seats.iter().fold(0, |all, seat| all | seat.space().gpus);
        if self.ask.shape.wish.is_demand() && !self.ask.shape.wish.admits(kind.wiring.closeness(together)) {
            return;
        }
        let micro = costs(self.ask, self.found, self.site, &self.seats).micro(self.weights);
        if self.best.as_ref().is_none_or(|(best, _)| micro < *best) {
            self.best = Some((micro, self.seats.clone()));
        }
    }
}
