//! Reservations: the first blocked jobs get reservations, and a later job starts only if it delays no reservation: it
//! ends before the reservation starts, or it fits beside the reservation.
//!
//! A reservation is the earliest moment at which the gang fits, given the expected ends of running attempts, with the
//! nodes and devices that the gang will use. It is computed again in each round. No job later in the order can delay a
//! reservation, so the first reservation only moves earlier, except after faults and when running jobs overrun.
//!
//! A job without a time limit backfills on its runtime estimate and is revocable: if it overruns, the jobs it passed
//! may preempt it. Non-preemptible jobs backfill only under a time limit. So does every job while the reserved job may
//! not preempt or is overdue.

use std::collections::BTreeMap;

use crate::estimate::expected_end::ExpectedEnd;
use crate::ids::NodeId;
use crate::planner::backfill::timeline::{Release, releases};
use crate::planner::draft::{Draft, NodeNeed, Placement, Reservation, overdrawn};
use crate::planner::order::QueueHead;
use crate::planner::place;
use crate::planner::preempt::may_preempt;
use crate::planner::request::{KindMatch, Request};
use crate::resources::{ResourceIndex, ResourceVec};
use crate::time::Timestamp;

/// A moment at which a gang fits, and what it needs on each node then.
pub(crate) struct FuturePlacement {
    pub at: Timestamp,
    needs: Vec<NodeNeed>,
}

/// The earliest future placement of a blocked job. `None` if the job is infeasible or enough jobs have reservations.
pub(crate) fn earliest_placement(draft: &mut Draft, head: &QueueHead, request: &Request) -> Option<FuturePlacement> {
    if !request.feasible || request.matches.is_empty() || covers_enough_nodes(draft) {
        return None;
    }
    draft.reservations.searches += 1;
    let end = draft.expected_end(head.bucket, head.job);
    let (at, needs) = FutureCluster::new(draft, request, end).first_fit(head)?;
    Some(FuturePlacement { at, needs })
}

/// Reserve a future placement for a blocked job.
pub(crate) fn reserve(draft: &mut Draft, head: &QueueHead, FuturePlacement { at, needs }: FuturePlacement) {
    let lasts_ms = draft.expected_end(head.bucket, head.job).at.since(draft.now);
    let strict = head.overdue || !may_preempt(draft, head);
    draft.reservations.add(Reservation { job: head.job, at }, at.plus(lasts_ms), strict, needs);
    mark_reserved_nodes_dirty(draft);
}

/// True if no further job gets a reservation, because too much of the cluster would wait for reserved jobs: the round
/// has made all its searches, or reservations cover 1/N of the nodes (`reserve_one_node_in`).
fn covers_enough_nodes(draft: &Draft) -> bool {
    let settings = &draft.state.settings;
    let nodes_max = match settings.reserve_one_node_in {
        0 | 1 => usize::MAX,
        one_in => draft.state.nodes.len().div_ceil(one_in as usize),
    };
    draft.reservations.searches >= settings.reservations || draft.reservations.reserved.len() >= nodes_max
}

/// Cached eviction options do not account for the new reservation.
fn mark_reserved_nodes_dirty(draft: &mut Draft) {
    draft.space.dirty_nodes.extend(draft.reservations.reserved.iter().cloned());
}

/// The cluster at later moments, as running attempts end.
struct FutureCluster<'a> {
    draft: &'a Draft<'a>,
    request: &'a Request,
    /// The expected end of the job if it started now.
    end: ExpectedEnd,
    lasts_ms: i64,
    /// Space released until the current moment, without what was promised.
    freed: BTreeMap<&'a NodeId, ResourceVec>,
    /// Space to be released that already belongs to a preemptor.
    promised: BTreeMap<NodeId, ResourceVec>,
    /// For a gang that may span nodes: how many tasks of each group fit on each node.
    fitting_tasks: BTreeMap<&'a NodeId, Vec<u32>>,
    fitting_tasks_total: Vec<u64>,
}

