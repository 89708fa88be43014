//! Admission: quotas, user limits, model limits, budgets, array limits and policy limits.

use muster_core::accounting::tenant::Tenant;
use muster_core::gpu::model;
use muster_core::gpu::partition::check;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Job, PlacedTask, TaskGroup};
use muster_core::objects::node::Node;
use muster_core::objects::tenant::Quota;
use muster_core::{NodeId, TenantId};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::devices::instances;
use crate::naive_planner::multi_node::may_span;
use crate::naive_planner::policies::is_in_pool;
use crate::naive_planner::space::Space;
use crate::recompute::{
    held_below, held_by_user, instance_size, is_below, is_within_budget, least_demand, least_of_task,
};
use crate::story_policies;

impl<'a> NaivePlanner<'a> {
    /// `space` without instances that exceed a quota or a model limit. What remains beyond the least demand of the
    /// gang is divided evenly among its tasks that share.
    pub(super) fn affordable(&self, job: &Job, id: &NodeId, space: &Space) -> Space {
        let mut space = space.clone();
        space.instances.retain(|(gpu, start)| self.is_affordable(job, id, *gpu, *start));
        space
    }

    pub(super) fn is_affordable(&self, job: &Job, id: &NodeId, gpu: u8, start: u8) -> bool {
        let node = &self.state.nodes[id];
        // A node may have registered again with other devices, or with a layout that is not legal.
        let known = usize::from(gpu) < node.facts.gpus.len()
            && check(&node.facts.gpus[usize::from(gpu)], gpu, node.instances(gpu)).is_ok();
        let one = node.instances(gpu).iter().find(|one| one.start == start).filter(|_| known);
        let Some(one) = one else { return false };
        let (milli, mib) = instance_size(node, gpu, &one.profile);
        let shares = |group: &&TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli < 1_000;
        let sharing: Vec<&TaskGroup> = job.spec.tasks.iter().filter(shares).collect();
        let tasks: u64 = sharing.iter().map(|group| u64::from(group.count)).sum();
        let (all, mut milli_left, mut mib_left) = (least_demand(self.state, job), u64::MAX, u64::MAX);
        let mut limit = |quota: &Quota, held: Demand| {
            let left = quota.gpus.map_or(u64::MAX, |gpus| (gpus * 1_000).saturating_sub(held.gpu_milli));
            milli_left = milli_left.min(left);
            let left = quota.gpu_memory_mib.map_or(u64::MAX, |mib| mib.saturating_sub(held.gpu_memory_mib));
            mib_left = mib_left.min(left);
        };
        for tenant in self.state.lineage(&job.spec.tenant) {
            limit(&tenant.config.maximum, self.usage(&tenant.id));
            limit(&tenant.config.maximum_per_user, self.held_by_user(job, tenant));
        }
        milli_left = milli_left.min(story_policies::gpu_milli_left(self.state, job, &self.planned_usage));
        for (used, most) in self.uses_of_model(job, node) {
            milli_left = milli_left.min((most * 1_000).saturating_sub(used));
        }
        let each: Vec<(u64, u64)> = sharing.iter().map(|of| least_of_task(self.state, &of.each)).collect();
        let more = milli_left.saturating_sub(all.gpu_milli) / tasks.max(1);
        let more_mib = mib_left.saturating_sub(all.gpu_memory_mib) / tasks.max(1);
        each.iter()
            .any(|(least, least_mib)| milli <= least.saturating_add(more) && mib <= least_mib.saturating_add(more_mib))
    }

