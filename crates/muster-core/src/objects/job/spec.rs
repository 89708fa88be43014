//! What a user asks for: the gang, its resources, and the rules for running it.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::gpu::gpu_share::{Isolation, Share, ShareMode};
use crate::gpu::topology::{LocalityRequirement, Nvlink};
use crate::ids::{JobId, TenantId};
use crate::objects::demand::Demand;
use crate::objects::job::PlacedTask;
use crate::time::Timestamp;

/// Everything a person said about a job. It never changes after submission except by `JobChanged`, and it is
/// shared between all tasks of an array and all replicas of the state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    pub tenant: TenantId,
    pub user: String,
    /// 0 to 10,000; higher runs first. Aging is added to it for the order, never for preemption.
    pub priority: u32,
    /// The gang: all tasks of all groups start together or not at all.
    pub tasks: Vec<TaskGroup>,
    /// How close together its GPUs must be.
    #[serde(default)]
    pub topology: Topology,
    /// Its GPUs may lie on several NUMA nodes; where this is denied they must not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// NVLink is worth more to it than one NUMA node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefer_nvlink: bool,
    /// `gang_scheduling` as submitted, where it was. The GPUs of a job are granted together either way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gang_scheduling: Option<bool>,
    /// The job is stopped when it has run this long.
    #[serde(default)]
    pub time_limit_ms: Option<i64>,
    /// What happens when an attempt fails.
    #[serde(default)]
    pub restart: RestartRule,
    /// What happens when its node is lost.
    #[serde(default)]
    pub on_node_lost: OnNodeLost,
    /// How it saves its work, if it does.
    #[serde(default)]
    pub checkpoint: Option<CheckpointRule>,
    /// Jobs that must have ended first.
    #[serde(default)]
    pub after: Vec<Dependency>,
    /// Not before this moment.
    #[serde(default)]
    pub start_after: Option<Timestamp>,
    /// A named pool to stay inside of; pools are registered by policies.
    #[serde(default)]
    pub pool: Option<String>,
    /// Only nodes that carry all of these labels.
    #[serde(default)]
    pub node_labels: BTreeMap<String, String>,
    pub run: Run,
    /// Free words of the owner, searchable.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Free words for machines, for example `muster.sim/runtime`.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

impl JobSpec {
    /// GPUs of the gang, all tasks together, whole or shared.
    pub fn gpus(&self) -> u32 {
        self.tasks.iter().map(|group| group.count.saturating_mul(group.each.gpus)).sum()
    }

    /// What the gang takes from its tenant's quota, at its smallest.
    pub fn demand(&self) -> Demand {
        let groups = self.tasks.iter().map(|group| group.each.demand().times(u64::from(group.count)));
        groups.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// What so many of its tasks take, but for power: an elastic gang may have more than it needs.
    pub fn demand_of(&self, tasks: &[PlacedTask]) -> Demand {
        let each = tasks.iter().map(|task| self.tasks[task.group as usize].each.demand_in(task));
        each.fold(Demand { jobs: 1, ..Demand::default() }, Demand::plus)
    }

    /// Whether there are as many tasks of each group as it needs, and no more than it takes.
    pub fn is_complete(&self, tasks: &[PlacedTask]) -> bool {
        let mut counts = vec![0; self.tasks.len()];
        for task in tasks {
            match counts.get_mut(task.group as usize) {
                Some(count) => *count += 1,
                None => return false,
            }
        }
        self.tasks
            .iter()
            .zip(counts)
            .all(|(group, count)| (group.count..=group.count_most()).contains(&count))
    }

    /// Whether it takes more tasks than it needs, where there is room.
    pub fn is_elastic(&self) -> bool {
        self.tasks.iter().any(|group| group.count_most() > group.count)
    }
}

/// Tasks of one kind inside a gang, for example sixteen workers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskGroup {
    /// What the group is called, for example `worker`.
    pub name: String,
    /// How many tasks; of an elastic group the fewest it can work with.
    pub count: u32,
    /// The most tasks it can make use of, where that is more than it needs. It starts as soon as `count` fit, with as many
    /// as there is room for then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_max: Option<u32>,
    /// What each of them needs.
    pub each: Resources,
}

