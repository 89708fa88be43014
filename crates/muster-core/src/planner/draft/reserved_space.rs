//! Future space that is kept for blocked jobs and for windows, and what later jobs may use beside it. A part of the
//! draft of a planning round (step 7).

use std::collections::{BTreeMap, BTreeSet};

use crate::estimate::expected_end::{Certainty, ExpectedEnd};
use crate::ids::{JobId, NodeId};
use crate::resources::ResourceVec;
use crate::state::State;
use crate::time::Timestamp;

/// The planned start of a blocked job.
#[derive(Debug, Clone)]
pub(crate) struct Reservation {
    pub job: JobId,
    pub at: Timestamp,
}

/// The job or window that future space is kept for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReservationOwner {
    Job(JobId),
    /// A window, by its index in the order of names.
    Window(u32),
}

/// The part of a reservation or window on one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeReservation {
    owner: ReservationOwner,
    at: Timestamp,
    until: Timestamp,
    /// Jobs backfill past it only under a time limit, not on an estimate.
    strict: bool,
    taken: ResourceVec,
    /// Space left beside the reservation when it starts: devices as a set, cores and memory as amounts.
    spare: ResourceVec,
}

impl NodeReservation {
    /// True if a job that starts now and has this expected end may still hold its space when the reservation starts.
    fn blocks_backfill(&self, end: ExpectedEnd) -> bool {
        let is_reliable = match end.certainty {
            Certainty::Bound => true,
            Certainty::Revocable => !self.strict,
            Certainty::Estimate => false,
        };
        let yields = end.yields && !self.strict && matches!(self.owner, ReservationOwner::Job(_));
        !self.is_open_to(end) && !yields && (end.at > self.at || !is_reliable)
    }

    /// True if the reservation overlaps a job that runs for `lasts_ms` from `from` on. `end` is the expected end of the
    /// job if it started now.
    fn overlaps(&self, from: Timestamp, lasts_ms: i64, end: ExpectedEnd) -> bool {
        let endless = matches!(self.owner, ReservationOwner::Window(_)) && !end.is_bound();
        let begins_before_end = endless || self.at < from.plus(lasts_ms);
        !self.is_open_to(end) && begins_before_end && from < self.until
    }

    /// True if the reservation is a window that is open to the job with this expected end.
    fn is_open_to(&self, end: ExpectedEnd) -> bool {
        matches!(self.owner, ReservationOwner::Window(index) if end.windows >> index & 1 == 1)
    }
}

/// All reservations of this round, and the windows.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    pub list: Vec<Reservation>,
    nodes: BTreeMap<NodeId, Vec<NodeReservation>>,
    /// Nodes with a reservation of a job.
    pub reserved: BTreeSet<NodeId>,
    /// Searches for a future placement in this round.
    pub searches: u32,
    /// Nodes on which no further gang may have its first task, because all master ports are held.
    pub without_master_ports: BTreeSet<NodeId>,
    /// Master ports that this round takes.
    master_ports_taken: BTreeMap<NodeId, usize>,
}

impl Reservations {
    /// The windows of the state, and no reservation of a job.
    pub fn of_windows(state: &State) -> Reservations {
        let without_master_ports = state.nodes_without_master_ports();
        let mut reservations = Reservations { without_master_ports, ..Reservations::default() };
        for (index, window) in (0..).zip(state.windows.values()) {
            for node in &window.nodes {
                let booked = NodeReservation {
                    owner: ReservationOwner::Window(index),
                    at: window.from,
                    until: window.until,
                    strict: true,
                    taken: ResourceVec::default(),
                    spare: ResourceVec::default(),
                };
                reservations.nodes.entry(node.clone()).or_default().push(booked);
            }
        }
        reservations
    }

    /// The part of a node's free space that a job with this expected end may use without delaying a reservation. The
    /// reservation of `own` is ignored. `None`, even for a job that needs no space, if a window closes the node to the
    /// job, or if a gang would find no master port there. (Any of its nodes may become that of its first task.)
    pub fn usable(
        &self,
        node: &NodeId,
        free: ResourceVec,
        end: ExpectedEnd,
        own: Option<JobId>,
    ) -> Option<ResourceVec> {
        if end.needs_master_port && self.without_master_ports.contains(node) {
            return None;
        }
        if self.nodes.is_empty() {
            return Some(free);
        }
        let Some(reservations) = self.nodes.get(node) else { return Some(free) };
        let own = own.map(ReservationOwner::Job);
        let mut others = reservations.iter().filter(|other| Some(other.owner) != own && other.blocks_backfill(end));
        others.try_fold(free, |free, other| match other.owner {
            ReservationOwner::Window(_) => None,
            ReservationOwner::Job(_) => Some(free.usable_beside(other.taken, other.spare)),
        })
    }

