//! Job specification: the gang, its resources, and the rules for running it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::gpu::gpu_share::{Isolation, Share, ShareMode};
use crate::gpu::topology::{LocalityRequirement, Nvlink};
use crate::ids::{JobId, TenantId};
use crate::objects::demand::Demand;
use crate::objects::job::PlacedTask;
use crate::objects::secret::SecretUse;
use crate::time::Timestamp;

/// The specification of a job. It changes after submission only by `JobChanged`, and it is shared between all jobs of
/// an array and all replicas of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    pub tenant: TenantId,
    pub user: String,
    /// 0 to 10,000; higher runs first. Aging is added for the queue order, never for preemption.
    pub priority: u32,
    /// The gang: all tasks of all groups start together or not at all.
    pub tasks: Vec<TaskGroup>,
    /// Required locality.
    #[serde(default)]
    pub topology: Topology,
    /// `Some(false)` requires all GPUs of a task on one NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// NVLink is preferred over one NUMA node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefer_nvlink: bool,
    /// `gang_scheduling` as submitted, if it was. The GPUs of a job are granted together either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_scheduling: Option<bool>,
    /// The attempt is stopped when it has run this long.
    #[serde(default)]
    pub time_limit_ms: Option<i64>,
    /// The signal that the tasks get before the time limit ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_signal: Option<EarlySignal>,
    #[serde(default)]
    pub restart: RestartRule,
    #[serde(default)]
    pub on_node_lost: OnNodeLost,
    /// `None` if the job does not save its work.
    #[serde(default)]
    pub checkpoint: Option<CheckpointRule>,
    /// Jobs that must have ended first.
    #[serde(default)]
    pub after: Vec<Dependency>,
    #[serde(default)]
    pub start_after: Option<Timestamp>,
    /// Pool that its GPUs must belong to; policies register pools.
    #[serde(default)]
    pub pool: Option<String>,
    /// Labels that its nodes must have.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    pub run: Run,
    /// Labels for searching and for policies.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Values for programs, for example `muster.sim/runtime`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl JobSpec {
    /// A job that asks for its tasks and nothing else: priority 100, no limits, the default rules, nothing to run.
    pub fn new(name: &str, tenant: TenantId, user: &str, tasks: Vec<TaskGroup>) -> JobSpec {
        JobSpec {
            name: name.to_string(),
            tenant,
            user: user.to_string(),
            priority: 100,
            tasks,
            topology: Topology::Any,
            allow_cross_numa: None,
            prefer_nvlink: false,
            gang_scheduling: None,
            time_limit_ms: None,
            early_signal: None,
            restart: RestartRule::default(),
            on_node_lost: OnNodeLost::Wait,
            checkpoint: None,
            after: Vec::new(),
            start_after: None,
            pool: None,
            node_labels: BTreeMap::new(),
            run: Run::default(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
        }
    }

    /// GPUs of all tasks; a share of a GPU counts as one.
    pub fn gpus(&self) -> u32 {
        self.tasks.iter().map(|group| group.count.saturating_mul(group.each.gpus)).sum()
    }

    /// Quota demand of the gang at its minimum size.
    pub fn demand(&self) -> Demand {
        let groups = self.tasks.iter().map(|group| group.each.demand().times(u64::from(group.count)));
        groups.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// Quota demand of the placed tasks, without power: an elastic gang may have more tasks than its minimum.
    pub fn demand_of(&self, tasks: &[PlacedTask]) -> Demand {
        let each = tasks.iter().map(|task| self.tasks[task.group as usize].each.demand_in(task));
        each.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// True if every group has at least its minimum and at most its maximum of tasks.
    pub fn is_complete(&self, tasks: &[PlacedTask]) -> bool {
        let mut counts = vec![0; self.tasks.len()];
        for task in tasks {
            match counts.get_mut(task.group as usize) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
        self.tasks.iter().zip(counts).all(|(group, count)| (group.count..=group.count_most()).contains(&count))
    }

    /// True if a group may have more tasks than its minimum.
    pub fn is_elastic(&self) -> bool {
        self.tasks.iter().any(|group| group.count_most() > group.count)
    }

    /// True if it may have several tasks.
    pub fn is_gang(&self) -> bool {
        self.tasks.iter().fold(0u32, |sum, group| sum.saturating_add(group.count_most())) > 1
    }
}

/// A signal that tells the tasks that their time limit ends soon. Slurm: `--signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlySignal {
    /// Number of the signal.
    pub signal: i32,
    /// How long before the end of the time limit it is sent.
    pub before_ms: i64,
}

/// Tasks of a gang with the same resources, for example sixteen workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskGroup {
    /// For example `worker`.
    pub name: String,
    /// Number of tasks; the minimum for an elastic group.
    pub count: u32,
    /// Maximum of an elastic group. It starts as soon as `count` tasks fit, with as many as fit then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_max: Option<u32>,
    /// Resources of each task.
    pub each: Resources,
}

impl TaskGroup {
    /// The maximum number of tasks.
    pub fn count_most(&self) -> u32 {
        self.count_max.unwrap_or(self.count).max(self.count)
    }
}

/// The resources of one task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// May be 0.
    pub gpus: u32,
    /// Accepted GPU models in canonical spelling; empty accepts any.
    #[serde(default)]
    pub gpu_models: BTreeSet<String>,
    /// Minimum memory of each GPU.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// Share of each GPU in thousandths; 1,000 is the whole device.
    #[serde(default = "whole_gpu")]
    pub gpu_compute_milli: u32,
    #[serde(default)]
    pub isolation: Isolation,
    pub cpus: u32,
    pub memory_mib: u64,
}

