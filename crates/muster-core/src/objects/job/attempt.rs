//! An attempt: one execution of a job, with its placed tasks, stop cause, and the reports of its nodes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{GpuId, JobId, NodeId};
use crate::objects::demand::Demand;
use crate::objects::job::{Exit, JobSpec, PlacedTask};
use crate::objects::score::Score;
use crate::objects::settings::Settings;
use crate::time::{SECOND, Timestamp};

/// The remaining grace of an attempt that has saved its work, so that it can still exit in order.
const SAVED_GRACE_MS: i64 = 2 * SECOND;

/// A self-fence deadline is at least this many intervals of heartbeats.
const HEARTBEATS_PER_SELF_FENCE: i64 = 10;

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Counts from 1.
    pub number: u32,
    /// Leader epoch in which it was placed.
    pub epoch: u64,
    /// Effective priority at its placement.
    #[serde(default)]
    pub effective_priority: Option<i64>,
    /// Runtime estimate at its placement, if the job has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// It was backfilled on its runtime estimate: if it overruns, the jobs it passed may preempt it.
    #[serde(default)]
    pub revocable: bool,
    /// Score of its placement, if there were alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
    /// Tasks with their nodes and GPUs. Together they are the leases of the attempt.
    pub tasks: Vec<PlacedTask>,
    /// Sum of the power limits of its GPUs at its placement.
    pub milliwatts: u64,
    /// Power limit that policies set for each of its GPUs at its placement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts_max: Option<u64>,
    /// Set if its nodes end it by themselves when no leader hears them. Recorded with the attempt, so that a later
    /// change of the settings never applies to what its nodes were told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_fence: Option<SelfFence>,
    /// The port on the node of rank 0 at which its tasks meet; no other live attempt with the same master has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_port: Option<u16>,
    /// It is stopped if a node has not started this long after the first one did. Recorded with the attempt, so that a later
    /// change of the settings applies to later attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_bound_ms: Option<i64>,
    /// When the first of its nodes had reported running processes, if its start is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_started_at: Option<Timestamp>,
    /// Its leases are charged from here.
    pub placed_at: Timestamp,
    /// When all its nodes had reported running processes.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Its last reported checkpoint.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    #[serde(default)]
    pub stopping: Option<Stopping>,
    #[serde(default)]
    pub reports: NodeReports,
    /// When its tasks were ordered to get the early signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signalled_at: Option<Timestamp>,
    /// Processes that survive SIGKILL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkillable: Option<Box<Unkillable>>,
}

/// Processes of an attempt that survive SIGKILL, on the first node that reported such.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unkillable {
    pub node: NodeId,
    /// Pids, commands and states, for people.
    pub processes: String,
    pub since: Timestamp,
}

impl Attempt {
    /// A newly placed attempt without reports, priority, runtime estimate and score. `epoch` is the leader epoch.
    pub(crate) fn placed(number: u32, epoch: u64, tasks: &[PlacedTask], placed_at: Timestamp) -> Attempt {
        Attempt {
            number,
            epoch,
            effective_priority: None,
            expected_ms: None,
            revocable: false,
            score: None,
            tasks: tasks.to_vec(),
            milliwatts: 0,
            gpu_milliwatts_max: None,
            self_fence: None,
            master_port: None,
            start_bound_ms: None,
            first_started_at: None,
            placed_at,
            started_at: None,
            saved_at: None,
            stopping: None,
            reports: NodeReports::default(),
            signalled_at: None,
            unkillable: None,
        }
    }

    /// Its quota usage.
    pub fn demand(&self, spec: &JobSpec) -> Demand {
        Demand { milliwatts: self.milliwatts, ..spec.demand_of(&self.tasks) }
    }

    pub fn gpus(&self) -> impl Iterator<Item = GpuId> + '_ {
        self.tasks
            .iter()
            .flat_map(|task| task.gpus.iter().map(|index| GpuId { node: task.node.clone(), index: *index }))
    }

    /// Number of GPUs it holds; a share of a GPU counts as one.
    pub fn gpu_count(&self) -> u64 {
        self.tasks.iter().map(|task| task.gpus.len() as u64).sum()
    }

    /// GPUs it holds in thousandths, shares counted in part.
    pub fn gpu_milli(&self) -> u64 {
        self.tasks.iter().map(PlacedTask::gpu_milli).sum()
    }

    /// True if its tasks on a node have not ended, as far as is known.
    pub fn has_open_part(&self, node: &NodeId) -> bool {
        let is_on_node = self.tasks.iter().any(|task| task.node == *node);
        is_on_node && !matches!(self.reports.get(node), Some(NodeReport::Ended { .. }))
    }

    /// The node of rank 0 and its port, if the attempt holds one.
    pub fn master_and_port(&self) -> Option<(&NodeId, u16)> {
        Some((&self.tasks.first()?.node, self.master_port?))
    }

    /// The nodes that have reported neither a start nor an end.
    pub fn unreported_nodes(&self) -> BTreeSet<NodeId> {
        let nodes = self.tasks.iter().map(|task| &task.node);
        nodes.filter(|node| self.reports.get(node).is_none()).cloned().collect()
    }

    /// When a gang that has started in part is stopped.
    pub fn start_deadline(&self) -> Option<Timestamp> {
        let bound_ms = self.start_bound_ms.filter(|_| self.started_at.is_none())?;
        Some(self.first_started_at?.plus(bound_ms))
    }

    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.tasks.iter().map(|task| task.node.clone()).collect()
    }

    /// The phase name as users see it.
    pub fn phase_name(&self) -> &'static str {
        match (&self.stopping, self.started_at) {
            (Some(_), _) => "Stopping",
            (None, Some(_)) => "Running",
            (None, None) => "Starting",
        }
    }
}