    /// The usage of a tenant and its descendants, with starts and claims of this plan.
    pub(super) fn usage(&self, top: &TenantId) -> Demand {
        let more = self.planned_usage.iter().filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, (_, demand)| sum.plus(*demand))
    }

    pub(super) fn admits(&self, job: &Job) -> bool {
        let same = |other: &Job| other.id.number == job.id.number;
        let siblings = self.planned_usage.iter().filter(|(other, _)| same(other)).count() as u32;
        let array = self.state.arrays.get(&job.id.number);
        let full = array.is_some_and(|array| array.running_max.is_some_and(|max| array.active + siblings >= max));
        let affordable = is_within_budget(self.state, job, self.now);
        let admitted = story_policies::admits(self.state, job);
        self.quota_admits(job, least_demand(self.state, job)) && affordable && !full && admitted
    }

    pub(super) fn quota_admits(&self, job: &Job, more: Demand) -> bool {
        let room_in = |tenant: &Tenant| tenant.config.maximum.excess(self.usage(&tenant.id).plus(more)).is_empty();
        let user_has_room = |top: &Tenant| self.user_has_room(job, top, more);
        self.state.lineage(&job.spec.tenant).all(room_in)
            && self.state.lineage(&job.spec.tenant).all(user_has_room)
            && story_policies::is_within_limits(self.state, job, more, &self.planned_usage)
    }

    /// True if the user limit of the tenant `top` allows `more`.
    pub(super) fn user_has_room(&self, job: &Job, top: &Tenant, more: Demand) -> bool {
        top.config.maximum_per_user.excess(self.held_by_user(job, top).plus(more)).is_empty()
    }

    /// The usage of the user of a job in a tenant and its descendants.
    pub(super) fn held_by_user(&self, job: &Job, top: &Tenant) -> Demand {
        let same = |other: &Job| other.spec.user == job.spec.user && is_below(self.state, &other.spec.tenant, &top.id);
        let planned = self.planned_usage.iter().filter(|(other, _)| same(other));
        let held = held_by_user(self.state, &top.id, &job.spec.user);
        planned.fold(held, |sum, (_, demand)| sum.plus(*demand))
    }

    /// True if the model limits allow the gang on the node. All devices of a node of a story have one model.
    pub(super) fn model_allows(&self, job: &Job, node: &Node) -> bool {
        let Some(of_node) = node.facts.gpus.first().map(|gpu| gpu.model.as_str()) else { return true };
        let more = self.largest_milli(job, node);
        let with_gpus = job.spec.tasks.iter().filter(|group| group.each.gpus > 0);
        let accepts = |group: &TaskGroup| {
            let models = &group.each.gpu_models;
            models.is_empty() || models.iter().any(|name| model::matches(name, of_node))
        };
        // Tasks on other nodes are counted as if they were on this one, if any task could be.
        let gpus = 0..node.facts.gpus.len() as u8;
        let there = gpus.filter(|gpu| is_in_pool(self.state, job, &node.id, *gpu)).count() as u64;
        let more = match (with_gpus.into_iter().any(accepts), may_span(job)) {
            (false, _) => 0,
            (true, true) => more,
            (true, false) => more.min(there * 1_000),
        };
        self.uses_of_model(job, node).into_iter().all(|(used, limit)| more == 0 || used + more <= limit * 1_000)
    }

    /// The most that a gang can hold on such nodes: each task has the largest eligible instance.
    pub(super) fn largest_milli(&self, job: &Job, node: &Node) -> u64 {
        let mut sum = 0;
        for group in &job.spec.tasks {
            let each = &group.each;
            let mut most = least_of_task(self.state, each).0;
            let known = |gpu: u8| check(&node.facts.gpus[usize::from(gpu)], gpu, node.instances(gpu)).is_ok();
            for gpu in (0..node.facts.gpus.len() as u8).filter(|gpu| known(*gpu)) {
                for one in node.instances(gpu) {
                    let mut left = Space::default();
                    left.instances.insert((gpu, one.start));
                    let shares = each.gpus > 0 && each.gpu_compute_milli < 1_000;
                    let left = self.in_pool(job, &node.id, &left);
                    if shares && !instances(each, node, &left).is_empty() {
                        most = most.max(instance_size(node, gpu, &one.profile).0);
                    }
                }
            }
            sum += u64::from(group.count) * most;
        }
        sum
    }

    /// Usage and limit of the model of a node, for each model limit of the tenant and its ancestors.
    pub(super) fn uses_of_model(&self, job: &Job, node: &Node) -> Vec<(u64, u64)> {
        let Some(of_node) = node.facts.gpus.first().map(|gpu| gpu.model.as_str()) else { return Vec::new() };
        let mut found = Vec::new();
        for tenant in self.state.lineage(&job.spec.tenant) {
            let below = |id: &TenantId| is_below(self.state, id, &tenant.id);
            let held = self.state.jobs.values().filter(|job| below(&job.spec.tenant));
            let held = held.filter_map(Job::attempt).flat_map(|attempt| &attempt.tasks);
            let planned = self.planned_devices.iter().filter(|(owner, _)| below(owner)).map(|(_, task)| task);
            let tasks: Vec<&PlacedTask> = held.chain(planned).collect();
            let limits = tenant.config.maximum_by_model.iter();
            for (limited, limit) in limits.filter(|(limited, _)| model::matches(limited, of_node)) {
                // A device that is missing may be of another model than its neighbours.
                let is_model = |node: &NodeId, gpu: &u8| {
                    let gpu = &self.state.nodes[node].facts.gpus[usize::from(*gpu)];
                    model::matches(limited, &gpu.model)
                };
                let of_task = |task: &&PlacedTask| {
                    let devices = task.gpus.iter().filter(|gpu| is_model(&task.node, gpu)).count() as u64;
                    devices * task.gpu_milli() / (task.gpus.len() as u64).max(1)
                };
                found.push((tasks.iter().map(of_task).sum(), *limit));
            }
        }
        found
    }
}
