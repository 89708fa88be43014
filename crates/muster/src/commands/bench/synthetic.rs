//! Clusters and jobs made up for measuring.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{Actor, ArrayAsk, Command, Said, SubmitJob};
use muster_core::job::{Exit, JobSpec, OnNodeLost, Resources, RestartRule, Run, TaskGroup, Topology};
use muster_core::node::{GpuFacts, NodeFacts};
use muster_core::plan::plan;
use muster_core::tenant::TenantConfig;
use muster_core::time::HOUR;
use muster_core::{Event, JobId, State, Timestamp};

/// Tenants of a cluster that is not about tenants.
pub const TENANTS: usize = 20;

/// A job to submit.
#[derive(Clone, Copy)]
pub struct Ask {
    pub tasks: u32,
    pub gpus: u32,
    pub cpus: u32,
    pub tenant: usize,
    pub priority: u32,
    /// Sets shapes apart that are otherwise alike.
    pub memory_mib: u64,
}

impl Default for Ask {
    fn default() -> Ask {
        Ask { tasks: 1, gpus: 1, cpus: 1, tenant: 0, priority: 100, memory_mib: 1_024 }
    }
}

/// Nodes of 8 GPUs and 64 cores in four kinds, and tenants that each may hold a part of them.
pub fn cluster(nodes: usize, tenants: usize, guaranteed: bool) -> State {
    let mut state = State::empty();
    for index in 0..tenants {
        let mut config = TenantConfig::unlimited("bench");
        config.maximum.gpus = Some((nodes * 8) as u64);
        // Half of what an even share would be; the rest is borrowed.
        config.guaranteed.gpus = guaranteed.then_some((nodes * 4 / tenants) as u64);
        let id = tenant_name(index).parse().unwrap_or_else(|_| unreachable!("a plain name"));
        tell(&mut state, &Command::CreateTenant { id, config: Box::new(config) });
    }
    for index in 0..nodes {
        let node = format!("gpu{index:05}").parse().unwrap_or_else(|_| unreachable!("a plain name"));
        tell(&mut state, &Command::RegisterNode { node, facts: Box::new(facts(index)) });
    }
    state
}

/// Jobs of one to eight GPUs, and now and then a gang over 2, 4 or 16 nodes, for all tenants in turn.
pub fn mixed(index: usize) -> Ask {
    let sizes =
        [(1, 1), (1, 1), (1, 2), (1, 1), (1, 4), (1, 2), (1, 8), (2, 8), (1, 1), (4, 8), (1, 4), (8, 1)];
    let (tasks, gpus) = if index % 97 == 96 { (16, 8) } else { sizes[index % sizes.len()] };
    let cpus = 1 + (index % 3) as u32;
    Ask {
        tasks,
        gpus,
        cpus,
        tenant: index % TENANTS,
        priority: 100 + (index % 4) as u32 * 100,
        ..Ask::default()
    }
}

/// A job to submit, by itself.
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

/// Submit a job, or an array of so many.
pub fn submit(state: &mut State, ask: Ask, count: usize) {
    let array = (count > 1).then(|| ArrayAsk { indexes: (0..count as u32).collect(), running_max: None });
    tell(state, &Command::SubmitJob(SubmitJob { array, ..submission(spec(ask)) }));
}

/// Draw up a round and make it true, everything started.
pub fn adopt_round(state: &mut State, now: Timestamp) -> usize {
    let planned = plan(state, now).plan;
    let starts = planned.starts.len();
    let events = tell_at(state, &Command::AdoptPlan { plan: Box::new(planned), epoch: 1 }, now);
    for event in events {
        if let Event::JobPlaced { job, .. } = event {
            report(state, job, &Said::Started, now);
        }
    }
    starts
}

/// A running job ends.
pub fn end(state: &mut State, job: JobId, now: Timestamp) {
    report(
        state,
        job,
        &Said::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None },
        now,
    );
}

fn report(state: &mut State, job: JobId, said: &Said, now: Timestamp) {
    let attempt = state.jobs.get(&job).and_then(|job| job.attempt());
    let Some((number, nodes)) = attempt.map(|attempt| (attempt.number, attempt.nodes())) else { return };
    for node in nodes {
        tell_at(state, &Command::ReportTask { node, job, attempt: number, said: said.clone() }, now);
    }
}

/// The spec of a job.
pub fn spec(ask: Ask) -> JobSpec {
    let each = Resources {
        gpus: ask.gpus,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: ask.cpus,
        memory_mib: ask.memory_mib,
    };
    JobSpec {
        name: "bench".to_string(),
        tenant: tenant_name(ask.tenant).parse().unwrap_or_else(|_| unreachable!("a plain name")),
        user: "bench".to_string(),
        priority: ask.priority,
        tasks: vec![TaskGroup { name: "task".to_string(), count: ask.tasks, count_max: None, each }],
        topology: Topology::Any,
        allow_cross_numa: None,
        prefer_nvlink: false,
        gang_scheduling: None,
        time_limit_ms: Some(HOUR),
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

/// Make a command true.
pub fn tell(state: &mut State, command: &Command) {
    tell_at(state, command, Timestamp(0));
}

fn tell_at(state: &mut State, command: &Command, now: Timestamp) -> Vec<Event> {
    match state.decide(&Actor::system(), command, now) {
        Ok(decision) => {
            decision.events.iter().for_each(|event| state.apply(event));
            decision.events
        }
        Err(refusal) => unreachable!("a made-up cluster refuses nothing: {refusal}"),
    }
}

/// What a tenant is called.
pub fn tenant_name(index: usize) -> String {
    format!("team-{index}")
}

/// A node of 8 GPUs and 64 cores, of one of four kinds.
pub fn facts(index: usize) -> NodeFacts {
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
        simulated: true,
    }
}
