//! What a person would have sent for a job of a log.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::job::{CheckpointRule, OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology};
use muster_core::settings::Settings;
use muster_core::{JobSpec, TenantId, model};

use super::{Assumptions, Site};
use crate::jobs::LoggedJob;

/// What a task has where the log says nothing of it.
const CPUS: u32 = 1;
const MEMORY_MIB: u64 = 1_024;
/// Longest name of a job.
const NAME_LENGTH_MAX: usize = 200;

/// A valid name for every tenant of a log. Two that differ only in what a name may not have stay two.
pub fn tenant_names(jobs: &[LoggedJob]) -> BTreeMap<&str, TenantId> {
    let names: BTreeSet<&str> = jobs.iter().map(|job| job.tenant.as_str()).collect();
    let mut taken = BTreeSet::new();
    names.into_iter().map(|name| (name, tenant_name(name, &mut taken))).collect()
}

fn tenant_name(name: &str, taken: &mut BTreeSet<String>) -> TenantId {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let plain: String = name.chars().map(plain).take(50).collect();
    let plain = plain.trim_start_matches('-');
    let plain = if plain.is_empty() { "tenant" } else { plain };
    let numbered = (2..).map(|number| format!("{plain}-{number}"));
    let free = std::iter::once(plain.to_string()).chain(numbered).find(|name| taken.insert(name.clone()));
    free.unwrap_or_default().parse().unwrap_or_else(|_| unreachable!("made of plain letters"))
}

/// What was asked for.
pub fn of(job: &LoggedJob, tenant: TenantId, site: &Site, assumptions: &Assumptions) -> JobSpec {
    let mut spec = match &job.spec {
        Some(spec) => as_it_was((**spec).clone(), tenant),
        None => as_told(job, tenant, site),
    };
    if assumptions.told {
        spec.time_limit_ms = Some(job.work_ms.max(1));
    }
    if let (None, Some(every_ms)) = (&spec.checkpoint, assumptions.saves_every_ms) {
        spec.checkpoint = Some(saves(every_ms));
    }
    spec
}

/// The order in which jobs came is in the log already, and pools belong to policies that are not here.
fn as_it_was(spec: JobSpec, tenant: TenantId) -> JobSpec {
    JobSpec { tenant, after: Vec::new(), start_after: None, pool: None, ..spec }
}

fn as_told(job: &LoggedJob, tenant: TenantId, site: &Site) -> JobSpec {
    JobSpec {
        name: printable(&job.name),
        tenant,
        user: printable(&job.user),
        priority: job.priority.unwrap_or(Settings::default().default_priority),
        tasks: tasks(job, site),
        topology: Topology::Any,
        allow_cross_numa: None,
        prefer_nvlink: false,
        gang_scheduling: None,
        time_limit_ms: job.time_limit_ms,
        restart: RestartRule::default(),
        on_node_lost: OnNodeLost::Wait,
        checkpoint: job.saves_every_ms.map(saves),
        after: Vec::new(),
        start_after: None,
        pool: None,
        node_labels: BTreeMap::new(),
        run: Run { command: vec!["job".to_string()], ..Run::default() },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

fn saves(every_ms: i64) -> CheckpointRule {
    CheckpointRule { path: "/checkpoint".to_string(), every_ms: Some(every_ms) }
}

fn printable(text: &str) -> String {
    let letters = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter });
    let text: String = letters.take(NAME_LENGTH_MAX / 4).collect();
    if text.trim().is_empty() { "job".to_string() } else { text }
}

/// Cores and memory go to the tasks by their GPUs.
fn tasks(job: &LoggedJob, site: &Site) -> Vec<TaskGroup> {
    let wish = job.model.iter().filter(|wish| site.has_model(wish));
    let models: BTreeSet<String> = wish.map(|wish| model::canonical(wish)).collect();
    let total = u64::from(job.gpus.total().max(1));
    let group = |(place, (count, gpus)): (usize, (u32, u32))| {
        let part = |whole: u64| (whole * u64::from(gpus)).div_ceil(total);
        let cpus = job.cpus.map(|cpus| u32::try_from(part(u64::from(cpus))).unwrap_or(u32::MAX));
        TaskGroup {
            name: if place == 0 { "worker" } else { "rest" }.to_string(),
            count,
            count_max: None,
            each: Resources {
                gpus,
                gpu_models: models.clone(),
                gpu_memory_mib: 0,
                gpu_compute_milli: 1_000,
                isolation: Default::default(),
                cpus: cpus.unwrap_or(CPUS).max(1),
                memory_mib: job.memory_mib.map_or(MEMORY_MIB, part),
            },
        }
    };
    job.gpus.tasks(site.node_gpus()).into_iter().enumerate().map(group).collect()
}
