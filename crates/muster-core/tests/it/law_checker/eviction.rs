//! Laws of evictions: rights, guarantees, loss limits, policy answers, and space afterwards.

use std::collections::BTreeSet;

use muster_core::accounting::preemption_loss::lost_gpu_ms;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::{Job, PlacedTask};
use muster_core::objects::node::NodeStatus;
use muster_core::objects::policy::Hook;
use muster_core::objects::settings::Objective;
use muster_core::queue::waiting_since;
use muster_core::{JobId, State, TenantId, Timestamp};

use crate::law_checker::{fraction_of, host_demand};
use crate::recompute::{
    demand_of, guarantee_holds, guarantor, held_below, held_by, is_below, is_ready, is_within_quota,
    is_within_user_quota, model_guarantee_holds, model_guarantors, model_milli, running_model_milli,
};
use crate::story_policies;

/// Tenants whose guarantee covers the preemptor: of amounts, and of devices of one model.
type Guarantors<'a> = (Option<&'a TenantId>, &'a [(&'a TenantId, &'a str)]);

/// Only a job within the same guarantee evicts a guaranteed job, one victim after the other. A job that is partly
/// borrowed may be reclaimed as a whole.
fn check_guarantees(
    before: &State,
    (by, by_model): Guarantors<'_>,
    (victim, reclaimed): (&Job, bool),
    evicted: &[JobId],
) {
    let leaves = |job: &&Job| {
        let stopping = job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        stopping || evicted.contains(&job.id) || job.id == victim.id
    };
    for tenant in before.lineage(&victim.spec.tenant) {
        let of_tenant = |job: &&Job| is_below(before, &job.spec.tenant, &tenant.id);
        let stays = || {
            let running = before.jobs.values().filter(|job| job.attempt().is_some());
            running.filter(|job| !leaves(job)).filter(of_tenant)
        };
        let left = stays().fold(Demand::default(), |sum, job| sum.plus(held_by(job)));
        let same = |by: &TenantId| is_below(before, by, &tenant.id);
        let from_below = by.is_some_and(same) || by_model.iter().any(|(by, _)| same(by));
        let owed = from_below || guarantee_holds(tenant, left, (victim, reclaimed));
        assert!(owed, "{} loses its guarantee", tenant.id);
        for (model, guaranteed) in &tenant.config.guaranteed_by_model {
            let of = |job: &Job| model_milli(before, &job.attempt().unwrap().tasks, model);
            let owed = model_guarantee_holds(*guaranteed, stays().map(of).sum(), (of(victim), reclaimed));
            let same = by_model.iter().any(|(by, of)| of == model && same(by));
            assert!(owed || same, "{} loses its guarantee of {model}", tenant.id);
        }
    }
}

/// Devices of a model that a tenant holds, and has claimed if the claim is still usable.
fn held_of_model(before: &State, top: &TenantId, model: &str, now: Timestamp) -> u64 {
    let claims = before.claims.iter().map(|(id, claim)| (&before.jobs[id], claim));
    let below = claims.filter(|(job, _)| is_below(before, &job.spec.tenant, top));
    let works = below.filter(|(job, claim)| is_ready(job) && before.is_claim_usable(job, claim, now));
    let claimed: u64 = works.map(|(_, claim)| model_milli(before, &claim.tasks, model)).sum();
    running_model_milli(before, top, model) + claimed
}

/// No tenant exceeds its preemption loss limit.
fn check_preemption_loss(before: &State, victims: &[JobId], now: Timestamp) {
    for tenant in before.tenants.values() {
        let Some(per_day) = tenant.config.preemption_loss_gpu_ms_per_day else { continue };
        let victims = victims.iter().map(|victim| &before.jobs[victim]);
        let own: Vec<&Job> = victims.filter(|job| is_below(before, &job.spec.tenant, &tenant.id)).collect();
        let lost: u64 = own.iter().map(|job| lost_gpu_ms(job, job.attempt().unwrap(), now)).sum();
        let borne = own.is_empty() || tenant.preemption_loss.gpu_ms(per_day, now) + lost <= per_day;
        assert!(borne, "{} exceeds its preemption loss limit", tenant.id);
    }
}

/// If policies of the cluster or of the tenant answer the hook `victims`, they have allowed each victim.
fn check_victim_answers(before: &State, id: JobId, victims: &[JobId]) {
    let job = &before.jobs[&id];
    let answer = before.policies.answers.of(&before.bucket(job));
    let is_active = story_policies::is_hook_active(before, Hook::Victims, &job.spec.tenant);
    for victim in victims.iter().filter_map(|victim| before.jobs.get(victim)) {
        let known = answer.and_then(|answer| answer.victims.get(&victim.id));
        assert!(!is_active || known == Some(&true), "{} was evicted for {id} without a policy answer", victim.id);
    }
}

