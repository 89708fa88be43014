//! Demand, usage, quotas and guarantees, recomputed job by job from the state. The law checker and the naive planner
//! compare the product with these.

use muster_core::accounting::tenant::Tenant;
use muster_core::gpu::gpu_share::{Isolation, ShareMode};
use muster_core::gpu::mig::Profile;
use muster_core::gpu::model;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Job, PlacedTask, Resources, TaskGroup};
use muster_core::objects::node::Node;
use muster_core::time::DAY;
use muster_core::{State, TenantId, Timestamp};

use crate::story::MODELS;
use crate::story_policies;

/// True if the job could be placed now, given space.
pub fn is_ready(job: &Job) -> bool {
    job.is_queued() && job.wakes_at.is_none() && job.open_dependencies.is_empty()
}

/// True if quotas, user limits, policy limits, budgets, policies and the array limit allow a start with this demand.
pub fn is_admitted(state: &State, job: &Job, demand: Demand, now: Timestamp) -> bool {
    let array = state.arrays.get(&job.id.number).filter(|_| job.id.index.is_some());
    let array_full = array.is_some_and(|array| array.running_max.is_some_and(|max| array.active >= max));
    is_within_quota(state, job, demand)
        && is_within_user_quota(state, job, demand)
        && story_policies::is_within_limits(state, job, demand, &[])
        && is_within_budget(state, job, now)
        && !array_full
        && story_policies::admits(state, job)
}

/// True if no budget of the tenant or an ancestor is used up, by charges and running attempts, and the remainder covers
/// the time limit of the job.
pub fn is_within_budget(state: &State, job: &Job, now: Timestamp) -> bool {
    let gpu_milli: u64 = job.spec.tasks.iter().map(requested_gpu_milli).sum();
    let limit_ms = job.spec.time_limit_ms.unwrap_or(0) as u64;
    let limit_gpu_ms = gpu_milli * limit_ms / 1_000;
    let limit_energy_mj = least_milliwatts(state, job) * limit_ms / 1_000;
    state.lineage(&job.spec.tenant).all(|top| {
        let (gpu_ms, energy_mj) = used_budget(state, &top.id, now);
        let budget = &top.config.budget;
        budget.gpu_ms.is_none_or(|limit| gpu_ms < limit && gpu_ms + limit_gpu_ms <= limit)
            && budget.energy_mj.is_none_or(|limit| energy_mj < limit && energy_mj + limit_energy_mj <= limit)
    })
}

fn requested_gpu_milli(group: &TaskGroup) -> u64 {
    u64::from(group.count) * u64::from(group.each.gpus) * u64::from(group.each.gpu_compute_milli)
}

/// GPU time and energy that a tenant and its descendants have used, with running attempts.
fn used_budget(state: &State, top: &TenantId, now: Timestamp) -> (u64, u64) {
    let (mut gpu_ms, mut energy_mj) = (0, 0);
    for (_, account) in state.ledger.accounts().filter(|(tenant, _)| is_below(state, tenant, top)) {
        gpu_ms += account.used.gpu_ms;
        energy_mj += account.used.energy_mj;
    }
    for job in state.jobs.values().filter(|job| is_below(state, &job.spec.tenant, top)) {
        let Some(attempt) = job.attempt() else { continue };
        let ms = now.since(attempt.placed_at) as u64;
        gpu_ms += held_by(job).gpu_milli * ms / 1_000;
        energy_mj += attempt.milliwatts * ms / 1_000;
    }
    (gpu_ms, energy_mj)
}

/// The lowest power of a gang: on the eligible GPUs with the lowest power limits.
fn least_milliwatts(state: &State, job: &Job) -> u64 {
    let mut sum = 0;
    for group in &job.spec.tasks {
        let each = &group.each;
        let registered = state.nodes.values().filter(|node| !node.declared);
        let eligible = registered
            .flat_map(|node| &node.facts.gpus)
            .filter(|gpu| has_requested_model(each, &gpu.model) && gpu.memory_mib >= each.gpu_memory_mib);
        let least = eligible.map(|gpu| gpu.power_limit_milliwatts.unwrap_or(0)).min();
        let milli = u64::from(group.count) * least_of_task(state, each).0;
        sum += least.unwrap_or(0) * milli / 1_000;
    }
    sum
}

fn has_requested_model(each: &Resources, model: &str) -> bool {
    each.gpu_models.is_empty() || each.gpu_models.iter().any(|name| model::matches(name, model))
}

/// The demand of placed tasks.
pub fn demand_of(job: &Job, tasks: &[PlacedTask]) -> Demand {
    let mut sum = Demand { jobs: 1, ..Demand::default() };
    for task in tasks {
        let each = &job.spec.tasks[task.group as usize].each;
        // A MIG instance counts with its full size; the naive planner checks that the placement records that size.
        let instance = task.share.as_ref().filter(|share| matches!(share.mode, ShareMode::Mig { .. }));
        sum.gpu_milli += match instance {
            Some(share) => u64::from(share.compute_milli),
            None => u64::from(each.gpus) * u64::from(each.gpu_compute_milli),
        };
        sum.gpu_memory_mib += instance.map_or(u64::from(each.gpus) * each.gpu_memory_mib, |share| share.memory_mib);
        sum.cpus += u64::from(each.cpus);
        sum.memory_mib += each.memory_mib;
    }
    sum
}