/// When the processes of an attempt on a silent node are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfFence {
    /// The node kills the attempt this long after it sent the last heartbeat that a leader acknowledged.
    pub after_ms: i64,
    /// A node that the leader has not heard for this long has provably done so.
    pub proven_after_ms: i64,
}

impl SelfFence {
    /// The deadline and its proof under these settings: the deadline by a clock that is too slow, the grace of the
    /// processes, and a margin. `None` if self-fencing is disabled. A node whose agent sends heartbeats rarely has a later
    /// deadline, so that it does not kill its attempts because a few of them were lost.
    pub(crate) fn of(settings: &Settings, heartbeat_interval_ms: i64) -> Option<SelfFence> {
        let after_ms = match settings.self_fence_ms {
            0 => 0,
            after_ms => after_ms.max(heartbeat_interval_ms.saturating_mul(HEARTBEATS_PER_SELF_FENCE)),
        };
        let drift_ms = after_ms.saturating_mul(settings.fence_drift_per_mille).div_euclid(1_000);
        let longest_ms = after_ms.saturating_add(drift_ms).saturating_add(1);
        let proven_after_ms =
            longest_ms.saturating_add(settings.stop_grace_ms).saturating_add(settings.fence_margin_ms);
        (after_ms > 0).then_some(SelfFence { after_ms, proven_after_ms })
    }
}

/// The order to stop an attempt: its cause, time and grace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub cause: StopCause,
    pub since: Timestamp,
    /// Time until the processes are killed; shorter once the attempt has saved its work.
    pub grace_ms: i64,
}

impl Stopping {
    /// The new grace of an attempt that reports a checkpoint now, if it is shorter. Only a job that will run again is
    /// given time for its checkpoint; a job that ends for good keeps the rest of the grace for its own cleanup.
    pub(crate) fn grace_ms_once_saved(&self, now: Timestamp) -> Option<i64> {
        let shorter = now.since(self.since).saturating_add(SAVED_GRACE_MS);
        (self.cause.comes_back() && shorter < self.grace_ms).then_some(shorter)
    }
}

/// Why an attempt was ordered to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum StopCause {
    /// A user cancelled the job.
    Cancelled {
        by: String,
        /// Empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// Its time limit passed.
    TimeLimit,
    /// A preemptor needs its resources.
    Preempted { by: JobId },
    /// A user or operator requeued the job.
    Requeued {
        by: String,
        /// Empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A user or operator holds the job: it does not start again by itself.
    Held {
        by: String,
        /// May be empty.
        #[serde(default)]
        why: String,
    },
    /// Another task of the gang has failed.
    GangFailed,
    /// Some nodes of the gang had not started within the bound after the first one.
    LateStart { nodes: Vec<NodeId>, bound_ms: i64 },
}

impl StopCause {
    /// The nodes of a late start as a sentence; empty for other causes.
    pub fn late_start_text(&self) -> String {
        let StopCause::LateStart { nodes, bound_ms } = self else { return String::new() };
        let names: Vec<String> = nodes.iter().map(|node| format!("`{node}`")).collect();
        let bound_s = bound_ms / SECOND;
        format!("{} had not started its tasks {bound_s} s after the first node of the gang", names.join(" and "))
    }

    /// A user cancelled the job and gave no reason.
    pub(crate) fn cancelled(by: &str) -> StopCause {
        StopCause::Cancelled { by: by.to_string(), why: String::new() }
    }

    /// A user requeued the job and gave no reason.
    pub(crate) fn requeued(by: &str) -> StopCause {
        StopCause::Requeued { by: by.to_string(), why: String::new() }
    }

    /// True if the job runs again later, from its last checkpoint.
    fn comes_back(&self) -> bool {
        match self {
            StopCause::Preempted { .. }
            | StopCause::Requeued { .. }
            | StopCause::Held { .. }
            | StopCause::LateStart { .. } => true,
            StopCause::Cancelled { .. } | StopCause::TimeLimit | StopCause::GangFailed => false,
        }
    }
}

/// The report of each node, sorted by node. Most attempts run on one node, for which a map would waste memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NodeId, NodeReport>", into = "BTreeMap<NodeId, NodeReport>")]
pub struct NodeReports(Vec<(NodeId, NodeReport)>);

impl NodeReports {
    pub fn get(&self, node: &NodeId) -> Option<&NodeReport> {
        self.position(node).ok().map(|index| &self.0[index].1)
    }

    /// All reports, in order of node.
    pub fn values(&self) -> impl Iterator<Item = &NodeReport> {
        self.0.iter().map(|(_, report)| report)
    }

    /// Stores the report of a node, in place of its earlier one.
    pub(crate) fn insert(&mut self, node: &NodeId, report: NodeReport) {
        match self.position(node) {
            Ok(index) => self.0[index].1 = report,
            Err(index) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(index, (node.clone(), report));
            }
        }
    }

    fn position(&self, node: &NodeId) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(node))
    }
}

impl From<BTreeMap<NodeId, NodeReport>> for NodeReports {
    fn from(reports: BTreeMap<NodeId, NodeReport>) -> NodeReports {
        NodeReports(reports.into_iter().collect())
    }
}

impl From<NodeReports> for BTreeMap<NodeId, NodeReport> {
    fn from(reports: NodeReports) -> BTreeMap<NodeId, NodeReport> {
        reports.0.into_iter().collect()
    }
}

/// The last report of a node about its tasks of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum NodeReport {
    Started,
    /// The processes are gone.
    Ended {
        exit: Exit,
        /// The processes had been ordered to stop before.
        stopped: bool,
        /// When the processes were gone, if the node knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Timestamp>,
        /// The prolog of the node failed, so no task ran there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        prolog_failed: bool,
    },
}
