//! Remedies: the smallest changes to a waiting job that start it at once.
//!
//! Nothing is guessed. Each change is made on a copy of the state, and a round is planned with it. Only a change that
//! starts the job there is reported, so a reported remedy holds as long as nothing else has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::estimate::expected_end::LIMIT_STEPS_MS;
use crate::facts::command::{Actor, Command, JobChange, SubmitJob};
use crate::gpu::gpu_share::Isolation;
use crate::ids::JobId;
use crate::objects::job::{Job, JobSpec, Topology};
use crate::resources::ResourceIndex;

use crate::objects::policy::Hook;
use crate::objects::tenant::Tier;
use crate::planner::explain::dry_run::dry_run;
use crate::planner::plan;
use crate::state::State;
use crate::time::{DAY, HOUR, MINUTE, Timestamp};

/// Most values of one remedy that are tried.
const TRIES_MAX: usize = 8;

/// A change that starts a job at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Remedy {
    /// Fewer GPUs per task.
    Gpus { each: u32 },
    Tasks {
        /// All tasks of the gang.
        count: u32,
    },
    /// GPUs of any model.
    AnyModel,
    /// GPUs without a required topology.
    AnyTopology,
    /// Weaker isolation from the other jobs on a shared GPU.
    Isolation { isolation: Isolation },
    /// Fewer CPU cores per task.
    Cpus { each: u32 },
    /// A shorter time limit, so that the job backfills: it ends before the reservations of other jobs.
    TimeLimit { ms: i64 },
    Priority {
        priority: u32,
        /// Other jobs would be preempted for it.
        displaces: bool,
    },
}

impl Remedy {
    /// True if the waiting job can be changed and keeps its position in the queue; else it must be submitted again.
    pub fn keeps_queue_position(&self) -> bool {
        matches!(self, Remedy::TimeLimit { .. } | Remedy::Priority { .. })
    }

    /// The change to the waiting job. `None` if the job must be submitted again.
    pub fn job_change(&self) -> Option<JobChange> {
        match self {
            Remedy::TimeLimit { ms } => Some(JobChange { time_limit_ms: Some(Some(*ms)), ..JobChange::default() }),
            Remedy::Priority { priority, .. } => Some(JobChange { priority: Some(*priority), ..JobChange::default() }),
            _ => None,
        }
    }

    /// The spec with the change.
    pub fn applied_to(&self, spec: &JobSpec) -> JobSpec {
        let mut spec = spec.clone();
        let most = spec.tasks.iter().map(|group| group.each.gpus).max().unwrap_or_default();
        match self {
            Remedy::Gpus { each } => {
                let large = spec.tasks.iter_mut().filter(|group| group.each.gpus == most);
                large.for_each(|group| group.each.gpus = *each);
            }
            Remedy::Tasks { count } => {
                let others: u32 = spec.tasks.iter().map(|group| group.count).sum();
                if let Some(group) = spec.tasks.iter_mut().max_by_key(|group| group.count) {
                    group.count = count.saturating_sub(others - group.count).max(1);
                }
            }
            Remedy::AnyModel => spec.tasks.iter_mut().for_each(|group| group.each.gpu_models.clear()),
            Remedy::AnyTopology => (spec.topology, spec.allow_cross_numa) = (Topology::Any, None),
            Remedy::Isolation { isolation } => {
                spec.tasks.iter_mut().for_each(|group| group.each.isolation = group.each.isolation.min(*isolation));
            }
            Remedy::Cpus { each } => {
                spec.tasks.iter_mut().for_each(|group| group.each.cpus = group.each.cpus.min(*each));
            }
            Remedy::TimeLimit { ms } => spec.time_limit_ms = Some(*ms),
            Remedy::Priority { priority, .. } => spec.priority = *priority,
        }
        spec
    }

    /// The remedy for people, after "sooner with".
    pub fn phrase(&self) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        match self {
            Remedy::Gpus { each } => format!("{each} GPU{}", plural(*each)),
            Remedy::Tasks { count } => format!("{count} task{}", plural(*count)),
            Remedy::AnyModel => "any GPU model".to_string(),
            Remedy::AnyTopology => "any topology".to_string(),
            Remedy::Isolation { isolation } => format!("isolation {}", isolation.as_str()),
            Remedy::Cpus { each } => format!("{each} CPU core{} per task", plural(*each)),
            Remedy::TimeLimit { ms } if ms % DAY == 0 => format!("a time limit of {}d", ms / DAY),
            Remedy::TimeLimit { ms } if ms % HOUR == 0 => format!("a time limit of {}h", ms / HOUR),
            Remedy::TimeLimit { ms } => format!("a time limit of {}m", ms / MINUTE),
            Remedy::Priority { priority, displaces: false } => format!("priority {priority}"),
            Remedy::Priority { priority, displaces: true } => {
                format!("priority {priority}, preempting other jobs")
            }
        }
    }
}

