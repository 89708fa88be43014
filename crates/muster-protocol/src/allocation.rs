//! What an attempt holds or held.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::score::Score;
use crate::share::Share;

/// An attempt with its leases. It is read-only; deleting it puts its job back into the queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Allocation {
    /// Job and attempt.
    #[schema(example = "job-42:1")]
    pub id: String,
    /// Which job.
    pub job_id: String,
    /// Which attempt of it.
    pub attempt: u32,
    /// Who pays.
    pub tenant_id: String,
    /// `pending`, `active`, `preempted`, `requeued`, `completed`, `failed` or `cancelled`.
    #[schema(example = "active")]
    pub state: String,
    /// The finer word.
    pub phase: String,
    /// The GPUs.
    pub gpu_ids: Vec<String>,
    /// What its tasks have of them, one by one, where that is not all of a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// The first node.
    pub node_id: Option<String>,
    /// All nodes.
    pub nodes: Vec<String>,
    /// Why it was placed there, where there was a choice, while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// CPU cores it holds or held. A standby does not know those of a live one.
    pub cpu_cores: Option<u64>,
    /// Main memory it holds or held, in MiB. A standby does not know that of a live one.
    pub memory_mb: Option<u64>,
    /// When it got its GPUs, RFC 3339.
    pub allocated_at: String,
    /// The same in Unix milliseconds.
    pub allocated_at_ms: i64,
    /// When it was seen running.
    pub started_at: Option<String>,
    /// When it gave its GPUs back.
    pub completed_at: Option<String>,
    /// The same in Unix milliseconds.
    pub completed_at_ms: Option<i64>,
    /// Its time limit, or else the runtime that the planner expected when it placed it, for people.
    pub planned_duration: Option<String>,
    /// How long it held or has held its GPUs, for people.
    pub actual_duration: String,
    /// The same in milliseconds.
    pub actual_duration_ms: i64,
    /// When it was told to make room.
    pub preempted_at: Option<String>,
    /// For which job.
    pub preempted_by: Option<String>,
    /// Why.
    pub preemption_reason: Option<String>,
    /// How its processes ended: `code`, `signal`, `not-started`, `unknown`.
    pub exit: Option<String>,
    /// Exit code, if there is one.
    pub exit_code: Option<i32>,
    /// What is known beyond that.
    pub message: String,
    /// GPU-hours charged.
    pub gpu_hours: f64,
    /// What it costs or cost an hour; 0 where its tenant is not billed.
    pub cost_per_hour: Option<f64>,
    /// What it cost; 0 until it ends.
    pub total_cost: f64,
}

/// One page of allocations, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    /// The allocations of this page.
    pub allocations: Vec<Allocation>,
    /// How many there are on all pages together.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}
