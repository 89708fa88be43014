//! Builders of test values: nodes, jobs, tenants and parts of plans, with defaults for everything a test leaves out.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::facts::command::SubmitJob;
use muster_core::facts::plan::{Eviction, Plan, Start};
use muster_core::gpu::device::GpuFacts;
use muster_core::objects::job::{
    CheckpointRule, JobSpec, OnNodeLost, PlacedTask, Resources, RestartRule, Run, TaskGroup, Topology,
};
use muster_core::objects::node::NodeFacts;
use muster_core::objects::policy::rules::{Pool, PowerPolicy};
use muster_core::objects::policy::{Hook, PolicyBundle};
use muster_core::objects::tenant::TenantConfig;
use muster_core::objects::window::Window;
use muster_core::{JobId, NodeId, TenantId, Timestamp};

pub const H100: &str = "NVIDIA H100 80GB HBM3";
pub const A100: &str = "NVIDIA A100-SXM4-80GB";

/// Power limits far apart, so that fair shares by power differ from fair shares by GPUs.
const MILLIWATTS: [(&str, u64); 2] = [("H100", 700_000), ("A100", 40_000)];

/// A simulated node with 4 H100, 64 cores and 64 GiB.
pub fn node() -> NodeBuilder {
    let facts = NodeFacts {
        hostname: String::new(),
        address: String::new(),
        cpus: 64,
        memory_mib: 64 * 1_024,
        gpus: Vec::new(),
        numa: Vec::new(),
        rack: None,
        block: None,
        power_feed: None,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        agent_version: String::new(),
        incarnation: String::new(),
        simulated: true,
    };
    NodeBuilder { facts, gpus: 4, model: H100.to_string() }
}

pub struct NodeBuilder {
    facts: NodeFacts,
    gpus: usize,
    model: String,
}

impl NodeBuilder {
    pub fn gpus(self, gpus: usize) -> NodeBuilder {
        NodeBuilder { gpus, ..self }
    }

    pub fn model(self, model: &str) -> NodeBuilder {
        NodeBuilder { model: model.to_string(), ..self }
    }

    pub fn cpus(mut self, cpus: u32) -> NodeBuilder {
        self.facts.cpus = cpus;
        self
    }

    pub fn memory_mib(mut self, memory_mib: u64) -> NodeBuilder {
        self.facts.memory_mib = memory_mib;
        self
    }

    pub fn rack(mut self, rack: &str) -> NodeBuilder {
        self.facts.rack = Some(rack.to_string());
        self
    }

    pub fn build(self) -> NodeFacts {
        let NodeBuilder { facts, gpus, model } = self;
        NodeFacts { gpus: (0..gpus).map(|index| gpu(index, &model)).collect(), ..facts }
    }
}

fn gpu(index: usize, model: &str) -> GpuFacts {
    let known = MILLIWATTS.iter().find(|(name, _)| model.contains(name));
    GpuFacts {
        uuid: format!("gpu-{index}"),
        model: model.to_string(),
        memory_mib: 81_920,
        numa_node: None,
        nvlink: Vec::new(),
        mig: Vec::new(),
        socket: None,
        pcie_switch: None,
        power_limit_milliwatts: known.map(|(_, milliwatts)| *milliwatts),
    }
}

/// A job of one task with 1 GPU, 1 core and 1 GiB, of the user `ada` in the tenant `default`, at priority 100.
pub fn job() -> JobBuilder {
    let each = Resources {
        gpus: 1,
        gpu_models: Default::default(),
        gpu_memory_mib: 0,
        gpu_compute_milli: 1_000,
        isolation: Default::default(),
        cpus: 1,
        memory_mib: 1_024,
    };
    JobBuilder(JobSpec {
        name: "job".to_string(),
        tenant: tenant_id("default"),
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
    })
}

/// Methods about tasks change the first task group.
#[derive(Clone)]
pub struct JobBuilder(JobSpec);

