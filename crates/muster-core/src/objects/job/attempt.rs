//! One try at running a job: where its tasks run, why it stops, and what each node reported.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::gpu::gpu_share::Share;
use crate::ids::{GpuId, JobId, NodeId};
use crate::objects::demand::Demand;
use crate::objects::job::{Exit, JobSpec};
use crate::objects::score::Score;
use crate::time::{SECOND, Timestamp};

/// What is left of the grace of an attempt that has saved its work: it may still leave by itself, in order.
const SAVED_GRACE_MS: i64 = 2 * SECOND;

/// One try at running a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// 1 for the first.
    pub number: u32,
    /// Under which leadership it was placed.
    pub epoch: u64,
    /// The priority it was ordered by when it was placed.
    #[serde(default)]
    pub effective_priority: Option<i64>,
    /// How long it was expected to run, where it has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// It has its space on loan: those it passed may ask it to leave when its expected time is over.
    #[serde(default)]
    pub revocable: bool,
    /// Why it was placed there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
    /// Which task sits where. Together they are the leases of the attempt.
    pub tasks: Vec<PlacedTask>,
    /// The power limits of its GPUs as they were then, together.
    pub milliwatts: u64,
    /// The most that each of its GPUs may draw, where policies said so when it was placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milliwatts_max: Option<u64>,
    /// When it was placed: leases count from here.
    pub placed_at: Timestamp,
    /// When its processes were seen running.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it last said that its work is saved.
    #[serde(default)]
    pub saved_at: Option<Timestamp>,
    /// When it was told to stop, and why.
    #[serde(default)]
    pub stopping: Option<Stopping>,
    /// What each node said so far.
    #[serde(default)]
    pub reports: NodeReports,
}

impl Attempt {
    /// An attempt that has its place and nothing else yet, by its number and the leadership it was placed under.
    pub(crate) fn placed(
        (number, epoch): (u32, u64),
        (effective, expected_ms): (Option<i64>, Option<i64>),
        tasks: &[PlacedTask],
        placed_at: Timestamp,
    ) -> Attempt {
        Attempt {
            number,
            epoch,
            effective_priority: effective,
            expected_ms,
            revocable: false,
            score: None,
            tasks: tasks.to_vec(),
            milliwatts: 0,
            gpu_milliwatts_max: None,
            placed_at,
            started_at: None,
            saved_at: None,
            stopping: None,
            reports: NodeReports::default(),
        }
    }

    /// What it takes from its tenant's quota.
    pub fn demand(&self, spec: &JobSpec) -> Demand {
        Demand { milliwatts: self.milliwatts, ..spec.demand_of(&self.tasks) }
    }

    /// Every GPU it holds.
    pub fn gpus(&self) -> impl Iterator<Item = GpuId> + '_ {
        self.tasks
            .iter()
            .flat_map(|task| task.gpus.iter().map(|index| GpuId { node: task.node.clone(), index: *index }))
    }

    /// How many GPUs it holds, whole or a part of.
    pub fn gpu_count(&self) -> u64 {
        self.tasks.iter().map(|task| task.gpus.len() as u64).sum()
    }

    /// How much of GPUs it holds, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.tasks.iter().map(PlacedTask::gpu_milli).sum()
    }

    /// Its nodes, each once, in order.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.tasks.iter().map(|task| task.node.clone()).collect()
    }

    /// The fine word of the phase.
    pub fn phase_name(&self) -> &'static str {
        match (&self.stopping, self.started_at) {
            (Some(_), _) => "Stopping",
            (None, Some(_)) => "Running",
            (None, None) => "Starting",
        }
    }
}

/// Why and when an attempt was told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopping {
    pub cause: StopCause,
    pub since: Timestamp,
    /// How long the processes may take before they are killed; less once there is nothing more to wait for.
    pub grace_ms: i64,
}

impl Stopping {
    /// The grace of an attempt that says now that its work is saved, where that is shorter. Only who comes back was
    /// waited for because of its work; who ends for good has the rest of the time for whatever it ends with.
    pub(crate) fn grace_ms_once_saved(&self, now: Timestamp) -> Option<i64> {
        let shorter = now.since(self.since).saturating_add(SAVED_GRACE_MS);
        (self.cause.comes_back() && shorter < self.grace_ms).then_some(shorter)
    }
}