impl<'a> FutureCluster<'a> {
    fn new(draft: &'a Draft<'a>, request: &'a Request, end: ExpectedEnd) -> FutureCluster<'a> {
        let mut future = FutureCluster {
            draft,
            request,
            end,
            lasts_ms: end.at.since(draft.now),
            freed: BTreeMap::new(),
            promised: draft.space.promised.clone(),
            fitting_tasks: BTreeMap::new(),
            fitting_tasks_total: vec![0; request.shape.groups.len()],
        };
        if request.may_span() {
            future.count_all_fitting_tasks();
        }
        future
    }

    /// Count the tasks that fit on each node now. Only nodes with enough free GPUs are read: few in a full cluster.
    fn count_all_fitting_tasks(&mut self) {
        let draft = self.draft;
        for found in &self.request.matches {
            for (_, node) in draft.space.resources.with_free(&found.kind, self.request.least_gpus()) {
                let reserved = draft.reservations.is_on(node);
                let free = if reserved { self.space_on(node, draft.now) } else { draft.space.free_on(node) };
                let counts = free.map(|free| self.fitting_tasks_in(found, free)).unwrap_or_default();
                self.set_fitting_tasks(node, counts);
            }
        }
    }

    fn fitting_tasks_in(&self, found: &KindMatch, free: ResourceVec) -> Vec<u32> {
        let groups = 0..self.request.shape.groups.len();
        groups.map(|group| self.request.tasks_that_fit(found, group, free)).collect()
    }

    /// The earliest moment at which the gang fits, and what it needs on each node then.
    fn first_fit(mut self, head: &QueueHead) -> Option<(Timestamp, Vec<NodeNeed>)> {
        let ends = self.draft.reservations.ends();
        let mut ends = ends.into_iter().filter(|(at, _)| *at > self.draft.now).peekable();
        for release in releases(self.draft, head) {
            while let Some((at, node)) = ends.next_if(|(at, _)| *at <= release.at) {
                if let Some(found) = self.fit_on(at, &[node]) {
                    return Some(found);
                }
            }
            let Release { at, space } = release;
            let nodes: Vec<&NodeId> = space.keys().copied().collect();
            space.into_iter().for_each(|(node, space)| self.release(node, space));
            if let Some(found) = self.fit_on(at, &nodes) {
                return Some(found);
            }
        }
        ends.find_map(|(at, node)| self.fit_on(at, &[node]))
    }

    /// Release space on a node. Promised space goes to its preemptor first.
    fn release(&mut self, node: &'a NodeId, space: ResourceVec) {
        let promised = self.promised.get(node).copied().unwrap_or_default();
        if let Some(left) = self.promised.get_mut(node) {
            *left = left.minus_released(space);
        }
        let freed = self.freed.entry(node).or_default();
        *freed = freed.plus(space.minus(promised));
    }

    /// What the gang needs on each node if it fits at a moment at which the space on `nodes` has changed.
    fn fit_on(&mut self, at: Timestamp, nodes: &[&'a NodeId]) -> Option<(Timestamp, Vec<NodeNeed>)> {
        let on_one = nodes.iter().find_map(|node| {
            let found = self.match_of(node).filter(|found| found.holds_gang)?;
            let assignments = self.request.assign(found, self.space_on(node, at)?)?;
            Some(Placement::on_one_node(self.request, node, found, &assignments))
        });
        let placement =
            on_one.or_else(|| if self.request.may_span() { self.fit_multi_node(at, nodes) } else { None })?;
        let needs = placement.taken(self.request).into_iter().filter_map(|(node, taken)| {
            let spare = self.space_on(&node, at)?.minus(taken);
            Some(NodeNeed { node, taken, spare })
        });
        let needs = needs.collect();
        Some((at, needs))
    }

    fn fit_multi_node(&mut self, at: Timestamp, nodes: &[&'a NodeId]) -> Option<Placement> {
        nodes.iter().for_each(|node| self.count_fitting_tasks(node, at));
        let needed = self.request.shape.groups.iter().map(|(count, _)| u64::from(*count));
        if self.fitting_tasks_total.iter().zip(needed).any(|(fitting, needed)| *fitting < needed) {
            return None;
        }
        let resources = self.index_at(at);
        place::multi_node::find(self.draft.state, &resources, self.request, &|_, free| Some(free))
    }

    fn count_fitting_tasks(&mut self, node: &'a NodeId, at: Timestamp) {
        let space = self.match_of(node).and_then(|found| Some((found, self.space_on(node, at)?)));
        let counts = space.map(|(found, free)| self.fitting_tasks_in(found, free)).unwrap_or_default();
        self.set_fitting_tasks(node, counts);
    }

    fn set_fitting_tasks(&mut self, node: &'a NodeId, counts: Vec<u32>) {
        for (sum, count) in self.fitting_tasks_total.iter_mut().zip(&counts) {
            *sum += u64::from(*count);
        }
        let former = match counts.iter().any(|count| *count > 0) {
            true => self.fitting_tasks.insert(node, counts),
            false => self.fitting_tasks.remove(node),
        };
        for (sum, former) in self.fitting_tasks_total.iter_mut().zip(&former.unwrap_or_default()) {
            *sum -= u64::from(*former);
        }
    }

    fn match_of(&self, node: &NodeId) -> Option<&'a KindMatch> {
        let entry = self.draft.space.resources.entry(node).filter(|entry| entry.open)?;
        self.request.match_for(&entry.kind)
    }

    /// Free space on a node from a moment on, for as long as the gang runs. `None` if the node is closed, or if a
    /// window closes it to the job in that time.
    fn space_on(&self, node: &NodeId, at: Timestamp) -> Option<ResourceVec> {
        let entry = self.draft.space.resources.entry(node).filter(|entry| entry.open)?;
        if self.draft.reservations.is_in_window(node, at, self.lasts_ms, self.end) {
            return None;
        }
        let freed = self.freed.get(node).copied();
        let free = match freed {
            None => entry.free,
            Some(freed) => {
                let usable = freed.on_devices(self.draft.state.usable_gpus(node));
                let overdrawn = self.draft.state.nodes.get(node).map(overdrawn).unwrap_or_default();
                entry.free.plus(usable).minus(overdrawn)
            }
        };
        Some(free.minus(self.draft.reservations.taken(node, at, self.lasts_ms, self.end)))
    }

    /// The free space of the whole cluster at a moment.
    fn index_at(&self, at: Timestamp) -> ResourceIndex {
        let mut resources = self.draft.space.resources.clone();
        let reserved = self.draft.reservations.nodes();
        for node in self.freed.keys().copied().chain(reserved) {
            match self.space_on(node, at) {
                Some(free) => resources.set_free(node, free),
                None => resources.set_open(node, false),
            }
        }
        resources
    }
}
