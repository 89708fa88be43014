//! Rules and policy answers: priority, pools and protected victims.

use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::model;
use muster_core::objects::job::Job;
use muster_core::objects::policy::Hook;
use muster_core::objects::policy::rules::Rule;
use muster_core::policy::BucketAnswer;
use muster_core::{NodeId, State};

use crate::naive_planner::NaivePlanner;
use crate::naive_planner::space::Space;
use crate::story_policies;

impl<'a> NaivePlanner<'a> {
    /// The policy answer for the bucket of a job.
    pub(super) fn answer(&self, job: &Job) -> Option<&'a BucketAnswer> {
        self.state.policies.answers.of(&self.state.bucket(job))
    }

    pub(super) fn preemption_priority(&self, job: &Job) -> u32 {
        self.priority_by_policy(job).min(job.spec.priority)
    }

    /// True unless a rule or a policy answer protects the victim from this preemptor. A victim without an answer may be
    /// proposed.
    pub(super) fn policies_allow_eviction(&self, job: &Job, victim: &Job) -> bool {
        let denied = self.answer(job).is_some_and(|answer| answer.victims.get(&victim.id) == Some(&false));
        let is_active = story_policies::is_hook_active(self.state, Hook::Victims, &job.spec.tenant);
        rank_by_rule(self.state, job) <= rank_by_rule(self.state, victim) && !(is_active && denied)
    }

    /// `space` without devices outside the pool of the job and without instances that its quotas exclude.
    pub(super) fn in_pool(&self, job: &Job, id: &NodeId, space: &Space) -> Space {
        let mut space = space.clone();
        space.gpus.retain(|gpu, _| is_in_pool(self.state, job, id, *gpu));
        space.instances.retain(|(gpu, _)| is_in_pool(self.state, job, id, *gpu));
        self.affordable(job, id, &space)
    }
}

/// The active rules. Stories have at most one ruleset.
pub(super) fn rules(state: &State) -> Vec<Rule> {
    let schedules = state.policies.rules().map(|rules| rules.schedules.clone()).unwrap_or_default();
    schedules.into_values().next().map(|ruleset| ruleset.rules).unwrap_or_default()
}

/// The values of the first priority rule.
pub(super) fn priority_values(state: &State) -> Option<Vec<String>> {
    rules(state).into_iter().find_map(|rule| match rule {
        Rule::Priority { values, .. } => Some(values),
        _ => None,
    })
}

pub(super) fn rank_by_rule(state: &State, job: &Job) -> usize {
    let Some(values) = priority_values(state) else { return 0 };
    let place = job.spec.labels.get("job_priority").and_then(|value| values.iter().position(|one| one == value));
    place.unwrap_or(values.len())
}

/// True if a preemption rule protects a running job.
pub(super) fn is_protected_by_rule(state: &State, victim: &Job) -> bool {
    rules(state).into_iter().any(|rule| match rule {
        Rule::Preemption { allow: false, .. } => true,
        Rule::Preemption { priority_threshold: Some(threshold), .. } => {
            let default_values = || ["critical", "high", "normal", "low"].map(str::to_string).to_vec();
            let values = priority_values(state).unwrap_or_else(default_values);
            let place = |value: &String| values.iter().position(|one| one == value);
            let own = victim.spec.labels.get("job_priority").and_then(place);
            own.is_some_and(|own| own <= place(&threshold).unwrap())
        }
        _ => false,
    })
}

/// True if the pool of a job admits the device at its current temperature and health.
pub(super) fn is_in_pool(state: &State, job: &Job, id: &NodeId, gpu: u8) -> bool {
    let Some(name) = &job.spec.pool else { return true };
    let Some(pool) = state.policies.pool(name) else { return false };
    let node = &state.nodes[id];
    let (facts, health) = (&node.facts.gpus[usize::from(gpu)], &node.gpu_health[usize::from(gpu)]);
    let healthy = match health.status {
        GpuStatus::Healthy => 1_000,
        GpuStatus::Warning => 900,
        GpuStatus::Degraded => 500,
        GpuStatus::Unhealthy => 0,
    };
    let cool = health.temperature_c.is_none_or(|c| i64::from(c) * 1_000 <= pool.max_temp_milli_c);
    let large = facts.memory_mib as i64 * 1_000 / 1_024 >= pool.min_memory_milli_gb;
    let has_model = pool.gpu_types.iter().any(|name| model::matches(name, &facts.model));
    (pool.gpu_types.is_empty() || has_model) && cool && large && healthy >= pool.health_threshold_milli
}
