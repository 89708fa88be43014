//! A cluster for tests: commands go in, events are kept, and no law is ever broken.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{Actor, Answer, Command, SubmitJob};
use muster_core::job::{
    Demand, Isolation, Job, JobSpec, OnNodeLost, PlacedTask, Resources, RestartRule, Run, TaskGroup, Topology,
};
use muster_core::node::{GpuFacts, Node, NodeFacts};
use muster_core::plan::{Planned, plan};
use muster_core::share::ShareMode;
use muster_core::tenant::TenantConfig;
use muster_core::time::DAY;
use muster_core::{Event, Refusal, State, TenantId, Timestamp, model};

use crate::policies;
use crate::story::MODELS;

/// A cluster, its clock, and everything that happened.
#[derive(Clone)]
pub struct World {
    pub state: State,
    pub now: Timestamp,
    pub events: Vec<Event>,
    /// The actor behind the commands.
    pub by: Actor,
}

impl World {
    /// With the tenant `default`, as every cluster has it.
    pub fn new() -> World {
        let mut world = World { state: State::default(), now: Timestamp(0), events: Vec::new(), by: actor() };
        let config = Box::new(TenantConfig::unlimited("default"));
        world.ask(Command::CreateTenant { id: "default".parse().unwrap(), config }).unwrap();
        world
    }

    /// Decide, apply, and look for broken laws.
    pub fn ask(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.ask_watched(command, &mut |_, _| {})
    }

    /// The same, with someone who sees each event and the state just before it.
    pub fn ask_watched(
        &mut self,
        command: Command,
        watch: &mut dyn FnMut(&State, &Event),
    ) -> Result<Answer, Refusal> {
        let (events, answer) = self.state.decide_audited(&self.by, &command, self.now);
        for event in &events {
            watch(&self.state, event);
            self.state.apply(event);
        }
        self.events.extend(events);
        let broken: Vec<String> = self.state.check().iter().map(ToString::to_string).collect();
        assert!(broken.is_empty(), "broken after {command:?}:\n{}", broken.join("\n"));
        answer
    }

    /// Draw up a plan and adopt it. What the planner saw is still true, so every start must hold.
    pub fn plan(&mut self) -> Planned {
        let planned = plan(&self.state, self.now);
        let starts = planned.plan.starts.len();
        let adopt = Command::AdoptPlan { plan: Box::new(planned.plan.clone()), epoch: 1 };
        let Ok(Answer::Adopted { taken, left }) = self.ask(adopt) else { panic!("a plan is never refused") };
        assert!(taken >= starts, "{left} of a fresh plan did not hold: {:#?}", planned.plan);
        planned
    }

    /// Advance the clock and tell the cluster.
    pub fn tick(&mut self, ms: i64) {
        self.now = self.now.plus(ms);
        self.ask(Command::Tick).unwrap();
    }
}

/// Who asks in tests.
pub fn actor() -> Actor {
    Actor::local("ada")
}

