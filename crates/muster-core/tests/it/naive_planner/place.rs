//! Placement of a gang on one node: all placements are scored and the cheapest wins.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::NodeId;
use muster_core::gpu::device::GpuStatus;
use muster_core::objects::job::{Job, PlacedTask};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::{every_placement, fit_gang, is_degraded, is_single_share};
use crate::naive_planner::policies::rules;
use crate::naive_planner::score::{Cost, Placement};
use crate::naive_planner::space::{Assignment, Space, Spaces, free_on};

impl<'a> NaivePlanner<'a> {
    /// Start a job at its cheapest placement; on degraded devices only if there is no other placement.
    pub(super) fn start(&mut self, job: &'a Job) -> bool {
        for avoid_degraded in [true, false] {
            let mut spaces = BTreeMap::new();
            for (id, free) in &self.free {
                let mut usable = free.clone();
                if avoid_degraded {
                    usable.gpus.retain(|gpu, _| !is_degraded(&self.state.nodes[id], *gpu));
                    usable.instances.retain(|(gpu, _)| !is_degraded(&self.state.nodes[id], *gpu));
                }
                let usable = self.unreserved(id, &usable, self.expected_end(job), Some(&job.spec.tenant));
                spaces.extend(usable.map(|usable| (id.clone(), (free.whole(), usable))));
            }
            if let Some(tasks) = self.best_placement(job, &spaces) {
                self.record_start(job, tasks);
                return true;
            }
        }
        false
    }

    /// The cheapest placement on one node, then by node name; else on several nodes. All placements are scored.
    pub(super) fn best_placement(&self, job: &Job, spaces: &Spaces) -> Option<Vec<PlacedTask>> {
        let mut found = Vec::new();
        for (id, (_, space)) in spaces {
            for tasks in self.all_placements(job, id, space) {
                found.push((self.cost(job, id, &tasks), id, tasks));
            }
        }
        // `min_by_key` gives the first of equal placements.
        let Some((least, _, tasks)) = found.iter().min_by_key(|(cost, id, _)| (cost.key(), *id)) else {
            return self.place_on_several(job, spaces);
        };
        // The two planners compute costs by different formulas. If the product's choice is as cheap as the cheapest
        // placement, to a millionth of a device, it is accepted.
        let is_proposed = |tasks: &[PlacedTask]| self.proposed.get(&job.id).is_some_and(|all| contains(all, tasks));
        let close = found.iter().find(|(cost, _, tasks)| cost.is_close_to(least) && is_proposed(tasks));
        Some(close.map_or(tasks, |(_, _, tasks)| tasks).clone())
    }

    /// Every placement of a gang on a node: for each subset of warning devices to avoid, the best fit first, then all
    /// others. With more than four warning devices only all or none are avoided.
    pub(super) fn all_placements(&self, job: &Job, id: &NodeId, space: &Space) -> Vec<Vec<PlacedTask>> {
        let node = &self.state.nodes[id];
        let warning = |gpu: &u8| node.gpu_health[usize::from(*gpu)].status == GpuStatus::Warning;
        let touched: BTreeSet<u8> =
            space.gpus.keys().copied().chain(space.instances.iter().map(|(gpu, _)| *gpu)).collect();
        let warning: Vec<u8> = touched.into_iter().filter(warning).collect();
        let sets = (0..1u32 << warning.len()).rev();
        let sets = sets.filter(|set| warning.len() <= 4 || *set == 0 || *set + 1 == 1 << warning.len());
        let mut found = Vec::new();
        for set in sets {
            let avoided = |gpu: &u8| warning.iter().position(|one| one == gpu).is_some_and(|at| set >> at & 1 == 1);
            let mut space = space.clone();
            space.gpus.retain(|gpu, _| !avoided(gpu));
            space.instances.retain(|(gpu, _)| !avoided(gpu));
            if let Some(best_fit) = self.fit_on_node(job, id, &space) {
                if !is_single_share(job) {
                    found.push(best_fit);
                }
                found.extend(every_placement(job, node, &self.in_pool(job, id, &space)));
            }
        }
        found
    }

    fn cost(&self, job: &Job, id: &NodeId, tasks: &[PlacedTask]) -> Cost {
        let (node, free) = (&self.state.nodes[id], &self.free[id]);
        let placement = Placement {
            state: self.state,
            node,
            job,
            tasks,
            free,
            fragmentation: &self.fragmentation[id],
            untouched: *free == free_on(node),
            rules: &rules(self.state),
        };
        placement.cost()
    }

    /// The best-fit placement of a whole gang on a node, if it fits and model limits allow it.
    pub(super) fn fit_on_node(&self, job: &Job, id: &NodeId, space: &Space) -> Option<Vec<PlacedTask>> {
        let (node, space) = (&self.state.nodes[id], &self.in_pool(job, id, space));
        let assignments = fit_gang(job, node, space).filter(|_| self.model_allows(job, node))?;
        let groups = job.spec.tasks.iter().zip(0..).flat_map(|(group, index)| vec![index; group.count as usize]);
        let task = |((rank, group), assignment): (_, Assignment)| assignment.placed(rank, group, id);
        Some((0..).zip(groups).zip(assignments).map(task).collect())
    }
}

/// True if each task is among `all`, at any rank: an elastic gang may have grown since.
fn contains(all: &[PlacedTask], tasks: &[PlacedTask]) -> bool {
    tasks.iter().all(|task| all.iter().any(|other| PlacedTask { rank: task.rank, ..other.clone() } == *task))
}
