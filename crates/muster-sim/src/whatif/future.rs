//! From a fork on: what people did and nodes went through is done again, and everything else is decided anew.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{Actor, Answer, Command, JobsOnGpu, SubmitJob};
use muster_core::event::Event;
use muster_core::job::{DependencyWhen, JobSpec, Outcome};
use muster_core::{JobId, State, Timestamp};
use muster_server::policies::{Asker, Interpreter};
use muster_store::Entry;

use super::change::Otherwise;
use super::chronicle::Chronicle;
use super::tally::Tally;
use super::track::Fork;
use super::works::members;
use crate::stage::Stage;

/// What came of it.
pub struct Told {
    /// What became of the jobs.
    pub tally: Tally,
    /// Jobs that were not accepted, and why.
    pub refused: Vec<(JobId, String)>,
}

/// A history that goes on.
pub struct Future<'a> {
    chronicle: &'a Chronicle,
    otherwise: &'a Otherwise,
    /// What really happened, from here on.
    coming: &'a [Entry],
    stage: Stage,
    tally: Tally,
    refused: Vec<(JobId, String)>,
}

impl<'a> Future<'a> {
    /// From a fork on, with what was counted before it.
    pub fn new(
        chronicle: &'a Chronicle,
        fork: &'a Fork,
        otherwise: &'a Otherwise,
        state: &State,
        tally: Tally,
    ) -> Future<'a> {
        let mut stage = Stage::new(state.clone(), fork.at, chronicle.delays);
        stage.events = Some(Vec::new());
        for job in state.jobs.keys() {
            stage.go_on(*job, chronicle.works.player(Some(&fork.works), *job));
        }
        stage.stir();
        let coming = &chronicle.entries[fork.index..];
        Future { chronicle, otherwise, coming, stage, tally, refused: Vec::new() }
    }

    /// With someone who runs policies.
    pub fn asking(mut self, interpreter: Option<&Arc<dyn Interpreter>>) -> Future<'a> {
        self.stage.asker = interpreter.cloned().map(Asker::new);
        self
    }

    /// Play until a moment.
    pub fn play(mut self, until: Timestamp) -> Told {
        loop {
            let act = self.coming.first().map(|entry| entry.at.0);
            let next = [act, self.stage.next_ms()].into_iter().flatten().min();
            let Some(next_ms) = next.filter(|next_ms| *next_ms <= until.0) else { break };
            self.stage.go_to(next_ms);
            while let Some((entry, later)) =
                self.coming.split_first().filter(|(entry, _)| entry.at.0 <= next_ms)
            {
                self.coming = later;
                self.act(entry);
            }
            self.stage.plan();
            self.stage.happened.clear();
            let events = self.stage.events.replace(Vec::new());
            events.iter().flatten().for_each(|event| self.tally.note(event));
        }
        self.tally.close(until);
        Told { tally: self.tally, refused: self.refused }
    }

    /// What someone did, or a node went through, is done again.
    fn act(&mut self, entry: &Entry) {
        if let Some((by, ask)) = submission(&self.stage.state, &entry.event) {
            return self.submit(&entry.event, &Actor::local(by), ask);
        }
        let deed = deed(&entry.event);
        let Some((by, command)) = deed.and_then(|(by, command)| Some((by, self.otherwise.amended(command)?)))
        else {
            return;
        };
        // What is refused has become needless: a job that is to be stopped has ended by now.
        if self.stage.ask(&Actor::local(by), &command).is_ok() {
            self.stage.stir();
        }
        self.otherwise.consequence(&entry.event).iter().for_each(|command| self.stage.tell(command));
    }

    fn submit(&mut self, event: &Event, by: &Actor, ask: SubmitJob) {
        let Event::JobSubmitted { job, array, .. } = event else { return };
        // Whoever was not accepted leaves a gap, and the others keep their names.
        self.stage.state.next_job = job.number;
        if let Some(why) = self.stage.refused_by_policies(&ask.spec) {
            return self.refused.push((*job, why));
        }
        match self.stage.ask(by, &Command::SubmitJob(ask)) {
            Ok(Answer::Job(_)) => {
                for member in members(*job, array.as_ref().map(|array| &array.indexes[..])) {
                    self.stage.play(member, self.chronicle.works.player(None, member));
                }
            }
            Ok(_) => {}
            Err(refusal) => self.refused.push((*job, refusal.to_string())),
        }
    }
}

/// Who submitted what, if that is what happened.
pub fn submission(state: &State, event: &Event) -> Option<(String, SubmitJob)> {
    let Event::JobSubmitted { spec, array, held_by, open_dependencies, .. } = event else { return None };
    let ask = SubmitJob {
        spec: spec.clone(),
        array: array.clone(),
        hold: held_by.is_some(),
        key: None,
        known_outcomes: forgotten(state, spec, |job| !open_dependencies.iter().any(|open| open.job == job)),
        known_key: None,
        is_operator: true,
    };
    Some((held_by.clone().unwrap_or_else(|| spec.user.clone()), ask))
}

/// Jobs that this one waited for and that nobody remembers any more: they had ended as was wanted.
fn forgotten(state: &State, spec: &JobSpec, over: impl Fn(JobId) -> bool) -> BTreeMap<JobId, Outcome> {
    let unknown = |job: JobId| state.members(job).is_empty() && !state.ended.contains_key(&job);
    let gone = spec.after.iter().filter(|dependency| over(dependency.job) && unknown(dependency.job));
    let outcome = |when| if when == DependencyWhen::Failed { Outcome::Failed } else { Outcome::Done };
    gone.map(|dependency| (dependency.job, outcome(dependency.when))).collect()
}

/// Who did what, if it was a deed and no consequence.
fn deed(event: &Event) -> Option<(String, Command)> {
    let system = || Actor::system().name;
    Some(match event {
        Event::Acted { by, act, object, refused: None, .. } => (by.clone(), act_on_job(act, object)?),
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
        Event::NodeStateChanged { node, word, by, why, .. } => {
            (by.clone(), Command::SetNodeState { node: node.clone(), word: *word, why: why.clone() })
        }
        Event::NodeRemoved { node, .. } => (system(), Command::RemoveNode { node: node.clone() }),
        Event::GpuHealthChanged { gpu, word, why, cooling_until, temperature_c, declared, .. } => {
            let (node, word) = (gpu.node.clone(), *word);
            let (why, cooling_until, temperature_c) = (why.clone(), *cooling_until, *temperature_c);
            let by = declared.as_ref().map_or_else(system, |declared| declared.by.clone());
            (
                by,
                Command::SetGpuHealth {
                    node,
                    gpu: gpu.index,
                    word,
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
fn act_on_job(act: &str, object: &str) -> Option<Command> {
    let job = object.parse().ok()?;
    Some(match act {
        "job.cancel" => Command::CancelJob { job },
        "job.hold" => Command::HoldJob { job, why: String::new() },
        "job.release" => Command::ReleaseJob { job },
        "job.requeue" => Command::RequeueJob { job },
        _ => return None,
    })
}