/// A node with devices of one model.
pub fn facts(gpus: usize, model: &str, cpus: u32, memory_mib: u64) -> NodeFacts {
    let gpu = |index: usize| GpuFacts {
        uuid: format!("gpu-{index}"),
        model: model.to_string(),
        memory_mib: 81_920,
        numa_node: None,
        nvlink: Vec::new(),
        mig: Vec::new(),
        socket: None,
        pcie_switch: None,
        // Far apart, so that shares by watts differ from shares by GPUs.
        power_limit_milliwatts: [("H100", 700_000), ("A100", 40_000)]
            .iter()
            .find_map(|(name, milliwatts)| model.contains(name).then_some(*milliwatts)),
    };
    NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus,
        memory_mib,
        gpus: (0..gpus).map(gpu).collect(),
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

/// A job of one task with one core and 1 GiB.
pub fn spec(name: &str, gpus: u32) -> JobSpec {
    let each = Resources {
        gpus,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: 1,
        memory_mib: 1_024,
    };
    JobSpec {
        name: name.to_string(),
        tenant: "default".parse().unwrap(),
        user: "ada".to_string(),
        priority: 100,
        tasks: vec![TaskGroup { name: "task".to_string(), count: 1, count_max: None, each }],
        topology: Topology::Any,
        allow_cross_numa: None,
        prefer_nvlink: false,
        gang_scheduling: None,
        time_limit_ms: None,
        restart: RestartRule::default(),
        on_node_lost: OnNodeLost::Wait,
        checkpoint: None,
        after: Vec::new(),
        start_after: None,
        pool: None,
        node_labels: BTreeMap::new(),
        run: Run { command: vec!["true".to_string()], ..Run::default() },
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

/// A submission without array, hold or key.
pub fn submission(spec: JobSpec) -> SubmitJob {
    SubmitJob {
        spec: Arc::new(spec),
        array: None,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
        known_key: None,
        is_operator: true,
    }
}

/// A job that could be placed now if there were room.
pub fn is_ready(job: &Job) -> bool {
    job.is_queued() && job.wakes_at.is_none() && job.open_dependencies.is_empty()
}

/// Whether the quotas of its tenant and its user and the limit of its array let a job have so much now.
pub fn is_admitted(state: &State, job: &Job, demand: Demand, now: Timestamp) -> bool {
    let array = state.arrays.get(&job.id.number).filter(|_| job.id.index.is_some());
    let array_full = array.is_some_and(|array| array.running_max.is_some_and(|max| array.active >= max));
    let within = is_within_quota(state, job, demand) && is_within_user_quota(state, job, demand);
    let limited = policies::is_within_limits(state, job, demand, &[]);
    within && limited && is_within_budget(state, job, now) && !array_full && policies::let_in(state, job)
}

/// Whether no budget of its tenant, or of one above, is used up, by what was charged and what runs, and what is left
/// covers the time limit of the job.
pub fn is_within_budget(state: &State, job: &Job, now: Timestamp) -> bool {
    let groups = job.spec.tasks.iter();
    let gpu_milli: u64 = groups
        .map(|group| {
            let each = &group.each;
            u64::from(group.count) * u64::from(each.gpus) * u64::from(each.gpu_compute_milli)
        })
        .sum();
    let limit_ms = job.spec.time_limit_ms.unwrap_or(0) as u64;
    let limit_gpu_ms = gpu_milli * limit_ms / 1_000;
    let limit_energy_mj = least_milliwatts(state, job) * limit_ms / 1_000;
    state.lineage(&job.spec.tenant).all(|top| {
        let below = |tenant: &TenantId| is_below(state, tenant, &top.id);
        let charged = state.ledger.accounts().filter(|(tenant, _)| below(tenant));
        let (mut gpu_ms, mut energy_mj) = (0, 0);
        for (_, account) in charged {
            gpu_ms += account.used.gpu_ms;
            energy_mj += account.used.energy_mj;
        }
        for job in state.jobs.values().filter(|job| below(&job.spec.tenant)) {
            let Some(attempt) = job.attempt() else { continue };
            let ms = now.since(attempt.placed_at) as u64;
            gpu_ms += held_by(job).gpu_milli * ms / 1_000;
            energy_mj += attempt.milliwatts * ms / 1_000;
        }
        top.config.budget.gpu_ms.is_none_or(|limit| gpu_ms < limit && gpu_ms + limit_gpu_ms <= limit)
            && top
                .config
                .budget
                .energy_mj
                .is_none_or(|limit| energy_mj < limit && energy_mj + limit_energy_mj <= limit)
    })
}

/// The lowest power limit of a gang, on the eligible GPUs with the lowest limits.
fn least_milliwatts(state: &State, job: &Job) -> u64 {
    let mut sum = 0;
    for group in &job.spec.tasks {
        let each = &group.each;
        let mut least = None;
        for gpu in state.nodes.values().filter(|node| !node.declared).flat_map(|node| &node.facts.gpus) {
            let wished = |wish: &String| muster_core::model::matches(wish, &gpu.model);
            let is_wished = each.gpu_models.is_empty() || each.gpu_models.iter().any(wished);
            let watts = gpu.power_limit_milliwatts.unwrap_or(0);
            if is_wished && gpu.memory_mib >= each.gpu_memory_mib && least.is_none_or(|least| watts < least) {
                least = Some(watts);
            }
        }
        let milli = u64::from(group.count) * least_of_task(state, each).0;
        sum += least.unwrap_or(0) * milli / 1_000;
    }
    sum
}

/// What so many tasks of a job take.
pub fn demand_of(job: &Job, tasks: &[PlacedTask]) -> Demand {
    let mut sum = Demand { jobs: 1, ..Demand::default() };
    for task in tasks {
        let each = &job.spec.tasks[task.group as usize].each;
        // A MIG instance counts with its full size; `model.rs` checks that the placement records that size.
        let instance = task.share.as_ref().filter(|share| matches!(share.mode, ShareMode::Mig { .. }));
        sum.gpu_milli += match instance {
            Some(share) => u64::from(share.compute_milli),
            None => u64::from(each.gpus) * u64::from(each.gpu_compute_milli),
        };
        sum.gpu_memory_mib +=
            instance.map_or(u64::from(each.gpus) * each.gpu_memory_mib, |share| share.memory_mib);
        sum.cpus += u64::from(each.cpus);
        sum.memory_mib += each.memory_mib;
    }
    sum
}

/// An instance of a device as it counts: thousandths of its multiprocessors, rounded down, and MiB.
pub fn instance_holds(node: &Node, gpu: u8, profile: &str) -> (u64, u64) {
    let facts = &node.facts.gpus[usize::from(gpu)];
    let profiles = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap().profiles;
    let found = profiles.iter().find(|one| one.name == profile).unwrap();
    let all = profiles.iter().map(|one| u64::from(one.multiprocessors)).max().unwrap();
    (u64::from(found.multiprocessors) * 1_000 / all, found.memory_mib)
}

/// The least that one task takes: where it must have an instance, the smallest that some device could be cut into.
pub fn least_of_task(state: &State, each: &Resources) -> (u64, u64) {
    let asked = (
        u64::from(each.gpus) * u64::from(each.gpu_compute_milli),
        u64::from(each.gpus) * each.gpu_memory_mib,
    );
    if each.isolation != Isolation::Full || each.gpus == 0 || each.gpu_compute_milli == 1_000 {
        return asked;
    }
    let mut least = None;
    for node in state.nodes.values() {
        for (gpu, facts) in (0u8..).zip(&node.facts.gpus) {
            let wished = |wish: &String| model::matches(wish, &facts.model);
            let known = model::of_device(&facts.model, facts.memory_mib).and_then(|model| model.mig);
            let Some(table) =
                known.filter(|_| each.gpu_models.is_empty() || each.gpu_models.iter().any(wished))
            else {
                continue;
            };
            let all = table.profiles.iter().map(|one| u64::from(one.multiprocessors)).max().unwrap();
            let enough = |one: &&muster_core::mig::Profile| {
                let milli = (u64::from(one.multiprocessors) * 1_000).div_ceil(all);
                one.is_plain()
                    && one.memory_mib >= each.gpu_memory_mib
                    && milli >= u64::from(each.gpu_compute_milli)
            };
            let mut fitting: Vec<_> = table.profiles.iter().filter(enough).collect();
            fitting.sort_by_key(|one| (one.compute_slices, one.memory_slices));
            if let Some(first) = fitting.first() {
                let holds = instance_holds(node, gpu, first.name);
                least = Some(least.map_or(holds, |least: (u64, u64)| least.min(holds)));
            }
        }
    }
    least.unwrap_or(asked)
}

/// The least that a job takes, wherever it is placed.
pub fn least_demand(state: &State, job: &Job) -> Demand {
    let mut sum = Demand { jobs: 1, ..Demand::default() };
    for group in &job.spec.tasks {
        let count = u64::from(group.count);
        let (milli, memory_mib) = least_of_task(state, &group.each);
        sum.gpu_milli += count * milli;
        sum.gpu_memory_mib += count * memory_mib;
        sum.cpus += count * u64::from(group.each.cpus);
        sum.memory_mib += count * group.each.memory_mib;
    }
    sum
}

/// What the attempt of a job holds.
pub fn held_by(job: &Job) -> Demand {
    demand_of(job, &job.attempt().unwrap().tasks)
}

/// The power limits of devices together, as nodes are now.
pub fn milliwatts_of(state: &State, tasks: &[PlacedTask]) -> u64 {
    let mut sum = 0;
    for task in tasks {
        for gpu in &task.gpus {
            let facts = state.nodes.get(&task.node).and_then(|node| node.facts.gpus.get(usize::from(*gpu)));
            let all = facts.and_then(|gpu| gpu.power_limit_milliwatts).unwrap_or(0);
            sum += all * task.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli)) / 1_000;
        }
    }
    sum
}

/// Whether the quota of its tenant lets a job have so much now.
pub fn is_within_quota(state: &State, job: &Job, demand: Demand) -> bool {
    state
        .lineage(&job.spec.tenant)
        .all(|tenant| tenant.config.maximum.excess(held_below(state, &tenant.id).plus(demand)).is_empty())
}

/// Whether its tenant, and all above it, let its user hold so much more; counted job by job.
pub fn is_within_user_quota(state: &State, job: &Job, demand: Demand) -> bool {
    state.lineage(&job.spec.tenant).all(|top| {
        let held = held_by_user(state, &top.id, &job.spec.user);
        top.config.maximum_per_user.excess(held.plus(demand)).is_empty()
    })
}

/// What the attempts of a user hold in a tenant and everywhere below it.
pub fn held_by_user(state: &State, top: &TenantId, user: &str) -> Demand {
    let own = state.jobs.values().filter(|job| job.attempt().is_some() && job.spec.user == user);
    let below = own.filter(|job| is_below(state, &job.spec.tenant, top));
    below.fold(Demand::default(), |sum, job| sum.plus(held_by(job)))
}

/// The tenant of a job, or one above it, that is guaranteed what it holds and this job together.
pub fn guarantor<'a>(
    state: &'a State,
    job: &Job,
    held: impl Fn(&TenantId) -> Demand,
) -> Option<&'a muster_core::Tenant> {
    state.lineage(&job.spec.tenant).find(|tenant| {
        let guaranteed = &tenant.config.guaranteed;
        let demand = least_demand(state, job);
        let spoken_of = guaranteed.gpus.is_some() && demand.gpu_milli > 0 || guaranteed.jobs.is_some();
        spoken_of && guaranteed.excess(held(&tenant.id).plus(demand)).is_empty()
    })
}

