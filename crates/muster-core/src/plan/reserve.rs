//! Phase reserve: the first jobs that are blocked get a place in the future, and whoever comes after them may pass
//! only if it does not delay them: if it is over by then, or fits beside.
//!
//! A reservation is the earliest moment at which the gang fits, given when running attempts end, with the nodes and
//! devices that it will have. It is drawn up anew each round. Nobody behind it in the order can make it later, so for
//! the first of all it only ever comes earlier, but for faults and for those who run longer than was known.
//!
//! Who passes by an estimate has its space on loan: if it is still there when its time is over, those it passed may ask
//! it to leave. Who could not be asked to leave passes only by a bound, and so does everyone where the job they pass may
//! not displace others, or has waited too long.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{Capacity, Free};
use crate::ids::{JobId, NodeId};
use crate::lasting::{Ending, Word};
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::plan::order::Turn;
use crate::plan::preempt::may_preempt;
use crate::plan::running::overdrawn;
use crate::plan::spread;
use crate::plan::timeline::{Release, releases};
use crate::state::State;
use crate::time::Timestamp;

/// A place in the future.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    pub job: JobId,
    pub at: Timestamp,
}

/// Whom space is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    Job(JobId),
    /// A window, by its place in the order of names.
    Window(u32),
}

/// What a reservation will need on one node.
#[derive(Debug, Clone)]
pub(super) struct Held {
    holder: Holder,
    at: Timestamp,
    until: Timestamp,
    /// Only bounds are good enough to pass.
    strict: bool,
    taken: Free,
    /// What will be left beside it then. Devices are told apart, cores and memory are only counted.
    spare: Free,
}

impl Held {
    /// Whether someone who starts now and ends then is still there when the space is needed.
    fn is_delayed_by(&self, ending: Ending) -> bool {
        let relies = match ending.word {
            Word::Bound => true,
            Word::Loan => !self.strict,
            Word::Estimate => false,
        };
        let goes = ending.yields && !self.strict && matches!(self.holder, Holder::Job(_));
        !self.is_open_to(ending) && !goes && (ending.at > self.at || !relies)
    }

    /// Whether it is in the way of someone who stays from a moment on and would end like this if they started now.
    fn overlaps(&self, from: Timestamp, lasts_ms: i64, ending: Ending) -> bool {
        let endless = matches!(self.holder, Holder::Window(_)) && !ending.is_bound();
        let begins_before_end = endless || self.at < from.plus(lasts_ms);
        !self.is_open_to(ending) && begins_before_end && from < self.until
    }

    /// Whether it is a window for those who ask.
    fn is_open_to(&self, ending: Ending) -> bool {
        matches!(self.holder, Holder::Window(index) if ending.windows >> index & 1 == 1)
    }
}

/// All places in the future that this round has given out.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    pub list: Vec<Reservation>,
    nodes: BTreeMap<NodeId, Vec<Held>>,
    /// Nodes on which a job has its place.
    reserved: BTreeSet<NodeId>,
    /// How often the future was searched.
    searches: u32,
}

impl Reservations {
    /// The nodes that are booked.
    pub fn of_windows(state: &State) -> Reservations {
        let mut reservations = Reservations::default();
        for (index, window) in (0..).zip(state.windows.values()) {
            for node in &window.nodes {
                let held = Held {
                    holder: Holder::Window(index),
                    at: window.from,
                    until: window.until,
                    strict: true,
                    taken: Free::default(),
                    spare: Free::default(),
                };
                reservations.nodes.entry(node.clone()).or_default().push(held);
            }
        }
        reservations
    }

    /// What of the free space of a node someone may use who will be gone by `ending`; one's own place
    /// is no obstacle. Nothing at all, not even for who needs nothing, where a window is closed to them.
    pub fn usable(&self, node: &NodeId, free: Free, ending: Ending, own: Option<JobId>) -> Option<Free> {
        if self.nodes.is_empty() {
            return Some(free);
        }
        let Some(held) = self.nodes.get(node) else { return Some(free) };
        let own = own.map(Holder::Job);
        let mut others = held.iter().filter(|held| Some(held.holder) != own && held.is_delayed_by(ending));
        others.try_fold(free, |free, held| match held.holder {
            Holder::Window(_) => None,
            Holder::Job(_) => Some(free.beside(held.taken, held.spare)),
        })
    }