impl JobBuilder {
    fn with(mut self, change: impl FnOnce(&mut JobSpec)) -> JobBuilder {
        change(&mut self.0);
        self
    }

    fn each(self, change: impl FnOnce(&mut Resources)) -> JobBuilder {
        self.with(|spec| change(&mut spec.tasks[0].each))
    }

    pub fn name(self, name: &str) -> JobBuilder {
        self.with(|spec| spec.name = name.to_string())
    }

    pub fn tenant(self, tenant: &str) -> JobBuilder {
        self.with(|spec| spec.tenant = tenant_id(tenant))
    }

    pub fn user(self, user: &str) -> JobBuilder {
        self.with(|spec| spec.user = user.to_string())
    }

    pub fn priority(self, priority: u32) -> JobBuilder {
        self.with(|spec| spec.priority = priority)
    }

    pub fn tasks(self, count: u32) -> JobBuilder {
        self.with(|spec| spec.tasks[0].count = count)
    }

    /// An elastic gang that takes up to this many tasks.
    pub fn tasks_max(self, count_max: u32) -> JobBuilder {
        self.with(|spec| spec.tasks[0].count_max = Some(count_max))
    }

    /// GPUs of each task.
    pub fn gpus(self, gpus: u32) -> JobBuilder {
        self.each(|each| each.gpus = gpus)
    }

    /// A share of one GPU, in thousandths.
    pub fn share(self, milli: u32) -> JobBuilder {
        self.each(|each| each.gpu_compute_milli = milli)
    }

    pub fn model(self, model: &str) -> JobBuilder {
        self.each(|each| each.gpu_models = [model.to_string()].into())
    }

    pub fn cpus(self, cpus: u32) -> JobBuilder {
        self.each(|each| each.cpus = cpus)
    }

    pub fn pool(self, pool: &str) -> JobBuilder {
        self.with(|spec| spec.pool = Some(pool.to_string()))
    }

    pub fn topology(self, topology: Topology) -> JobBuilder {
        self.with(|spec| spec.topology = topology)
    }

    pub fn limit_ms(self, limit_ms: i64) -> JobBuilder {
        self.with(|spec| spec.time_limit_ms = Some(limit_ms))
    }

    pub fn checkpoint_every_ms(self, every_ms: i64) -> JobBuilder {
        let rule = CheckpointRule { path: "/out".to_string(), every_ms: Some(every_ms) };
        self.with(|spec| spec.checkpoint = Some(rule))
    }

    pub fn start_after(self, at: Timestamp) -> JobBuilder {
        self.with(|spec| spec.start_after = Some(at))
    }

    pub fn restarts(self, max_restarts: u32) -> JobBuilder {
        self.with(|spec| spec.restart.max_restarts = max_restarts)
    }

    pub fn on_node_lost(self, rule: OnNodeLost) -> JobBuilder {
        self.with(|spec| spec.on_node_lost = rule)
    }

    pub fn build(self) -> JobSpec {
        self.0
    }
}

impl From<JobBuilder> for JobSpec {
    fn from(builder: JobBuilder) -> JobSpec {
        builder.0
    }
}

/// A submission without array, hold or idempotency key.
pub fn submission(spec: impl Into<JobSpec>) -> SubmitJob {
    SubmitJob {
        spec: Arc::new(spec.into()),
        array: None,
        hold: false,
        key: None,
        known_outcomes: BTreeMap::new(),
        known_key: None,
        is_operator: true,
    }
}

/// A tenant without limits or guarantees.
pub fn tenant() -> TenantBuilder {
    TenantBuilder(TenantConfig::unlimited("tenant"))
}

pub struct TenantBuilder(TenantConfig);

impl TenantBuilder {
    fn with(mut self, change: impl FnOnce(&mut TenantConfig)) -> TenantBuilder {
        change(&mut self.0);
        self
    }