/// Whether a tenant keeps what it is guaranteed when a job goes and only so much is left; or, where the job is
/// reclaimed, had more than that before.
pub fn gives_only_what_it_owes(
    tenant: &muster_core::Tenant,
    left: Demand,
    (victim, reclaimed): (&Job, bool),
) -> bool {
    let (guaranteed, demand) = (&tenant.config.guaranteed, held_by(victim));
    let keeps = (demand.gpu_milli == 0 || guaranteed.gpus.unwrap_or(0) * 1_000 <= left.gpu_milli)
        && guaranteed.jobs.unwrap_or(0) <= left.jobs;
    keeps || (reclaimed && !guaranteed.excess(left.plus(demand)).is_empty())
}

/// After how long the past usage of a tenant counts half, as the books have it.
pub fn half_life(state: &State, tenant: &muster_core::Tenant) -> i64 {
    let forgotten = f64::from(tenant.config.decay_milli_per_day) / 1_000.0;
    match tenant.config.decay_milli_per_day {
        0 => state.settings.usage_half_life_ms,
        1_000 => 1,
        _ => (DAY as f64 * 0.5_f64.ln() / (1.0 - forgotten).ln()).round() as i64,
    }
}

/// Every tenant, that of a job or one above it, that is guaranteed as many GPUs of a model as it has and this job
/// together, and the model; where the job can have no others.
pub fn model_guarantors<'a>(
    state: &'a State,
    job: &Job,
    held: impl Fn(&TenantId, &str) -> u64,
) -> Vec<(&'a TenantId, &'a str)> {
    let mut found = Vec::new();
    for tenant in state.lineage(&job.spec.tenant) {
        for (model, count) in &tenant.config.guaranteed_by_model {
            if asks_only_for(job, model)
                && held(&tenant.id, model) + job.spec.demand().gpu_milli <= *count * 1_000
            {
                found.push((&tenant.id, model.as_str()));
            }
        }
    }
    found
}

