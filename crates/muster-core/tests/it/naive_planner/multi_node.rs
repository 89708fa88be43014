//! Placement of a gang on several nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::objects::job::{Job, PlacedTask, TaskGroup, Topology};
use muster_core::{NodeId, State};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::{fit_gang, requires_locality};
use crate::naive_planner::space::{NodeTasks, Space, Spaces};

impl<'a> NaivePlanner<'a> {
    /// A placement on as few nodes as possible, in one rack if a rack has option, else in one block.
    pub(super) fn place_on_several(&self, job: &Job, spaces: &Spaces) -> Option<Vec<PlacedTask>> {
        if !may_span(job) {
            return None;
        }
        let facts = |node: &NodeId| &self.state.nodes[node].facts;
        let mut racks: BTreeMap<(Option<String>, String), Spaces> = BTreeMap::new();
        let mut blocks: BTreeMap<String, Spaces> = BTreeMap::new();
        for (node, space) in spaces {
            let (block, Some(rack)) = (facts(node).block.clone(), facts(node).rack.clone()) else { continue };
            racks.entry((block.clone(), rack)).or_default().insert(node.clone(), space.clone());
            let block = block.map(|block| blocks.entry(block).or_default());
            block.into_iter().for_each(|block| drop(block.insert(node.clone(), space.clone())));
        }
        let within = |options: Vec<Spaces>| {
            let free = |option: &Spaces| option.values().map(|(count, _)| count).sum::<usize>();
            let mut options = options;
            options.sort_by_key(free);
            options.into_iter().find_map(|option| self.place_on_several_beside(job, &option, BTreeMap::new()))
        };
        let in_a_rack = within(racks.into_values().collect());
        if job.spec.topology == Topology::SameRack {
            return in_a_rack;
        }
        let in_a_block = || within(blocks.into_values().collect());
        in_a_rack.or_else(in_a_block).or_else(|| self.place_on_several_beside(job, spaces, BTreeMap::new()))
    }

    /// A placement on the nodes that hold the most tasks; the last tasks go to the fullest node that holds them all.
    /// Nodes in `placed` hold tasks of the gang already and come first.
    pub(super) fn place_on_several_beside(
        &self,
        job: &Job,
        spaces: &Spaces,
        mut placed: BTreeMap<NodeId, NodeTasks>,
    ) -> Option<Vec<PlacedTask>> {
        for group in by_size(job) {
            let mut left = job.spec.tasks[group].count;
            let used: Vec<NodeId> = placed.keys().cloned().collect();
            for node in used {
                let on_node = placed.get_mut(&node).unwrap();
                while left > 0 && self.assign_one(job, group, &node, on_node) {
                    left -= 1;
                }
            }
            while left > 0 {
                let unused = spaces.iter().filter(|(node, _)| !placed.contains_key(*node));
                let options: Vec<(u32, usize, &NodeId)> = unused
                    .map(|(node, (count, space))| (self.tasks_that_fit(job, group, node, space), *count, node))
                    .collect();
                let most = options.iter().map(|(option, _, _)| *option).max().filter(|most| *most > 0)?;
                let is_preferred = |option: u32| if left <= most { option >= left } else { option == most };
                let best = options
                    .iter()
                    .filter(|(option, _, _)| is_preferred(*option))
                    .min_by_key(|(_, count, node)| (*count, *node));
                let node = best.map(|(_, _, node)| (*node).clone()).unwrap();
                let on_node = placed.entry(node.clone()).or_insert(NodeTasks::new(&spaces[&node].1));
                for _ in 0..most.min(left) {
                    assert!(self.assign_one(job, group, &node, on_node));
                    left -= 1;
                }
            }
        }
        Some(ranks(self.state, job, &placed))
    }

    /// Assign one task of a group on a node; false if it does not fit.
    pub(super) fn assign_one(&self, job: &Job, group: usize, id: &NodeId, on_node: &mut NodeTasks) -> bool {
        let node = &self.state.nodes[id];
        let mut one = job.clone();
        let mut spec = (*job.spec).clone();
        spec.tasks = vec![TaskGroup { count: 1, ..spec.tasks[group].clone() }];
        one.spec = Arc::new(spec);
        let left = self.affordable(job, id, &on_node.left);
        let Some(assignments) = fit_gang(&one, node, &left).filter(|_| self.model_allows(job, node)) else {
            return false;
        };
        on_node.left.take(&assignments[0].space(&one.spec.tasks[0].each));
        on_node.tasks.push((group, assignments[0].clone()));
        true
    }

    pub(super) fn tasks_that_fit(&self, job: &Job, group: usize, id: &NodeId, space: &Space) -> u32 {
        let mut on_node = NodeTasks::new(space);
        (0..job.spec.tasks[group].count).take_while(|_| self.assign_one(job, group, id, &mut on_node)).count() as u32
    }
}

/// True if the gang may span nodes.
pub(super) fn may_span(job: &Job) -> bool {
    job.spec.tasks.iter().map(|group| group.count).sum::<u32>() > 1 && !requires_locality(job)
}

/// Task groups, the largest request first.
pub(super) fn by_size(job: &Job) -> Vec<usize> {
    let mut groups: Vec<usize> = (0..job.spec.tasks.len()).collect();
    let size = |group: &usize| {
        let each = &job.spec.tasks[*group].each;
        (each.gpus, each.cpus, each.memory_mib)
    };
    groups.sort_by_key(|group| (Reverse(size(group)), *group));
    groups
}

/// Block and rack of a node; `None` if the rack is unknown.
pub(super) fn rack_of(state: &State, node: &NodeId) -> Option<(Option<String>, String)> {
    let facts = &state.nodes[node].facts;
    Some((facts.block.clone(), facts.rack.clone()?))
}

/// Placed tasks with ranks by group, rack and node name.
pub(super) fn ranks(state: &State, job: &Job, placed: &BTreeMap<NodeId, NodeTasks>) -> Vec<PlacedTask> {
    let mut tasks: Vec<PlacedTask> = Vec::new();
    let mut nodes: Vec<(&NodeId, &NodeTasks)> = placed.iter().collect();
    nodes.sort_by_key(|(node, _)| (rack_of(state, node), (*node).clone()));
    for group in 0..job.spec.tasks.len() {
        for (node, on_node) in &nodes {
            for (_, assignment) in on_node.tasks.iter().filter(|(of, _)| *of == group) {
                tasks.push(assignment.clone().placed(tasks.len() as u32, group as u32, node));
            }
        }
    }
    tasks
}