/// Why an attempt was told to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum StopCause {
    /// A person cancelled the job.
    Cancelled {
        by: String,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// Its time limit passed.
    TimeLimit,
    /// A job of higher priority takes its place.
    Preempted {
        by: JobId,
    },
    /// A person wants it to start anew.
    Requeued {
        by: String,
        /// Why, where that is known.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// A person wants it out of the way and not back.
    Held {
        by: String,
        /// Why; may be empty.
        #[serde(default)]
        why: String,
    },
    /// Another part of the gang has ended with a failure.
    GangFailed,
}

impl StopCause {
    /// A user cancelled the job and gave no reason.
    pub(crate) fn cancelled(by: &str) -> StopCause {
        StopCause::Cancelled { by: by.to_string(), why: String::new() }
    }

    /// A user requeued the job and gave no reason.
    pub(crate) fn requeued(by: &str) -> StopCause {
        StopCause::Requeued { by: by.to_string(), why: String::new() }
    }

    /// Whether the job goes on later, from what it has saved.
    fn comes_back(&self) -> bool {
        match self {
            StopCause::Preempted { .. } | StopCause::Requeued { .. } | StopCause::Held { .. } => true,
            StopCause::Cancelled { .. } | StopCause::TimeLimit | StopCause::GangFailed => false,
        }
    }
}

/// One task on one node with its GPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedTask {
    /// The rank inside the gang, from 0.
    pub rank: u32,
    /// Index of its group in `JobSpec::tasks`.
    pub group: u32,
    pub node: NodeId,
    pub gpus: Vec<u8>,
    /// What it has of its device, where that is not the whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Box<Share>>,
}

impl PlacedTask {
    /// What it holds of each of its devices, in thousandths.
    pub fn milli_each(&self) -> u64 {
        self.share.as_ref().map_or(1_000, |share| u64::from(share.compute_milli))
    }

    /// How much of GPUs it holds, in thousandths.
    pub fn gpu_milli(&self) -> u64 {
        self.milli_each() * self.gpus.len() as u64
    }

    /// Its devices, each with their node.
    pub fn devices(&self) -> impl Iterator<Item = (&NodeId, u8)> {
        self.gpus.iter().map(|gpu| (&self.node, *gpu))
    }
}

/// What each node said, in order of node. Most attempts have one part, for which a map would take a page of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "BTreeMap<NodeId, NodeReport>", into = "BTreeMap<NodeId, NodeReport>")]
pub struct NodeReports(Vec<(NodeId, NodeReport)>);

impl NodeReports {
    /// What a node said.
    pub fn get(&self, node: &NodeId) -> Option<&NodeReport> {
        self.place(node).ok().map(|place| &self.0[place].1)
    }

    /// All that was said, in order of node.
    pub fn values(&self) -> impl Iterator<Item = &NodeReport> {
        self.0.iter().map(|(_, part)| part)
    }

    /// A node says something, instead of what it said before.
    pub(crate) fn insert(&mut self, node: &NodeId, part: NodeReport) {
        match self.place(node) {
            Ok(place) => self.0[place].1 = part,
            Err(place) => {
                if self.0.is_empty() {
                    self.0.reserve_exact(1);
                }
                self.0.insert(place, (node.clone(), part));
            }
        }
    }

    fn place(&self, node: &NodeId) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| other.cmp(node))
    }
}

impl From<BTreeMap<NodeId, NodeReport>> for NodeReports {
    fn from(parts: BTreeMap<NodeId, NodeReport>) -> NodeReports {
        NodeReports(parts.into_iter().collect())
    }
}

impl From<NodeReports> for BTreeMap<NodeId, NodeReport> {
    fn from(parts: NodeReports) -> BTreeMap<NodeId, NodeReport> {
        parts.0.into_iter().collect()
    }
}

/// What a node said about its part of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "kebab-case")]
pub enum NodeReport {
    Started,
    /// The processes are gone.
    Ended {
        exit: Exit,
        /// They had been told to stop before.
        stopped: bool,
        /// When they were gone, where the node knows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ended_at: Option<Timestamp>,
    },
}
