//! The planner as a queue policy: the state decides and the planner proposes, in the time of the replay.
//!
//! The planner gets what a user would submit. All jobs belong to one tenant and one user, because the traces record
//! neither. A job is named for its model, requests its GPUs in tasks of up to 8, the size of a node, and declares
//! checkpoints, because under the rules of the replay a preempted job loses nothing. Known durations are given as
//! time limits, which are not enforced, because they do not include the start-up time that the rules deduct. A stop
//! takes no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{Actor, Answer, Command, SubmitJob, TaskReport};
use muster_core::gpu::device::GpuFacts;
use muster_core::objects::job::{CheckpointRule, Exit, JobSpec, Resources, Run, StopCause, TaskGroup};
use muster_core::objects::node::NodeFacts;
use muster_core::objects::settings::Objective;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::plan;
use muster_core::time::DAY;
use muster_core::{Event, JobId, NodeId, Settings, State, TenantId, Timestamp};

use super::{LiveJob, QueuePolicy, TraceJob, UniformNodes};

/// The most rounds in one instant. A round with evictions is followed by one that uses the freed space.
const ROUNDS_PER_INSTANT_MAX: usize = 1_000;
/// Jobs of the traces wait for months: a smaller bound would make every policy first in, first out.
const MAX_WAIT_MS: i64 = 3_650 * DAY;
/// The least time between two selections without an event.
const REPLAN_INTERVAL_S_MIN: f64 = 600.0;
const GPUS_PER_NODE: u32 = 8;

/// The planner with the objective `fast`.
pub struct PlannerPolicy {
    state: State,
    are_durations_known: bool,
    nodes: usize,
    /// The job ids of submitted jobs, by trace index.
    jobs: BTreeMap<usize, JobId>,
}

impl PlannerPolicy {
    /// A policy whose cluster is created by the first selection.
    pub fn new(are_durations_known: bool) -> PlannerPolicy {
        PlannerPolicy { state: State::default(), are_durations_known, nodes: 0, jobs: BTreeMap::new() }
    }

