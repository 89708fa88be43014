//! Phase preempt, multi-node: evict jobs for a gang that no single node could hold, task by task where it costs the
//! least.
//!
//! Tasks that fit without a victim are placed first. Each further task goes to the node on which it costs the least
//! work. Victims also release what they hold on other nodes. In the end victims that turn out not to be needed are
//! spared, the most expensive first.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{JobId, NodeId};
use crate::planner::draft::{Candidate, Draft, NodeCandidates};
use crate::planner::place::multi_node::{GangAssignment, NodeAssignment};
use crate::planner::preempt::victims::{eligible_victims, freed_space, minimal_victims};
use crate::planner::preempt::{EvictionProposal, Preemptor};
use crate::planner::request::{KindMatch, Request};
use crate::resources::ResourceVec;
use crate::state::usage::guarantee;

/// The eviction after which a gang fits on several nodes. `None` if the gang may not span nodes, or if all eligible
/// victims together are not enough.
pub(crate) fn proposal(draft: &Draft, preemptor: Preemptor) -> Option<EvictionProposal> {
    let request = preemptor.request;
    if !request.may_span() || !request.feasible {
        return None;
    }
    if !request.shape.must_share_a_rack() {
        return GangEviction::of(draft, preemptor, None).map(|eviction| eviction.proposal());
    }
    let evictions =
        draft.space.resources.racks().filter_map(|(_, rack)| GangEviction::of(draft, preemptor, Some(&rack.nodes)));
    evictions.min_by_key(GangEviction::total_price).map(|eviction| eviction.proposal())
}

/// The eviction for a gang, as drafted so far.
struct GangEviction<'a> {
    draft: &'a Draft<'a>,
    preemptor: Preemptor<'a>,
    request: &'a Request,
    nodes: BTreeMap<NodeId, NodeDraft>,
    /// Each with the cost of its eviction.
    victims: BTreeMap<JobId, u64>,
    pending: guarantee::PendingReleases,
    /// The nodes of the rack, if the gang must share a rack.
    rack: Option<&'a BTreeSet<NodeId>>,
}

/// The tasks and releases that the draft plans for one node.
#[derive(Debug, Clone, Default)]
struct NodeDraft {
    /// Tasks of each group; empty if the gang has none on the node.
    tasks: Vec<u32>,
    /// What each victim releases on the node.
    freed: BTreeMap<JobId, ResourceVec>,
}

/// The price of one more task on a node: work lost, then number of victims, then name of the node.
type EvictionPrice = (u64, usize, NodeId);

