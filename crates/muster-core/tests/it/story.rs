//! Random stories: everything that can be asked of a cluster, sense and nonsense.
//!
//! Steps name things by small numbers that are resolved while the story is told, so that a story stays
//! meaningful when a failing one is cut down to the least that fails.

use crate::policies;
use std::collections::BTreeMap;
use std::fmt;

use muster_core::command::{ArrayAsk, Command, IdempotencyKey, JobChange, JobsOnGpu, Said, SubmitJob};
use muster_core::job::{
    CheckpointRule, Dependency, DependencyWhen, Exit, Isolation, JobSpec, OnNodeLost, PlacedTask, Resources,
    TaskGroup, Topology,
};
use muster_core::node::{GpuWord, NodeFacts, NodeWord};
use muster_core::partition::laid_out;
use muster_core::plan::{MakeRoom, Plan, Start};
use muster_core::settings::PRIORITY_MAX;
use muster_core::settings::{Objective, Repartition};
use muster_core::share::ShareMode;
use muster_core::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::window::Window;
use muster_core::{JobId, NodeId, Settings, State, TenantId, Timestamp};
use proptest::prelude::*;

use crate::world::{facts, spec, submission};

/// What happens, one after the other, on these machines.
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
    /// How its devices are wired, and where it stands.
    wiring: usize,
}

/// One thing that happens. Numbers are taken modulo what there is.
#[derive(Debug, Clone)]
pub enum Step {
    Submit(Ask),
    Cancel(usize),
    Hold(usize),
    Release(usize),
    Requeue(usize),
    Change(usize, u32),
    NodeState(usize, NodeWord),
    Gpu(usize, u8, GpuWord, bool),
    Register(usize, Machine),
    Remove(usize),
    Window(usize, usize),
    Partition(usize, u8, usize),
    Close(usize),
    Tenant(usize, usize),
    Settings(usize),
    /// Policies are put into force, and are taken back.
    Policy(usize),
    /// Policies answer about everyone who waits, by a whim.
    Answers(u64),
    /// The planner's own plan, of now. The ask is looked at beforehand as `muster plan` would.
    Plan(Ask),
    /// A plan drawn some rounds ago.
    OldPlan(usize),
    /// A plan that no planner would draw.
    WildPlan(Vec<WildStart>, Vec<WildClaim>),
    Started(usize),
    Saved(usize),
    Ended(usize, usize, bool),
    /// A report about anything.
    WildReport(usize, u32, usize, usize),
    Tick(i64),
    /// The server restarts.
    Restart,
}

/// A job to submit.
#[derive(Debug, Clone)]
pub struct Ask {
    tenant: usize,
    priority: u32,
    tasks: u32,
    gpus: u32,
    cpus: u32,
    model: usize,
    after: Option<(usize, usize)>,
    array: Option<(u32, Option<u32>)>,
    rules: usize,
    /// A part of a GPU instead of whole ones.
    share: Option<usize>,
}

/// A start that may be wrong in any way.
#[derive(Debug, Clone)]
pub struct WildStart {
    job: usize,
    node: usize,
    gpus: u8,
    skewed: bool,
}

/// A claim that may be wrong in any way.
#[derive(Debug, Clone)]
pub struct WildClaim {
    job: usize,
    node: usize,
    gpus: u8,
    victims: Vec<usize>,
}

/// Everything there is. Two are an `H100`, and one of them an `H100-80GB`.
pub const MODELS: [&str; 4] =
    ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA H200", "NVIDIA H100 PCIe"];
const WISHES: [&str; 10] = ["", "", "", "", "", "H100", "H100", "A100", "H100-80GB", "H100,A100"];
/// Parts of a GPU: compute in thousandths, memory in MiB.
const SHARES: [(u32, u64); 6] = [(500, 0), (300, 40_960), (250, 0), (700, 8_192), (999, 0), (100, 27_307)];
/// Ways to cut a GPU; the last one is none.
const CUTS: [&[&str]; 5] = [
    &["3g.40gb", "4g.40gb"],
    &["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"],
    &["7g.80gb"],
    &[],
    &["3g.40gb", "3g.40gb", "1g.10gb"],
];
const TENANTS: [&str; 3] = ["default", "red", "blue"];
const PRIORITIES: [u32; 8] = [50, 100, 100, 100, 200, 500, 900, PRIORITY_MAX];

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

    /// What comes before the story.
    pub fn opening(&self) -> Vec<Command> {
        // As many reservations as fit, or these small clusters would hardly have two.
        let fast = self.machines.first().is_some_and(|machine| machine.model == 2);
        let objective = if fast { Objective::Fast } else { Objective::Fair };
        let settings = Settings { objective, reserve_one_node_in: 1, ..Settings::default() };
        let settings = Box::new(settings);
        let tenants = TENANTS[1..].iter().enumerate().map(|(index, name)| {
            let mut config = Box::new(tenant_config(name, index));
            // Nobody, one of them, or both.
            config.guaranteed_by_model = guaranteed_by_model(index + self.machines.len());
            Command::CreateTenant { id: name.parse().unwrap(), config }
        });
        let nodes = self.machines.iter().enumerate().map(|(index, machine)| Command::RegisterNode {
            node: node_name(index),
            facts: Box::new(machine.facts()),
        });
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
        .prop_map(|(gpus, model, cpus, wiring)| Machine { gpus, model, cpus, wiring })
}

