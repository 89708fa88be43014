//! Assignments of devices to tasks on one node, by trying all of them.

use std::collections::BTreeSet;

use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::gpu_share::{Isolation, Share, ShareMode};
use muster_core::gpu::model;
use muster_core::gpu::topology::{LocalityRequirement, NodeTopology};
use muster_core::objects::job::{Job, PlacedTask, Resources, TaskGroup, Topology};
use muster_core::objects::node::Node;

use crate::naive_planner::locality::meets_requirement;
use crate::naive_planner::space::{Assignment, Space, WHOLE};
use crate::recompute::instance_size;

/// Best fit order: shared devices, instances, idle devices; then free compute, instance size, device, start.
pub(super) type AssignmentOrder = (u8, u32, (u32, u64), u8, u8);

/// True for a job of a single task that takes a fraction or an instance of a device.
pub(super) fn is_single_share(job: &Job) -> bool {
    matches!(&job.spec.tasks[..], [group] if group.count == 1 && is_shared(&group.each))
}

pub(super) fn is_shared(each: &Resources) -> bool {
    each.gpus > 0 && each.gpu_compute_milli < 1_000
}

/// Every placement of a gang on a node.
pub(super) fn every_placement(job: &Job, node: &Node, space: &Space) -> Vec<Vec<PlacedTask>> {
    let mut found: Vec<(Space, Vec<(usize, Assignment)>)> = vec![(space.clone(), Vec::new())];
    for (group, of) in job.spec.tasks.iter().enumerate() {
        for _ in 0..of.count {
            let mut longer = Vec::new();
            for (left, assigned) in found {
                for assignment in every_assignment(&of.each, node, &left, is_single_share(job)) {
                    let before = assigned.last().filter(|(other, _)| *other == group);
                    if before.is_some_and(|(_, before)| assignment_order(&assignment) < assignment_order(before)) {
                        continue;
                    }
                    let mut left = left.clone();
                    left.take(&assignment.space(&of.each));
                    longer.push((left, [&assigned[..], &[(group, assignment)]].concat()));
                }
            }
            found = longer;
        }
    }
    assert!(found.len() <= 100, "{} placements", found.len());
    let placed = found.into_iter().map(|(_, assigned)| {
        let ranked = (0..).zip(assigned);
        ranked.map(|(rank, (group, assignment))| assignment.placed(rank, group as u32, &node.id)).collect()
    });
    let close = |tasks: &Vec<PlacedTask>| {
        let whole = tasks.iter().filter(|task| task.share.is_none());
        let gpus: Vec<u8> = whole.flat_map(|task| task.gpus.iter().copied()).collect();
        meets_requirement(job, &node.facts, &gpus)
    };
    placed.filter(close).collect()
}

/// Every assignment of one task: of whole devices every set. For a single task in best-fit order, otherwise by kind of
/// assignment and device.
pub(super) fn every_assignment(each: &Resources, node: &Node, left: &Space, single: bool) -> Vec<Assignment> {
    if left.cpus < u64::from(each.cpus) || left.memory_mib < each.memory_mib {
        return Vec::new();
    }
    if !is_shared(each) {
        let free = left.gpus.iter().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
        let free: Vec<u8> = free.filter(|gpu| is_eligible(each, node, *gpu)).collect();
        let sets = (0..1u32 << free.len()).filter(|set| set.count_ones() == each.gpus);
        let gpus = |set: u32| (0..).zip(&free).filter(move |(at, _): &(u32, _)| set >> at & 1 == 1);
        let assignment = |set: u32| Assignment { gpus: gpus(set).map(|(_, gpu)| *gpu).collect(), share: None };
        return sets.map(assignment).collect();
    }
    let mut assignments = [fractions(each, node, left), instances(each, node, left)].concat();
    match single {
        true => assignments.sort_by_key(|(order, _)| *order),
        false => assignments.sort_by_key(|(_, assignment)| assignment_order(assignment)),
    }
    assignments.into_iter().map(|(_, assignment)| assignment).collect()
}

/// Whole devices, fractions, instances; then by device.
pub(super) fn assignment_order(assignment: &Assignment) -> (u8, u64, u8) {
    let devices = assignment.gpus.iter().fold(0u64, |all, gpu| all | 1 << gpu);
    match assignment.share.as_ref().map(|share| &share.mode) {
        None => (0, devices, 0),
        Some(ShareMode::Mig { start, .. }) => (2, devices, *start),
        Some(_) => (1, devices, 0),
    }
}

