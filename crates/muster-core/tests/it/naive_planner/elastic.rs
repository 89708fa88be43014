//! Growth of elastic gangs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_core::NodeId;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Job, PlacedTask, TaskGroup, Topology};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::{is_degraded, requires_locality};
use crate::naive_planner::expected_end::irrevocable;
use crate::naive_planner::multi_node::rack_of;
use crate::naive_planner::space::NodeTasks;
use crate::recompute::{demand_of, milliwatts_of};

impl<'a> NaivePlanner<'a> {
    /// Elastic gangs that start grow into the space that no queued job uses.
    pub(super) fn grow_elastic(&mut self) {
        for place in 0..self.starts.len() {
            let job = &self.state.jobs[&self.starts[place].0];
            for group in 0..job.spec.tasks.len() {
                self.grow_group(place, job, group);
            }
        }
    }

    pub(super) fn grow_group(&mut self, place: usize, job: &'a Job, group: usize) {
        let own: BTreeSet<NodeId> = self.starts[place].1.iter().map(|task| task.node.clone()).collect();
        let mut spaces = BTreeMap::new();
        for (id, free) in &self.free {
            let mut usable = free.clone();
            usable.gpus.retain(|gpu, _| !is_degraded(&self.state.nodes[id], *gpu));
            usable.instances.retain(|(gpu, _)| !is_degraded(&self.state.nodes[id], *gpu));
            let usable = self.unreserved(id, &usable, irrevocable(self.expected_end(job)), Some(&job.spec.tenant));
            let near = self.may_grow_on(job, &own, id);
            spaces.extend(usable.filter(|_| near).map(|usable| (id.clone(), (free.whole(), usable))));
        }
        let of = &job.spec.tasks[group];
        let more = (1..=of.count_max.unwrap_or(of.count) - of.count).rev().find_map(|more| {
            let mut further = job.clone();
            let mut spec = (*job.spec).clone();
            spec.tasks = vec![TaskGroup { count: more, ..of.clone() }];
            further.spec = Arc::new(spec);
            let beside = own.iter().filter_map(|node| Some((node.clone(), NodeTasks::new(&spaces.get(node)?.1))));
            let tasks = self.place_on_several_beside(&further, &spaces, beside.collect())?;
            let milliwatts = milliwatts_of(self.state, &tasks);
            let demand = Demand { jobs: 0, milliwatts, ..demand_of(&further, &tasks) };
            self.quota_admits(job, demand).then_some((demand, tasks))
        });
        let Some((demand, tasks)) = more else { return };
        let expected_end = self.expected_end(job);
        for task in tasks {
            let task = PlacedTask { group: group as u32, ..task };
            self.take_space(job, &task, expected_end);
            self.starts[place].1.push(task);
        }
        let state = self.state;
        self.starts[place]
            .1
            .sort_by_key(|task| (task.group, rack_of(state, &task.node), task.node.clone(), task.gpus.clone()));
        (0..).zip(&mut self.starts[place].1).for_each(|(rank, task)| task.rank = rank);
        self.planned_usage.push((job, demand));
    }

    /// True if an elastic gang on the nodes `own` may grow onto another node.
    pub(super) fn may_grow_on(&self, job: &Job, own: &BTreeSet<NodeId>, id: &NodeId) -> bool {
        let rack = |node: &NodeId| self.state.nodes[node].facts.rack.clone();
        let same_rack = rack(id).is_some() && own.iter().all(|own| rack(own) == rack(id));
        match job.spec.topology {
            _ if requires_locality(job) => false,
            Topology::SameRack => own.contains(id) || same_rack,
            _ => true,
        }
    }
}
