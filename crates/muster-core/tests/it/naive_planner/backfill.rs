//! Reservations of blocked gangs, and the space that backfilled jobs may use beside them.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::estimate::expected_end::Certainty;
use muster_core::objects::job::Job;
use muster_core::objects::node::Node;
use muster_core::objects::shape::Shape;
use muster_core::objects::window::Window;
use muster_core::resources::Kind;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{JobId, NodeId, TenantId, Timestamp};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::expected_end::ExpectedEnd;
use crate::naive_planner::multi_node::may_span;
use crate::naive_planner::space::{Space, Spaces, WHOLE, space_by_node, usable};
use crate::recompute::is_below;

/// The order of releases: the time, then the job that ends or the node on which a window or a reservation ends.
pub(super) type ReleaseKey = (Timestamp, Option<JobId>, Option<NodeId>);

/// The planned start of a blocked gang.
pub(super) struct Reservation {
    pub(super) job: JobId,
    pub(super) at: Timestamp,
    pub(super) until: Timestamp,
    pub(super) strict: bool,
    pub(super) taken: BTreeMap<NodeId, Space>,
    /// Space beside the reservation at its start.
    pub(super) spare: BTreeMap<NodeId, Space>,
}

impl Reservation {
    pub(super) fn blocks_backfill(&self, (at, certainty, yields): ExpectedEnd) -> bool {
        let late =
            at > self.at || certainty == Certainty::Estimate || (self.strict && certainty == Certainty::Revocable);
        late && (self.strict || !yields)
    }
}

impl<'a> NaivePlanner<'a> {
    /// Windows that are closed to the jobs of a tenant.
    pub(super) fn windows_closed_to<'s>(&'s self, tenant: Option<&'s TenantId>) -> impl Iterator<Item = &'s Window> {
        let is_open = move |window: &Window| {
            let top = window.tenant.as_ref().zip(tenant);
            top.is_some_and(|(top, tenant)| is_below(self.state, tenant, top))
        };
        self.state.windows.values().filter(move |window| !is_open(window))
    }

    /// The part of `space` that a job with this expected end may use without delaying a reservation. `None` if a window
    /// closes the node.
    pub(super) fn unreserved(
        &self,
        node: &NodeId,
        space: &Space,
        expected_end: ExpectedEnd,
        tenant: Option<&TenantId>,
    ) -> Option<Space> {
        self.unreserved_except(None, node, space, (expected_end, tenant))
    }

    pub(super) fn unreserved_except(
        &self,
        own: Option<JobId>,
        node: &NodeId,
        space: &Space,
        (expected_end, tenant): (ExpectedEnd, Option<&TenantId>),
    ) -> Option<Space> {
        let mut usable = space.clone();
        let (at, certainty, _) = expected_end;
        let closed =
            |window: &Window| window.nodes.contains(node) && (at > window.from || certainty != Certainty::Bound);
        if self.windows_closed_to(tenant).any(closed) {
            return None;
        }
        let others = self.reservations.iter().filter(|reservation| Some(reservation.job) != own);
        for reservation in others.filter(|reservation| reservation.blocks_backfill(expected_end)) {
            let (Some(taken), Some(spare)) = (reservation.taken.get(node), reservation.spare.get(node)) else {
                continue;
            };
            for gpu in taken.gpus.keys() {
                let (now, then) = (usable.of(*gpu), spare.of(*gpu));
                usable.set(*gpu, (now.0.min(then.0), now.1.min(then.1)));
            }
            usable.instances.retain(|one| {
                let apart = taken.instances.iter().any(|(gpu, _)| *gpu == one.0);
                !apart || spare.instances.contains(one)
            });
            usable.cpus = usable.cpus.min(spare.cpus);
            usable.memory_mib = usable.memory_mib.min(spare.memory_mib);
        }
        Some(usable)
    }