    /// Creates an unlimited tenant and the nodes.
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
        self.execute_as_system(&Command::CreateTenant { id: tenant(), config }, now);
        self.execute_as_system(&Command::Configure { settings: Box::new(settings) }, now);
        for node in 0..nodes {
            self.execute_as_system(&Command::RegisterNode { node: node_id(node), facts: Box::new(node_facts()) }, now);
        }
        self.nodes = nodes;
    }

    fn submit(&mut self, trace_index: usize, job: &TraceJob, now: Timestamp) {
        let spec = Arc::new(job_spec(job, self.are_durations_known));
        let known_outcomes = BTreeMap::new();
        let submission =
            SubmitJob { spec, array: None, hold: false, key: None, known_outcomes, known_key: None, is_operator: true };
        if let Some(Answer::Job(job)) = self.execute_as_system(&Command::SubmitJob(submission), now).1 {
            self.jobs.insert(trace_index, job);
        }
    }

    /// Plans until a plan has no evictions.
    fn plan_until_stable(&mut self, now: Timestamp) {
        self.tick(now);
        for _ in 0..ROUNDS_PER_INSTANT_MAX {
            let plan = plan(&self.state, now).plan;
            let is_stable = plan.evictions.is_empty();
            for event in self.execute_as_system(&Command::AdoptPlan { plan: Box::new(plan), epoch: 1 }, now).0 {
                match event {
                    Event::JobPlaced { job, .. } => self.report_from_all_nodes(job, &TaskReport::Started, now),
                    Event::AttemptStopping { job, .. } => {
                        let exit = Exit::Signal { signal: 15 };
                        self.report_from_all_nodes(
                            job,
                            &TaskReport::Ended { exit, stopped: true, ended_ms_ago: None },
                            now,
                        );
                    }
                    _ => {}
                }
            }
            if is_stable {
                return;
            }
        }
    }

    /// Applies a tick, without enforcing time limits.
    fn tick(&mut self, now: Timestamp) {
        let decision = self.state.decide(&Actor::system(), &Command::Tick, now);
        let events = decision.map(|decision| decision.events).unwrap_or_default();
        let is_time_limit = |event: &Event| matches!(event, Event::AttemptStopping { cause: StopCause::TimeLimit, .. });
        events.iter().filter(|event| !is_time_limit(event)).for_each(|event| self.state.apply(event));
    }

    /// Sends a report from every node of a job.
    fn report_from_all_nodes(&mut self, job: JobId, report: &TaskReport, now: Timestamp) {
        let attempt = self.state.jobs.get(&job).and_then(|job| job.attempt());
        let Some((attempt, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
        for node in nodes {
            self.execute_as_system(&Command::ReportTask { node, job, attempt, report: report.clone() }, now);
        }
    }

    fn execute_as_system(&mut self, command: &Command, now: Timestamp) -> (Vec<Event>, Option<Answer>) {
        match self.state.decide(&Actor::system(), command, now) {
            Ok(decision) => {
                decision.events.iter().for_each(|event| self.state.apply(event));
                (decision.events, Some(decision.answer))
            }
            Err(_) => (Vec::new(), None),
        }
    }

    fn is_running(&self, trace_index: usize) -> bool {
        let job = self.jobs.get(&trace_index).and_then(|job| self.state.jobs.get(job));
        job.is_some_and(|job| job.attempt().is_some())
    }
}

impl QueuePolicy for PlannerPolicy {
    fn select_running(&mut self, now_s: f64, live: &mut [LiveJob], nodes: &mut UniformNodes) {
        let now = timestamp(now_s);
        if self.nodes == 0 {
            self.set_up(nodes.gpus().div_ceil(GPUS_PER_NODE) as usize);
        }
        for job in live.iter() {
            if !self.jobs.contains_key(&job.trace_index) {
                self.submit(job.trace_index, job.spec, now);
            }
        }
        self.plan_until_stable(now);
        live.iter_mut().for_each(|job| job.is_running = self.is_running(job.trace_index));
    }

    /// The runtime estimate of a job of unknown duration changes while it runs: select again when it has run for
    /// twice as long. While all jobs run, there is nothing to select.
    fn next_wake_s(&self, now_s: f64, live: &[LiveJob]) -> Option<f64> {
        if self.are_durations_known || live.iter().all(|job| job.is_running) {
            return None;
        }
        let running = live.iter().filter(|job| job.is_running);
        running.map(|job| now_s + job.ran_s.max(REPLAN_INTERVAL_S_MIN)).min_by(f64::total_cmp)
    }

    fn job_ended(&mut self, now_s: f64, job: &LiveJob) {
        if let Some(job) = self.jobs.get(&job.trace_index).copied() {
            let report = TaskReport::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None };
            self.report_from_all_nodes(job, &report, timestamp(now_s));
        }
    }
}

fn timestamp(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1_000.0).round() as i64)
}

fn tenant() -> TenantId {
    "replay".parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn node_id(node: usize) -> NodeId {
    format!("n{node:04}").parse().unwrap_or_else(|_| unreachable!("a plain name"))
}

fn node_facts() -> NodeFacts {
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
        gpus: (0..GPUS_PER_NODE).map(gpu).collect(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        heartbeat_interval_ms: None,
        boot_id: String::new(),
        simulated: true,
    }
}

fn job_spec(job: &TraceJob, are_durations_known: bool) -> JobSpec {
    let limit_ms = (job.work_s * 1_000.0).ceil().max(1.0) as i64;
    JobSpec {
        time_limit_ms: are_durations_known.then_some(limit_ms),
        // A preempted job loses nothing, as if it had checkpoints all the time.
        checkpoint: Some(CheckpointRule { path: "/checkpoint".to_string(), every_ms: Some(1) }),
        run: Run { command: vec!["train".to_string()], ..Run::default() },
        ..JobSpec::new(&job.model, tenant(), "trainer", task_groups(job.gpus))
    }
}

/// A task for each whole node, and one for the remaining GPUs.
fn task_groups(gpus: u32) -> Vec<TaskGroup> {
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
    let groups = [group("worker", gpus / GPUS_PER_NODE, GPUS_PER_NODE), group("rest", 1, gpus % GPUS_PER_NODE)];
    groups.into_iter().filter(|group| group.count * group.each.gpus > 0).collect()
}