    pub fn parent(self, parent: &str) -> TenantBuilder {
        self.with(|config| config.parent = Some(tenant_id(parent)))
    }

    /// Quota of GPUs.
    pub fn gpus_max(self, gpus: u64) -> TenantBuilder {
        self.with(|config| config.maximum.gpus = Some(gpus))
    }

    pub fn gpus_per_user_max(self, gpus: u64) -> TenantBuilder {
        self.with(|config| config.maximum_per_user.gpus = Some(gpus))
    }

    /// Quota of GPUs of one model.
    pub fn model_max(self, model: &str, gpus: u64) -> TenantBuilder {
        self.with(|config| config.maximum_by_model.extend([(model.to_string(), gpus)]))
    }

    pub fn guaranteed_gpus(self, gpus: u64) -> TenantBuilder {
        self.with(|config| config.guaranteed.gpus = Some(gpus))
    }

    pub fn guaranteed_model(self, model: &str, gpus: u64) -> TenantBuilder {
        self.with(|config| config.guaranteed_by_model.extend([(model.to_string(), gpus)]))
    }

    pub fn budget_gpu_ms(self, gpu_ms: u64) -> TenantBuilder {
        self.with(|config| config.budget.gpu_ms = Some(gpu_ms))
    }

    pub fn may_be_preempted(self, may_be_preempted: bool) -> TenantBuilder {
        self.with(|config| config.may_be_preempted = may_be_preempted)
    }

    pub fn named(self, name: &str) -> TenantConfig {
        TenantConfig { name: name.to_string(), ..self.0 }
    }
}

pub fn tenant_id(name: &str) -> TenantId {
    name.parse().unwrap()
}

pub fn node_id(name: &str) -> NodeId {
    name.parse().unwrap()
}

/// A placed task of the first task group on whole devices.
pub fn placed(rank: u32, node: &str, gpus: &[u8]) -> PlacedTask {
    PlacedTask { rank, group: 0, node: node_id(node), gpus: gpus.to_vec(), share: None }
}

/// A start without estimate and score.
pub fn start(job: JobId, tasks: Vec<PlacedTask>) -> Start {
    Start { job, tasks, effective_priority: None, expected_ms: None, revocable: false, score: None }
}

/// An eviction for a preemptor of one task.
pub fn eviction(job: JobId, node: &str, gpus: &[u8], victims: &[JobId]) -> Eviction {
    Eviction { job, tasks: vec![placed(0, node, gpus)], victims: victims.to_vec() }
}

pub fn plan_of_starts(starts: Vec<Start>) -> Plan {
    Plan { starts, ..Plan::default() }
}

pub fn plan_of_evictions(evictions: Vec<Eviction>) -> Plan {
    Plan { evictions, ..Plan::default() }
}

/// A window for maintenance.
pub fn window(name: &str, nodes: &[&str], from: Timestamp, until: Timestamp) -> Window {
    Window {
        name: name.to_string(),
        nodes: nodes.iter().map(|node| node_id(node)).collect(),
        from,
        until,
        tenant: None,
        why: String::new(),
        by: String::new(),
    }
}

/// A policy bundle with one file, named by its hash.
pub fn bundle(hash: &str, hooks: &[Hook]) -> PolicyBundle {
    PolicyBundle {
        hash: hash.to_string(),
        files: [("policy.gsky".to_string(), format!("# {hash}"))].into(),
        hooks: hooks.iter().copied().collect(),
        ..PolicyBundle::default()
    }
}

/// A pool of all GPUs of these models, at any temperature and health.
pub fn pool(name: &str, models: &[&str]) -> Pool {
    Pool {
        name: name.to_string(),
        gpu_types: models.iter().map(ToString::to_string).collect(),
        min_memory_milli_gb: 0,
        max_temp_milli_c: 100_000,
        power_policy: PowerPolicy::default(),
        health_threshold_milli: 0,
        opt_strategies: Vec::new(),
        health_checks: Vec::new(),
    }
}