impl Resources {
    /// Quota demand of one placed task: the request, except that a MIG instance counts in full, because no other job
    /// can use the rest of it.
    pub fn demand_in(&self, task: &PlacedTask) -> Demand {
        let requested = self.demand();
        match task.share.as_deref() {
            Some(Share { compute_milli, memory_mib, mode: ShareMode::Mig { .. }, .. }) => {
                Demand { gpu_milli: u64::from(*compute_milli), gpu_memory_mib: *memory_mib, ..requested }
            }
            _ => requested,
        }
    }

    /// Quota demand of one task as requested.
    pub fn demand(&self) -> Demand {
        let gpus = u64::from(self.gpus);
        Demand {
            gpu_milli: gpus * u64::from(self.gpu_compute_milli),
            gpu_memory_mib: gpus * self.gpu_memory_mib,
            cpus: u64::from(self.cpus),
            memory_mib: self.memory_mib,
            ..Demand::default()
        }
    }
}

fn whole_gpu() -> u32 {
    1_000
}

/// The locality that a gang requires. Without a requirement its GPUs are placed as close as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    #[default]
    Any,
    /// GPUs on one NUMA node.
    SameNuma,
    /// GPUs joined by NVLink.
    Nvlink,
    /// Nodes in one rack.
    SameRack,
}

impl Topology {
    pub fn as_str(self) -> &'static str {
        match self {
            Topology::Any => "any",
            Topology::SameNuma => "same-numa",
            Topology::Nvlink => "nvlink",
            Topology::SameRack => "same-rack",
        }
    }
}

/// Limits on restarts and requeues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    /// Restarts after the attempt failed by itself; then the job has failed.
    #[serde(default)]
    pub max_restarts: u32,
    /// Requeues after a lost node or a failed launch; then the job is held with a reason.
    #[serde(default = "default_requeues")]
    pub max_requeues: u32,
}

/// 5, as Slurm's `MaxBatchRequeue`. Preemptions are counted separately, by the tenant's limit.
fn default_requeues() -> u32 {
    5
}

impl Default for RestartRule {
    fn default() -> RestartRule {
        RestartRule { max_restarts: 0, max_requeues: default_requeues() }
    }
}

/// What happens to a job when its node is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnNodeLost {
    /// The attempt may still run there: the job waits until the node is fenced or returns.
    #[default]
    Wait,
    /// The node kills the attempt when it loses the leader; the job is requeued once that has provably happened, or
    /// once an operator has fenced the node.
    Requeue,
    /// The job is requeued as soon as the node is unreachable. Two copies of the job may run.
    RequeueUnsafe,
}

/// How a job saves its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRule {
    /// Path of the checkpoints, as the job sees it.
    pub path: String,
    /// Interval between checkpoints, if given.
    #[serde(default)]
    pub every_ms: Option<i64>,
}

/// A job that must have ended before this one may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job; without an index, every job of an array.
    pub job: JobId,
    pub when: DependencyWhen,
}

/// How the other job must have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DependencyWhen {
    Succeeded,
    /// Ended, but not with success.
    Failed,
    Ended,
}

/// The program to run. A script, a command, or an image with its own entry point is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Run {
    #[serde(default)]
    pub image: Option<String>,
    #[serde(default)]
    pub script: Option<String>,
    /// A command, without a shell.
    #[serde(default)]
    pub command: Vec<String>,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub directory: Option<String>,
    /// What the container of a job with an image sees of the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
    /// Secrets that it finds as files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretUse>,
}

/// A directory or file of the machine that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// Path on the machine.
    pub source: String,
    /// Path in the container.
    pub target: String,
    #[serde(default)]
    pub read_only: bool,
}

impl Topology {
    /// The locality that it requires of the devices of a task.
    fn locality(self) -> LocalityRequirement {
        match self {
            Topology::Any | Topology::SameRack => LocalityRequirement::default(),
            Topology::SameNuma => LocalityRequirement { same_numa: true, ..LocalityRequirement::default() },
            Topology::Nvlink => LocalityRequirement { nvlink: Nvlink::Required, ..LocalityRequirement::default() },
        }
    }
}

impl JobSpec {
    /// The required or preferred locality of a task's devices, from topology, `allow_cross_numa` and `prefer_nvlink`.
    pub fn locality(&self) -> LocalityRequirement {
        let LocalityRequirement { same_numa, nvlink } = self.topology.locality();
        let prefers = nvlink == Nvlink::Welcome && self.prefer_nvlink;
        LocalityRequirement {
            same_numa: same_numa || self.allow_cross_numa == Some(false),
            nvlink: if prefers { Nvlink::Preferred } else { nvlink },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topology_requires_a_locality_of_the_devices() {
        let same_numa = LocalityRequirement { same_numa: true, nvlink: Nvlink::Welcome };
        let nvlink = LocalityRequirement { same_numa: false, nvlink: Nvlink::Required };
        assert_eq!(Topology::Any.locality(), LocalityRequirement::default());
        assert_eq!(Topology::SameRack.locality(), LocalityRequirement::default());
        assert_eq!(Topology::SameNuma.locality(), same_numa);
        assert_eq!(Topology::Nvlink.locality(), nvlink);
    }
}
