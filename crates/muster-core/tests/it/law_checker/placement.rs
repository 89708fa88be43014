//! Laws of placements: readiness, limits, devices, locality and windows.

use std::collections::BTreeSet;

use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::gpu_share::ShareMode;
use muster_core::gpu::model;
use muster_core::objects::job::{Job, PlacedTask, Topology};
use muster_core::objects::node::{Node, NodeStatus};
use muster_core::state::Claim;
use muster_core::{GpuId, JobId, NodeId, State, Timestamp};

use crate::law_checker::transition::check_isolation;
use crate::law_checker::{LawChecker, Lease, fraction_of, host_demand};
use crate::recompute::{demand_of, is_admitted, is_below, is_ready, is_within_user_quota, milliwatts_of};

impl LawChecker {
    pub(super) fn check_placement(
        &mut self,
        before: &State,
        id: JobId,
        attempt: u32,
        tasks: &[PlacedTask],
        at: Timestamp,
    ) {
        assert!(!self.ended.contains(&id), "{id} has ended and runs again");
        let job = &before.jobs[&id];
        assert!(is_ready(job), "{id} was placed before it was ready");
        let demand = demand_of(job, tasks);
        assert!(is_within_user_quota(before, job, demand), "{id} was placed above a user limit");
        assert!(is_admitted(before, job, demand, at), "{id} was placed above a limit");
        for (group, of) in (0..).zip(&job.spec.tasks) {
            let placed = tasks.iter().filter(|task| task.group == group).count() as u32;
            assert!(of.count <= placed, "{id} was placed in part");
            assert!(placed <= of.count_max.unwrap_or(of.count), "{id} has more tasks than its maximum");
        }
        for task in tasks {
            self.check_devices(before, job, task, at);
        }
        check_model_limits(before, job, tasks);
        check_locality(before, job, tasks);
        let lease = Lease {
            attempt,
            at,
            milliwatts: milliwatts_of(before, tasks),
            tasks: tasks.iter().map(|task| (task.clone(), host_demand(job, task))).collect(),
        };
        let former = self.leases.insert(id, lease);
        assert!(former.is_none(), "{id} has two live attempts");
        // A node may register again with fewer cores than its jobs hold; a task without cores still fits.
        for task in tasks.iter().filter(|task| host_demand(job, task).0 > 0) {
            self.check_node_capacity(before, &task.node);
        }
    }

    /// Every device exists, is eligible and healthy, and no other job holds or claims it.
    fn check_devices(&self, before: &State, job: &Job, task: &PlacedTask, at: Timestamp) {
        let (node, each) = (&before.nodes[&task.node], &job.spec.tasks[task.group as usize].each);
        check_windows(before, job, &node.id, at);
        assert_eq!(node.status(), NodeStatus::Ready, "{} was placed on {}", job.id, node.id);
        assert_eq!(task.gpus.len(), each.gpus as usize, "{} got another number of GPUs", job.id);
        for index in &task.gpus {
            let gpu = GpuId { node: task.node.clone(), index: *index };
            let facts = &node.facts.gpus[usize::from(*index)];
            let has_model = |name: &String| model::matches(name, &facts.model);
            assert!(each.gpu_models.is_empty() || each.gpu_models.iter().any(has_model), "{gpu} is another model");
            assert!(facts.memory_mib >= each.gpu_memory_mib, "{gpu} has too little memory");
            if let Some(pool) = job.spec.pool.as_ref().and_then(|pool| before.policies.pool(pool)) {
                let health = &node.gpu_health[usize::from(*index)];
                let warm = health.temperature_c.is_some_and(|c| i64::from(c) * 1_000 > pool.max_temp_milli_c);
                let of_type = pool.gpu_types.iter().any(|name| model::matches(name, &facts.model));
                assert!(of_type || pool.gpu_types.is_empty(), "{gpu} is not of the pool `{}`", pool.name);
                assert!(!warm, "{gpu} is too warm for the pool `{}`", pool.name);
                let unhealthy = health.status != GpuStatus::Healthy && pool.health_threshold_milli > 900;
                assert!(!unhealthy, "{gpu} is not healthy enough for the pool `{}`", pool.name);
            }
            assert!(node.gpu_usable(usize::from(*index)), "{gpu} is not usable");
            if let Some(share) = &task.share {
                check_isolation(each.isolation, &share.mode, &facts.model);
            }
            if let Some(ShareMode::Mig { profile, start }) = task.share.as_ref().map(|share| &share.mode) {
                self.check_instance(node, (*index, *start), profile);
                continue;
            }
            assert!(node.instances(*index).is_empty(), "{gpu} is partitioned");
            let requested = fraction_of(task);
            let held = self.held_of(&gpu);
            assert!(
                held.0 + requested.0 <= 1_000 && held.1 + requested.1 <= 1_000,
                "{gpu} is oversubscribed: {held:?}"
            );
            let claimed = |(id, claim): (&JobId, &Claim)| *id != job.id && claim.holds(&task.node, *index);
            let whole = |(_, claim): &(&JobId, &Claim)| claim.tasks.iter().all(|task| task.share.is_none());
            let mut claims = before.claims.iter().filter(|(id, claim)| claimed((id, claim)));
            assert!(requested != (1_000, 1_000) || claims.next().is_none(), "{gpu} is claimed by another");
            assert!(!claims.any(|claim| whole(&claim)), "{gpu} is claimed as a whole by another");
        }
    }