impl<'a> GangEviction<'a> {
    /// The eviction for the whole gang. `None` if the gang does not fit even so, or needs no victim.
    fn of(
        draft: &'a Draft<'a>,
        preemptor: Preemptor<'a>,
        rack: Option<&'a BTreeSet<NodeId>>,
    ) -> Option<GangEviction<'a>> {
        let (nodes, victims, pending) = (BTreeMap::new(), BTreeMap::new(), draft.pending_releases());
        let request = preemptor.request;
        let mut eviction = GangEviction { draft, preemptor, request, nodes, victims, pending, rack };
        let placed = request.groups_by_size().into_iter().all(|group| eviction.place_group(group));
        eviction.spare_the_unneeded();
        (placed && !eviction.victims.is_empty()).then_some(eviction)
    }

    /// Total work lost, then number of victims.
    fn total_price(&self) -> (u64, usize) {
        (self.victims.values().fold(0, |sum, lost| sum.saturating_add(*lost)), self.victims.len())
    }

    fn place_group(&mut self, group: usize) -> bool {
        let mut left = self.place_where_free(group, self.request.shape.groups[group].0);
        if left == 0 {
            return true;
        }
        let mut prices: BTreeSet<EvictionPrice> = self.all_nodes().filter_map(|node| self.price(group, node)).collect();
        while left > 0 {
            let Some(best) = prices.pop_first() else { return false };
            let node = best.2.clone();
            // Evictions since then may have raised the price or ruled the node out, because of guarantees.
            match self.price(group, &node) {
                None => continue,
                Some(now) if now > best => {
                    prices.insert(now);
                    continue;
                }
                Some(_) => {}
            }
            let touched = self.evict_for_one_task(group, &node);
            left -= 1;
            left -= self.place_on(group, &node, left);
            let rack = self.rack;
            let in_rack = |node: &NodeId| rack.is_none_or(|rack| rack.contains(node));
            for other in touched.into_iter().filter(in_rack) {
                left -= self.place_on(group, &other, left);
                prices.retain(|(_, _, node)| *node != other);
                prices.extend(self.price(group, &other));
            }
        }
        true
    }

    fn all_nodes(&self) -> impl Iterator<Item = &'a NodeId> + use<'a> {
        let rack = self.rack;
        let open = self.draft.space.resources.nodes().filter(|(_, entry)| entry.open).map(|(node, _)| node);
        open.filter(move |node| rack.is_none_or(|rack| rack.contains(*node)))
    }

    /// Place as many tasks as fit without a victim. Returns how many are left.
    fn place_where_free(&mut self, group: usize, mut left: u32) -> u32 {
        for node in self.all_nodes() {
            left -= self.place_on(group, node, left);
        }
        left
    }

    fn place_on(&mut self, group: usize, node: &NodeId, most: u32) -> u32 {
        let Some((found, left)) = self.left_on(node, ResourceVec::default()) else { return 0 };
        let count = self.request.tasks_that_fit(found, group, left).min(most);
        if count > 0 {
            self.add_tasks(group, node, count);
        }
        count
    }

    fn add_tasks(&mut self, group: usize, node: &NodeId, count: u32) {
        let groups = self.request.shape.groups.len();
        let node_draft = self.nodes.entry(node.clone()).or_default();
        node_draft.tasks.resize(groups, 0);
        node_draft.tasks[group] += count;
    }

    /// What is left on a node after the victims so far have released their space, `more` is released as well, and the
    /// tasks so far are placed.
    fn left_on(&self, node: &NodeId, more: ResourceVec) -> Option<(&'a KindMatch, ResourceVec)> {
        let freed = self.nodes.get(node).map(|node_draft| sum_of(node_draft.freed.values())).unwrap_or_default();
        let (found, assignment) = self.assignment_on(node, freed.plus(more))?;
        Some((found, assignment.left))
    }

    /// The assignment of the tasks so far on a node where `freed` is released. `None` if they do not fit.
    fn assignment_on(&self, node: &NodeId, freed: ResourceVec) -> Option<(&'a KindMatch, NodeAssignment)> {
        let entry = self.draft.space.resources.entry(node).filter(|entry| entry.open)?;
        let found = self.request.match_for(&entry.kind)?;
        let after = match self.candidates_on(node).filter(|_| freed != ResourceVec::default()) {
            Some(candidates) => candidates.after(entry.free, freed),
            None => entry.free,
        };
        let mut assignment = NodeAssignment::new(self.draft.usable(node, after, self.preemptor.end)?);
        if let Some(node_draft) = self.nodes.get(node).filter(|node_draft| !node_draft.tasks.is_empty()) {
            let groups = self.request.groups_by_size();
            let fit =
                groups.into_iter().all(|group| assignment.take(self.request, found, group, node_draft.tasks[group]));
            fit.then_some(())?;
        }
        Some((found, assignment))
    }

    fn candidates_on(&self, node: &NodeId) -> Option<&'a NodeCandidates> {
        self.draft.caches.candidates.as_ref()?.nodes.get(node)
    }

    /// The victims whose eviction makes one more task fit on a node.
    fn victims_for_one(&self, group: usize, node: &NodeId) -> Option<Vec<&'a Candidate>> {
        let candidates = self.candidates_on(node)?.candidates.iter();
        let others = candidates.filter(|candidate| !self.victims.contains_key(&candidate.job));
        minimal_victims(eligible_victims(self.draft, self.preemptor, others, &self.pending), |victims| {
            let left = self.left_on(node, freed_space(victims));
            left.is_some_and(|(found, left)| self.request.tasks_that_fit(found, group, left) > 0)
        })
    }

    fn price(&self, group: usize, node: &NodeId) -> Option<EvictionPrice> {
        let victims = self.victims_for_one(group, node)?;
        let lost = victims.iter().fold(0u64, |sum, victim| sum.saturating_add(self.preemptor.eviction_cost(victim)));
        Some((lost, victims.len(), node.clone()))
    }

    /// Evict the victims for one more task on a node. Returns that node and all nodes of the victims.
    fn evict_for_one_task(&mut self, group: usize, node: &NodeId) -> BTreeSet<NodeId> {
        let victims = self.victims_for_one(group, node).unwrap_or_default();
        let mut touched = BTreeSet::from([node.clone()]);
        for victim in victims {
            self.victims.insert(victim.job, self.preemptor.eviction_cost(victim));
            let Some(job) = self.draft.state.jobs.get(&victim.job) else { continue };
            self.pending.add(self.draft.state, job);
            let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
            for (node, space) in ResourceVec::by_node(&job.spec, tasks) {
                self.nodes.entry(node.clone()).or_default().freed.insert(job.id, space);
                touched.insert(node.clone());
            }
        }
        self.add_tasks(group, node, 1);
        touched
    }

    /// Spare the victims that the tasks do not need where they are placed now, the most expensive first.
    fn spare_the_unneeded(&mut self) {
        for job in self.victims_by_loss().into_iter().rev() {
            let mut node_drafts = self.nodes.iter().filter(|(_, node_draft)| node_draft.freed.contains_key(&job));
            if node_drafts.all(|(node, node_draft)| self.fits_without(job, node, node_draft)) {
                self.victims.remove(&job);
                self.nodes.values_mut().for_each(|node_draft| node_draft.freed.retain(|other, _| *other != job));
            }
        }
    }

    fn fits_without(&self, job: JobId, node: &NodeId, node_draft: &NodeDraft) -> bool {
        let others = node_draft.freed.iter().filter(|(other, _)| **other != job).map(|(_, space)| space);
        node_draft.tasks.is_empty() || self.assignment_on(node, sum_of(others)).is_some()
    }

    fn victims_by_loss(&self) -> Vec<JobId> {
        let mut victims: Vec<(u64, JobId)> = self.victims.iter().map(|(job, lost)| (*lost, *job)).collect();
        victims.sort_unstable();
        victims.into_iter().map(|(_, job)| job).collect()
    }

    fn proposal(&self) -> EvictionProposal {
        let node_drafts = self.nodes.iter().filter(|(_, node_draft)| !node_draft.tasks.is_empty());
        let nodes = node_drafts.filter_map(|(node, node_draft)| {
            let (_, assignment) = self.assignment_on(node, sum_of(node_draft.freed.values()))?;
            Some((node.clone(), assignment))
        });
        let gang = GangAssignment { nodes: nodes.collect() };
        EvictionProposal { placement: gang.placement(self.draft.state, self.request), victims: self.victims_by_loss() }
    }
}

fn sum_of<'s>(spaces: impl Iterator<Item = &'s ResourceVec>) -> ResourceVec {
    spaces.fold(ResourceVec::default(), |sum, space| sum.plus(*space))
}