/// The size of an instance of a device: thousandths of its multiprocessors, rounded down, and MiB.
pub fn instance_size(node: &Node, gpu: u8, profile: &str) -> (u64, u64) {
    let facts = &node.facts.gpus[usize::from(gpu)];
    let profiles = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap().profiles;
    let found = profiles.iter().find(|one| one.name == profile).unwrap();
    let all = profiles.iter().map(|one| u64::from(one.multiprocessors)).max().unwrap();
    (u64::from(found.multiprocessors) * 1_000 / all, found.memory_mib)
}

/// The least demand of one task, in thousandths of GPUs and MiB of GPU memory. A task that needs full isolation takes
/// the smallest instance that any device could provide.
pub fn least_of_task(state: &State, each: &Resources) -> (u64, u64) {
    let requested =
        (u64::from(each.gpus) * u64::from(each.gpu_compute_milli), u64::from(each.gpus) * each.gpu_memory_mib);
    if each.isolation != Isolation::Full || each.gpus == 0 || each.gpu_compute_milli == 1_000 {
        return requested;
    }
    let instances = state.nodes.values().flat_map(|node| {
        let gpus = 0..node.facts.gpus.len() as u8;
        gpus.filter_map(|gpu| least_instance(node, gpu, each))
    });
    instances.min().unwrap_or(requested)
}

fn least_instance(node: &Node, gpu: u8, each: &Resources) -> Option<(u64, u64)> {
    let facts = &node.facts.gpus[usize::from(gpu)];
    let table = model::of_device(&facts.model, facts.memory_mib).and_then(|model| model.mig)?;
    let all = table.profiles.iter().map(|one| u64::from(one.multiprocessors)).max().unwrap();
    let enough = |one: &&Profile| {
        let milli = (u64::from(one.multiprocessors) * 1_000).div_ceil(all);
        one.is_plain() && one.memory_mib >= each.gpu_memory_mib && milli >= u64::from(each.gpu_compute_milli)
    };
    let mut eligible: Vec<_> = table.profiles.iter().filter(enough).collect();
    eligible.sort_by_key(|one| (one.compute_slices, one.memory_slices));
    let first = eligible.first().filter(|_| has_requested_model(each, &facts.model))?;
    Some(instance_size(node, gpu, first.name))
}

/// The least demand of a job, wherever it is placed.
pub fn least_demand(state: &State, job: &Job) -> Demand {
    let mut sum = Demand { jobs: 1, ..Demand::default() };
    for group in &job.spec.tasks {
        let count = u64::from(group.count);
        let (milli, memory_mib) = least_of_task(state, &group.each);
        sum.gpu_milli += count * milli;
        sum.gpu_memory_mib += count * memory_mib;
        sum.cpus += count * u64::from(group.each.cpus);
        sum.memory_mib += count * group.each.memory_mib;
    }
    sum
}

/// Usage of the attempt of a job.
pub fn held_by(job: &Job) -> Demand {
    demand_of(job, &job.attempt().unwrap().tasks)
}

/// The sum of the power limits of the devices of tasks, as the nodes are registered now.
pub fn milliwatts_of(state: &State, tasks: &[PlacedTask]) -> u64 {
    let mut sum = 0;
    for task in tasks {
        for gpu in &task.gpus {
            let facts = state.nodes.get(&task.node).and_then(|node| node.facts.gpus.get(usize::from(*gpu)));
            let all = facts.and_then(|gpu| gpu.power_limit_milliwatts).unwrap_or(0);
            sum += all * task.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli)) / 1_000;
        }
    }
    sum
}

/// True if the quotas of the tenant and its ancestors allow the demand.
pub fn is_within_quota(state: &State, job: &Job, demand: Demand) -> bool {
    state
        .lineage(&job.spec.tenant)
        .all(|tenant| tenant.config.maximum.excess(held_below(state, &tenant.id).plus(demand)).is_empty())
}

/// True if the user limits of the tenant and its ancestors allow the demand.
pub fn is_within_user_quota(state: &State, job: &Job, demand: Demand) -> bool {
    state.lineage(&job.spec.tenant).all(|top| {
        let held = held_by_user(state, &top.id, &job.spec.user);
        top.config.maximum_per_user.excess(held.plus(demand)).is_empty()
    })
}

/// Usage of a user in a tenant and its descendants.
pub fn held_by_user(state: &State, top: &TenantId, user: &str) -> Demand {
    let own = state.jobs.values().filter(|job| job.attempt().is_some() && job.spec.user == user);
    let below = own.filter(|job| is_below(state, &job.spec.tenant, top));
    below.fold(Demand::default(), |sum, job| sum.plus(held_by(job)))
}