/// The smallest change of each kind that starts a waiting job in the next round, among the changes that the actor may
/// make. Costs a copy of the state and some twenty rounds at most.
pub fn remedies(state: &State, by: &Actor, id: JobId, now: Timestamp) -> Vec<Remedy> {
    let Some(job) = state.jobs.get(&id).filter(|job| job.is_queued() && job.open_dependencies.is_empty()) else {
        return Vec::new();
    };
    if !by.may_change(&job.spec) {
        return Vec::new();
    }
    let ceiling = state.priority_ceiling(by, &job.spec.tenant).priority;
    // The answers of policies on the changed job are unknown until the policies are called.
    if Hook::BEFORE_START.into_iter().any(|hook| state.policies.answers_hook(hook, &job.spec.tenant)) {
        return Vec::new();
    }
    // Policy limits apply to tenants, so those known now hold for the changed job too. Without them nothing is known.
    if !state.knows_limits(&job.spec.tenant) {
        return Vec::new();
    }
    let mut copy = state.clone();
    let mut found: Vec<Remedy> = Vec::new();
    found.extend(time_limits(job).find(|remedy| starts_when_changed(&mut copy, job, remedy, now).is_some()));
    found.extend(priorities(job, ceiling).find_map(|remedy| starts_when_changed(&mut copy, job, &remedy, now)));
    apply_command(&mut copy, &Command::CancelJob { job: id }, now);
    // The state drops limits of a tenant without waiting jobs; the policies would answer the same again.
    copy.policies.limits.clone_from(&state.policies.limits);
    let starts = |remedy: &Remedy| starts_when_new(&copy, by, remedy.applied_to(&job.spec), now);
    found.extend(fewer_gpus(&job.spec).find(starts));
    found.extend(fewer_tasks(&job.spec).find(starts));
    found.extend(any_model(&job.spec).filter(starts));
    found.extend(any_topology(&job.spec).filter(starts));
    found.extend(less_isolation(&job.spec).find(starts));
    found.extend(fewer_cores(&job.spec, &state.resources).find(starts));
    found
}

/// Change a waiting job on the copy, plan a round, and change the job back. Returns the remedy if the job starts.
fn starts_when_changed(copy: &mut State, job: &Job, remedy: &Remedy, now: Timestamp) -> Option<Remedy> {
    let change = remedy.job_change()?;
    let undo = JobChange {
        priority: Some(job.spec.priority),
        time_limit_ms: Some(job.spec.time_limit_ms),
        ..JobChange::default()
    };
    apply_command(copy, &Command::ChangeJob { job: job.id, change }, now);
    let plan = plan(copy, now).plan;
    apply_command(copy, &Command::ChangeJob { job: job.id, change: undo }, now);
    let starts = plan.starts.iter().any(|start| start.job == job.id);
    let displaces = plan.evictions.iter().any(|eviction| eviction.job == job.id);
    match remedy {
        Remedy::Priority { priority, .. } if starts || displaces => {
            Some(Remedy::Priority { priority: *priority, displaces })
        }
        Remedy::TimeLimit { .. } if starts => Some(remedy.clone()),
        _ => None,
    }
}

/// True if a job would be accepted and would start if it were submitted.
fn starts_when_new(state: &State, by: &Actor, spec: JobSpec, now: Timestamp) -> bool {
    let submission = SubmitJob {
        spec: Arc::new(spec.clone()),
        array: None,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
        known_key: None,
        is_operator: true,
    };
    state.decide(by, &Command::SubmitJob(submission), now).is_ok() && dry_run(state, &spec, now).start.is_some()
}

fn apply_command(state: &mut State, command: &Command, now: Timestamp) {
    if let Ok(decision) = state.decide(&Actor::system(), command, now) {
        decision.events.iter().for_each(|event| state.apply(event));
    }
}

/// Shorter time limits, the longest first.
fn time_limits(job: &Job) -> impl Iterator<Item = Remedy> {
    let limit = job.spec.time_limit_ms.unwrap_or(i64::MAX);
    LIMIT_STEPS_MS.into_iter().rev().filter(move |step| *step < limit).map(|ms| Remedy::TimeLimit { ms })
}

/// The tiers above the requested priority, up to the actor's priority ceiling.
fn priorities(job: &Job, ceiling: u32) -> impl Iterator<Item = Remedy> {
    let requested = job.spec.priority;
    let tiers = [Tier::Medium, Tier::High, Tier::Critical].map(Tier::priority);
    let above = tiers.into_iter().filter(move |priority| *priority > requested && *priority <= ceiling);
    above.map(|priority| Remedy::Priority { priority, displaces: false })
}

/// Fewer GPUs per task, the most first.
fn fewer_gpus(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let most = spec.tasks.iter().map(|group| group.each.gpus).max().unwrap_or_default();
    (1..most).rev().map(|each| Remedy::Gpus { each })
}

/// Fewer tasks, the most first; halved while there are more than 16.
fn fewer_tasks(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let most: u32 = spec.tasks.iter().map(|group| group.count).sum();
    let next = |count: &u32| Some(if *count > 16 { count / 2 } else { count - 1 }).filter(|count| *count > 0);
    std::iter::successors(next(&most).filter(|_| most > 1), next).map(|count| Remedy::Tasks { count })
}

fn any_model(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let requests_model = spec.tasks.iter().any(|group| !group.each.gpu_models.is_empty());
    requests_model.then_some(Remedy::AnyModel).into_iter()
}

fn any_topology(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let is_required = spec.topology != Topology::Any || spec.locality().is_required();
    is_required.then_some(Remedy::AnyTopology).into_iter()
}

/// Weaker isolation, the strictest first.
fn less_isolation(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let shared = spec.tasks.iter().filter(|group| group.each.is_shared());
    let requested = shared.map(|group| group.each.isolation).max().unwrap_or_default();
    let weaker = [Isolation::Memory, Isolation::None].into_iter().filter(move |isolation| *isolation < requested);
    weaker.map(|isolation| Remedy::Isolation { isolation })
}

/// Fewer cores: the numbers of cores that nodes have free, the most first.
fn fewer_cores(spec: &JobSpec, resources: &ResourceIndex) -> impl Iterator<Item = Remedy> {
    let requested = spec.tasks.iter().map(|group| group.each.cpus).max().unwrap_or_default();
    let left = resources.nodes().filter_map(|(_, entry)| u32::try_from(entry.free.cpus).ok());
    let left: BTreeSet<u32> = left.filter(|cpus| (1..requested).contains(cpus)).collect();
    left.into_iter().rev().take(TRIES_MAX).map(|each| Remedy::Cpus { each })
}
