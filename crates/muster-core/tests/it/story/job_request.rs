//! Random job requests of stories.

use muster_core::facts::command::{ArraySpec, IdempotencyKey, SubmitJob};
use muster_core::gpu::gpu_share::Isolation;
use muster_core::objects::job::{
    CheckpointRule, Dependency, DependencyWhen, JobSpec, OnNodeLost, Resources, TaskGroup, Topology,
};
use muster_core::objects::settings::PRIORITY_MAX;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{State, Timestamp};
use proptest::prelude::*;

use super::{TENANTS, any_job, tenant_name};
use crate::builders::{job, submission};

/// Model requests of jobs, several separated by commas.
const MODEL_REQUESTS: [&str; 10] = ["", "", "", "", "", "H100", "H100", "A100", "H100-80GB", "H100,A100"];
/// GPU shares: compute in thousandths, memory in MiB.
const SHARES: [(u32, u64); 6] = [(500, 0), (300, 40_960), (250, 0), (700, 8_192), (999, 0), (100, 27_307)];
pub(super) const PRIORITIES: [u32; 8] = [50, 100, 100, 100, 200, 500, 900, PRIORITY_MAX];

/// A random job request.
#[derive(Debug, Clone)]
pub struct JobRequest {
    tenant: usize,
    priority: u32,
    tasks: u32,
    gpus: u32,
    cpus: u32,
    model: usize,
    after: Option<(usize, usize)>,
    array: Option<(u32, Option<u32>)>,
    rules: usize,
    /// A GPU share instead of whole GPUs.
    share: Option<usize>,
}

pub(super) fn job_request() -> impl Strategy<Value = JobRequest> {
    let array = prop::option::weighted(0.1, (1..4u32, prop::option::of(1..3u32)));
    let after = prop::option::weighted(0.08, (0..8usize, 0..3usize));
    let size = (1..3u32, prop_oneof![1 => Just(0u32), 6 => 1..3u32, 1 => 3..5u32], 0..3u32);
    let share = prop::option::weighted(0.3, 0..SHARES.len());
    let rules = (0..20usize, share);
    (0..TENANTS.len(), 0..PRIORITIES.len(), size, 0..MODEL_REQUESTS.len(), after, array, rules).prop_map(
        |(tenant, priority, (tasks, gpus, cpus), model, after, array, (rules, share))| {
            let (priority, tasks) = (PRIORITIES[priority], if rules.is_multiple_of(3) { tasks } else { 1 });
            let tasks = if share.is_some_and(|share| share % 2 == 1) { 2 * tasks } else { tasks };
            JobRequest { tenant, priority, tasks, gpus, cpus, model, after, array, rules, share }
        },
    )
}

impl JobRequest {
    /// The submission. Some jobs are arrays, are held, or have an idempotency key.
    pub fn submission(&self, state: &State, now: Timestamp) -> SubmitJob {
        let key = (self.rules % 10 == 9)
            .then(|| IdempotencyKey { key: format!("k{}", self.gpus), body_hash: format!("{self:?}") });
        let array = self.array.map(|(tasks, running_max)| ArraySpec { indexes: (0..tasks).collect(), running_max });
        SubmitJob { array, hold: self.rules == 13, key, ..submission(self.spec(state, now)) }
    }

    pub fn spec(&self, state: &State, now: Timestamp) -> JobSpec {
        let user = ["ada", "bob", "cyd"][self.rules % 3];
        let job = job().name("story").user(user).priority(self.priority).tasks(self.tasks).gpus(self.gpus);
        let mut spec = job.cpus(self.cpus).build();
        spec.tenant = tenant_name(self.tenant);
        spec.tasks[0].count_max = (self.rules % 7 == 3).then_some(self.tasks + 1 + self.rules as u32 / 7);
        spec.tasks[0].each.memory_mib = 1_000 * u64::from(self.cpus);
        if self.rules % 5 == 4 {
            spec.tasks.insert(self.rules % 2, launcher(spec.tasks[0].clone()));
        }
        if let Some((milli, mib)) = self.share.map(|share| SHARES[share]).filter(|_| self.gpus > 0) {
            let worker = spec.tasks.iter_mut().find(|group| group.name != "launcher").unwrap();
            (worker.each.gpus, worker.each.gpu_compute_milli, worker.each.gpu_memory_mib) = (1, milli, mib);
            worker.each.isolation = [Isolation::None, Isolation::Memory, Isolation::Full][self.model % 3];
        }
        let models = MODEL_REQUESTS[self.model];
        let worker = spec.tasks.iter_mut().find(|group| group.name != "launcher").unwrap();
        worker.each.gpu_models = models.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect();
        spec.topology = match (self.rules, self.model) {
            (0..3, 0..4) => Topology::SameNuma,
            (3..6, 0..4) => Topology::Nvlink,
            (6..10, 0..6) => Topology::SameRack,
            _ => Topology::Any,
        };
        let values = ["critical", "high", "normal", "low", "whatever"];
        if let Some(value) = values.get(self.rules % 7) {
            spec.labels.insert("job_priority".to_string(), value.to_string());
        }
        let single = self.tasks == 1 && spec.tasks.len() == 1 && spec.tasks[0].count_max.is_none();
        let pool = ["fast", "cool", "any"][self.model % 3];
        spec.pool = (single && self.rules % 4 == 1 && state.policies.pool(pool).is_some()).then(|| pool.to_string());
        spec.prefer_nvlink = self.rules % 4 == 2;
        spec.allow_cross_numa = (self.rules == 11).then_some(self.model > 2);
        spec.restart.max_restarts = (self.rules % 3) as u32;
        spec.time_limit_ms = (self.rules % 4 == 1).then_some([10 * MINUTE, MINUTE, 3 * HOUR][self.tenant]);
        spec.checkpoint =
            (self.rules % 6 == 2).then(|| CheckpointRule { path: "/out".to_string(), every_ms: Some(2 * MINUTE) });
        spec.start_after = (self.rules == 7).then(|| now.plus(MINUTE));
        spec.on_node_lost = if self.rules.is_multiple_of(2) { OnNodeLost::Wait } else { OnNodeLost::Requeue };
        let when = [DependencyWhen::Succeeded, DependencyWhen::Failed, DependencyWhen::Ended];
        let after = self.after.and_then(|(index, which)| Some((any_job(state, index)?, when[which])));
        spec.after = after.map(|(job, when)| Dependency { job, when }).into_iter().collect();
        spec
    }
}

/// A task group of one task without GPUs.
fn launcher(worker: TaskGroup) -> TaskGroup {
    let each = Resources { gpus: 0, cpus: 1, memory_mib: 1_000, ..worker.each };
    TaskGroup { name: "launcher".to_string(), count: 1, count_max: None, each }
}