impl Machine {
    fn facts(&self) -> NodeFacts {
        let mut facts = facts(self.gpus, MODELS[self.model], self.cpus, 64 * 1_024);
        for (index, gpu) in (0u8..).zip(&mut facts.gpus) {
            let (half, pair) = (u32::from(index / 2), u32::from(index % 2));
            gpu.numa_node = [None, Some(half), Some(pair), Some(0)][self.wiring % 4];
            gpu.pcie_switch = [None, Some(half)][self.wiring / 4 % 2];
            gpu.nvlink = match self.wiring % 3 {
                0 => Vec::new(),
                1 => vec![index ^ 1],
                _ => vec![(index + 1) % 4],
            };
        }
        // The A100 of some machines are partitioned from the beginning.
        if self.model == 1 && self.wiring.is_multiple_of(5) {
            for (gpu, cut) in facts.gpus.iter_mut().zip([0, 1, 3, 2]) {
                let profiles: Vec<String> = CUTS[cut].iter().map(|name| name.to_string()).collect();
                gpu.mig = laid_out(gpu, &profiles).unwrap();
            }
        }
        facts.rack = [None, Some("r1"), Some("r2")][self.wiring / 8].map(str::to_string);
        facts.block = (self.wiring % 2 == 1).then(|| "b1".to_string());
        facts
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    let array = prop::option::weighted(0.1, (1..4u32, prop::option::of(1..3u32)));
    let after = prop::option::weighted(0.08, (0..8usize, 0..3usize));
    let size = (1..3u32, prop_oneof![1 => Just(0u32), 6 => 1..3u32, 1 => 3..5u32], 0..3u32);
    let share = prop::option::weighted(0.3, 0..SHARES.len());
    let rules = (0..20usize, share);
    (0..TENANTS.len(), 0..PRIORITIES.len(), size, 0..WISHES.len(), after, array, rules).prop_map(
        |(tenant, priority, (tasks, gpus, cpus), model, after, array, (rules, share))| {
            let (priority, tasks) = (PRIORITIES[priority], if rules.is_multiple_of(3) { tasks } else { 1 });
            let tasks = if share.is_some_and(|share| share % 2 == 1) { 2 * tasks } else { tasks };
            Ask { tenant, priority, tasks, gpus, cpus, model, after, array, rules, share }
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let some = 0..8usize;
    let word = prop_oneof![
        4 => Just(NodeWord::Ready),
        1 => Just(NodeWord::Draining),
        1 => Just(NodeWord::Unreachable),
        1 => Just(NodeWord::Fenced),
    ];
    let health = prop_oneof![
        3 => Just(GpuWord::Healthy),
        1 => Just(GpuWord::Degraded),
        1 => Just(GpuWord::Warning),
        1 => Just(GpuWord::Unhealthy),
    ];
    let ticks = prop_oneof![Just(SECOND), Just(30 * SECOND), Just(MINUTE), Just(10 * MINUTE), Just(2 * HOUR)];
    prop_oneof![
        30 => ask().prop_map(Step::Submit),
        16 => ask().prop_map(Step::Plan),
        4 => some.clone().prop_map(Step::Started),
        1 => some.clone().prop_map(Step::Saved),
        8 => (some.clone(), 0..6usize, any::<bool>()).prop_map(|(a, b, c)| Step::Ended(a, b, c)),
        6 => ticks.prop_map(Step::Tick),
        1 => some.clone().prop_map(Step::Cancel),
        1 => some.clone().prop_map(Step::Hold),
        1 => some.clone().prop_map(Step::Release),
        1 => some.clone().prop_map(Step::Requeue),
        1 => (some.clone(), 0..PRIORITIES.len()).prop_map(|(job, at)| Step::Change(job, PRIORITIES[at])),
        1 => (some.clone(), word).prop_map(|(node, word)| Step::NodeState(node, word)),
        1 => (some.clone(), 0..5u8, health, any::<bool>()).prop_map(|(n, g, w, c)| Step::Gpu(n, g, w, c)),
        1 => (some.clone(), machine()).prop_map(|(node, machine)| Step::Register(node, machine)),
        1 => some.clone().prop_map(Step::Remove),
        1 => (some.clone(), 0..12usize).prop_map(|(node, kind)| Step::Window(node, kind)),
        1 => some.clone().prop_map(Step::Close),
        2 => (some.clone(), 0..3u8, 0..CUTS.len()).prop_map(|(n, g, c)| Step::Partition(n, g, c)),
        1 => (0..TENANTS.len(), 0..8usize).prop_map(|(tenant, config)| Step::Tenant(tenant, config)),
        1 => (0..8usize).prop_map(Step::Settings),
        1 => (0..13usize).prop_map(Step::Policy),
        4 => any::<u64>().prop_map(Step::Answers),
        2 => some.clone().prop_map(Step::OldPlan),
        2 => (prop::collection::vec(wild_start(), 0..4), prop::collection::vec(wild_claim(), 0..3))
            .prop_map(|(starts, claims)| Step::WildPlan(starts, claims)),
        1 => (some.clone(), 0..4u32, some, 0..6usize).prop_map(|(j, a, n, e)| Step::WildReport(j, a, n, e)),
        1 => Just(Step::Restart),
    ]
}

fn wild_start() -> impl Strategy<Value = WildStart> {
    (0..12usize, 0..4usize, any::<u8>(), prop::bool::weighted(0.2))
        .prop_map(|(job, node, gpus, skewed)| WildStart { job, node, gpus: gpus & 31, skewed })
}

fn wild_claim() -> impl Strategy<Value = WildClaim> {
    (0..12usize, 0..4usize, any::<u8>(), prop::collection::vec(0..12usize, 0..3))
        .prop_map(|(job, node, gpus, victims)| WildClaim { job, node, gpus: gpus & 31, victims })
}

/// Turn a step into the command it means in this state; nothing if it means nothing.
pub fn command(state: &State, now: Timestamp, step: &Step) -> Option<Command> {
    let job = |index: &usize| any_job(state, *index);
    Some(match step {
        Step::Submit(ask) => Command::SubmitJob(ask.submission(state, now)),
        Step::Cancel(index) => Command::CancelJob { job: job(index)? },
        Step::Hold(index) => Command::HoldJob { job: job(index)?, why: "a look".to_string() },
        Step::Release(index) => Command::ReleaseJob { job: job(index)? },
        Step::Requeue(index) => Command::RequeueJob { job: job(index)? },
        Step::Change(index, priority) => {
            let change = JobChange { priority: Some(*priority), ..JobChange::default() };
            Command::ChangeJob { job: job(index)?, change }
        }
        Step::NodeState(index, word) => {
            Command::SetNodeState { node: node_name(index % 4), word: *word, why: String::new() }
        }
        Step::Gpu(index, gpu, word, cooling) => Command::SetGpuHealth {
            node: node_name(index % 4),
            gpu: *gpu,
            word: *word,
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
        Step::Partition(index, gpu, cut) => Command::PartitionGpu {
            node: node_name(index % 4),
            gpu: *gpu,
            profiles: CUTS[*cut].iter().map(|name| name.to_string()).collect(),
            why: String::new(),
        },
        Step::Close(index) => Command::CloseWindow { name: format!("w{}", index % 4) },
        Step::Remove(index) => Command::RemoveNode { node: node_name(index % 4) },
        Step::Tenant(index, config) => Command::ChangeTenant {
            id: tenant_name(*index),
            config: Box::new(tenant_config(TENANTS[*index], *config)),
        },
        Step::Policy(index) => policies::apply(state, *index),
        Step::Answers(whim) => policies::answers(state, *whim)?,
        Step::Settings(index) => Command::Configure { settings: Box::new(settings(*index)) },
        Step::WildPlan(starts, claims) => {
            Command::AdoptPlan { plan: wild_plan(state, starts, claims), epoch: 1 }
        }
        Step::Started(index) => report(state, *index, Said::Started)?,
        Step::Saved(index) => report(state, *index, Said::Saved)?,
        Step::Ended(index, exit, stopped) => {
            let (exit, ended_ms_ago) = (any_exit(*exit), any_age(index + exit));
            report(state, *index, Said::Ended { exit, stopped: *stopped, ended_ms_ago })?
        }
        Step::WildReport(index, attempt, node, exit) => Command::ReportTask {
            node: node_name(node % 4),
            job: job(index)?,
            attempt: *attempt,
            said: Said::Ended { exit: any_exit(*exit), stopped: false, ended_ms_ago: any_age(*exit) },
        },
        Step::Tick(_) => Command::Tick,
        Step::Plan(_) | Step::OldPlan(_) | Step::Restart => return None,
    })
}

impl Ask {
    /// What is submitted. Some jobs wait for others, sleep, fail and try again, or carry a key.
    pub fn submission(&self, state: &State, now: Timestamp) -> SubmitJob {
        let key = (self.rules % 10 == 9)
            .then(|| IdempotencyKey { key: format!("k{}", self.gpus), body_hash: format!("{self:?}") });
        let array =
            self.array.map(|(tasks, running_max)| ArrayAsk { indexes: (0..tasks).collect(), running_max });
        SubmitJob { array, hold: self.rules == 13, key, ..submission(self.spec(state, now)) }
    }

    pub fn spec(&self, state: &State, now: Timestamp) -> JobSpec {
        let mut spec = spec("story", self.gpus);
        spec.tenant = tenant_name(self.tenant);
        spec.user = ["ada", "bob", "cyd"][self.rules % 3].to_string();
        spec.priority = self.priority;
        spec.tasks[0].count = self.tasks;
        spec.tasks[0].count_max = (self.rules % 7 == 3).then_some(self.tasks + 1 + self.rules as u32 / 7);
        spec.tasks[0].each.cpus = self.cpus;
        spec.tasks[0].each.memory_mib = 1_000 * u64::from(self.cpus);
        if self.rules % 5 == 4 {
            spec.tasks.insert(self.rules % 2, launcher(spec.tasks[0].clone()));
        }
        if let Some((milli, mib)) = self.share.map(|share| SHARES[share]).filter(|_| self.gpus > 0) {
            let worker = spec.tasks.iter_mut().find(|group| group.name != "launcher").unwrap();
            (worker.each.gpus, worker.each.gpu_compute_milli, worker.each.gpu_memory_mib) = (1, milli, mib);
            worker.each.isolation = [Isolation::None, Isolation::Memory, Isolation::Full][self.model % 3];
        }
        let wish = WISHES[self.model];
        let worker = spec.tasks.iter_mut().find(|group| group.name != "launcher").unwrap();
        worker.each.gpu_models = wish.split(',').filter(|w| !w.is_empty()).map(str::to_string).collect();
        spec.topology = match (self.rules, self.model) {
            (0..3, 0..4) => Topology::SameNuma,
            (3..6, 0..4) => Topology::Nvlink,
            (6..10, 0..6) => Topology::SameRack,
            _ => Topology::Any,
        };
        let words = ["critical", "high", "normal", "low", "whatever"];
        if let Some(word) = words.get(self.rules % 7) {
            spec.labels.insert("job_priority".to_string(), word.to_string());
        }
        let single = self.tasks == 1 && spec.tasks.len() == 1 && spec.tasks[0].count_max.is_none();
        let pool = ["fast", "cool", "any"][self.model % 3];
        spec.pool =
            (single && self.rules % 4 == 1 && state.policies.pool(pool).is_some()).then(|| pool.to_string());
        spec.prefer_nvlink = self.rules % 4 == 2;
        spec.allow_cross_numa = (self.rules == 11).then_some(self.model > 2);
        spec.restart.max_restarts = (self.rules % 3) as u32;
        spec.time_limit_ms = (self.rules % 4 == 1).then_some([10 * MINUTE, MINUTE, 3 * HOUR][self.tenant]);
        spec.checkpoint = (self.rules % 6 == 2)
            .then(|| CheckpointRule { path: "/out".to_string(), every_ms: Some(2 * MINUTE) });
        spec.start_after = (self.rules == 7).then(|| now.plus(MINUTE));
        spec.on_node_lost = if self.rules.is_multiple_of(2) { OnNodeLost::Wait } else { OnNodeLost::Requeue };
        let when = [DependencyWhen::Succeeded, DependencyWhen::Failed, DependencyWhen::Ended];
        let after = self.after.and_then(|(index, which)| Some((any_job(state, index)?, when[which])));
        spec.after = after.map(|(job, when)| Dependency { job, when }).into_iter().collect();
        spec
    }
}

/// A task without GPUs beside the others.
fn launcher(worker: TaskGroup) -> TaskGroup {
    let each = Resources { gpus: 0, cpus: 1, memory_mib: 1_000, ..worker.each };
    TaskGroup { name: "launcher".to_string(), count: 1, count_max: None, each }
}

/// Mostly the oldest live jobs, sometimes any number that was ever given out, or an array as a whole.
fn any_job(state: &State, index: usize) -> Option<JobId> {
    let live = state.jobs.keys().copied().nth(index);
    let number = (state.next_job > 0).then(|| JobId::single(index as u64 % state.next_job));
    live.or(number)
}

fn active(state: &State, index: usize) -> Option<JobId> {
    let active: Vec<JobId> =
        state.jobs.values().filter(|job| job.attempt().is_some()).map(|job| job.id).collect();
    (!active.is_empty()).then(|| active[index % active.len()])
}

/// What an agent says of an attempt that is under way.
fn report(state: &State, index: usize, said: Said) -> Option<Command> {
    let job = active(state, index)?;
    let attempt = state.jobs[&job].attempt()?;
    let node = attempt.tasks[index % attempt.tasks.len()].node.clone();
    Some(Command::ReportTask { node, job, attempt: attempt.number, said })
}

/// How long ago an end was, by clocks that may be wrong.
fn any_age(index: usize) -> Option<i64> {
    [Some(0), Some(700), Some(90_000), None, Some(-5_000), Some(i64::MAX)][index % 6]
}

fn any_exit(index: usize) -> Exit {
    match index {
        0..=2 => Exit::Code { code: 0 },
        3 => Exit::Signal { signal: 15 },
        4 => Exit::NotStarted { why: "no image".to_string() },
        _ => Exit::Unknown { why: "nobody saw it".to_string() },
    }
}

pub fn node_name(index: usize) -> NodeId {
    format!("n{index}").parse().unwrap()
}

fn tenant_name(index: usize) -> TenantId {
    TENANTS[index].parse().unwrap()
}

fn tenant_config(name: &str, variant: usize) -> TenantConfig {
    let mut config = TenantConfig::unlimited(name);
    config.maximum.gpus = [Some(4), None, None, Some(6)][variant % 4];
    config.maximum.jobs = (variant == 5).then_some(2);
    config.maximum_per_user.gpus = [Some(3), None, None, Some(2), None, None, None, None][variant % 8];
    config.maximum_per_user.jobs = (variant == 6).then_some(1);
    config.maximum_per_user.cpus = (variant == 2).then_some(2);
    config.may_preempt = variant != 3;
    config.may_be_preempted = variant != 2;
    config.preemptions_per_job_max = (variant > 4).then_some(1);
    config.weight = [100, 300, 100, 1][variant % 4];
    config.decay_milli_per_day = [0, 999, 500, 0, 1_000, 0, 900, 250][variant % 8];
    config.guaranteed.gpus = [None, Some(2), None, None, Some(4), None, Some(1), None][variant % 8];
    config.guaranteed.jobs = (variant == 6).then_some(1);
    if [0, 4, 5].contains(&variant) {
        config.maximum_by_model.insert("H100".to_string(), [2, 1][variant % 2]);
    }
    config.guaranteed_by_model = guaranteed_by_model(variant);
    config.damage_gpu_ms_per_day = (variant == 1).then_some(10 * MINUTE as u64);
    config.budget.gpu_ms = (variant == 7).then_some(30 * MINUTE as u64);
    config.budget.energy_mj = (variant == 3).then_some(300_000_000);
    // `blue` below `red` now and then; never the other way round, which would be refused as a circle.
    config.parent = (name == "blue" && variant % 3 == 1).then(|| tenant_name(1));
    config
}

fn guaranteed_by_model(variant: usize) -> BTreeMap<String, u64> {
    let models: &[(&str, u64)] = match variant % 8 {
        2 => &[("H100", 2)],
        3 => &[("H100", 1), ("A100", 2)],
        5 => &[("H100-80GB", 2), ("H100", 3)],
        6 => &[("H100", 4)],
        7 => &[("A100", 1), ("H200", 0)],
        _ => &[],
    };
    models.iter().map(|(model, count)| (model.to_string(), *count)).collect()
}

/// One or two nodes, from now or later, for maintenance or for a tenant.
fn window(index: usize, kind: usize, now: Timestamp) -> Window {
    let from = now.plus([0, 5 * MINUTE, HOUR, 4 * HOUR][kind % 4]);
    Window {
        name: format!("w{}", index % 4),
        nodes: (0..=kind % 2).map(|more| node_name((index + more) % 4)).collect(),
        from,
        until: from.plus([MINUTE, 30 * MINUTE, 3 * HOUR][kind % 3]),
        tenant: kind.is_multiple_of(3).then(|| tenant_name(1)),
        why: String::new(),
        by: String::new(),
    }
}

fn settings(variant: usize) -> Settings {
    Settings {
        objective: if [3, 4].contains(&variant) { Objective::Fast } else { Objective::Fair },
        aging_per_minute: [10, 0, 100][variant % 3],
        fair_share_max: [400, 0, 5_000][variant % 3],
        usage_half_life_ms: [7 * 24 * HOUR, 10 * MINUTE][variant % 2],
        max_wait_ms: [12 * HOUR, 5 * MINUTE][variant % 2],
        reservations: [16, 16, 1, 0][variant % 4],
        reserve_one_node_in: [1, 1, 8][variant % 3],
        default_runtime_ms: [HOUR, 5 * MINUTE][variant % 2],
        preemption: variant != 5,
        preemption_min_runtime_ms: [0, MINUTE][usize::from(variant == 6)],
        preemption_cooldown_ms: [10 * MINUTE, 0, MINUTE][variant % 3],
        queue_size_max: [1_000_000, 6][usize::from(variant == 7)],
        repartition: [Repartition::Propose, Repartition::Apply, Repartition::Off][variant % 3],
        defragment: variant == 2,
        repartition_after_ms: [MINUTE, 0][variant % 2],
        repartition_cooldown_ms: [10 * MINUTE, 0][usize::from(variant == 1)],
        ..Settings::default()
    }
}

fn wild_plan(state: &State, starts: &[WildStart], claims: &[WildClaim]) -> Box<Plan> {
    let start = |wild: &WildStart| {
        let job = any_job(state, wild.job)?;
        Some(Start {
            job,
            tasks: wild_tasks(state, job, wild),
            effective: None,
            expected_ms: None,
            lent: false,
            score: None,
        })
    };
    let claim = |wild: &WildClaim| {
        let job = any_job(state, wild.job)?;
        let victims = wild.victims.iter().filter_map(|index| active(state, *index)).collect();
        let start = WildStart { job: wild.job, node: wild.node, gpus: wild.gpus, skewed: false };
        Some(MakeRoom { job, tasks: wild_tasks(state, job, &start), victims })
    };
    Box::new(Plan {
        snapshot: 0,
        now: Timestamp(0),
        starts: starts.iter().filter_map(start).collect(),
        claims: claims.iter().filter_map(claim).collect(),
        cuts: Vec::new(),
    })
}

/// Devices dealt out to the tasks in turn, so that some of it is right by chance.
fn wild_tasks(state: &State, job: JobId, wild: &WildStart) -> Vec<PlacedTask> {
    let Some(job) = state.jobs.get(&job) else { return Vec::new() };
    let mut devices = bits(wild.gpus).into_iter();
    let group = &job.spec.tasks[0];
    let task = |rank: u32| PlacedTask {
        rank: if wild.skewed && wild.job.is_multiple_of(2) { 0 } else { rank },
        group: 0,
        // Odd ranks of odd jobs sit on the next node.
        node: node_name(wild.node + (wild.job % 2) * (rank as usize % 2)),
        gpus: devices.by_ref().take(group.each.gpus as usize).collect(),
        // Mostly what was asked for, sometimes less of the memory, sometimes the whole device.
        share: (group.each.is_shared() && wild.gpus % 8 != 7).then(|| {
            let share = group.each.share_of(81_920 + u64::from(wild.gpus & 16) * 1_024, ShareMode::Mps);
            Box::new(share)
        }),
    };
    // A skewed gang has all its tasks at rank 0, or one task too few.
    let missing = u32::from(wild.skewed && !wild.job.is_multiple_of(2));
    // On the last nodes as many as it takes, elsewhere as many as it needs.
    let count = if wild.node > 1 { group.most() } else { group.count };
    (0..count.saturating_sub(missing)).map(task).collect()
}

fn bits(mask: u8) -> Vec<u8> {
    (0..8).filter(|bit| mask & (1 << bit) != 0).collect()
}
