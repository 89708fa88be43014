//! The plan: the planner's proposal of gangs to start, victims to evict and GPUs to repartition (step 7).

use serde::{Deserialize, Serialize};

use crate::ids::{GpuId, JobId};
use crate::objects::job::PlacedTask;
use crate::objects::score::Score;
use crate::time::Timestamp;

/// The planner's proposal, computed from one snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Number of events in the planner's snapshot.
    pub snapshot: u64,
    /// The planner's `now`.
    pub now: Timestamp,
    /// Gangs to start, in order.
    pub starts: Vec<Start>,
    /// Preemptors with their victims, in order.
    pub evictions: Vec<Eviction>,
    /// Idle GPUs to repartition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repartitionings: Vec<Repartitioning>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.evictions.is_empty() && self.repartitionings.is_empty()
    }
}

/// A gang to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub job: JobId,
    pub tasks: Vec<PlacedTask>,
    #[serde(default)]
    pub effective_priority: Option<i64>,
    /// Runtime estimate, if the job has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// Backfilled on its runtime estimate: if it overruns, the jobs it passed may preempt it.
    #[serde(default)]
    pub revocable: bool,
    /// Score of the placement, if there were alternatives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
}

/// Running jobs to stop so that a preemptor fits afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// The preemptor.
    pub job: JobId,
    /// Placement of the preemptor's tasks after the eviction.
    pub tasks: Vec<PlacedTask>,
    /// Least preemption loss first.
    pub victims: Vec<JobId>,
}

/// A GPU to repartition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repartitioning {
    pub gpu: GpuId,
    /// MIG profiles; empty makes the GPU whole again.
    pub profiles: Vec<String>,
    /// The first waiting job that needs the new layout.
    pub job: JobId,
}