    /// The instance exists and has no other holder.
    fn check_instance(&self, node: &Node, (gpu, start): (u8, u8), profile: &str) {
        let there = node.instances(gpu).iter().any(|one| one.start == start && one.profile == profile);
        assert!(there, "{}/gpu-{gpu} has no {profile} at {start}", node.id);
        let tasks = self.leases.values().flat_map(|lease| &lease.tasks).map(|(task, _)| task);
        let mut on_device = tasks.filter(|task| task.node == node.id && task.gpus == [gpu]);
        let taken = on_device.any(|task| {
            let mode = task.share.as_ref().map(|share| &share.mode);
            !matches!(mode, Some(ShareMode::Mig { start: other, .. }) if *other != start)
        });
        assert!(!taken, "{}/gpu-{gpu} has two holders at {start}", node.id);
    }

    /// The held part of a device, in thousandths of compute and of memory.
    fn held_of(&self, gpu: &GpuId) -> (u32, u32) {
        let tasks = self.leases.values().flat_map(|lease| &lease.tasks).map(|(task, _)| task);
        let on_device = tasks.filter(|task| task.node == gpu.node && task.gpus.contains(&gpu.index));
        on_device.map(fraction_of).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1))
    }

    fn check_node_capacity(&self, before: &State, node: &NodeId) {
        let tasks = || self.leases.values().flat_map(|lease| &lease.tasks);
        let on_node = || tasks().filter(|(task, _)| task.node == *node);
        let facts = &before.nodes[node].facts;
        let cpus: u64 = on_node().map(|(_, (cpus, _))| cpus).sum();
        let memory_mib: u64 = on_node().map(|(_, (_, memory_mib))| memory_mib).sum();
        assert!(cpus <= u64::from(facts.cpus), "{cpus} cores of {node} are held");
        assert!(memory_mib <= facts.memory_mib, "{memory_mib} MiB of {node} are held");
    }
}

/// A job is placed on a node with a window of others only if its time limit ends before the window.
fn check_windows(before: &State, job: &Job, node: &NodeId, at: Timestamp) {
    for window in before.windows.values().filter(|window| window.nodes.contains(node) && at < window.until) {
        let is_open = window.tenant.as_ref().is_some_and(|top| is_below(before, &job.spec.tenant, top));
        let over_by = job.spec.time_limit_ms.map(|limit| at.plus(limit + before.settings.stop_grace_ms));
        let ends_before = over_by.is_some_and(|end| end <= window.from);
        assert!(is_open || ends_before, "{} is placed on {node} in the window {}", job.id, window.name);
    }
}

/// The required locality holds for all GPUs of the gang together.
fn check_locality(before: &State, job: &Job, tasks: &[PlacedTask]) {
    let gpus = || tasks.iter().flat_map(|task| task.gpus.iter().map(move |gpu| (&task.node, *gpu)));
    let facts = |(node, gpu): (&NodeId, u8)| &before.nodes[node].facts.gpus[usize::from(gpu)];
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    let (id, topology) = (job.id, job.spec.topology);
    let numa: BTreeSet<Option<u32>> = gpus().map(|gpu| facts(gpu).numa_node).collect();
    let one_numa = topology == Topology::SameNuma || job.spec.allow_cross_numa == Some(false);
    let shared = tasks.iter().any(|task| task.share.is_some());
    assert!(!one_numa || shared || (nodes.len() == 1 && numa.len() <= 1), "{id} is on several NUMA nodes");
    if topology == Topology::Nvlink && !shared {
        let all: Vec<u8> = gpus().map(|(_, gpu)| gpu).collect();
        let linked = |one: u8, other: u8| {
            let node = tasks[0].node.clone();
            facts((&node, one)).nvlink.contains(&other) || facts((&node, other)).nvlink.contains(&one)
        };
        let mut reached: Vec<u8> = all.first().copied().into_iter().collect();
        while let Some(next) =
            all.iter().find(|gpu| !reached.contains(gpu) && reached.iter().any(|one| linked(*one, **gpu)))
        {
            reached.push(*next);
        }
        assert!(nodes.len() == 1 && reached.len() == all.len(), "{id} is not joined by NVLink");
    }
    let racks: BTreeSet<&Option<String>> = nodes.iter().map(|node| &before.nodes[*node].facts.rack).collect();
    let one_rack = nodes.len() == 1 || (racks.len() == 1 && !racks.contains(&None));
    assert!(topology != Topology::SameRack || one_rack, "{id} is in several racks");
}

/// No model limit of the tenant or an ancestor is exceeded.
fn check_model_limits(before: &State, job: &Job, tasks: &[PlacedTask]) {
    let device = |node: &NodeId, gpu: u8| before.nodes[node].facts.gpus[usize::from(gpu)].model.as_str();
    let parts = |task: &PlacedTask| {
        let part = u64::from(fraction_of(task).0);
        task.gpus.iter().map(|gpu| (device(&task.node, *gpu), part)).collect::<Vec<_>>()
    };
    let new: Vec<(&str, u64)> = tasks.iter().flat_map(parts).collect();
    for tenant in before.lineage(&job.spec.tenant) {
        let below = |job: &&Job| is_below(before, &job.spec.tenant, &tenant.id);
        let held = before.jobs.values().filter(below).filter_map(Job::attempt).flat_map(|attempt| &attempt.tasks);
        let held: Vec<(&str, u64)> = held.flat_map(parts).collect();
        for (model, limit) in &tenant.config.maximum_by_model {
            let of_model = |devices: &[(&str, u64)]| -> u64 {
                devices.iter().filter(|(one, _)| model::matches(model, one)).map(|(_, part)| part).sum()
            };
            let exceeded = of_model(&new) > 0 && of_model(&held) + of_model(&new) > *limit * 1_000;
            assert!(!exceeded, "{} exceeds the limit of {model} of {}", job.id, tenant.id);
        }
    }
}