    /// Someone takes space on a node until `ending`.
    pub fn take(&mut self, node: &NodeId, taken: Free, ending: Ending) {
        for held in self.nodes.get_mut(node).into_iter().flatten() {
            if held.is_delayed_by(ending) {
                held.spare = held.spare.without(taken);
            }
        }
    }

    /// For whom space is kept on a node from someone who would end like this.
    pub fn first_on(&self, node: &NodeId, own: JobId, ending: Ending) -> Option<Holder> {
        let others = self.nodes.get(node)?.iter().filter(|held| held.holder != Holder::Job(own));
        others.filter(|held| held.is_delayed_by(ending)).map(|held| held.holder).next()
    }

    /// The place of a job.
    pub fn of(&self, job: JobId) -> Option<&Reservation> {
        self.list.iter().find(|reservation| reservation.job == job)
    }

    /// The jobs for whom space is kept on a node; nothing if it is booked.
    pub fn jobs_on(&self, node: &NodeId) -> Option<Vec<JobId>> {
        let held = self.nodes.get(node).into_iter().flatten();
        let job = |held: &Held| match held.holder {
            Holder::Job(job) => Some(job),
            Holder::Window(_) => None,
        };
        held.map(job).collect()
    }

    /// Whether anyone has a place on a node.
    fn is_on(&self, node: &NodeId) -> bool {
        !self.nodes.is_empty() && self.nodes.contains_key(node)
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Whether a node is booked by others within a span of time.
    fn is_booked(&self, node: &NodeId, from: Timestamp, lasts_ms: i64, ending: Ending) -> bool {
        let held = self.nodes.get(node).into_iter().flatten();
        let mut windows = held.filter(|held| matches!(held.holder, Holder::Window(_)));
        windows.any(|held| held.overlaps(from, lasts_ms, ending))
    }

    /// What is taken on a node within a span of time.
    fn taken(&self, node: &NodeId, from: Timestamp, lasts_ms: i64, ending: Ending) -> Free {
        let held = self.nodes.get(node).into_iter().flatten();
        let held = held.filter(|held| held.overlaps(from, lasts_ms, ending));
        held.fold(Free::default(), |sum, held| sum.with(held.taken))
    }

    /// Moments at which a reservation is over, with the nodes it was on.
    fn ends(&self) -> Vec<(Timestamp, &NodeId)> {
        let held = self.nodes.iter().flat_map(|(node, held)| held.iter().map(move |held| (held.until, node)));
        let mut ends: Vec<(Timestamp, &NodeId)> = held.collect();
        ends.sort_unstable();
        ends
    }

    fn add(&mut self, reservation: Reservation, (until, strict): (Timestamp, bool), needs: Vec<Needs>) {
        let Reservation { job, at } = reservation;
        for Needs { node, taken, spare } in needs {
            self.reserved.insert(node.clone());
            let held = self.nodes.entry(node).or_default();
            // Those before it need what they need; of the rest there is less for everyone else.
            for other in held.iter_mut().filter(|other| at <= other.at && other.at < until) {
                other.spare = other.spare.without(taken);
            }
            held.push(Held { holder: Holder::Job(job), at, until, strict, taken, spare });
        }
        self.list.push(reservation);
    }
}

struct Needs {
    node: NodeId,
    taken: Free,
    spare: Free,
}

/// Where a gang could have its place in the future.
pub(super) struct Place {
    pub at: Timestamp,
    needs: Vec<Needs>,
}

/// The earliest place in the future for a job that is blocked, if it is among the first.
pub(super) fn earliest_place(draft: &mut Draft, turn: &Turn, ask: &Ask) -> Option<Place> {
    if !ask.feasible || ask.matches.is_empty() || has_enough(draft) {
        return None;
    }
    draft.reservations.searches += 1;
    let (at, needs) = Future::new(draft, ask, draft.ending(turn.bucket, turn.job)).first_fit(turn)?;
    Some(Place { at, needs })
}

/// Keep a place for a job.
pub(super) fn keep(draft: &mut Draft, turn: &Turn, Place { at, needs }: Place) {
    let lasts_ms = draft.ending(turn.bucket, turn.job).at.since(draft.now);
    let span = (at.plus(lasts_ms), turn.overdue || !may_preempt(draft, turn));
    draft.reservations.add(Reservation { job: turn.job, at }, span, needs);
    needs_again(draft);
}

/// Whether so many have a place that more would keep too much of the cluster waiting.
fn has_enough(draft: &Draft) -> bool {
    let settings = &draft.state.settings;
    let nodes_max = match settings.reserve_one_node_in {
        0 | 1 => usize::MAX,
        one_in => draft.state.nodes.len().div_ceil(one_in as usize),
    };
    draft.reservations.searches >= settings.reservations || draft.reservations.reserved.len() >= nodes_max
}

/// What is known of room that could be made does not know the new reservation.
fn needs_again(draft: &mut Draft) {
    let nodes: Vec<NodeId> = draft.reservations.reserved.iter().cloned().collect();
    draft.changed.extend(nodes);
}

/// The cluster as it will be.
struct Future<'a> {
    draft: &'a Draft<'a>,
    ask: &'a Ask,
    /// When it would end if it started now.
    ending: Ending,
    lasts_ms: i64,
    /// What has come free until then.
    freed: BTreeMap<&'a NodeId, Free>,
    /// What will come free and is somebody's already.
    owed: BTreeMap<NodeId, Free>,
    /// For a gang that may sit on several nodes: how many tasks of each group each node would take.
    seats: BTreeMap<&'a NodeId, Vec<u32>>,
    seats_in_all: Vec<u64>,
}

