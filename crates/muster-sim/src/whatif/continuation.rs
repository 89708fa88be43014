//! From a fork on: what people did and nodes went through is done again, and everything else is decided anew.

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
use super::work_history::jobs_of_submission;
use crate::sim_loop::SimLoop;

/// What came of it.
pub struct ContinuationOutcome {
    /// What became of the jobs.
    pub tally: HistoryTally,
    /// Jobs that were not accepted, and why.
    pub refused: Vec<(JobId, String)>,
}

/// A history that goes on.
pub struct Continuation<'a> {
    chronicle: &'a JournalHistory,
    otherwise: &'a AppliedChange,
    /// What really happened, from here on.
    remaining_entries: &'a [Entry],
    sim_loop: SimLoop,
    tally: HistoryTally,
    refused: Vec<(JobId, String)>,
}

impl<'a> Continuation<'a> {
    /// From a fork on, with what was counted before it.
    pub fn new(
        chronicle: &'a JournalHistory,
        fork: &'a HistoryFork,
        otherwise: &'a AppliedChange,
        state: &State,
        tally: HistoryTally,
    ) -> Continuation<'a> {
        let mut stage = SimLoop::new(state.clone(), fork.at, chronicle.delays);
        stage.recorded_events = Some(Vec::new());
        for job in state.jobs.keys() {
            stage.resume_job(*job, chronicle.work.behaviour_from(Some(&fork.works), *job));
        }
        stage.mark_changed();
        let coming = &chronicle.entries[fork.index..];
        Continuation {
            chronicle,
            otherwise,
            remaining_entries: coming,
            sim_loop: stage,
            tally,
            refused: Vec::new(),
        }
    }

    /// With someone who runs policies.
    pub fn with_interpreter(mut self, interpreter: Option<&Arc<dyn Interpreter>>) -> Continuation<'a> {
        self.sim_loop.policy_querier = interpreter.cloned().map(PolicyQuerier::new);
        self
    }

    /// Play until a moment.
    pub fn run_until(mut self, until: Timestamp) -> ContinuationOutcome {
        loop {
            let act = self.remaining_entries.first().map(|entry| entry.at.0);
            let next = [act, self.sim_loop.next_event_ms()].into_iter().flatten().min();
            let Some(next_ms) = next.filter(|next_ms| *next_ms <= until.0) else { break };
            self.sim_loop.advance_to(next_ms);
            while let Some((entry, later)) =
                self.remaining_entries.split_first().filter(|(entry, _)| entry.at.0 <= next_ms)
            {
                self.remaining_entries = later;
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

    /// What someone did, or a node went through, is done again.
    fn apply_entry(&mut self, entry: &Entry) {
        if let Some((by, ask)) = recorded_submission(&self.sim_loop.state, &entry.event) {
            return self.submit(&entry.event, &Actor::local(by), ask);
        }
        let deed = recorded_command(&entry.event);
        let Some((by, command)) =
            deed.and_then(|(by, command)| Some((by, self.otherwise.amended_command(command)?)))
        else {
            return;
        };
        // What is refused has become needless: a job that is to be stopped has ended by now.
        if self.sim_loop.execute(&Actor::local(by), &command).is_ok() {
            self.sim_loop.mark_changed();
        }
        self.otherwise
            .follow_up_command(&entry.event)
            .iter()
            .for_each(|command| self.sim_loop.execute_as_system(command));
    }

    fn submit(&mut self, event: &Event, by: &Actor, ask: SubmitJob) {
        let Event::JobSubmitted { job, array, .. } = event else { return };
        // Whoever was not accepted leaves a gap, and the others keep their names.
        self.sim_loop.state.next_job = job.number;
        if let Some(why) = self.sim_loop.policy_refusal(&ask.spec) {
            return self.refused.push((*job, why));
        }
        match self.sim_loop.execute(by, &Command::SubmitJob(ask)) {
            Ok(Answer::Job(_)) => {
                for member in jobs_of_submission(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.sim_loop.set_behaviour(member, self.chronicle.work.behaviour_from(None, member));
                }
            }
            Ok(_) => {}
            Err(refusal) => self.refused.push((*job, refusal.to_string())),
        }
    }
}

/// Who submitted what, if that is what happened.
pub fn recorded_submission(state: &State, event: &Event) -> Option<(String, SubmitJob)> {
    let Event::JobSubmitted { spec, array, held_by, open_dependencies, .. } = event else { return None };
    let ask = SubmitJob {
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
    Some((held_by.clone().unwrap_or_else(|| spec.user.clone()), ask))
}

/// Jobs that this one waited for and that nobody remembers any more: they had ended as was wanted.
fn outcomes_of_forgotten_jobs(
    state: &State,
    spec: &JobSpec,
    over: impl Fn(JobId) -> bool,
) -> BTreeMap<JobId, Outcome> {
    let unknown = |job: JobId| state.live_jobs_of(job).is_empty() && !state.ended.contains_key(&job);
    let gone = spec.after.iter().filter(|dependency| over(dependency.job) && unknown(dependency.job));
    let outcome = |when| if when == DependencyWhen::Failed { Outcome::Failed } else { Outcome::Done };
    gone.map(|dependency| (dependency.job, outcome(dependency.when))).collect()
}

/// Who did what, if it was a deed and no consequence.
fn recorded_command(event: &Event) -> Option<(String, Command)> {
    let system = || Actor::system().name;
    Some(match event {
        Event::Acted { by, act, object, refused: None, .. } => (by.clone(), job_command(act, object)?),
        Event::JobChanged { job, change, .. } => {
            (system(), Command::ChangeJob { job: *job, change: change.clone() })
        }
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
        Event::NodeStateChanged { node, status: word, by, why, .. } => {
            (by.clone(), Command::SetNodeState { node: node.clone(), status: *word, why: why.clone() })
        }
        Event::NodeRemoved { node, .. } => (system(), Command::RemoveNode { node: node.clone() }),
        Event::GpuHealthChanged {
            gpu, status: word, why, cooling_until, temperature_c, declared, ..
        } => {
            let (node, word) = (gpu.node.clone(), *word);
            let (why, cooling_until, temperature_c) = (why.clone(), *cooling_until, *temperature_c);
            let by = declared.as_ref().map_or_else(system, |declared| declared.by.clone());
            (
                by,
                Command::SetGpuHealth {
                    node,
                    gpu: gpu.index,
                    status: word,
                    why,
                    cooling_until,
                    temperature_c,
                    jobs: JobsOnGpu::Keep,
                },
            )
        }
        // The planner's own come out of its plans again.
        Event::GpuPartitioned { gpu, instances, by, why, .. } if *by != system() => {
            let profiles = instances.iter().map(|instance| instance.profile.clone()).collect();
            let (node, why) = (gpu.node.clone(), why.clone());
            (by.clone(), Command::PartitionGpu { node, gpu: gpu.index, profiles, why })
        }
        Event::WindowOpened { window, .. } => {
            (window.by.clone(), Command::OpenWindow { window: window.clone() })
        }
        Event::WindowClosed { name, .. } => (system(), Command::CloseWindow { name: name.clone() }),
        Event::PolicyApplied { version } => {
            let (scope, bundle, why) = (version.scope.clone(), version.bundle.clone(), version.why.clone());
            (version.by.clone(), Command::ApplyPolicy { scope, bundle, why })
        }
        Event::Configured { settings, .. } => (system(), Command::Configure { settings: settings.clone() }),
        _ => return None,
    })
}

/// What a person did to a job. Why a job was held is not on record there, and changes nothing.
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
