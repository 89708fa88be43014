//! The commands that recorded events follow from, so that a what-if can repeat what users and nodes did.

use std::collections::BTreeMap;

use muster_core::facts::command::{Actor, Command, JobsOnGpu, SubmitJob};
use muster_core::facts::event::Event;
use muster_core::objects::job::{DependencyWhen, JobSpec, Outcome};
use muster_core::objects::node::{NodeStatus, Sight};
use muster_core::{JobId, State};

/// The user and the submission of an event; `None` for other events.
pub fn recorded_submission(state: &State, event: &Event) -> Option<(String, SubmitJob)> {
    let Event::JobSubmitted { spec, array, held_by, open_dependencies, .. } = event else { return None };
    let submission = SubmitJob {
        spec: spec.clone(),
        array: array.clone(),
        hold: held_by.is_some(),
        key: None,
        known_outcomes: outcomes_of_forgotten_jobs(state, spec, |job| {
            !open_dependencies.iter().any(|open| open.job == job)
        }),
        known_key: None,
        is_operator: true,
    };
    Some((held_by.clone().unwrap_or_else(|| spec.user.clone()), submission))
}

/// The outcomes of dependencies that the state no longer contains: they ended as the dependency requires.
fn outcomes_of_forgotten_jobs(
    state: &State,
    spec: &JobSpec,
    has_ended: impl Fn(JobId) -> bool,
) -> BTreeMap<JobId, Outcome> {
    let unknown = |job: JobId| state.live_jobs_of(job).is_empty() && !state.ended.contains_key(&job);
    let ended = spec.after.iter().filter(|dependency| has_ended(dependency.job) && unknown(dependency.job));
    let outcome = |when| if when == DependencyWhen::Failed { Outcome::Failed } else { Outcome::Done };
    ended.map(|dependency| (dependency.job, outcome(dependency.when))).collect()
}

/// The actor and the command of an event; `None` if the event is a consequence, not an action.
pub fn recorded_command(event: &Event) -> Option<(String, Command)> {
    let system = || Actor::system().name;
    Some(match event {
        Event::Acted { by, act, object, refused: None, .. } => (by.clone(), job_command(act, object)?),
        Event::JobChanged { job, change, .. } => (system(), Command::ChangeJob { job: *job, change: change.clone() }),
        Event::TenantCreated { id, config, .. } => {
            (system(), Command::CreateTenant { id: id.clone(), config: config.clone() })
        }
        Event::TenantChanged { id, config, .. } => {
            (system(), Command::ChangeTenant { id: id.clone(), config: config.clone() })
        }
        Event::TenantDeleted { id, .. } => (system(), Command::DeleteTenant { id: id.clone() }),
        Event::NodeRegistered { node, facts, .. } => {
            (system(), Command::RegisterNode { node: node.clone(), facts: facts.clone() })
        }
        Event::NodeDeclared { node, facts, by, .. } => {
            (by.clone(), Command::DeclareNode { node: node.clone(), facts: facts.clone() })
        }
        Event::NodeLabelled { node, labels, taints, by, .. } => {
            let (labels, taints) = (Some(labels.clone()), Some(taints.clone()));
            (by.clone(), Command::LabelNode { node: node.clone(), labels, taints })
        }
        Event::NodeStateChanged { node, status, by, why, .. } => {
            (by.clone(), Command::SetNodeState { node: node.clone(), status: *status, why: why.clone() })
        }
        Event::NodeServiceChanged { node, by, why, drain: Some(drain), at, .. } => {
            let deadline_ms = drain.deadline.map(|deadline| deadline.since(*at));
            let (node, why, reboot) = (node.clone(), why.clone(), drain.reboot.is_some());
            (by.clone(), Command::DrainNode { node, why, deadline_ms, reboot })
        }
        Event::NodeServiceChanged { node, service, by, why, .. } => {
            (by.clone(), Command::SetNodeState { node: node.clone(), status: (*service).into(), why: why.clone() })
        }
        Event::NodeSightChanged { node, sight: Sight::Fenced, by, why, .. } => {
            (by.clone(), Command::SetNodeState { node: node.clone(), status: NodeStatus::Fenced, why: why.clone() })
        }
        Event::NodeSightChanged { node, sight, silent_since, by, at, .. } => {
            let silent_ms = silent_since.map_or(0, |since| at.since(since));
            let node = node.clone();
            (by.clone(), Command::SetNodeSight { node, sight: *sight, silent_ms, fenced: Vec::new() })
        }
        Event::NodeRemoved { node, .. } => (system(), Command::RemoveNode { node: node.clone() }),
        Event::GpuHealthChanged { gpu, status, why, cooling_until, temperature_c, declared, .. } => {
            let (node, status) = (gpu.node.clone(), *status);
            let (why, cooling_until, temperature_c) = (why.clone(), *cooling_until, *temperature_c);
            let by = declared.as_ref().map_or_else(system, |declared| declared.by.clone());
            (
                by,
                Command::SetGpuHealth {
                    node,
                    gpu: gpu.index,
                    status,
                    why,
                    cooling_until,
                    temperature_c,
                    jobs: JobsOnGpu::Keep,
                },
            )
        }
        // The planner's own repartitionings come from its plans again.
        Event::GpuPartitioned { gpu, instances, by, why, .. } if *by != system() => {
            let profiles = instances.iter().map(|instance| instance.profile.clone()).collect();
            let (node, why) = (gpu.node.clone(), why.clone());
            (by.clone(), Command::PartitionGpu { node, gpu: gpu.index, profiles, why })
        }
        Event::WindowOpened { window, .. } => (window.by.clone(), Command::OpenWindow { window: window.clone() }),
        Event::SecretSet { secret, .. } => (secret.set_by.clone(), Command::SetSecret { secret: secret.clone() }),
        Event::SecretRemoved { id, .. } => (system(), Command::RemoveSecret { id: id.clone() }),
        Event::WindowClosed { name, .. } => (system(), Command::CloseWindow { name: name.clone() }),
        Event::PolicyApplied { version } => {
            let (scope, bundle, why) = (version.scope.clone(), version.bundle.clone(), version.why.clone());
            (version.by.clone(), Command::ApplyPolicy { scope, bundle, why })
        }
        Event::Configured { settings, .. } => (system(), Command::Configure { settings: settings.clone() }),
        _ => return None,
    })
}

/// The command of a user action on a job. The reason of a hold is not recorded and changes nothing.
fn job_command(act: &str, object: &str) -> Option<Command> {
    let job = object.parse().ok()?;
    Some(match act {
        "job.cancel" => Command::CancelJob { job },
        "job.hold" => Command::HoldJob { job, why: String::new() },
        "job.release" => Command::ReleaseJob { job },
        "job.requeue" => Command::RequeueJob { job },
        _ => return None,
    })
}