/// The tenant of a job, or its nearest ancestor, whose guarantee covers the usage `held` and this job together.
pub fn guarantor<'a>(state: &'a State, job: &Job, held: impl Fn(&TenantId) -> Demand) -> Option<&'a Tenant> {
    state.lineage(&job.spec.tenant).find(|tenant| {
        let guaranteed = &tenant.config.guaranteed;
        let demand = least_demand(state, job);
        let applies = guaranteed.gpus.is_some() && demand.gpu_milli > 0 || guaranteed.jobs.is_some();
        applies && guaranteed.excess(held(&tenant.id).plus(demand)).is_empty()
    })
}

/// True if a tenant keeps its guarantee when `left` remains after the eviction of the victim; or if the victim is
/// reclaimed and the tenant was above its guarantee before.
pub fn guarantee_holds(tenant: &Tenant, left: Demand, (victim, reclaimed): (&Job, bool)) -> bool {
    let (guaranteed, demand) = (&tenant.config.guaranteed, held_by(victim));
    let keeps = (demand.gpu_milli == 0 || guaranteed.gpus.unwrap_or(0) * 1_000 <= left.gpu_milli)
        && guaranteed.jobs.unwrap_or(0) <= left.jobs;
    keeps || (reclaimed && !guaranteed.excess(left.plus(demand)).is_empty())
}

/// The half-life of the decayed usage of a tenant.
pub fn half_life(state: &State, tenant: &Tenant) -> i64 {
    let forgotten = f64::from(tenant.config.decay_milli_per_day) / 1_000.0;
    match tenant.config.decay_milli_per_day {
        0 => state.settings.usage_half_life_ms,
        1_000 => 1,
        _ => (DAY as f64 * 0.5_f64.ln() / (1.0 - forgotten).ln()).round() as i64,
    }
}

/// Each tenant of the lineage of a job, with a model, whose model guarantee covers the usage `held` and this job
/// together. Only devices of that model may be eligible for the job.
pub fn model_guarantors<'a>(
    state: &'a State,
    job: &Job,
    held: impl Fn(&TenantId, &str) -> u64,
) -> Vec<(&'a TenantId, &'a str)> {
    let mut found = Vec::new();
    for tenant in state.lineage(&job.spec.tenant) {
        for (model, count) in &tenant.config.guaranteed_by_model {
            if requests_only(job, model) && held(&tenant.id, model) + job.spec.demand().gpu_milli <= *count * 1_000 {
                found.push((&tenant.id, model.as_str()));
            }
        }
    }
    found
}

/// True if all eligible devices of a job, of those in stories, are of one model.
fn requests_only(job: &Job, model: &str) -> bool {
    let with_gpus: Vec<&TaskGroup> = job.spec.tasks.iter().filter(|group| group.each.gpus > 0).collect();
    let mut others = MODELS.iter().filter(|device| !model::matches(model, device));
    !with_gpus.is_empty()
        && !others.any(|device| with_gpus.iter().any(|group| has_requested_model(&group.each, device)))
}

/// Thousandths of devices of a model that tasks hold.
pub fn model_milli(state: &State, tasks: &[PlacedTask], model: &str) -> u64 {
    let mut milli = 0;
    for task in tasks {
        for gpu in &task.gpus {
            let facts = state.nodes.get(&task.node).and_then(|node| node.facts.gpus.get(usize::from(*gpu)));
            let is_model = facts.is_some_and(|gpu| model::matches(model, &gpu.model));
            let part = task.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli));
            milli += if is_model { part } else { 0 };
        }
    }
    milli
}

/// Thousandths of devices of a model that a tenant and its descendants hold.
pub fn running_model_milli(state: &State, top: &TenantId, model: &str) -> u64 {
    let below = state.jobs.values().filter(|job| is_below(state, &job.spec.tenant, top));
    below.filter_map(Job::attempt).map(|attempt| model_milli(state, &attempt.tasks, model)).sum()
}

/// The same as [`guarantee_holds`] for a guarantee of `guaranteed` GPUs of one model.
pub fn model_guarantee_holds(guaranteed: u64, left: u64, (of_victim, reclaimed): (u64, bool)) -> bool {
    let guaranteed = guaranteed * 1_000;
    of_victim == 0 || left >= guaranteed || (reclaimed && left + of_victim > guaranteed)
}

/// True if `tenant` is `top` or a descendant of it.
pub fn is_below(state: &State, tenant: &TenantId, top: &TenantId) -> bool {
    state.lineage(tenant).any(|above| above.id == *top)
}

/// Usage of a tenant and its descendants.
pub fn held_below(state: &State, top: &TenantId) -> Demand {
    let below = state.tenants.values().filter(|one| state.lineage(&one.id).any(|above| above.id == *top));
    below.fold(Demand::default(), |sum, tenant| sum.plus(tenant.held))
}
