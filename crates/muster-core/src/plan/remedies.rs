//! What would help: the smallest changes to a waiting job with which it starts at once.
//!
//! Nothing is guessed. Each change is made on a copy of the cluster, the round is drawn up with it, and only what
//! starts the job there is told: who then does it finds it true, as long as nothing else has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::capacity::Capacity;
use crate::command::{Actor, Command, JobChange, SubmitJob};
use crate::ids::JobId;
use crate::job::{Isolation, Job, JobSpec, Topology};
use crate::lasting::STEPS;
use crate::plan::{outlook, plan};
use crate::policy::Hook;
use crate::state::State;
use crate::tenant::Tier;
use crate::time::{DAY, HOUR, MINUTE, Timestamp};
use crate::wiring::Wish;

/// Most sizes of one kind that are tried.
const TRIES_MAX: usize = 8;

/// A change that starts a job at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Remedy {
    /// Fewer GPUs for each task.
    Gpus {
        /// How many.
        each: u32,
    },
    /// Fewer tasks.
    Tasks {
        /// How many in all.
        count: u32,
    },
    /// GPUs of any model.
    AnyModel,
    /// GPUs that may lie apart.
    AnyTopology,
    /// Neighbours on a shared GPU that are kept apart less strictly.
    Isolation {
        /// How strictly.
        isolation: Isolation,
    },
    /// Fewer CPU cores for each task.
    Cpus {
        /// How many.
        each: u32,
    },
    /// A shorter time limit, so that it is over before others need the space.
    TimeLimit {
        /// How long, in milliseconds.
        ms: i64,
    },
    /// A higher priority.
    Priority {
        /// Which.
        priority: u32,
        /// Others would be displaced for it.
        displaces: bool,
    },
}

impl Remedy {
    /// Whether the job keeps its place in the queue; if not, it must be submitted anew.
    pub fn keeps_its_place(&self) -> bool {
        matches!(self, Remedy::TimeLimit { .. } | Remedy::Priority { .. })
    }

    /// The change that can be made to the job as it waits.
    pub fn job_change(&self) -> Option<JobChange> {
        match self {
            Remedy::TimeLimit { ms } => {
                Some(JobChange { time_limit_ms: Some(Some(*ms)), ..JobChange::default() })
            }
            Remedy::Priority { priority, .. } => {
                Some(JobChange { priority: Some(*priority), ..JobChange::default() })
            }
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
                spec.tasks
                    .iter_mut()
                    .for_each(|group| group.each.isolation = group.each.isolation.min(*isolation));
            }
            Remedy::Cpus { each } => {
                spec.tasks.iter_mut().for_each(|group| group.each.cpus = group.each.cpus.min(*each));
            }
            Remedy::TimeLimit { ms } => spec.time_limit_ms = Some(*ms),
            Remedy::Priority { priority, .. } => spec.priority = *priority,
        }
        spec
    }

    /// For people, after "sooner with".
    pub fn words(&self) -> String {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        match self {
            Remedy::Gpus { each } => format!("{each} GPU{}", plural(*each)),
            Remedy::Tasks { count } => format!("{count} task{}", plural(*count)),
            Remedy::AnyModel => "any GPU model".to_string(),
            Remedy::AnyTopology => "any topology".to_string(),
            Remedy::Isolation { isolation } => format!("isolation {}", isolation.word()),
            Remedy::Cpus { each } => format!("{each} CPU core{} a task", plural(*each)),
            Remedy::TimeLimit { ms } if ms % DAY == 0 => format!("a time limit of {}d", ms / DAY),
            Remedy::TimeLimit { ms } if ms % HOUR == 0 => format!("a time limit of {}h", ms / HOUR),
            Remedy::TimeLimit { ms } => format!("a time limit of {}m", ms / MINUTE),
            Remedy::Priority { priority, displaces: false } => format!("priority {priority}"),
            Remedy::Priority { priority, displaces: true } => {
                format!("priority {priority}, displacing others")
            }
        }
    }
}

/// The smallest change of each kind that starts a waiting job in the next round, among the changes that the actor may
/// make. Costs a copy of the state and some twenty rounds at most.
pub fn remedies(state: &State, by: &Actor, id: JobId, now: Timestamp) -> Vec<Remedy> {
    let Some(job) = state.jobs.get(&id).filter(|job| job.is_queued() && job.open_dependencies.is_empty())
    else {
        return Vec::new();
    };
    if !by.may_change(&job.spec) {
        return Vec::new();
    }
    let ceiling = state.priority_ceiling(by, &job.spec.tenant).priority;
    // What policies would say of the job as it would be then, nobody knows before they are asked.
    if Hook::BEFORE_START.into_iter().any(|hook| state.policies.asks(hook, &job.spec.tenant)) {
        return Vec::new();
    }
    // Limits are set for tenants: what they say holds for the job as it would be then, too.
    if !state.knows_limits(&job.spec.tenant) {
        return Vec::new();
    }
    let mut copy = state.clone();
    let mut found: Vec<Remedy> = Vec::new();
    found.extend(time_limits(job).find(|remedy| starts_when_changed(&mut copy, job, remedy, now).is_some()));
    found.extend(
        priorities(job, ceiling).find_map(|remedy| starts_when_changed(&mut copy, job, &remedy, now)),
    );
    tell(&mut copy, &Command::CancelJob { job: id }, now);
    // Where nobody else of the tenant waits they are forgotten, and would be answered as they were.
    copy.policies.limits.clone_from(&state.policies.limits);
    let starts = |remedy: &Remedy| starts_when_new(&copy, by, remedy.applied_to(&job.spec), now);
    found.extend(fewer_gpus(&job.spec).find(starts));
    found.extend(fewer_tasks(&job.spec).find(starts));
    found.extend(any_model(&job.spec).filter(starts));
    found.extend(any_topology(&job.spec).filter(starts));
    found.extend(less_isolation(&job.spec).find(starts));
    found.extend(fewer_cores(&job.spec, &state.capacity).find(starts));
    found
}

