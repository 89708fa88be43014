//! The continuation of a history from a fork on: the recorded actions of users and nodes are repeated, and
//! everything else is decided again.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{Actor, Answer, Command, JobsOnGpu, SubmitJob};
use muster_core::facts::event::Event;
use muster_core::objects::job::{DependencyWhen, JobSpec, Outcome};
use muster_core::{JobId, State, Timestamp};
use muster_server::policies::{Interpreter, PolicyQuerier};
use muster_store::Entry;

use super::applied_change::AppliedChange;
use super::divergence::HistoryFork;
use super::journal_history::JournalHistory;
use super::tally::HistoryTally;
use crate::job_log::jobs_of_submission;
use crate::sim_loop::SimLoop;

/// The result of a continuation.
pub struct ContinuationOutcome {
    pub tally: HistoryTally,
    /// Refused jobs, and why.
    pub refused: Vec<(JobId, String)>,
}

/// A history that is simulated from a fork on.
pub struct Continuation<'a> {
    journal: &'a JournalHistory,
    applied: &'a AppliedChange,
    /// The recorded entries that are not repeated yet.
    remaining_entries: &'a [Entry],
    sim_loop: SimLoop,
    tally: HistoryTally,
    refused: Vec<(JobId, String)>,
}

impl<'a> Continuation<'a> {
    /// A continuation from a fork, with the tally before it.
    pub fn new(
        journal: &'a JournalHistory,
        fork: &'a HistoryFork,
        applied: &'a AppliedChange,
        state: &State,
        tally: HistoryTally,
    ) -> Continuation<'a> {
        let mut sim_loop = SimLoop::new(state.clone(), fork.at, journal.delays);
        sim_loop.recorded_events = Some(Vec::new());
        for job in state.jobs.keys() {
            sim_loop.resume_job(*job, journal.work.behaviour_from(Some(&fork.work), *job));
        }
        sim_loop.mark_changed();
        let remaining = &journal.entries[fork.index..];
        Continuation { journal, applied, remaining_entries: remaining, sim_loop, tally, refused: Vec::new() }
    }

    /// Sets the interpreter of policies.
    pub fn with_interpreter(mut self, interpreter: Option<&Arc<dyn Interpreter>>) -> Continuation<'a> {
        self.sim_loop.policy_querier = interpreter.cloned().map(PolicyQuerier::new);
        self
    }

    /// Simulates until a time.
    pub fn run_until(mut self, until: Timestamp) -> ContinuationOutcome {
        loop {
            let next_entry_ms = self.remaining_entries.first().map(|entry| entry.at.0);
            let next = [next_entry_ms, self.sim_loop.next_event_ms()].into_iter().flatten().min();
            let Some(next_ms) = next.filter(|next_ms| *next_ms <= until.0) else { break };
            self.sim_loop.advance_to(next_ms);
            while let Some((entry, rest)) =
                self.remaining_entries.split_first().filter(|(entry, _)| entry.at.0 <= next_ms)
            {
                self.remaining_entries = rest;
                self.apply_entry(entry);
            }
            self.sim_loop.plan_if_due();
            self.sim_loop.transitions.clear();
            let events = self.sim_loop.recorded_events.replace(Vec::new());
            events.iter().flatten().for_each(|event| self.tally.add_event(event));
        }
        self.tally.close(until);
        ContinuationOutcome { tally: self.tally, refused: self.refused }
    }

    /// Repeats a recorded action of a user or a node.
    fn apply_entry(&mut self, entry: &Entry) {
        if let Some((by, submission)) = recorded_submission(&self.sim_loop.state, &entry.event) {
            return self.submit(&entry.event, &Actor::local(by), submission);
        }
        let action = recorded_command(&entry.event);
        let Some((by, command)) = action.and_then(|(by, command)| Some((by, self.applied.amended_command(command)?)))
        else {
            return;
        };
        // A refused command has become needless, for example because the job to stop has already ended.
        if self.sim_loop.execute(&Actor::local(by), &command).is_ok() {
            self.sim_loop.mark_changed();
        }
        self.applied
            .follow_up_command(&entry.event)
            .iter()
            .for_each(|command| self.sim_loop.execute_as_system(command));
    }

    fn submit(&mut self, event: &Event, by: &Actor, submission: SubmitJob) {
        let Event::JobSubmitted { job, array, .. } = event else { return };
        // A refused job leaves a gap, so that the other jobs keep their ids.
        self.sim_loop.state.next_job = job.number;
        if let Some(why) = self.sim_loop.policy_refusal(&submission.spec) {
            return self.refused.push((*job, why));
        }
        match self.sim_loop.execute(by, &Command::SubmitJob(submission)) {
            Ok(Answer::Job(_)) => {
                for member in jobs_of_submission(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.sim_loop.set_behaviour(member, self.journal.work.behaviour_from(None, member));
                }
            }
            Ok(_) => {}
            Err(refusal) => self.refused.push((*job, refusal.to_string())),
        }
    }
}

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
fn recorded_command(event: &Event) -> Option<(String, Command)> {
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