/// The eviction is allowed, and the preemptor fits afterwards.
pub(super) fn check_eviction(before: &State, id: JobId, tasks: &[PlacedTask], victims: &[JobId], now: Timestamp) {
    check_victim_answers(before, id, victims);
    let job = &before.jobs[&id];
    assert!(before.settings.preemption && before.tenants[&job.spec.tenant].config.may_preempt);
    let demand = demand_of(job, tasks);
    assert!(is_ready(job) && is_within_quota(before, job, demand), "the preemptor {id} may not start");
    assert!(is_within_user_quota(before, job, demand), "the preemptor {id} exceeds a user limit");
    let within = story_policies::is_within_limits(before, job, demand, &[]);
    assert!(within, "the preemptor {id} exceeds a policy limit");
    check_preemption_loss(before, victims, now);
    let guarantor = guarantor(before, job, |tenant| held_below(before, tenant)).map(|by| &by.id);
    let by_model = model_guarantors(before, job, |tenant, model| held_of_model(before, tenant, model, now));
    for (place, victim) in victims.iter().map(|victim| &before.jobs[victim]).enumerate() {
        let config = &before.tenants[&victim.spec.tenant].config;
        let attempt = victim.attempt().unwrap();
        let passed = attempt.revocable && waiting_since(job).is_some_and(|since| since <= attempt.placed_at);
        let weaker = victim.spec.priority < job.spec.priority;
        let saves = victim.spec.checkpoint.is_some() || attempt.saved_at.is_some();
        let moved =
            before.settings.defragment && saves && victim.preemptions == 0 && victim.spec.priority <= job.spec.priority;
        let weaker = weaker || passed || moved || yields_to(before, victim, job, now);
        let elsewhere = |by: &TenantId| !is_below(before, &victim.spec.tenant, by);
        let on_model = |model: &str| model_milli(before, &attempt.tasks, model) > 0;
        let reclaimed =
            guarantor.is_some_and(elsewhere) || by_model.iter().any(|(by, model)| elsewhere(by) && on_model(model));
        assert!(weaker || reclaimed, "{} is not weaker than {id}", victim.id);
        check_guarantees(before, (guarantor, &by_model), (victim, reclaimed), &victims[..place]);
        assert!(config.may_be_preempted, "{} may not be preempted", victim.id);
        let often = config.preemptions_per_job_max.is_some_and(|max| victim.preemptions >= max);
        assert!(!often, "{} was preempted too often", victim.id);
        assert!(victim.attempt().unwrap().stopping.is_none(), "{} stops already", victim.id);
        let ran = now.since(victim.attempt().unwrap().placed_at);
        let in_cooldown = victim.preemptions > 0 && ran < before.settings.preemption_cooldown_ms;
        assert!(!in_cooldown, "{} is in its cooldown", victim.id);
    }
    for node in tasks.iter().map(|task| &task.node).collect::<BTreeSet<_>>() {
        check_space_after(before, job, tasks.iter().filter(|task| task.node == *node).collect(), victims);
    }
}

/// Under the objective `fast`, a longer job of no higher priority yields to a shorter one: once, or repeatedly if it
/// writes checkpoints.
fn yields_to(before: &State, victim: &Job, to: &Job, now: Timestamp) -> bool {
    let attempt = victim.attempt().unwrap();
    let saves = victim.spec.checkpoint.is_some() || attempt.saved_at.is_some();
    let (left, takes) = (before.remaining_ms(victim, now), before.remaining_ms(to, now));
    let smaller = takes as u64 * to.spec.demand().gpu_milli < left as u64 * held_by(victim).gpu_milli;
    before.settings.objective == Objective::Fast
        && (saves || victim.preemptions == 0)
        && victim.spec.priority <= to.spec.priority
        // A checkpointing job also yields to a job that ends sooner.
        && (smaller || (saves && takes < left))
}

/// On one node, the devices of these tasks are free after the eviction, and the cores suffice.
fn check_space_after(before: &State, job: &Job, tasks: Vec<&PlacedTask>, victims: &[JobId]) {
    let (id, node) = (job.id, &before.nodes[&tasks[0].node]);
    assert_eq!(node.status(), NodeStatus::Ready);
    for gpu in 0..node.holders.len() as u8 {
        let stays = node.jobs.iter().filter(|job| !victims.contains(job)).map(|job| &before.jobs[job]);
        let stays = stays.flat_map(|job| &job.attempt().unwrap().tasks).filter(|task| task.node == node.id);
        let holders = stays.chain(tasks.iter().copied()).filter(|task| task.gpus.contains(&gpu));
        let sum = holders.map(fraction_of).fold((0, 0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let wanted = tasks.iter().any(|task| task.gpus.contains(&gpu));
        assert!(!wanted || sum.0.max(sum.1) <= 1_000, "the devices of {id} are held by other jobs");
    }
    let staying = node.jobs.iter().filter(|job| !victims.contains(job)).map(|job| &before.jobs[job]);
    let staying: u64 = staying
        .flat_map(|job| job.attempt().unwrap().tasks.iter().map(move |task| (job, task)))
        .filter(|(_, task)| task.node == node.id)
        .map(|(job, task)| host_demand(job, task).0)
        .sum();
    let wanted: u64 = tasks.iter().map(|task| host_demand(job, task).0).sum();
    assert!(wanted == 0 || staying + wanted <= u64::from(node.facts.cpus), "{id} has too few cores");
}
