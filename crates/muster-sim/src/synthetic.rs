//! Synthetic clusters and jobs, for benchmarks and for the planner as a policy of a replay.
//!
//! Nothing is random: the same index gives the same node or job.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::{Actor, ArraySpec, Command, SubmitJob, TaskReport};
use muster_core::gpu::device::GpuFacts;
use muster_core::objects::job::{Exit, JobSpec, Resources, Run, TaskGroup};
use muster_core::objects::node::NodeFacts;
use muster_core::objects::tenant::TenantConfig;
use muster_core::planner::plan;
use muster_core::time::HOUR;
use muster_core::{Event, JobId, State, Timestamp};

/// Number of tenants where a benchmark does not vary it.
pub const TENANTS: usize = 20;

/// Request of one synthetic job.
#[derive(Clone, Copy)]
pub struct SyntheticJob {
    pub tasks: u32,
    pub gpus: u32,
    pub cpus: u32,
    pub tenant: usize,
    pub priority: u32,
    /// Varied to get jobs of different shapes.
    pub memory_mib: u64,
}

impl Default for SyntheticJob {
    fn default() -> SyntheticJob {
        SyntheticJob { tasks: 1, gpus: 1, cpus: 1, tenant: 0, priority: 100, memory_mib: 1_024 }
    }
}

/// A cluster of nodes with 8 GPUs and 64 cores in four kinds. Each tenant has a quota of the whole cluster, and with
/// `guaranteed` a guarantee.
pub fn synthetic_cluster(nodes: usize, tenants: usize, guaranteed: bool) -> State {
    let mut state = State::empty();
    for index in 0..tenants {
        let mut config = TenantConfig::unlimited("bench");
        config.maximum.gpus = Some((nodes * 8) as u64);
        // Half of an even share; the other half of the cluster is borrowed.
        config.guaranteed.gpus = guaranteed.then_some((nodes * 4 / tenants) as u64);
        let id = tenant_name(index).parse().unwrap_or_else(|_| unreachable!("a plain name"));
        apply_command(&mut state, &Command::CreateTenant { id, config: Box::new(config) });
    }
    for index in 0..nodes {
        let node = format!("gpu{index:05}").parse().unwrap_or_else(|_| unreachable!("a plain name"));
        apply_command(&mut state, &Command::RegisterNode { node, facts: Box::new(node_facts(index)) });
    }
    state
}

/// The job of this index in a mix of 1 to 8 GPUs with some gangs over 2, 4 or 16 nodes, round-robin over the tenants.
pub fn mixed_job(index: usize) -> SyntheticJob {
    let sizes = [(1, 1), (1, 1), (1, 2), (1, 1), (1, 4), (1, 2), (1, 8), (2, 8), (1, 1), (4, 8), (1, 4), (8, 1)];
    let (tasks, gpus) = if index % 97 == 96 { (16, 8) } else { sizes[index % sizes.len()] };
    let cpus = 1 + (index % 3) as u32;
    SyntheticJob {
        tasks,
        gpus,
        cpus,
        tenant: index % TENANTS,
        priority: 100 + (index % 4) as u32 * 100,
        ..SyntheticJob::default()
    }
}

/// The command that submits a job without array, hold or idempotency key.
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

/// Submit one job, or an array of `count` jobs.
pub fn submit_jobs(state: &mut State, job: SyntheticJob, count: usize) {
    let array = (count > 1).then(|| ArraySpec { indexes: (0..count as u32).collect(), running_max: None });
    apply_command(state, &Command::SubmitJob(SubmitJob { array, ..submission(job_spec(job)) }));
}

/// Plan one round, adopt the plan and report all placed tasks as started. Returns the number of starts.
pub fn plan_and_adopt(state: &mut State, now: Timestamp) -> usize {
    let planned = plan(state, now).plan;
    let starts = planned.starts.len();
    let events = apply_command_at(state, &Command::AdoptPlan { plan: Box::new(planned), epoch: 1 }, now);
    for event in events {
        if let Event::JobPlaced { job, .. } = event {
            report_tasks(state, job, &TaskReport::Started, now);
        }
    }
    starts
}

/// Report that all tasks of a running job have ended with exit code 0.
pub fn end_job(state: &mut State, job: JobId, now: Timestamp) {
    report_tasks(
        state,
        job,
        &TaskReport::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None },
        now,
    );
}

fn report_tasks(state: &mut State, job: JobId, report: &TaskReport, now: Timestamp) {
    let attempt = state.jobs.get(&job).and_then(|job| job.attempt());
    let Some((number, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
    for node in nodes {
        let report = report.clone();
        apply_command_at(state, &Command::ReportTask { node, job, attempt: number, report }, now);
    }
}

pub fn job_spec(job: SyntheticJob) -> JobSpec {
    let each = Resources {
        gpus: job.gpus,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: job.cpus,
        memory_mib: job.memory_mib,
    };
    let tenant = tenant_name(job.tenant).parse().unwrap_or_else(|_| unreachable!("a plain name"));
    let tasks = vec![TaskGroup { name: "task".to_string(), count: job.tasks, count_max: None, each }];
    JobSpec {
        priority: job.priority,
        time_limit_ms: Some(HOUR),
        run: Run { command: vec!["true".to_string()], ..Run::default() },
        ..JobSpec::new("bench", tenant, "bench", tasks)
    }
}

/// Decide a command at time 0 and apply its events.
pub fn apply_command(state: &mut State, command: &Command) {
    apply_command_at(state, command, Timestamp(0));
}

fn apply_command_at(state: &mut State, command: &Command, now: Timestamp) -> Vec<Event> {
    match state.decide(&Actor::system(), command, now) {
        Ok(decision) => {
            decision.events.iter().for_each(|event| state.apply(event));
            decision.events
        }
        Err(refusal) => unreachable!("a synthetic cluster refuses no command: {refusal}"),
    }
}

pub fn tenant_name(index: usize) -> String {
    format!("team-{index}")
}

/// A node with 8 GPUs and 64 cores, of one of four kinds; 16 nodes share a rack.
pub fn node_facts(index: usize) -> NodeFacts {
    let models = ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB", "NVIDIA B200"];
    let gpu = |device: usize| GpuFacts {
        uuid: format!("gpu-{device}"),
        model: models[index % models.len()].to_string(),
        memory_mib: 81_920,
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
        gpus: (0..8).map(gpu).collect(),
        numa: Vec::new(),
        rack: Some(format!("r{:03}", index / 16)),
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
