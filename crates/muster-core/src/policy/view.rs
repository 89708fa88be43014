//! Views that policies read: plain values, limited to what all jobs of one bucket or all nodes of one kind have in
//! common.

use std::collections::{BTreeMap, BTreeSet};

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::accounting::tenant::Tenant;
use crate::gpu::model;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::job::{Job, Topology};
use crate::objects::policy::PolicyScope;
use crate::queue::Bucket;
use crate::resources::Kind;
use crate::time::{DAY, HOUR, MINUTE, SECOND, Timestamp};

/// A point in time, with its fields in the time zone of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub unix: i64,
    pub hour: i64,
    pub minute: i64,
    /// 0 is Monday.
    pub weekday: i64,
}

impl Moment {
    /// `now` in a time zone that is `offset_minutes` ahead of UTC.
    pub fn of(now: Timestamp, offset_minutes: i32) -> Moment {
        let local = now.0 + i64::from(offset_minutes) * MINUTE;
        Moment {
            unix: now.0.div_euclid(SECOND),
            hour: local.rem_euclid(DAY) / HOUR,
            minute: local.rem_euclid(HOUR) / MINUTE,
            // 1970 began on a Thursday.
            weekday: (local.div_euclid(DAY) + 3).rem_euclid(7),
        }
    }
}

/// The jobs of a bucket, as policies see them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    pub tenant: TenantId,
    pub user: String,
    /// The requested priority.
    pub priority: u32,
    pub tasks: u32,
    /// GPUs of the gang, whole or shared.
    pub gpus: u32,
    /// GPUs of the largest task.
    pub gpus_per_task: u32,
    /// The requested share of each GPU, in thousandths.
    pub gpu_milli: u32,
    /// Accepted models; empty means any.
    pub gpu_models: BTreeSet<String>,
    /// Least memory of each GPU.
    pub gpu_memory_mib: u64,
    pub isolation: &'static str,
    /// CPU cores of the gang.
    pub cpus: u64,
    /// Main memory of the gang.
    pub memory_mib: u64,
    /// The time limit, rounded up.
    pub time_limit_ms: Option<i64>,
    /// The required locality of the nodes.
    pub topology: Topology,
    /// The requested pool.
    pub pool: Option<String>,
    /// Labels that the nodes must carry.
    pub node_labels: BTreeMap<String, String>,
    /// Labels of the job that the policy mentions.
    pub labels: BTreeMap<String, String>,
    /// The job name, if the policy reads names.
    pub name: Option<String>,
    /// The image, if the policy reads images.
    pub image: Option<String>,
    /// The time of the call.
    pub now: Moment,
}

impl JobView {
    pub fn of(bucket: &Bucket, now: Moment) -> JobView {
        let groups = || bucket.shape.groups.iter().map(|(_, each)| each);
        let with_gpus = || groups().filter(|each| each.gpus > 0);
        JobView {
            tenant: bucket.tenant.clone(),
            user: bucket.user.clone(),
            priority: bucket.priority,
            tasks: bucket.shape.tasks(),
            gpus: bucket.shape.gpus(),
            gpus_per_task: groups().map(|each| each.gpus).max().unwrap_or_default(),
            gpu_milli: with_gpus().map(|each| each.gpu_compute_milli).max().unwrap_or_default(),
            gpu_models: groups().flat_map(|each| each.gpu_models.iter().cloned()).collect(),
            gpu_memory_mib: with_gpus().map(|each| each.gpu_memory_mib).max().unwrap_or_default(),
            isolation: with_gpus().map(|each| each.isolation).max().unwrap_or_default().as_str(),
            cpus: bucket.shape.cpus(),
            memory_mib: bucket.shape.memory_mib(),
            time_limit_ms: bucket.limit_ms,
            topology: bucket.shape.topology,
            pool: bucket.shape.pool.clone(),
            node_labels: bucket.shape.node_labels.clone(),
            labels: bucket.policy_attributes.labels.clone(),
            name: bucket.policy_attributes.name.clone(),
            image: bucket.policy_attributes.image.clone(),
            now,
        }
    }
}