/// True if all GPUs of the gang must be on one NUMA node or joined by NVLink.
pub(super) fn requires_locality(job: &Job) -> bool {
    matches!(job.spec.topology, Topology::SameNuma | Topology::Nvlink) || job.spec.allow_cross_numa == Some(false)
}

pub(super) fn is_degraded(node: &Node, gpu: u8) -> bool {
    node.gpu_health[usize::from(gpu)].status == GpuStatus::Degraded
}

/// Assignments for all tasks of a gang on one node; `None` if they do not fit.
pub(super) fn fit_gang(job: &Job, node: &Node, space: &Space) -> Option<Vec<Assignment>> {
    let demand = job.spec.demand();
    if space.cpus < demand.cpus || space.memory_mib < demand.memory_mib {
        return None;
    }
    let mut left = space.clone();
    let whole = |group: &TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli == 1_000;
    if requires_locality(job) && job.spec.tasks.iter().any(whole) {
        let together = closest_devices(job, node, space)?;
        left.gpus.retain(|gpu, part| *part != WHOLE || together.contains(gpu));
    }
    let mut assignments = Vec::new();
    for group in &job.spec.tasks {
        for _ in 0..group.count {
            let assignment = assign_task(job, &group.each, node, &left)?;
            left.take(&Space { cpus: 0, memory_mib: 0, ..assignment.space(&group.each) });
            assignments.push(assignment);
        }
    }
    Some(assignments)
}

/// The devices of a gang with a required locality: the best of all sets.
pub(super) fn closest_devices(job: &Job, node: &Node, space: &Space) -> Option<BTreeSet<u8>> {
    let whole = |group: &&TaskGroup| group.each.gpus > 0 && group.each.gpu_compute_milli == 1_000;
    let groups: Vec<&TaskGroup> = job.spec.tasks.iter().filter(whole).collect();
    let count = groups.iter().map(|group| group.count * group.each.gpus).sum();
    let good = |gpu: &u8| groups.iter().all(|group| is_eligible(&group.each, node, *gpu));
    let free = space.gpus.iter().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
    best_set(node, free.filter(good).collect(), count, job.spec.locality())
}

/// The best set of `count` devices, by comparing all sets. The order of the sets is the product's; `topology.rs` tests
/// it.
pub(super) fn best_set(
    node: &Node,
    free: Vec<u8>,
    count: u32,
    requirement: LocalityRequirement,
) -> Option<BTreeSet<u8>> {
    let topology = NodeTopology::of(&node.facts.gpus, &node.facts.numa);
    let bits = |set: u64| (0..64).filter(move |gpu| set >> gpu & 1 == 1);
    let free: u64 = free.iter().fold(0, |all, gpu| all | 1 << gpu);
    let sets = (0..=free).filter(|set| set & !free == 0 && set.count_ones() == count);
    let ranked = sets.filter_map(|set| Some((topology.rank(free, set, requirement)?, set)));
    ranked.min().map(|(_, set)| bits(set).collect())
}

/// The assignment of one task in best-fit order.
pub(super) fn assign_task(job: &Job, each: &Resources, node: &Node, left: &Space) -> Option<Assignment> {
    let good = || left.gpus.iter().filter(|(gpu, _)| is_eligible(each, node, **gpu));
    if each.gpus == 0 || each.gpu_compute_milli == 1_000 {
        let whole = good().filter(|(_, part)| **part == WHOLE).map(|(gpu, _)| *gpu);
        let requirement = job.spec.locality().as_preference();
        let gpus = best_set(node, whole.collect(), each.gpus, requirement)?.into_iter().collect();
        return Some(Assignment { gpus, share: None });
    }
    // The fullest shared device with room, else the smallest instance, else an idle device.
    let all = fractions(each, node, left).into_iter().chain(instances(each, node, left));
    all.min_by_key(|(order, _)| *order).map(|(_, assignment)| assignment)
}