impl<'a> Future<'a> {
    fn new(draft: &'a Draft<'a>, ask: &'a Ask, ending: Ending) -> Future<'a> {
        let mut future = Future {
            draft,
            ask,
            ending,
            lasts_ms: ending.at.since(draft.now),
            freed: BTreeMap::new(),
            owed: draft.owed.clone(),
            seats: BTreeMap::new(),
            seats_in_all: vec![0; ask.shape.groups.len()],
        };
        if ask.may_span() {
            future.count_all_seats();
        }
        future
    }

    /// How many tasks every node would take now. In a full cluster hardly any does, and only those are looked at.
    fn count_all_seats(&mut self) {
        let draft = self.draft;
        for found in &self.ask.matches {
            for (_, node) in draft.capacity.with_free(&found.kind, self.ask.least_gpus()) {
                let reserved = draft.reservations.is_on(node);
                let free = if reserved { self.space_on(node, draft.now) } else { draft.free_on(node) };
                let seats = free.map(|free| self.seats_in(found, free)).unwrap_or_default();
                self.keep_seats(node, seats);
            }
        }
    }

    fn seats_in(&self, found: &Match, free: Free) -> Vec<u32> {
        let groups = 0..self.ask.shape.groups.len();
        groups.map(|group| self.ask.tasks_that_fit(found, group, free)).collect()
    }

    /// The earliest moment at which the gang fits, and what it needs on each node then.
    fn first_fit(mut self, turn: &Turn) -> Option<(Timestamp, Vec<Needs>)> {
        let ends = self.draft.reservations.ends();
        let mut ends = ends.into_iter().filter(|(at, _)| *at > self.draft.now).peekable();
        for release in releases(self.draft, turn) {
            while let Some((at, node)) = ends.next_if(|(at, _)| *at <= release.at) {
                if let Some(found) = self.fit_on(at, &[node]) {
                    return Some(found);
                }
            }
            let Release { at, space } = release;
            let nodes: Vec<&NodeId> = space.keys().copied().collect();
            space.into_iter().for_each(|(node, space)| self.free(node, space));
            if let Some(found) = self.fit_on(at, &nodes) {
                return Some(found);
            }
        }
        ends.find_map(|(at, node)| self.fit_on(at, &[node]))
    }

    /// Space comes free on a node; what is owed to others goes to them first.
    fn free(&mut self, node: &'a NodeId, space: Free) {
        let owed = self.owed.get(node).copied().unwrap_or_default();
        if let Some(left) = self.owed.get_mut(node) {
            *left = left.less_paid(space);
        }
        let freed = self.freed.entry(node).or_default();
        *freed = freed.with(space.without(owed));
    }

    /// Whether the gang fits at a moment, now that something has changed on these nodes.
    fn fit_on(&mut self, at: Timestamp, nodes: &[&'a NodeId]) -> Option<(Timestamp, Vec<Needs>)> {
        let on_one = nodes.iter().find_map(|node| {
            let found = self.match_of(node).filter(|found| found.whole)?;
            let seats = self.ask.fit(found, self.space_on(node, at)?)?;
            Some(Spot::on_one(self.ask, (node, found), &seats))
        });
        let spot = on_one.or_else(|| if self.ask.may_span() { self.fit_across(at, nodes) } else { None })?;
        let needs = spot.taken(self.ask).into_iter().filter_map(|(node, taken)| {
            let spare = self.space_on(&node, at)?.without(taken);
            Some(Needs { node, taken, spare })
        });
        let needs = needs.collect();
        Some((at, needs))
    }

    fn fit_across(&mut self, at: Timestamp, nodes: &[&'a NodeId]) -> Option<Spot> {
        nodes.iter().for_each(|node| self.count_seats(node, at));
        let counts = self.ask.shape.groups.iter().map(|(count, _)| u64::from(*count));
        if self.seats_in_all.iter().zip(counts).any(|(seats, count)| *seats < count) {
            return None;
        }
        let capacity = self.capacity(at);
        spread::find(self.draft.state, &capacity, self.ask, &|_, free| Some(free))
    }

    fn count_seats(&mut self, node: &'a NodeId, at: Timestamp) {
        let room = self.match_of(node).and_then(|found| Some((found, self.space_on(node, at)?)));
        let seats = room.map(|(found, free)| self.seats_in(found, free)).unwrap_or_default();
        self.keep_seats(node, seats);
    }

    fn keep_seats(&mut self, node: &'a NodeId, seats: Vec<u32>) {
        for (sum, seats) in self.seats_in_all.iter_mut().zip(&seats) {
            *sum += u64::from(*seats);
        }
        let former = match seats.iter().any(|seats| *seats > 0) {
            true => self.seats.insert(node, seats),
            false => self.seats.remove(node),
        };
        for (sum, former) in self.seats_in_all.iter_mut().zip(&former.unwrap_or_default()) {
            *sum -= u64::from(*former);
        }
    }

    fn match_of(&self, node: &NodeId) -> Option<&'a Match> {
        let filed = self.draft.capacity.filed(node).filter(|filed| filed.open)?;
        self.ask.on(&filed.kind)
    }

    /// What is free on a node from a moment on for as long as the gang lasts.
    fn space_on(&self, node: &NodeId, at: Timestamp) -> Option<Free> {
        let filed = self.draft.capacity.filed(node).filter(|filed| filed.open)?;
        if self.draft.reservations.is_booked(node, at, self.lasts_ms, self.ending) {
            return None;
        }
        let freed = self.freed.get(node).copied();
        let free = match freed {
            None => filed.free,
            Some(freed) => {
                let usable = freed.on_devices(self.draft.state.usable_gpus(node));
                let overdrawn = self.draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
                filed.free.with(usable).without(overdrawn)
            }
        };
        Some(free.without(self.draft.reservations.taken(node, at, self.lasts_ms, self.ending)))
    }

    /// The whole cluster at a moment.
    fn capacity(&self, at: Timestamp) -> Capacity {
        let mut capacity = self.draft.capacity.clone();
        let reserved = self.draft.reservations.nodes.keys();
        for node in self.freed.keys().copied().chain(reserved) {
            match self.space_on(node, at) {
                Some(free) => capacity.set_free(node, free),
                None => capacity.set_open(node, false),
            }
        }
        capacity
    }
}