/// A tenant, as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    pub id: TenantId,
    /// The default priority of its jobs.
    pub priority: u32,
    /// The weight of the tenant relative to its siblings.
    pub weight: u32,
    /// GPUs held by its jobs, in thousandths.
    pub gpu_milli_held: u64,
    /// The guarantee in GPUs.
    pub gpus_guaranteed: Option<u64>,
    /// The quota in GPUs.
    pub gpus_max: Option<u64>,
    /// Jobs that are queued, held or running.
    pub jobs: u64,
    pub labels: BTreeMap<String, String>,
}

impl TenantView {
    pub fn of(tenant: &Tenant) -> TenantView {
        TenantView {
            id: tenant.id.clone(),
            priority: tenant.config.tier.priority(),
            weight: tenant.config.weight,
            gpu_milli_held: tenant.held.gpu_milli,
            gpus_guaranteed: tenant.config.guaranteed.gpus,
            gpus_max: tenant.config.maximum.gpus,
            jobs: tenant.live_jobs,
            labels: tenant.config.labels.clone(),
        }
    }
}

/// The whole cluster, as policies see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// GPUs in service: usable GPUs of schedulable nodes.
    pub gpus: u64,
    /// GPUs held by jobs, in thousandths.
    pub gpu_milli_held: u64,
    /// GPUs in service by pool, at any temperature.
    pub pools: BTreeMap<String, u64>,
    /// The time of the call.
    pub now: Moment,
}

/// A node, reduced to what all nodes of its kind have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// An example node of the kind.
    pub node: NodeId,
    /// Models of the devices, in canonical spelling where it is known.
    pub models: BTreeSet<String>,
    pub gpus: u32,
    /// Memory of the device with the least.
    pub gpu_memory_mib: u64,
    /// Whether any device is partitioned.
    pub partitioned: bool,
    pub cpus: u32,
    pub memory_mib: u64,
    pub labels: BTreeMap<String, String>,
    /// Pools that contain at least one of the devices.
    pub pools: BTreeSet<String>,
}

impl NodeView {
    pub fn of(node: &NodeId, kind: &Kind) -> NodeView {
        NodeView {
            node: node.clone(),
            models: kind.gpus.iter().map(|gpu| model::canonical(&gpu.model)).collect(),
            gpus: kind.gpus.len() as u32,
            gpu_memory_mib: kind.gpus.iter().map(|gpu| gpu.memory_mib).min().unwrap_or_default(),
            partitioned: kind.gpus.iter().any(|gpu| gpu.partitioned),
            cpus: kind.cpus,
            memory_mib: kind.memory_mib,
            labels: kind.labels.clone(),
            pools: kind.gpus.iter().flat_map(|gpu| gpu.pools.keys().cloned()).collect(),
        }
    }
}

/// A running job that is a candidate victim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateView {
    pub id: JobId,
    pub tenant: TenantId,
    pub user: String,
    /// The requested priority.
    pub priority: u32,
    pub gpus: u32,
    /// Time since its placement.
    pub ran_ms: i64,
    /// Preemption loss if the job stopped now.
    pub lost_gpu_ms: u64,
    /// Number of earlier preemptions.
    pub preemptions: u32,
    /// Whether the job declared checkpoints.
    pub saves: bool,
    pub labels: BTreeMap<String, String>,
}

impl CandidateView {
    /// `None` if the job has no active attempt.
    pub fn of(job: &Job, now: Timestamp) -> Option<CandidateView> {
        let attempt = job.attempt()?;
        Some(CandidateView {
            id: job.id,
            tenant: job.spec.tenant.clone(),
            user: job.spec.user.clone(),
            priority: job.spec.priority,
            gpus: job.spec.gpus(),
            ran_ms: now.since(attempt.placed_at),
            lost_gpu_ms: lost_gpu_ms(job, attempt, now),
            preemptions: job.preemptions,
            saves: job.spec.checkpoint.is_some(),
            labels: job.spec.labels.clone(),
        })
    }

    /// The view that a bundle of `scope` gets. A tenant's bundle sees jobs of other tenants without user and labels:
    /// enough for the choice of victims.
    pub fn shown_to(&self, scope: &PolicyScope) -> CandidateView {
        match scope {
            PolicyScope::Tenant(own) if *own != self.tenant => {
                CandidateView { user: String::new(), labels: BTreeMap::new(), ..self.clone() }
            }
            _ => self.clone(),
        }
    }
}
