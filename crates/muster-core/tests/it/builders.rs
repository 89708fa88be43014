//! Builders of test values: tenants and parts of plans, beside the nodes and jobs of `muster_testing`.

use muster_core::facts::plan::{Eviction, Plan, Start};
use muster_core::objects::job::PlacedTask;
use muster_core::objects::policy::rules::{Pool, PowerPolicy};
use muster_core::objects::policy::{Hook, PolicyBundle};
use muster_core::objects::tenant::TenantConfig;
use muster_core::objects::window::Window;
use muster_core::{JobId, NodeId, TenantId, Timestamp};

pub use muster_testing::{A100, H100, JobBuilder, NodeBuilder, job, node, submission};

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
