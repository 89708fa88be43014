//! Evictions for a gang that spans nodes.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::NodeId;
use muster_core::objects::job::{Job, PlacedTask, Topology};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::multi_node::{by_size, may_span, ranks};
use crate::naive_planner::preempt::minimal_victims;
use crate::naive_planner::space::NodeTasks;

/// An eviction for a gang on several nodes, built task by task.
pub(super) struct GangEviction<'n, 'a> {
    pub(super) naive: &'n NaivePlanner<'a>,
    pub(super) job: &'n Job,
    /// Tasks of each group on each node.
    pub(super) tasks: BTreeMap<NodeId, Vec<u32>>,
    pub(super) victims: Vec<&'a Job>,
    /// Block and rack that the gang must stay in.
    pub(super) rack: Option<(Option<String>, String)>,
}

impl<'a> GangEviction<'_, 'a> {
    pub(super) fn of(naive: &NaivePlanner<'a>, job: &Job) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        if job.spec.topology != Topology::SameRack {
            return GangEviction::within(naive, job, None);
        }
        let facts = naive.state.nodes.values().map(|node| &node.facts);
        let racks: BTreeSet<(Option<String>, String)> =
            facts.filter_map(|facts| Some((facts.block.clone(), facts.rack.clone()?))).collect();
        let found = racks.into_iter().filter_map(|rack| GangEviction::within(naive, job, Some(rack)));
        let cost = |victims: &[&Job]| victims.iter().map(|victim| naive.eviction_cost(victim)).sum::<u64>();
        found.min_by_key(|(victims, _)| (cost(victims), victims.len()))
    }

    pub(super) fn within(
        naive: &NaivePlanner<'a>,
        job: &Job,
        rack: Option<(Option<String>, String)>,
    ) -> Option<(Vec<&'a Job>, Vec<PlacedTask>)> {
        let mut eviction = GangEviction { naive, job, tasks: BTreeMap::new(), victims: Vec::new(), rack };
        if !may_span(job) || !by_size(job).into_iter().all(|group| eviction.place_group(group)) {
            return None;
        }
        eviction.victims.sort_by_key(|victim| (naive.eviction_cost(victim), victim.id));
        for victim in eviction.victims.clone().into_iter().rev() {
            let all = eviction.victims.clone();
            eviction.victims.retain(|other| other.id != victim.id);
            let touched = victim.attempt().unwrap().nodes();
            if touched.iter().any(|node| naive.free.contains_key(node) && eviction.tasks_on(node, &[]).is_none()) {
                eviction.victims = all;
            }
        }
        let nodes: Vec<NodeId> = eviction.tasks.keys().cloned().collect();
        let placed = nodes.into_iter().map(|node| (node.clone(), eviction.tasks_on(&node, &[]).unwrap())).collect();
        (!eviction.victims.is_empty()).then(|| (eviction.victims, ranks(naive.state, job, &placed)))
    }

    pub(super) fn place_group(&mut self, group: usize) -> bool {
        let mut left = self.job.spec.tasks[group].count;
        let nodes: Vec<NodeId> = self.naive.free.keys().filter(|node| self.may_use(node)).cloned().collect();
        nodes.iter().for_each(|node| left -= self.place_on(group, node, left));
        if left == 0 {
            return true;
        }
        let mut costs_by_node: BTreeSet<(u64, usize, NodeId)> =
            nodes.iter().filter_map(|node| self.cost_of_one(group, node)).collect();
        while left > 0 {
            let Some(best) = costs_by_node.pop_first() else { return false };
            // Victims chosen since then may have used up a guarantee, which changes the cost.
            let Some(now) = self.cost_of_one(group, &best.2) else { continue };
            if now > best {
                costs_by_node.insert(now);
                continue;
            }
            let victims = self.victims_for_one(group, &best.2).unwrap();
            let mut touched = BTreeSet::from([best.2.clone()]);
            touched.extend(victims.iter().flat_map(|victim| victim.attempt().unwrap().nodes()));
            self.victims.extend(victims);
            left -= self.place_on(group, &best.2, 1);
            left -= self.place_on(group, &best.2, left);
            let there = |node: &&NodeId| self.naive.free.contains_key(*node) && self.may_use(node);
            let touched: Vec<&NodeId> = touched.iter().filter(there).collect();
            for node in touched {
                left -= self.place_on(group, node, left);
                costs_by_node.retain(|(_, _, other)| other != node);
                costs_by_node.extend(self.cost_of_one(group, node));
            }
        }
        true
    }

    pub(super) fn may_use(&self, node: &NodeId) -> bool {
        let facts = &self.naive.state.nodes[node].facts;
        let rack_of_node = (facts.block.clone(), facts.rack.clone());
        self.rack.as_ref().is_none_or(|(block, rack)| rack_of_node == (block.clone(), Some(rack.clone())))
    }

    pub(super) fn place_on(&mut self, group: usize, node: &NodeId, most: u32) -> u32 {
        let Some(mut on_node) = self.tasks_on(node, &[]) else { return 0 };
        let placed =
            (0..most).take_while(|_| self.naive.assign_one(self.job, group, node, &mut on_node)).count() as u32;
        if placed > 0 {
            let groups = self.job.spec.tasks.len();
            self.tasks.entry(node.clone()).or_insert(vec![0; groups])[group] += placed;
        }
        placed
    }

    /// The tasks so far on a node, after the eviction of the victims so far and of `more`; `None` if they do not fit.
    pub(super) fn tasks_on(&self, node: &NodeId, more: &[&Job]) -> Option<NodeTasks> {
        let is_there = |victim: &&&Job| victim.attempt().unwrap().nodes().contains(node);
        let victims: Vec<&Job> = self.victims.iter().chain(more).filter(is_there).copied().collect();
        let mut on_node = NodeTasks::new(&self.naive.space_after(node, &victims)?);
        for group in by_size(self.job) {
            let count = self.tasks.get(node).map_or(0, |tasks| tasks[group]);
            for _ in 0..count {
                self.naive.assign_one(self.job, group, node, &mut on_node).then_some(())?;
            }
        }
        Some(on_node)
    }

    pub(super) fn victims_for_one(&self, group: usize, node: &NodeId) -> Option<Vec<&'a Job>> {
        let mut candidates = self.naive.candidates(node);
        candidates.retain(|victim| !self.victims.iter().any(|other| other.id == victim.id));
        let candidates = self.naive.eligible_victims(self.job, candidates, &self.victims);
        minimal_victims(candidates, |victims| {
            let on_node = self.tasks_on(node, victims);
            on_node.is_some_and(|mut on_node| self.naive.assign_one(self.job, group, node, &mut on_node))
        })
    }

    pub(super) fn cost_of_one(&self, group: usize, node: &NodeId) -> Option<(u64, usize, NodeId)> {
        let victims = self.victims_for_one(group, node)?;
        Some((victims.iter().map(|victim| self.naive.eviction_cost(victim)).sum(), victims.len(), node.clone()))
    }
}
