//! The plan: the planner's proposal of gangs to start, jobs to preempt and GPUs to repartition (step 7).

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

/// A part of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlanPart {
    Start,
    Eviction,
    Repartitioning,
}

impl PlanPart {
    pub fn as_str(self) -> &'static str {
        match self {
            PlanPart::Start => "start",
            PlanPart::Eviction => "eviction",
            PlanPart::Repartitioning => "repartitioning",
        }
    }
}

/// A part of a plan that adoption rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RejectedPart {
    pub part: PlanPart,
    /// The job that would have started, preempted, or used the repartitioned GPU.
    pub job: JobId,
    pub reason: Rejection,
}

/// Why adoption rejected a part of a plan: the state has changed since the planner's snapshot, or the plan was never
/// valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rejection {
    /// The job ended, runs, is held, sleeps, or waits for a dependency.
    NotReady,
    /// Another part of the plan starts or evicts the job.
    TakenTwice,
    Policy,
    /// Tasks, ranks or devices are not what the job requests.
    IncompleteGang,
    EffectivePriorityOutOfBounds,
    ExpectedRuntimeOutOfBounds,
    ScoreOutOfBounds,
    /// The plan backfills the job revocably, and the job may not be preempted.
    NotRevocable,
    /// The plan backfills the job on an estimate (an expected runtime, or revocably), and the job has a time limit.
    EstimateDespiteTimeLimit,
    Window,
    ArrayLimit,
    Quota,
    UserQuota,
    PolicyLimit,
    Budget,
    ModelLimit,
    Locality,
    /// The node is gone, takes no work, or lacks a label of the job.
    NodeUnavailable,
    /// The device does not meet the request: model, memory, isolation, pool or partition.
    DeviceIneligible,
    /// The space is held by another job or claim, or not healthy.
    SpaceTaken,
    /// Every master port of the node of rank 0 is held.
    NoMasterPort,
    PreemptionOff,
    /// The preemptor has a claim already.
    HasClaim,
    /// A victim may not be evicted for the preemptor, or no victim is named.
    VictimIneligible,
    UnknownGpu,
    RepartitioningOff,
    IllegalPartition,
    GpuInUse,
    RepartitioningCooldown,
    AlreadyPartitioned,
}

impl Rejection {
    pub const ALL: [Rejection; 30] = [
        Rejection::NotReady,
        Rejection::TakenTwice,
        Rejection::Policy,
        Rejection::IncompleteGang,
        Rejection::EffectivePriorityOutOfBounds,
        Rejection::ExpectedRuntimeOutOfBounds,
        Rejection::ScoreOutOfBounds,
        Rejection::NotRevocable,
        Rejection::EstimateDespiteTimeLimit,
        Rejection::Window,
        Rejection::ArrayLimit,
        Rejection::Quota,
        Rejection::UserQuota,
        Rejection::PolicyLimit,
        Rejection::Budget,
        Rejection::ModelLimit,
        Rejection::Locality,
        Rejection::NodeUnavailable,
        Rejection::DeviceIneligible,
        Rejection::SpaceTaken,
        Rejection::NoMasterPort,
        Rejection::PreemptionOff,
        Rejection::HasClaim,
        Rejection::VictimIneligible,
        Rejection::UnknownGpu,
        Rejection::RepartitioningOff,
        Rejection::IllegalPartition,
        Rejection::GpuInUse,
        Rejection::RepartitioningCooldown,
        Rejection::AlreadyPartitioned,
    ];

    /// The label `reason` of the metric `muster_plan_rejections_total`. Stable across releases.
    pub fn code(self) -> &'static str {
        match self {
            Rejection::NotReady => "not-ready",
            Rejection::TakenTwice => "taken-twice",
            Rejection::Policy => "policy",
            Rejection::IncompleteGang => "incomplete-gang",
            Rejection::EffectivePriorityOutOfBounds => "effective-priority-out-of-bounds",
            Rejection::ExpectedRuntimeOutOfBounds => "expected-runtime-out-of-bounds",
            Rejection::ScoreOutOfBounds => "score-out-of-bounds",
            Rejection::NotRevocable => "not-revocable",
            Rejection::EstimateDespiteTimeLimit => "estimate-despite-time-limit",
            Rejection::Window => "window",
            Rejection::ArrayLimit => "array-limit",
            Rejection::Quota => "quota",
            Rejection::UserQuota => "user-quota",
            Rejection::PolicyLimit => "policy-limit",
            Rejection::Budget => "budget",
            Rejection::ModelLimit => "model-limit",
            Rejection::Locality => "locality",
            Rejection::NodeUnavailable => "node-unavailable",
            Rejection::DeviceIneligible => "device-ineligible",
            Rejection::SpaceTaken => "space-taken",
            Rejection::NoMasterPort => "no-master-port",
            Rejection::PreemptionOff => "preemption-off",
            Rejection::HasClaim => "has-claim",
            Rejection::VictimIneligible => "victim-ineligible",
            Rejection::UnknownGpu => "unknown-gpu",
            Rejection::RepartitioningOff => "repartitioning-off",
            Rejection::IllegalPartition => "illegal-partition",
            Rejection::GpuInUse => "gpu-in-use",
            Rejection::RepartitioningCooldown => "repartitioning-cooldown",
            Rejection::AlreadyPartitioned => "already-partitioned",
        }
    }
}
