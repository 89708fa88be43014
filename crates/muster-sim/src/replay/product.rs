//! The product itself as a policy: its state decides, its planner proposes, and time is that of the replay.
//!
//! What it is told is what a person would send: one tenant and one user, because the traces record neither; the job is
//! named for its model, asks for its GPUs, in tasks of up to 8 as the nodes are, and says that it saves its work, because
//! under these rules a job goes on where it was stopped. Where durations are known they are told as the time limit;
//! nobody is stopped by it, because the time that jobs lose by the rules is not in it. Who is told to stop has stopped.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{Actor, Answer, Command, Said, SubmitJob};
use muster_core::job::{
    CheckpointRule, Exit, JobSpec, OnNodeLost, Resources, RestartRule, Run, StopCause, TaskGroup, Topology,
};
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::plan::plan;
use muster_core::settings::Objective;
use muster_core::tenant::TenantConfig;
use muster_core::time::DAY;
use muster_core::{Event, JobId, NodeId, Settings, State, TenantId, Timestamp};

use super::{Live, Nodes, Policy, TraceJob};

/// Most rounds at one moment. A round that displaces someone is followed by one that uses the room.
const ROUNDS_MAX: usize = 1_000;
/// The queues of the traces are months long: a bound below that would make every policy first in, first out.
const MAX_WAIT_MS: i64 = 3_650 * DAY;
/// The least time between two looks.
const LOOK_S: f64 = 600.0;
/// GPUs of a node.
const GPUS: u32 = 8;

/// The product with the objective `fast`.
pub struct Product {
    state: State,
    /// Whether it is told how long jobs run.
    known: bool,
    nodes: usize,
    /// For each job that has come, by its place in the trace, its name.
    jobs: BTreeMap<usize, JobId>,
}

impl Product {
    /// On a cluster that the first choice brings along.
    pub fn new(known: bool) -> Product {
        Product { state: State::default(), known, nodes: 0, jobs: BTreeMap::new() }
    }

    /// A tenant that may have everything, and the nodes.
    fn set_up(&mut self, nodes: usize) {
        let settings = Settings {
            objective: Objective::Fast,
            max_wait_ms: MAX_WAIT_MS,
            stop_grace_ms: 0,
            preemption_cooldown_ms: 0,
            thermal: false,
            ..Settings::default()
        };
        let now = Timestamp(0);
        let config = Box::new(TenantConfig::unlimited("replay"));
        self.tell(&Command::CreateTenant { id: tenant(), config }, now);
        self.tell(&Command::Configure { settings: Box::new(settings) }, now);
        for node in 0..nodes {
            self.tell(&Command::RegisterNode { node: name(node), facts: Box::new(facts()) }, now);
        }
        self.nodes = nodes;
    }

    fn submit(&mut self, place: usize, job: &TraceJob, now: Timestamp) {
        let spec = Arc::new(spec(job, self.known));
        let known_outcomes = BTreeMap::new();
        let ask = SubmitJob {
            spec,
            array: None,
            hold: false,
            key: None,
            known_outcomes,
            known_key: None,
            is_operator: true,
        };
        if let Some(Answer::Job(job)) = self.tell(&Command::SubmitJob(ask), now).1 {
            self.jobs.insert(place, job);
        }
    }

    /// Plan until nobody is displaced any more.
    fn plan(&mut self, now: Timestamp) {
        self.tick(now);
        for _ in 0..ROUNDS_MAX {
            let plan = plan(&self.state, now).plan;
            let settled = plan.claims.is_empty();
            for event in self.tell(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 }, now).0 {
                match event {
                    Event::JobPlaced { job, .. } => self.report(job, &Said::Started, now),
                    Event::AttemptStopping { job, .. } => {
                        let exit = Exit::Signal { signal: 15 };
                        self.report(job, &Said::Ended { exit, stopped: true, ended_ms_ago: None }, now);
                    }
                    _ => {}
                }
            }
            if settled {
                return;
            }
        }
    }

    /// Time passes, but for limits.
    fn tick(&mut self, now: Timestamp) {
        let decision = self.state.decide(&Actor::system(), &Command::Tick, now);
        let events = decision.map(|decision| decision.events).unwrap_or_default();
        let by_limit =
            |event: &Event| matches!(event, Event::AttemptStopping { cause: StopCause::TimeLimit, .. });
        events.iter().filter(|event| !by_limit(event)).for_each(|event| self.state.apply(event));
    }

    /// Every agent that has a part in a job speaks.
    fn report(&mut self, job: JobId, said: &Said, now: Timestamp) {
        let attempt = self.state.jobs.get(&job).and_then(|job| job.attempt());
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.tell(&Command::ReportTask { node, job, attempt, said: said.clone() }, now);
        }
    }

    fn tell(&mut self, command: &Command, now: Timestamp) -> (Vec<Event>, Option<Answer>) {
        match self.state.decide(&Actor::system(), command, now) {
            Ok(decision) => {
                decision.events.iter().for_each(|event| self.state.apply(event));
                (decision.events, Some(decision.answer))
            }
            Err(_) => (Vec::new(), None),
        }
    }

    fn runs(&self, place: usize) -> bool {
        let job = self.jobs.get(&place).and_then(|job| self.state.jobs.get(job));
        job.is_some_and(|job| job.attempt().is_some())
    }
}

