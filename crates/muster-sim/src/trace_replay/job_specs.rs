//! The job specs of a log: what a user would have submitted.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::gpu::model;
use muster_core::objects::job::{CheckpointRule, Resources, Run, TaskGroup};
use muster_core::objects::settings::Settings;
use muster_core::{JobSpec, TenantId};

use super::{ReplayAssumptions, ReplayCluster};
use crate::job_log::LoggedJob;

/// The cores and memory of a task if the log does not record them.
const TASK_CPUS_DEFAULT: u32 = 1;
const TASK_MEMORY_MIB_DEFAULT: u64 = 1_024;
/// The longest name of a job, in bytes.
const NAME_LENGTH_MAX: usize = 200;

/// A valid id for every tenant of a log. Names that differ only in characters that ids do not allow get different
/// ids.
pub fn tenant_ids(jobs: &[LoggedJob]) -> BTreeMap<&str, TenantId> {
    let names: BTreeSet<&str> = jobs.iter().map(|job| job.tenant.as_str()).collect();
    let mut used = BTreeSet::new();
    names.into_iter().map(|name| (name, tenant_id(name, &mut used))).collect()
}

fn tenant_id(name: &str, used: &mut BTreeSet<String>) -> TenantId {
    let allowed = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let base: String = name.chars().map(allowed).take(50).collect();
    let base = base.trim_start_matches('-');
    let base = if base.is_empty() { "tenant" } else { base };
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let unused = std::iter::once(base.to_string()).chain(numbered).find(|name| used.insert(name.clone()));
    unused.unwrap_or_default().parse().unwrap_or_else(|_| unreachable!("made of allowed characters"))
}

/// The spec of a logged job.
pub fn job_spec(
    job: &LoggedJob,
    tenant: TenantId,
    cluster: &ReplayCluster,
    assumptions: &ReplayAssumptions,
) -> JobSpec {
    let mut spec = match &job.spec {
        Some(spec) => from_recorded_spec((**spec).clone(), tenant),
        None => from_log_fields(job, tenant, cluster),
    };
    if assumptions.are_durations_known {
        spec.time_limit_ms = Some(job.work_ms.max(1));
    }
    if let (None, Some(every_ms)) = (&spec.checkpoint, assumptions.checkpoint_every_ms) {
        spec.checkpoint = Some(checkpoint_rule(every_ms));
    }
    spec
}

/// Dependencies and start times are dropped because the log already gives the submission times; pools are dropped
/// because their policies are not loaded.
fn from_recorded_spec(spec: JobSpec, tenant: TenantId) -> JobSpec {
    JobSpec { tenant, after: Vec::new(), start_after: None, pool: None, ..spec }
}

fn from_log_fields(job: &LoggedJob, tenant: TenantId, cluster: &ReplayCluster) -> JobSpec {
    JobSpec {
        priority: job.priority.unwrap_or(Settings::default().default_priority),
        time_limit_ms: job.time_limit_ms,
        checkpoint: job.checkpoint_every_ms.map(checkpoint_rule),
        run: Run { command: vec!["job".to_string()], ..Run::default() },
        ..JobSpec::new(&printable(&job.name), tenant, &printable(&job.user), tasks(job, cluster))
    }
}

fn checkpoint_rule(every_ms: i64) -> CheckpointRule {
    CheckpointRule { path: "/checkpoint".to_string(), every_ms: Some(every_ms) }
}

fn printable(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let text: String = letters.take(NAME_LENGTH_MAX / 4).collect();
    if text.trim().is_empty() { "job".to_string() } else { text }
}

/// The task groups; cores and memory are divided by the GPUs of the tasks.
fn tasks(job: &LoggedJob, cluster: &ReplayCluster) -> Vec<TaskGroup> {
    let model_name = job.gpu_model.iter().filter(|model_name| cluster.has_model(model_name));
    let models: BTreeSet<String> = model_name.map(|model_name| model::canonical(model_name)).collect();
    let total = u64::from(job.gpus.total().max(1));
    let group = |(index, (count, gpus)): (usize, (u32, u32))| {
        let part = |whole: u64| (whole * u64::from(gpus)).div_ceil(total);
        let cpus = job.cpus.map(|cpus| u32::try_from(part(u64::from(cpus))).unwrap_or(u32::MAX));
        TaskGroup {
            name: if index == 0 { "worker" } else { "rest" }.to_string(),
            count,
            count_max: None,
            each: Resources {
                gpus,
                gpu_models: models.clone(),
                gpu_memory_mib: 0,
                gpu_compute_milli: 1_000,
                isolation: Default::default(),
                cpus: cpus.unwrap_or(TASK_CPUS_DEFAULT).max(1),
                memory_mib: job.memory_mib.map_or(TASK_MEMORY_MIB_DEFAULT, part),
            },
        }
    };
    job.gpus.tasks(cluster.largest_node_gpus()).into_iter().enumerate().map(group).collect()
}