/// Change a job as it waits, see whether it starts, and change it back.
fn starts_when_changed(copy: &mut State, job: &Job, remedy: &Remedy, now: Timestamp) -> Option<Remedy> {
    let change = remedy.job_change()?;
    let back = JobChange {
        priority: Some(job.spec.priority),
        time_limit_ms: Some(job.spec.time_limit_ms),
        ..JobChange::default()
    };
    tell(copy, &Command::ChangeJob { job: job.id, change }, now);
    let plan = plan(copy, now).plan;
    tell(copy, &Command::ChangeJob { job: job.id, change: back }, now);
    let starts = plan.starts.iter().any(|start| start.job == job.id);
    let displaces = plan.claims.iter().any(|room| room.job == job.id);
    match remedy {
        Remedy::Priority { priority, .. } if starts || displaces => {
            Some(Remedy::Priority { priority: *priority, displaces })
        }
        Remedy::TimeLimit { .. } if starts => Some(remedy.clone()),
        _ => None,
    }
}

/// Whether a job would be accepted and start if it were submitted.
fn starts_when_new(state: &State, by: &Actor, spec: JobSpec, now: Timestamp) -> bool {
    let ask = SubmitJob {
        spec: Arc::new(spec.clone()),
        array: None,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
        known_key: None,
        is_operator: true,
    };
    state.decide(by, &Command::SubmitJob(ask), now).is_ok() && outlook(state, &spec, now).start.is_some()
}

fn tell(state: &mut State, command: &Command, now: Timestamp) {
    if let Ok(decision) = state.decide(&Actor::system(), command, now) {
        decision.events.iter().for_each(|event| state.apply(event));
    }
}

/// Shorter limits, the longest first.
fn time_limits(job: &Job) -> impl Iterator<Item = Remedy> {
    let limit = job.spec.time_limit_ms.unwrap_or(i64::MAX);
    STEPS.into_iter().rev().filter(move |step| *step < limit).map(|ms| Remedy::TimeLimit { ms })
}

/// The tiers above what was asked for, up to the actor's ceiling.
fn priorities(job: &Job, ceiling: u32) -> impl Iterator<Item = Remedy> {
    let asked = job.spec.priority;
    let tiers = [Tier::Medium, Tier::High, Tier::Critical].map(Tier::priority);
    let above = tiers.into_iter().filter(move |priority| *priority > asked && *priority <= ceiling);
    above.map(|priority| Remedy::Priority { priority, displaces: false })
}

/// Fewer GPUs a task, as many as possible.
fn fewer_gpus(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let most = spec.tasks.iter().map(|group| group.each.gpus).max().unwrap_or_default();
    (1..most).rev().map(|each| Remedy::Gpus { each })
}

/// Fewer tasks, as many as possible; halved when there are very many.
fn fewer_tasks(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let most: u32 = spec.tasks.iter().map(|group| group.count).sum();
    let next = |count: &u32| Some(if *count > 16 { count / 2 } else { count - 1 }).filter(|count| *count > 0);
    std::iter::successors(next(&most).filter(|_| most > 1), next).map(|count| Remedy::Tasks { count })
}

fn any_model(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let wishes = spec.tasks.iter().any(|group| !group.each.gpu_models.is_empty());
    wishes.then_some(Remedy::AnyModel).into_iter()
}

fn any_topology(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let demands = spec.topology != Topology::Any || Wish::of_job(spec).is_demand();
    demands.then_some(Remedy::AnyTopology).into_iter()
}

/// Less isolation, the strictest first.
fn less_isolation(spec: &JobSpec) -> impl Iterator<Item = Remedy> {
    let shared = spec.tasks.iter().filter(|group| group.each.is_shared());
    let asked = shared.map(|group| group.each.isolation).max().unwrap_or_default();
    let less = [Isolation::Memory, Isolation::None].into_iter().filter(move |isolation| *isolation < asked);
    less.map(|isolation| Remedy::Isolation { isolation })
}

/// Fewer cores: what nodes have left, most first.
fn fewer_cores(spec: &JobSpec, capacity: &Capacity) -> impl Iterator<Item = Remedy> {
    let asked = spec.tasks.iter().map(|group| group.each.cpus).max().unwrap_or_default();
    let left = capacity.nodes().filter_map(|(_, filed)| u32::try_from(filed.free.cpus).ok());
    let left: BTreeSet<u32> = left.filter(|cpus| (1..asked).contains(cpus)).collect();
    left.into_iter().rev().take(TRIES_MAX).map(|each| Remedy::Cpus { each })
}