impl Policy for Product {
    fn choose(&mut self, now_s: f64, live: &mut [Live], nodes: &mut Nodes) {
        let now = moment(now_s);
        if self.nodes == 0 {
            self.set_up(nodes.gpus().div_ceil(GPUS) as usize);
        }
        for job in live.iter() {
            if !self.jobs.contains_key(&job.job) {
                self.submit(job.job, job.spec, now);
            }
        }
        self.plan(now);
        live.iter_mut().for_each(|job| job.running = self.runs(job.job));
    }

    /// What is expected of a job that is not told changes while it runs: look again when it has run for as long
    /// again. As long as everyone runs there is nothing to choose.
    fn wakes_s(&self, now_s: f64, live: &[Live]) -> Option<f64> {
        if self.known || live.iter().all(|job| job.running) {
            return None;
        }
        let running = live.iter().filter(|job| job.running);
        running.map(|job| now_s + job.ran_s.max(LOOK_S)).min_by(f64::total_cmp)
    }

    fn ended(&mut self, now_s: f64, job: &Live) {
        if let Some(job) = self.jobs.get(&job.job).copied() {
            let said = Said::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None };
            self.report(job, &said, moment(now_s));
        }
    }
}

fn moment(s: f64) -> Timestamp {
    Timestamp((s * 1_000.0).round() as i64)
}

fn tenant() -> TenantId {
    "replay".parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn name(node: usize) -> NodeId {
    format!("n{node:04}").parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn facts() -> NodeFacts {
    let gpu = |device: u32| GpuFacts {
        uuid: format!("gpu-{device}"),
        model: "Tesla V100-SXM2-32GB".to_string(),
        memory_mib: 32_768,
        numa_node: None,
        nvlink: Vec::new(),
        socket: None,
        pcie_switch: None,
        mig: Vec::new(),
        power_limit_milliwatts: None,
    };
    NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus: 64,
        memory_mib: 1 << 20,
        gpus: (0..GPUS).map(gpu).collect(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        simulated: true,
    }
}

fn spec(job: &TraceJob, known: bool) -> JobSpec {
    let limit_ms = (job.work_s * 1_000.0).ceil().max(1.0) as i64;
    JobSpec {
        name: job.model.clone(),
        tenant: tenant(),
        user: "trainer".to_string(),
        priority: 100,
        tasks: tasks(job.gpus),
        topology: Topology::Any,
        allow_cross_numa: None,
        prefer_nvlink: false,
        gang_scheduling: None,
        time_limit_ms: known.then_some(limit_ms),
        restart: RestartRule::default(),
        on_node_lost: OnNodeLost::Wait,
        // It goes on where it was: as if it saved its work all the time.
        checkpoint: Some(CheckpointRule { path: "/checkpoint".to_string(), every_ms: Some(1) }),
        after: Vec::new(),
        start_after: None,
        pool: None,
        node_labels: BTreeMap::new(),
        run: Run { command: vec!["train".to_string()], ..Run::default() },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// A task for each whole node, and one for the rest.
fn tasks(gpus: u32) -> Vec<TaskGroup> {
    let group = |name: &str, count: u32, gpus: u32| TaskGroup {
        name: name.to_string(),
        count,
        count_max: None,
        each: Resources {
            gpus,
            gpu_models: Default::default(),
            gpu_memory_mib: 0,
            gpu_compute_milli: 1_000,
            isolation: Default::default(),
            cpus: 1,
            memory_mib: 1_024,
        },
    };
    let groups = [group("worker", gpus / GPUS, GPUS), group("rest", 1, gpus % GPUS)];
    groups.into_iter().filter(|group| group.count * group.each.gpus > 0).collect()
}