/// Fractions of eligible devices, each with its best-fit order.
pub(super) fn fractions(each: &Resources, node: &Node, left: &Space) -> Vec<(AssignmentOrder, Assignment)> {
    let limits = |gpu: &u8| model::can_limit_shares(&node.facts.gpus[usize::from(*gpu)].model);
    let apart = |gpu: &u8| match each.isolation {
        Isolation::None => true,
        Isolation::Memory => limits(gpu),
        Isolation::Full => false,
    };
    let mut found = Vec::new();
    for (gpu, part) in left.gpus.iter().filter(|(gpu, _)| is_eligible(each, node, **gpu) && apart(gpu)) {
        let share = share_of(each, node, *gpu);
        if share.compute_milli <= part.0 && share.memory_milli <= part.1 {
            let order = (if *part == WHOLE { 2 } else { 0 }, part.0, (0, 0), *gpu, 0);
            found.push((order, Assignment { gpus: vec![*gpu], share: Some(share) }));
        }
    }
    found
}

/// Eligible instances, each with its best-fit order.
pub(super) fn instances(each: &Resources, node: &Node, left: &Space) -> Vec<(AssignmentOrder, Assignment)> {
    let mut found = Vec::new();
    for (gpu, start) in &left.instances {
        let facts = &node.facts.gpus[usize::from(*gpu)];
        let has_model = |name: &String| model::matches(name, &facts.model);
        let one = node.instances(*gpu).iter().find(|one| one.start == *start).unwrap();
        let table = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap();
        let profile = table.profile(&one.profile).unwrap();
        let (milli, memory_mib) = (table.compute_milli(profile), table.profiles[usize::from(profile)].memory_mib);
        let enough = milli >= each.gpu_compute_milli && memory_mib >= each.gpu_memory_mib;
        if enough && (each.gpu_models.is_empty() || each.gpu_models.iter().any(has_model)) {
            let mode = ShareMode::Mig { profile: one.profile.clone(), start: *start };
            let (held, _) = instance_size(node, *gpu, &one.profile);
            let memory_milli = memory_mib * 1_000 / facts.memory_mib;
            let share =
                Share { compute_milli: held as u32, memory_milli: (memory_milli as u32).min(1_000), memory_mib, mode };
            let order = (1, 0, (milli, memory_mib), *gpu, *start);
            found.push((order, Assignment { gpus: vec![*gpu], share: Some(share) }));
        }
    }
    found
}

/// The share of a device that a task gets.
pub(super) fn share_of(each: &Resources, node: &Node, gpu: u8) -> Share {
    let (all, mib) = (node.facts.gpus[usize::from(gpu)].memory_mib, each.gpu_memory_mib);
    let by_compute = u64::from(each.gpu_compute_milli) * all / 1_000;
    let memory_milli = if mib == 0 { each.gpu_compute_milli } else { (mib * 1_000).div_ceil(all) as u32 };
    Share {
        compute_milli: each.gpu_compute_milli,
        memory_milli,
        memory_mib: if mib == 0 { by_compute } else { mib },
        mode: match model::can_limit_shares(&node.facts.gpus[usize::from(gpu)].model) {
            true => ShareMode::Mps,
            false => ShareMode::TimeSlice,
        },
    }
}

/// True if a placed task has the share that it would get now.
pub(super) fn has_current_share(each: &Resources, node: &Node, gpu: u8, task: &PlacedTask) -> bool {
    if let Some(ShareMode::Mig { start, .. }) = task.share.as_ref().map(|share| &share.mode) {
        let mut left = Space::default();
        let there = node.instances(gpu).iter().any(|one| one.start == *start);
        left.instances.insert((gpu, *start));
        let now = if there { instances(each, node, &left) } else { Vec::new() };
        return now.first().is_some_and(|(_, assignment)| assignment.share.as_ref() == task.share.as_deref());
    }
    let now = (each.gpu_compute_milli < 1_000).then(|| share_of(each, node, gpu));
    let parts = |share: &Share| (share.compute_milli, share.memory_milli);
    now.as_ref().map(parts) == task.share.as_deref().map(parts)
}

pub(super) fn is_eligible(each: &Resources, node: &Node, gpu: u8) -> bool {
    let Some(facts) = node.facts.gpus.get(usize::from(gpu)) else { return false };
    if !node.instances(gpu).is_empty() {
        return each.gpu_compute_milli < 1_000;
    }
    let models = &each.gpu_models;
    facts.memory_mib >= each.gpu_memory_mib
        && (models.is_empty() || models.iter().any(|name| model::matches(name, &facts.model)))
}
