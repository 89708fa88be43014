//! Laws of other transitions: shorter grace, policy answers, partitions, isolation, wakeups and retries.

use muster_core::gpu::device::MigInstance;
use muster_core::gpu::gpu_share::{Isolation, ShareMode};
use muster_core::gpu::model;
use muster_core::gpu::partition::check;
use muster_core::objects::job::StopCause;
use muster_core::objects::policy::{Hook, JobAnswer, PolicyScope, RetryAnswer};
use muster_core::{GpuId, JobId, State, Timestamp};

use crate::story_policies;

/// Only a stopping job that queues again gets a shorter grace.
pub(super) fn check_shorter_grace(before: &State, id: JobId, grace_ms: i64, at: Timestamp) {
    let attempt = before.jobs[&id].attempt().unwrap();
    let stopping = attempt.stopping.as_ref().unwrap_or_else(|| panic!("{id} is not stopping"));
    let ends = matches!(stopping.cause, StopCause::Cancelled { .. } | StopCause::TimeLimit | StopCause::GangFailed);
    assert!(!ends, "{id} ends for good and must keep its grace");
    assert!(grace_ms < stopping.grace_ms, "{id} has a longer grace than before");
    assert!(at.since(stopping.since) < grace_ms, "{id} has no time left to exit");
}

/// Only policies of the cluster raise a priority.
pub(super) fn check_policy_answer(before: &State, answered: &JobAnswer) {
    let requested = before.jobs[&answered.job].spec.priority;
    let cluster = before.policies.active(&PolicyScope::Cluster);
    let raises = cluster.is_some_and(|version| version.bundle.hooks.contains(&Hook::Priority));
    let kept = raises || answered.priority.is_none_or(|priority| priority <= requested);
    assert!(kept, "the priority of {} was raised without a policy of the cluster", answered.job);
}

/// A device is partitioned legally, or as its agent found it, and never while a job holds or claims it.
pub(super) fn check_partition(before: &State, gpu: &GpuId, instances: &[MigInstance], why: &str) {
    let Some(node) = before.nodes.get(&gpu.node) else { return };
    assert!(!node.is_held(usize::from(gpu.index)), "{gpu} is partitioned while it is held");
    let claimed = before.claims.values().any(|claim| claim.holds(&gpu.node, gpu.index));
    assert!(!claimed, "{gpu} is partitioned while it is claimed");
    let legal = check(&node.facts.gpus[usize::from(gpu.index)], gpu.index, instances);
    assert!(legal.is_ok() || why == "found by its agent", "{gpu}: {legal:?}");
}

/// The sharing mode provides the requested isolation.
pub(super) fn check_isolation(isolation: Isolation, mode: &ShareMode, model: &str) {
    match (isolation, mode) {
        (Isolation::Full, ShareMode::Mps | ShareMode::TimeSlice) => panic!("{mode:?} has no full isolation"),
        (Isolation::Memory, ShareMode::TimeSlice) => panic!("a time slice does not isolate memory"),
        (_, ShareMode::Mps) => assert!(model::can_limit_shares(model), "{model} has no MPS limits"),
        _ => {}
    }
}

/// No failed job wakes before the active policies have answered the hook `retry`.
pub(super) fn check_wakeup(before: &State, job: JobId, at: Timestamp) {
    let asleep = &before.jobs[&job];
    assert!(asleep.wakes_at.is_some_and(|moment| moment <= at), "{job} woke early");
    let is_active = story_policies::is_hook_active(before, Hook::Retry, &asleep.spec.tenant);
    assert!(!is_active || !before.policies.failures.contains_key(&job), "{job} woke without a policy answer");
}

/// A policy delays a restart by at most a day, and never brings it forward.
pub(super) fn check_retry(before: &State, answer: &RetryAnswer, wakes_at: Timestamp, at: Timestamp) {
    let failure = &before.policies.failures[&answer.job];
    assert_eq!(failure.seen.attempt, answer.attempt, "{}: the answer is about another attempt", answer.job);
    let meant = before.jobs[&answer.job].wakes_at.unwrap();
    assert!(wakes_at >= meant, "a policy brings {} forward", answer.job);
    assert!(wakes_at <= meant.max(at.plus(24 * 3_600_000)), "a policy delays {} for too long", answer.job);
}