    /// Account for a job that takes space on a node until `end`: less is spare beside the reservations it outlasts.
    pub fn take(&mut self, node: &NodeId, taken: ResourceVec, end: ExpectedEnd) {
        for reservation in self.nodes.get_mut(node).into_iter().flatten() {
            if reservation.blocks_backfill(end) {
                reservation.spare = reservation.spare.minus(taken);
            }
        }
    }

    /// Account for a gang that starts with its first task on a node, of whose master ports `left` were free before the round.
    pub fn take_master_port(&mut self, node: &NodeId, left: usize) {
        let taken = self.master_ports_taken.entry(node.clone()).or_default();
        *taken += 1;
        if *taken >= left {
            self.without_master_ports.insert(node.clone());
        }
    }

    /// The owner of the first reservation on a node that blocks backfill of job `own` with this expected end.
    pub fn first_on(&self, node: &NodeId, own: JobId, end: ExpectedEnd) -> Option<ReservationOwner> {
        let others = self.nodes.get(node)?.iter().filter(|other| other.owner != ReservationOwner::Job(own));
        others.filter(|other| other.blocks_backfill(end)).map(|other| other.owner).next()
    }

    pub fn of(&self, job: JobId) -> Option<&Reservation> {
        self.list.iter().find(|reservation| reservation.job == job)
    }

    /// The jobs with a reservation on a node. `None` if a window books the node.
    pub fn jobs_on(&self, node: &NodeId) -> Option<Vec<JobId>> {
        let reservations = self.nodes.get(node).into_iter().flatten();
        let job = |reservation: &NodeReservation| match reservation.owner {
            ReservationOwner::Job(job) => Some(job),
            ReservationOwner::Window(_) => None,
        };
        reservations.map(job).collect()
    }

    /// True if a node has a reservation or a window.
    pub fn is_on(&self, node: &NodeId) -> bool {
        !self.nodes.is_empty() && self.nodes.contains_key(node)
    }

    /// The nodes with a reservation or a window.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeId> {
        self.nodes.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// True if a window closes a node to the job within the given time.
    pub fn is_in_window(&self, node: &NodeId, from: Timestamp, lasts_ms: i64, end: ExpectedEnd) -> bool {
        let reservations = self.nodes.get(node).into_iter().flatten();
        let mut windows = reservations.filter(|reservation| matches!(reservation.owner, ReservationOwner::Window(_)));
        windows.any(|window| window.overlaps(from, lasts_ms, end))
    }

    /// The space that reservations take on a node within the given time.
    pub fn taken(&self, node: &NodeId, from: Timestamp, lasts_ms: i64, end: ExpectedEnd) -> ResourceVec {
        let reservations = self.nodes.get(node).into_iter().flatten();
        let overlapping = reservations.filter(|reservation| reservation.overlaps(from, lasts_ms, end));
        overlapping.fold(ResourceVec::default(), |sum, reservation| sum.plus(reservation.taken))
    }

    /// The ends of all reservations and windows in order, each with its node.
    pub fn ends(&self) -> Vec<(Timestamp, &NodeId)> {
        let ends = self
            .nodes
            .iter()
            .flat_map(|(node, reservations)| reservations.iter().map(move |reservation| (reservation.until, node)));
        let mut ends: Vec<(Timestamp, &NodeId)> = ends.collect();
        ends.sort_unstable();
        ends
    }

    pub fn add(&mut self, reservation: Reservation, until: Timestamp, strict: bool, needs: Vec<NodeNeed>) {
        let Reservation { job, at } = reservation;
        for NodeNeed { node, taken, spare } in needs {
            self.reserved.insert(node.clone());
            let on_node = self.nodes.entry(node).or_default();
            // Earlier reservations keep their space. Less is spare beside those that start while this job runs.
            for other in on_node.iter_mut().filter(|other| at <= other.at && other.at < until) {
                other.spare = other.spare.minus(taken);
            }
            on_node.push(NodeReservation { owner: ReservationOwner::Job(job), at, until, strict, taken, spare });
        }
        self.list.push(reservation);
    }
}

/// What a reserved gang takes on one node, and what stays spare beside it.
pub(crate) struct NodeNeed {
    pub node: NodeId,
    pub taken: ResourceVec,
    pub spare: ResourceVec,
}
