//! Random stories: sequences of commands, reports and faults, valid and invalid.
//!
//! Steps refer to jobs and nodes by small numbers that are resolved while the story runs, so that a story stays
//! meaningful when a failing one is shrunk.

mod arbitrary_plan;
mod config;
mod job_request;

use std::fmt;

use muster_core::facts::command::{Command, JobChange, JobsOnGpu, TaskReport};
use muster_core::gpu::device::GpuStatus;
use muster_core::gpu::partition::laid_out;
use muster_core::objects::job::Exit;
use muster_core::objects::node::{NodeFacts, NodeStatus};
use muster_core::objects::settings::Objective;
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::{JobId, NodeId, Settings, State, TenantId, Timestamp};
use proptest::prelude::*;

use crate::builders::node;
use crate::story_policies;
use arbitrary_plan::{ArbitraryEviction, ArbitraryStart, arbitrary_eviction, arbitrary_plan, arbitrary_start};
use config::{guaranteed_by_model, settings, tenant_config, window};
pub use job_request::JobRequest;
use job_request::{PRIORITIES, job_request};

/// The nodes of a cluster, and a sequence of steps.
#[derive(Debug, Clone)]
pub struct Story {
    pub machines: Vec<Machine>,
    pub steps: Vec<Step>,
}

/// A node.
#[derive(Debug, Clone)]
pub struct Machine {
    gpus: usize,
    model: usize,
    cpus: u32,
    /// Selects the topology of its devices, its rack and its block.
    topology: usize,
}

/// One step. Numbers are taken modulo the number of objects.
#[derive(Debug, Clone)]
pub enum Step {
    Submit(JobRequest),
    Cancel(usize),
    Hold(usize),
    Release(usize),
    Requeue(usize),
    Change(usize, u32),
    NodeState(usize, NodeStatus),
    Gpu(usize, u8, GpuStatus, bool),
    Register(usize, Machine),
    Remove(usize),
    Window(usize, usize),
    Partition(usize, u8, usize),
    Close(usize),
    Tenant(usize, usize),
    Settings(usize),
    /// Apply or remove a policy bundle.
    Policy(usize),
    /// Random policy answers about all queued jobs, from this seed.
    Answers(u64),
    /// Plan and adopt. The request is tried as a dry run before.
    Plan(JobRequest),
    /// Adopt a plan of an earlier round.
    StalePlan(usize),
    /// Adopt a plan that no planner would propose.
    ArbitraryPlan(Vec<ArbitraryStart>, Vec<ArbitraryEviction>),
    Started(usize),
    Checkpointed(usize),
    Ended(usize, usize, bool),
    /// A report about any job, attempt and node.
    ArbitraryReport(usize, u32, usize, usize),
    Tick(i64),
    /// Restart the server from a savepoint.
    Restart,
}

/// All GPU models of stories. Two match `H100`, and one of these matches `H100-80GB`.
pub const MODELS: [&str; 4] = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA H100 PCIe"];
/// MIG layouts; an empty one makes the GPU whole.
const LAYOUTS: [&[&str]; 5] = [
    &["3g.40gb", "4g.40gb"],
    &["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"],
    &["7g.80gb"],
    &[],
    &["3g.40gb", "3g.40gb", "1g.10gb"],
];
const TENANTS: [&str; 3] = ["default", "red", "blue"];

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.machines.iter().try_for_each(|machine| writeln!(f, "  {machine:?}"))?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step:?}"))
    }
}

impl Story {
    pub fn any() -> impl Strategy<Value = Story> {
        let machines = prop::collection::vec(machine(), 1..4);
        let steps = prop::collection::vec(step(), 0..80);
        (machines, steps).prop_map(|(machines, steps)| Story { machines, steps })
    }

    /// Commands before the first step: settings, tenants and nodes.
    pub fn opening(&self) -> Vec<Command> {
        // Unlimited reservations: with the default limit such small clusters would rarely have two.
        let fast = self.machines.first().is_some_and(|machine| machine.model == 2);
        let objective = if fast { Objective::Fast } else { Objective::Fair };
        let settings = Settings { objective, reserve_one_node_in: 1, ..Settings::default() };
        let settings = Box::new(settings);
        let tenants = TENANTS[1..].iter().enumerate().map(|(index, name)| {
            let mut config = Box::new(tenant_config(name, index));
            // None of the two tenants has a model guarantee, or one, or both.
            config.guaranteed_by_model = guaranteed_by_model(index + self.machines.len());
            Command::CreateTenant { id: name.parse().unwrap(), config }
        });
        let nodes = self
            .machines
            .iter()
            .enumerate()
            .map(|(index, machine)| Command::RegisterNode { node: node_name(index), facts: Box::new(machine.facts()) });
        tenants.chain(nodes).chain([Command::Configure { settings }]).collect()
    }
}

fn machine() -> impl Strategy<Value = Machine> {
    (
        prop_oneof![1 => Just(0usize), 9 => 1..5usize],
        0..MODELS.len(),
        prop_oneof![Just(4u32), Just(8), Just(64)],
        0..24usize,
    )
        .prop_map(|(gpus, model, cpus, topology)| Machine { gpus, model, cpus, topology })
}