/// Whether all devices there are that would do for a job are of a model.
fn asks_only_for(job: &Job, model: &str) -> bool {
    let asking: Vec<&TaskGroup> = job.spec.tasks.iter().filter(|group| group.each.gpus > 0).collect();
    let would_do = |group: &TaskGroup, device: &str| {
        let wishes = &group.each.gpu_models;
        wishes.is_empty() || wishes.iter().any(|wish| model::matches(wish, device))
    };
    let mut others = MODELS.iter().filter(|device| !model::matches(model, device));
    !asking.is_empty() && !others.any(|device| asking.iter().any(|group| would_do(group, device)))
}

/// How much of devices of a model some tasks have, in thousandths.
pub fn of_model(state: &State, tasks: &[PlacedTask], model: &str) -> u64 {
    let mut count = 0;
    for task in tasks {
        for gpu in &task.gpus {
            let facts = state.nodes.get(&task.node).and_then(|node| node.facts.gpus.get(usize::from(*gpu)));
            let of_model = facts.is_some_and(|gpu| model::matches(model, &gpu.model));
            let part = task.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli));
            count += if of_model { part } else { 0 };
        }
    }
    count
}

/// How many devices of a model a tenant and everyone below it run on.
pub fn runs_on_model(state: &State, top: &TenantId, model: &str) -> u64 {
    let below = state.jobs.values().filter(|job| is_below(state, &job.spec.tenant, top));
    below.filter_map(Job::attempt).map(|attempt| of_model(state, &attempt.tasks, model)).sum()
}

/// The same as `gives_only_what_it_owes` for one model of which so much is left.
pub fn gives_only_what_it_owes_of(guaranteed: u64, left: u64, (of_victim, reclaimed): (u64, bool)) -> bool {
    let guaranteed = guaranteed * 1_000;
    of_victim == 0 || left >= guaranteed || (reclaimed && left + of_victim > guaranteed)
}

/// Whether a tenant is another one, or below it.
pub fn is_below(state: &State, tenant: &TenantId, top: &TenantId) -> bool {
    state.lineage(tenant).any(|above| above.id == *top)
}

/// What a tenant and everyone below it hold together.
pub fn held_below(state: &State, top: &TenantId) -> Demand {
    let below = state.tenants.values().filter(|one| state.lineage(&one.id).any(|above| above.id == *top));
    below.fold(Demand::default(), |sum, tenant| sum.plus(tenant.held))
}
