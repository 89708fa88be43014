//! A cluster for tests: commands go in, events are kept, and every invariant is checked after each command.

use muster_core::facts::command::{Actor, Answer, Command, TaskReport};
use muster_core::facts::plan::{Plan, RejectedPart};
use muster_core::objects::job::{Exit, Job, JobSpec};
use muster_core::objects::policy::{PolicyBundle, PolicyScope};
use muster_core::planner::{Planned, plan};
use muster_core::{Event, JobId, NodeId, Refusal, State, Timestamp};

use crate::builders::{NodeBuilder, TenantBuilder, node_id, submission, tenant, tenant_id};

/// A cluster, its clock, and all events.
#[derive(Clone)]
pub struct World {
    pub state: State,
    pub now: Timestamp,
    pub events: Vec<Event>,
    /// When the leader took over.
    pub led_since: Timestamp,
    /// The actor of the commands.
    pub by: Actor,
}

impl World {
    /// With the tenant `default`, which every cluster has.
    pub fn new() -> World {
        let (now, led_since) = (Timestamp(0), Timestamp(0));
        let mut world = World { state: State::default(), now, events: Vec::new(), led_since, by: actor() };
        world.create_tenant("default", tenant());
        world
    }

    /// Decide and apply a command, then check the invariants.
    pub fn run(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.run_observed(command, &mut |_, _| {})
    }

    /// The same, with an observer of each event and of the state before it.
    pub fn run_observed(
        &mut self,
        command: Command,
        observe: &mut dyn FnMut(&State, &Event),
    ) -> Result<Answer, Refusal> {
        let (events, answer) = self.state.decide_audited(&self.by, &command, self.now);
        for event in &events {
            observe(&self.state, event);
            self.state.apply(event);
        }
        self.events.extend(events);
        let broken: Vec<String> = self.state.check().iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "broken after {command:?}:\n{}", broken.join("\n"));
        answer
    }

    /// Plan and adopt. The snapshot is current, so every start must be adopted.
    pub fn plan(&mut self) -> Planned {
        let planned = plan(&self.state, self.now);
        let starts = planned.plan.starts.len();
        let (gangs, rejected) = self.adopt(&planned.plan);
        assert!(gangs >= starts, "{rejected:?} of a fresh plan: {:#?}", planned.plan);
        planned
    }

    /// Adopt a plan: the number of adopted gangs, and the rejected parts.
    pub fn adopt(&mut self, plan: &Plan) -> (usize, Vec<RejectedPart>) {
        match self.run(Command::AdoptPlan { plan: Box::new(plan.clone()), epoch: 1 }) {
            Ok(Answer::Adopted { gangs, rejected }) => (gangs, rejected),
            other => panic!("a plan is never refused: {other:?}"),
        }
    }

    /// Advance the clock.
    pub fn tick(&mut self, ms: i64) {
        self.now = self.now.plus(ms);
        self.run(Command::Tick).unwrap();
        self.run(Command::StopLateGangs { led_ms: self.now.since(self.led_since) }).unwrap();
    }

    pub fn register(&mut self, name: &str, node: NodeBuilder) {
        self.run(Command::RegisterNode { node: node_id(name), facts: Box::new(node.build()) }).unwrap();
    }

    pub fn create_tenant(&mut self, name: &str, tenant: TenantBuilder) {
        let config = Box::new(tenant.named(name));
        self.run(Command::CreateTenant { id: tenant_id(name), config }).unwrap();
    }

    /// Submit a job that must be accepted.
    pub fn submit(&mut self, spec: impl Into<JobSpec>) -> JobId {
        match self.run(Command::SubmitJob(submission(spec))) {
            Ok(Answer::Job(job)) => job,
            other => panic!("{other:?}"),
        }
    }

    pub fn apply_policy(&mut self, scope: PolicyScope, bundle: PolicyBundle) {
        let bundle = std::sync::Arc::new(bundle);
        self.run(Command::ApplyPolicy { scope, bundle, why: String::new() }).unwrap();
    }

    /// A report about the current attempt of a job, by the node of its first task.
    pub fn report(&mut self, job: JobId, report: TaskReport) {
        let attempt = self.state.jobs[&job].attempt().unwrap();
        let (node, attempt): (NodeId, u32) = (attempt.tasks[0].node.clone(), attempt.number);
        self.run(Command::ReportTask { node, job, attempt, report }).unwrap();
    }

    /// True if the job has an attempt that is not stopping.
    pub fn runs(&self, job: JobId) -> bool {
        self.state.jobs[&job].attempt().is_some_and(|attempt| attempt.stopping.is_none())
    }
}

/// The actor of test commands.
pub fn actor() -> Actor {
    Actor::local("ada")
}

/// A regular exit of a task.
pub fn exited(code: i32) -> TaskReport {
    TaskReport::Ended { exit: Exit::Code { code }, stopped: false, ended_ms_ago: None }
}

/// The reports of all nodes at the end of a job: stopped, or exited by itself.
pub fn end_reports(job: &Job) -> Vec<Command> {
    let Some(attempt) = job.attempt() else { return Vec::new() };
    let stopped = attempt.stopping.is_some();
    let exit = if stopped { Exit::Signal { signal: 15 } } else { Exit::Code { code: 0 } };
    let report = TaskReport::Ended { exit, stopped, ended_ms_ago: None };
    let of_node = |node| Command::ReportTask { node, job: job.id, attempt: attempt.number, report: report.clone() };
    attempt.nodes().into_iter().map(of_node).collect()
}
