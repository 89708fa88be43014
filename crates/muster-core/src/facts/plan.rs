//! What the planner proposes: gangs to start, running jobs to evict, GPUs to repartition.

use serde::{Deserialize, Serialize};

use crate::ids::{GpuId, JobId};
use crate::objects::job::PlacedTask;
use crate::objects::score::Score;
use crate::time::Timestamp;

/// What should happen next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// How many events the planner had seen.
    pub snapshot: u64,
    /// The planner's `now`.
    pub now: Timestamp,
    /// Gangs to start, in order.
    pub starts: Vec<Start>,
    /// Gangs to make room for, in order.
    pub evictions: Vec<Eviction>,
    /// Idle devices to partition otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repartitionings: Vec<Repartitioning>,
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty() && self.evictions.is_empty() && self.repartitionings.is_empty()
    }
}

/// A gang to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub job: JobId,
    /// Which task sits where.
    pub tasks: Vec<PlacedTask>,
    /// The priority it was ordered by.
    #[serde(default)]
    pub effective_priority: Option<i64>,
    /// How long it is expected to run, where it has no time limit.
    #[serde(default)]
    pub expected_ms: Option<i64>,
    /// It has its space on loan: those it passes may ask it to leave when that time is over.
    #[serde(default)]
    pub revocable: bool,
    /// Why it starts there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Box<Score>>,
}

/// Running jobs to displace so that another fits afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    pub job: JobId,
    /// Which of its tasks will sit where.
    pub tasks: Vec<PlacedTask>,
    /// Who must go, least loss first.
    pub victims: Vec<JobId>,
}

/// A device that should be partitioned otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repartitioning {
    pub gpu: GpuId,
    /// Into instances of these profiles; none to make it whole again.
    pub profiles: Vec<String>,
    /// For the first of those who wait for it.
    pub job: JobId,
}