impl Machine {
    fn facts(&self) -> NodeFacts {
        let mut facts = node().gpus(self.gpus).model(MODELS[self.model]).cpus(self.cpus).build();
        for (index, gpu) in (0u8..).zip(&mut facts.gpus) {
            let (half, pair) = (u32::from(index / 2), u32::from(index % 2));
            gpu.numa_node = [None, Some(half), Some(pair), Some(0)][self.topology % 4];
            gpu.socket = (self.topology % 5 > 2).then_some(0);
            gpu.pcie_switch = [None, Some(half)][self.topology / 4 % 2];
            gpu.nvlink = match self.topology % 3 {
                0 => Vec::new(),
                1 => vec![index ^ 1],
                _ => vec![(index + 1) % 4],
            };
        }
        // The A100 of some nodes are partitioned at registration.
        if self.model == 1 && self.topology.is_multiple_of(5) {
            for (gpu, layout) in facts.gpus.iter_mut().zip([0, 1, 3, 2]) {
                let profiles: Vec<String> = LAYOUTS[layout].iter().map(|name| name.to_string()).collect();
                gpu.mig = laid_out(gpu, &profiles).unwrap();
            }
        }
        facts.rack = [None, Some("r1"), Some("r2")][self.topology / 8].map(str::to_string);
        facts.block = (self.topology % 2 == 1).then(|| "b1".to_string());
        facts
    }
}

fn step() -> impl Strategy<Value = Step> {
    let some = 0..8usize;
    let status = prop_oneof![
        4 => Just(NodeStatus::Ready),
        1 => Just(NodeStatus::Draining),
        1 => Just(NodeStatus::Unreachable),
        1 => Just(NodeStatus::Fenced),
    ];
    let health = prop_oneof![
        3 => Just(GpuStatus::Healthy),
        1 => Just(GpuStatus::Degraded),
        1 => Just(GpuStatus::Warning),
        1 => Just(GpuStatus::Unhealthy),
    ];
    let ticks = prop_oneof![Just(SECOND), Just(30 * SECOND), Just(MINUTE), Just(10 * MINUTE), Just(2 * HOUR)];
    prop_oneof![
        30 => job_request().prop_map(Step::Submit),
        16 => job_request().prop_map(Step::Plan),
        4 => some.clone().prop_map(Step::Started),
        1 => some.clone().prop_map(Step::Checkpointed),
        8 => (some.clone(), 0..6usize, any::<bool>()).prop_map(|(a, b, c)| Step::Ended(a, b, c)),
        6 => ticks.prop_map(Step::Tick),
        1 => some.clone().prop_map(Step::Cancel),
        1 => some.clone().prop_map(Step::Hold),
        1 => some.clone().prop_map(Step::Release),
        1 => some.clone().prop_map(Step::Requeue),
        1 => (some.clone(), 0..PRIORITIES.len()).prop_map(|(job, at)| Step::Change(job, PRIORITIES[at])),
        1 => (some.clone(), status).prop_map(|(node, status)| Step::NodeState(node, status)),
        1 => (some.clone(), 0..5u8, health, any::<bool>()).prop_map(|(n, g, w, c)| Step::Gpu(n, g, w, c)),
        1 => (some.clone(), machine()).prop_map(|(node, machine)| Step::Register(node, machine)),
        1 => some.clone().prop_map(Step::Remove),
        1 => (some.clone(), 0..12usize).prop_map(|(node, kind)| Step::Window(node, kind)),
        1 => some.clone().prop_map(Step::Close),
        2 => (some.clone(), 0..3u8, 0..LAYOUTS.len()).prop_map(|(n, g, c)| Step::Partition(n, g, c)),
        1 => (0..TENANTS.len(), 0..8usize).prop_map(|(tenant, config)| Step::Tenant(tenant, config)),
        1 => (0..8usize).prop_map(Step::Settings),
        1 => (0..13usize).prop_map(Step::Policy),
        4 => any::<u64>().prop_map(Step::Answers),
        2 => some.clone().prop_map(Step::StalePlan),
        2 => (prop::collection::vec(arbitrary_start(), 0..4), prop::collection::vec(arbitrary_eviction(), 0..3))
            .prop_map(|(starts, claims)| Step::ArbitraryPlan(starts, claims)),
        1 => (some.clone(), 0..4u32, some, 0..6usize).prop_map(|(j, a, n, e)| Step::ArbitraryReport(j, a, n, e)),
        1 => Just(Step::Restart),
    ]
}