    /// The reservation at the earliest release at which the gang fits. All releases are tried in order.
    pub(super) fn earliest_reservation(&mut self, job: &Job) -> Option<Reservation> {
        let nodes: BTreeSet<&NodeId> =
            self.reservations.iter().flat_map(|reservation| reservation.taken.keys()).collect();
        let one_in = self.state.settings.reserve_one_node_in as usize;
        let enough = one_in > 1 && nodes.len() >= self.state.nodes.len().div_ceil(one_in);
        let shape = Shape::of(&job.spec);
        let feasible = self.state.resources.could_ever_hold(&shape);
        // Model limits may exclude every node; then the gang blocked for its quota and gets no reservation.
        let holds_some = |node: &Node| {
            let kind = Kind::of(node);
            let spans = may_span(job) && job.spec.tasks.iter().any(|of| kind.could_hold_tasks(&shape, &of.each) > 0);
            (kind.could_hold(&shape) || spans) && self.model_allows(job, node)
        };
        let feasible = feasible && self.state.nodes.values().any(holds_some);
        if !feasible || enough || self.searches >= self.state.settings.reservations {
            return None;
        }
        self.searches += 1;
        let lasts = self.expected_end(job).0.since(self.now);
        let mut freed: BTreeMap<NodeId, Space> = BTreeMap::new();
        let mut promised = self.promised.clone();
        for (at, released, touched) in self.releases(job) {
            for (node, mut space) in released {
                let promised_there = promised.entry(node.clone()).or_default();
                let before = promised_there.clone();
                promised_there.take(&space);
                // A whole device stays promised until the last part of it is released.
                before.gpus.iter().filter(|(_, part)| **part == WHOLE).for_each(|(gpu, part)| {
                    promised_there.set(*gpu, *part);
                });
                promised_there.instances = before.instances.clone();
                space.take(&before);
                freed.entry(node).or_default().add(&space);
            }
            let spaces: Spaces = self
                .free
                .keys()
                .filter(|node| !self.is_in_window(job, node, at, at.plus(lasts)))
                .map(|node| {
                    let space = self.space_at(node, freed.get(node), at, at.plus(lasts));
                    (node.clone(), (space.whole(), space))
                })
                .collect();
            let there = |node: &&NodeId| spaces.contains_key(*node);
            let mut touched = touched.iter().filter(there);
            let on_one = touched.find_map(|node| self.fit_on_node(job, node, &spaces[node].1));
            if let Some(tasks) = on_one.or_else(|| self.place_on_several(job, &spaces)) {
                let taken = space_by_node(job, &tasks);
                return Some(Reservation {
                    job: job.id,
                    at,
                    until: at.plus(lasts),
                    strict: self.is_overdue(job) || !self.may_preempt(job),
                    spare: taken.iter().map(|(node, taken)| (node.clone(), spaces[node].1.less(taken))).collect(),
                    taken,
                });
            }
        }
        None
    }

    /// All releases in order: the time, the released space, and the nodes that change.
    pub(super) fn releases(&self, blocked: &Job) -> Vec<(Timestamp, BTreeMap<NodeId, Space>, Vec<NodeId>)> {
        let grace = self.state.settings.stop_grace_ms;
        let mut releases: Vec<(ReleaseKey, BTreeMap<NodeId, Space>)> = Vec::new();
        for job in self.state.jobs.values() {
            let Some(attempt) = job.attempt() else { continue };
            let end = match (&attempt.stopping, job.spec.time_limit_ms) {
                (Some(stopping), _) => stopping.since,
                (None, Some(limit)) => attempt.started_at.unwrap_or(attempt.placed_at).plus(limit),
                (None, None) => attempt.placed_at.plus(attempt.expected_ms.unwrap_or(HOUR)),
            };
            let end = end.plus(grace);
            let is_revoked = self.overran(job, blocked) && self.may_preempt(blocked);
            let late = self.now.plus(if is_revoked { grace } else { self.now.since(end).max(MINUTE) });
            let end = if end <= self.now { late } else { end };
            releases.push(((end, Some(job.id), None), space_by_node(job, &attempt.tasks)));
        }
        for (id, tasks) in &self.starts {
            let job = &self.state.jobs[id];
            releases.push(((self.expected_end(job).0, Some(*id), None), space_by_node(job, tasks)));
        }
        for window in self.state.windows.values().filter(|window| window.until > self.now) {
            for node in &window.nodes {
                releases.push(((window.until, None, Some(node.clone())), BTreeMap::new()));
            }
        }
        for reservation in self.reservations.iter().filter(|reservation| reservation.until > self.now) {
            for node in reservation.taken.keys() {
                releases.push(((reservation.until, None, Some(node.clone())), BTreeMap::new()));
            }
        }
        releases.sort_by(|a, b| a.0.cmp(&b.0));
        let nodes = |node: Option<NodeId>, space: &BTreeMap<NodeId, Space>| {
            node.into_iter().chain(space.keys().cloned()).collect()
        };
        releases.into_iter().map(|((at, _, node), space)| (at, space.clone(), nodes(node, &space))).collect()
    }

    pub(super) fn is_in_window(&self, job: &Job, node: &NodeId, from: Timestamp, until: Timestamp) -> bool {
        let endless = job.spec.time_limit_ms.is_none();
        self.windows_closed_to(Some(&job.spec.tenant))
            .any(|window| window.nodes.contains(node) && (endless || window.from < until) && from < window.until)
    }

    pub(super) fn space_at(&self, id: &NodeId, freed: Option<&Space>, from: Timestamp, until: Timestamp) -> Space {
        let node = &self.state.nodes[id];
        let free = &self.free[id];
        let mut space = match freed {
            Some(freed) => free.plus(&usable(node, freed)).less_overdrawn(node),
            None => free.clone(),
        };
        for reservation in
            self.reservations.iter().filter(|reservation| reservation.at < until && from < reservation.until)
        {
            reservation.taken.get(id).into_iter().for_each(|taken| space.take(taken));
        }
        space
    }

    pub(super) fn reserve(&mut self, new: Reservation) {
        for reservation in
            self.reservations.iter_mut().filter(|reservation| new.at <= reservation.at && reservation.at < new.until)
        {
            for (node, taken) in &new.taken {
                reservation.spare.entry(node.clone()).and_modify(|spare| spare.take(taken));
            }
        }
        self.reservations.push(new);
    }
}
