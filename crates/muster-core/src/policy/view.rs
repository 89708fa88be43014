//! What policies see: plain, read-only, and no more than jobs of one bucket and nodes of one kind have in common.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::capacity::Kind;
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Exit, Job, Topology};
use crate::loss::lost_gpu_ms;
use crate::model;
use crate::policy::Scope;
use crate::queue::Bucket;
use crate::state::State;
use crate::tenant::Tenant;
use crate::time::{DAY, HOUR, MINUTE, SECOND, Timestamp};

/// A moment, as clocks on the wall of the cluster show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub unix: i64,
    /// 0 to 23.
    pub hour: i64,
    /// 0 to 59.
    pub minute: i64,
    /// 0 is Monday.
    pub weekday: i64,
}

impl Moment {
    /// A moment in a zone so many minutes ahead of UTC.
    pub fn of(now: Timestamp, ahead_minutes: i32) -> Moment {
        let local = now.0 + i64::from(ahead_minutes) * MINUTE;
        Moment {
            unix: now.0.div_euclid(SECOND),
            hour: local.rem_euclid(DAY) / HOUR,
            minute: local.rem_euclid(HOUR) / MINUTE,
            // 1970 began on a Thursday.
            weekday: (local.div_euclid(DAY) + 3).rem_euclid(7),
        }
    }
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// Who pays.
    pub tenant: TenantId,
    /// Who asked.
    pub user: String,
    /// What it asked for.
    pub priority: u32,
    /// Tasks of the gang.
    pub tasks: u32,
    /// GPUs of the gang, whole or shared.
    pub gpus: u32,
    /// GPUs of its largest task.
    pub gpus_per_task: u32,
    /// How much of each GPU it takes, in thousandths.
    pub gpu_milli: u32,
    /// Models that will do; any where there is none.
    pub gpu_models: BTreeSet<String>,
    /// Memory that each GPU must have.
    pub gpu_memory_mib: u64,
    /// How strictly neighbours are kept apart.
    pub isolation: &'static str,
    /// CPU cores of the gang.
    pub cpus: u64,
    /// Main memory of the gang.
    pub memory_mib: u64,
    /// How long it may run, rounded up.
    pub time_limit_ms: Option<i64>,
    /// How close together it must be.
    pub topology: Topology,
    /// The pool it named.
    pub pool: Option<String>,
    /// Labels that its nodes must carry.
    pub node_labels: BTreeMap<String, String>,
    /// Its labels, as far as the policy names them.
    pub labels: BTreeMap<String, String>,
    /// Its name, if the policy looks at names.
    pub name: Option<String>,
    /// Its image, if the policy looks at images.
    pub image: Option<String>,
    /// When the question is asked.
    pub now: Moment,
}

impl JobView {
    /// Jobs of a bucket.
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
            isolation: with_gpus().map(|each| each.isolation).max().unwrap_or_default().word(),
            cpus: bucket.shape.cpus(),
            memory_mib: bucket.shape.memory_mib(),
            time_limit_ms: bucket.limit_ms,
            topology: bucket.shape.topology,
            pool: bucket.shape.pool.clone(),
            node_labels: bucket.shape.node_labels.clone(),
            labels: bucket.marks.labels.clone(),
            name: bucket.marks.name.clone(),
            image: bucket.marks.image.clone(),
            now,
        }
    }
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantView {
    /// Its name for ever.
    pub id: TenantId,
    /// The default priority of its jobs.
    pub priority: u32,
    /// Its share against its siblings.
    pub weight: u32,
    /// GPUs that its jobs hold, in thousandths.
    pub gpu_milli_held: u64,
    /// GPUs it can count on.
    pub gpus_guaranteed: Option<u64>,
    /// The most GPUs it may hold.
    pub gpus_max: Option<u64>,
    /// Its jobs that wait or run.
    pub jobs: u64,
    /// Free words.
    pub labels: BTreeMap<String, String>,
}

impl TenantView {
    /// A tenant as it is now.
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

/// The whole cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterView {
    /// GPUs in service: of nodes that take work, without those that may not be given out.
    pub gpus: u64,
    /// GPUs that jobs hold, in thousandths.
    pub gpu_milli_held: u64,
    /// GPUs in service of each pool, however warm they are.
    pub pools: BTreeMap<String, u64>,
    /// When the question is asked.
    pub now: Moment,
}

impl ClusterView {
    /// The cluster as it is now. O(GPUs).
    pub fn of(state: &State, now: Timestamp) -> ClusterView {
        let pools = state.policies.rules().into_iter().flat_map(|rules| rules.pools.keys());
        let mut view = ClusterView {
            gpus: 0,
            gpu_milli_held: state.tenants.values().map(|tenant| tenant.held.gpu_milli).sum(),
            pools: pools.map(|pool| (pool.clone(), 0)).collect(),
            now: Moment::of(now, state.settings.utc_offset_minutes),
        };
        for node in state.nodes.values().filter(|node| node.takes_work()) {
            for gpu in (0..node.facts.gpus.len()).filter(|gpu| node.gpu_usable(*gpu)) {
                view.gpus += 1;
                for pool in node.pools.get(gpu).into_iter().flat_map(|pools| pools.keys()) {
                    *view.pools.entry(pool.clone()).or_default() += 1;
                }
            }
        }
        view
    }
}

/// A node, with what all of its kind have in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeView {
    /// One of the kind.
    pub node: NodeId,
    /// The models of its devices, in canonical spelling where that is known, each once.
    pub models: BTreeSet<String>,
    /// Its devices.
    pub gpus: u32,
    /// The memory of its smallest device.
    pub gpu_memory_mib: u64,
    /// Whether its devices are partitioned.
    pub partitioned: bool,
    /// CPU cores.
    pub cpus: u32,
    /// Main memory.
    pub memory_mib: u64,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Pools that have one of its devices.
    pub pools: BTreeSet<String>,
}

impl NodeView {
    /// Nodes of a kind.
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

/// A running job that might be displaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CandidateView {
    /// Which.
    pub id: JobId,
    /// Who pays.
    pub tenant: TenantId,
    /// Who asked.
    pub user: String,
    /// What it asked for.
    pub priority: u32,
    /// GPUs it holds.
    pub gpus: u32,
    /// How long it has run.
    pub ran_ms: i64,
    /// GPU-milliseconds of work that it would lose.
    pub lost_gpu_ms: u64,
    /// How often it was displaced before.
    pub preemptions: u32,
    /// Whether it saves its work.
    pub saves: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

impl CandidateView {
    /// A job as it is now; nothing if it does not run.
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

    /// The same as a bundle may see it: of the jobs of others, a tenant learns what concerns the choice and not whose they
    /// are.
    pub fn shown_to(&self, scope: &Scope) -> CandidateView {
        match scope {
            Scope::Tenant(own) if *own != self.tenant => {
                CandidateView { user: String::new(), labels: BTreeMap::new(), ..self.clone() }
            }
            _ => self.clone(),
        }
    }
}

/// An attempt that failed by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureView {
    /// How its processes ended.
    pub exit: Exit,
    /// How often it has been started.
    pub attempt: u32,
    /// How many attempts failed by themselves before this one.
    pub failures: u32,
    /// How long it ran.
    pub ran_ms: i64,
    /// Where.
    pub nodes: Vec<NodeId>,
}