impl TaskGroup {
    /// The most tasks it takes.
    pub fn count_most(&self) -> u32 {
        self.count_max.unwrap_or(self.count).max(self.count)
    }
}

/// What one task needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resources {
    /// GPUs; a task may have none.
    pub gpus: u32,
    /// GPU models that will do, in canonical spelling; empty means any.
    #[serde(default)]
    pub gpu_models: BTreeSet<String>,
    /// Memory that each GPU must have at least.
    #[serde(default)]
    pub gpu_memory_mib: u64,
    /// Share of each GPU in thousandths; 1,000 is the whole device.
    #[serde(default = "whole_gpu")]
    pub gpu_compute_milli: u32,
    /// How strictly neighbours on a shared GPU are kept apart.
    #[serde(default)]
    pub isolation: Isolation,
    pub cpus: u32,
    pub memory_mib: u64,
}

impl Resources {
    /// What one task takes from its tenant's quota where it is placed: as it was asked for, but an instance of a
    /// partitioned device as it is held, because nobody else can use the rest of it.
    pub fn demand_in(&self, task: &PlacedTask) -> Demand {
        let asked = self.demand();
        match task.share.as_deref() {
            Some(Share { compute_milli, memory_mib, mode: ShareMode::Mig { .. }, .. }) => {
                Demand { gpu_milli: u64::from(*compute_milli), gpu_memory_mib: *memory_mib, ..asked }
            }
            _ => asked,
        }
    }

    /// What one task takes from its tenant's quota, as it is asked for.
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

/// How close together the GPUs of a gang must be. Where nothing is said they are as close as possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Topology {
    /// Wherever there is room.
    #[default]
    Any,
    /// On GPUs of one NUMA node.
    SameNuma,
    /// On GPUs joined by NVLink.
    Nvlink,
    /// On nodes of one rack.
    SameRack,
}

impl Topology {
    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Topology::Any => "any",
            Topology::SameNuma => "same-numa",
            Topology::Nvlink => "nvlink",
            Topology::SameRack => "same-rack",
        }
    }
}

/// What happens when an attempt fails by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    /// Start again after a failure, this many times; then the job has failed.
    #[serde(default)]
    pub max_restarts: u32,
    /// Come back after preemption or a lost node, this many times; then the job is held with a reason.
    #[serde(default = "default_requeues")]
    pub max_requeues: u32,
}

/// Slurm's MaxBatchRequeue is 5 as well; preemption by the tenant's limit is counted apart.
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
    /// It may still be running there: wait until the node is fenced or comes back.
    #[default]
    Wait,
    /// It stops itself after its fence deadline, then starts elsewhere.
    Requeue,
    /// Start elsewhere at once and accept that two copies may run.
    RequeueUnsafe,
}

/// How a job saves its work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointRule {
    /// Where, as the job sees it.
    pub path: String,
    /// How often it does so by itself, if it said.
    #[serde(default)]
    pub every_ms: Option<i64>,
}

/// A job that must have ended before this one may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// The other job; without an index it means every task of an array.
    pub job: JobId,
    /// How it must have ended.
    pub when: DependencyWhen,
}

/// How the other job must have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DependencyWhen {
    Succeeded,
    /// Not with exit code 0.
    Failed,
    Ended,
}

/// What to run. At least one of script and command is set, or an image with its own entry point.
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
}

impl Topology {
    /// What it requires of the devices of a task on one node.
    fn locality(self) -> LocalityRequirement {
        match self {
            Topology::Any | Topology::SameRack => LocalityRequirement::default(),
            Topology::SameNuma => LocalityRequirement { same_numa: true, ..LocalityRequirement::default() },
            Topology::Nvlink => {
                LocalityRequirement { nvlink: Nvlink::Required, ..LocalityRequirement::default() }
            }
        }
    }
}

impl JobSpec {
    /// How close together the devices of a task must or should be: its topology, `allow_cross_numa` and `prefer_nvlink`.
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