/// The command of a step in this state; `None` if it has none.
pub fn command(state: &State, now: Timestamp, step: &Step) -> Option<Command> {
    let job = |index: &usize| any_job(state, *index);
    Some(match step {
        Step::Submit(request) => Command::SubmitJob(request.submission(state, now)),
        Step::Cancel(index) => Command::CancelJob { job: job(index)? },
        Step::Hold(index) => Command::HoldJob { job: job(index)?, why: "maintenance".to_string() },
        Step::Release(index) => Command::ReleaseJob { job: job(index)? },
        Step::Requeue(index) => Command::RequeueJob { job: job(index)? },
        Step::Change(index, priority) => {
            let change = JobChange { priority: Some(*priority), ..JobChange::default() };
            Command::ChangeJob { job: job(index)?, change }
        }
        // Every third drain has a deadline, now or soon, and some end with a reboot.
        Step::NodeState(index, NodeStatus::Draining) if index % 3 == 0 => Command::DrainNode {
            node: node_name(index % 4),
            why: String::new(),
            deadline_ms: Some([0, MINUTE][index / 4 % 2]),
            reboot: index % 5 == 0,
        },
        Step::NodeState(index, status) => {
            Command::SetNodeState { node: node_name(index % 4), status: *status, why: String::new() }
        }
        Step::Gpu(index, gpu, status, cooling) => Command::SetGpuHealth {
            node: node_name(index % 4),
            gpu: *gpu,
            status: *status,
            why: String::new(),
            cooling_until: cooling.then(|| now.plus(5 * MINUTE)),
            temperature_c: [Some(80), Some(40), Some(70), None][(index + usize::from(*gpu)) % 4],
            jobs: [JobsOnGpu::Keep, JobsOnGpu::Keep, JobsOnGpu::Requeue, JobsOnGpu::Stop]
                [(index / 4 + usize::from(*gpu)) % 4],
        },
        Step::Register(index, machine) => {
            Command::RegisterNode { node: node_name(index % 4), facts: Box::new(machine.facts()) }
        }
        Step::Window(index, kind) => Command::OpenWindow { window: Box::new(window(*index, *kind, now)) },
        Step::Partition(index, gpu, layout) => Command::PartitionGpu {
            node: node_name(index % 4),
            gpu: *gpu,
            profiles: LAYOUTS[*layout].iter().map(|name| name.to_string()).collect(),
            why: String::new(),
        },
        Step::Close(index) => Command::CloseWindow { name: format!("w{}", index % 4) },
        Step::Remove(index) => Command::RemoveNode { node: node_name(index % 4) },
        Step::Tenant(index, config) => {
            Command::ChangeTenant { id: tenant_name(*index), config: Box::new(tenant_config(TENANTS[*index], *config)) }
        }
        Step::Policy(index) => story_policies::apply(state, *index),
        Step::Answers(seed) => story_policies::random_answers(state, *seed)?,
        Step::Settings(index) => Command::Configure { settings: Box::new(settings(*index)) },
        Step::ArbitraryPlan(starts, claims) => {
            Command::AdoptPlan { plan: arbitrary_plan(state, starts, claims), epoch: 1 }
        }
        Step::Started(index) => report(state, *index, TaskReport::Started)?,
        Step::Checkpointed(index) => report(state, *index, TaskReport::Saved)?,
        Step::Ended(index, exit, stopped) => {
            let (exit, ended_ms_ago) = (any_exit(*exit), any_age(index + exit));
            report(state, *index, TaskReport::Ended { exit, stopped: *stopped, ended_ms_ago })?
        }
        Step::ArbitraryReport(index, attempt, node, exit) => Command::ReportTask {
            node: node_name(node % 4),
            job: job(index)?,
            attempt: *attempt,
            report: TaskReport::Ended { exit: any_exit(*exit), stopped: false, ended_ms_ago: any_age(*exit) },
        },
        Step::Tick(_) => Command::Tick,
        Step::Plan(_) | Step::StalePlan(_) | Step::Restart => return None,
    })
}

/// The oldest live jobs first, then any job number that was ever used, or a whole array.
fn any_job(state: &State, index: usize) -> Option<JobId> {
    let live = state.jobs.keys().copied().nth(index);
    let number = (state.next_job > 0).then(|| JobId::single(index as u64 % state.next_job));
    live.or(number)
}

fn active(state: &State, index: usize) -> Option<JobId> {
    let active: Vec<JobId> = state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
    (!active.is_empty()).then(|| active[index % active.len()])
}

/// A report about a current attempt.
fn report(state: &State, index: usize, report: TaskReport) -> Option<Command> {
    let job = active(state, index)?;
    let attempt = state.jobs[&job].attempt()?;
    let node = attempt.tasks[index % attempt.tasks.len()].node.clone();
    Some(Command::ReportTask { node, job, attempt: attempt.number, report })
}

/// The age of an end, by clocks that may be wrong.
fn any_age(index: usize) -> Option<i64> {
    [Some(0), Some(700), Some(90_000), None, Some(-5_000), Some(i64::MAX)][index % 6]
}

fn any_exit(index: usize) -> Exit {
    match index {
        0..=2 => Exit::Code { code: 0 },
        3 => Exit::Signal { signal: 15 },
        4 => Exit::NotStarted { why: "no image".to_string() },
        _ => Exit::Unknown { why: "unknown".to_string() },
    }
}

pub fn node_name(index: usize) -> NodeId {
    format!("n{index}").parse().unwrap()
}

fn tenant_name(index: usize) -> TenantId {
    TENANTS[index].parse().unwrap()
}
