//! Allocations: attempts with their leases.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu_share::Share;
use crate::score::Score;

/// An attempt with its leases. An allocation is read-only; deleting it requeues its job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Allocation {
    /// Job id and number of the attempt.
    #[schema(example = "job-42:1")]
    pub id: String,
    /// Job id.
    pub job_id: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Tenant of the job.
    pub tenant_id: String,
    /// `pending`, `active`, `preempted`, `requeued`, `completed`, `failed` or `cancelled`.
    #[schema(example = "active")]
    pub state: String,
    /// Phase, more detailed than `state`.
    pub phase: String,
    /// Ids of the GPUs.
    pub gpu_ids: Vec<String>,
    /// GPU shares of its tasks; empty if it holds whole GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// The first node.
    pub node_id: Option<String>,
    /// All nodes.
    pub nodes: Vec<String>,
    /// Score of the placement; absent without an alternative and after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// CPU cores that it holds or held. Null on a standby while the attempt is live.
    pub cpu_cores: Option<u64>,
    /// Main memory that it holds or held, in MiB. Null on a standby while the attempt is live.
    pub memory_mb: Option<u64>,
    /// Start of its leases, RFC 3339.
    pub allocated_at: String,
    /// The same in Unix milliseconds.
    pub allocated_at_ms: i64,
    /// When it was reported as running.
    pub started_at: Option<String>,
    /// End of its leases.
    pub completed_at: Option<String>,
    /// The same in Unix milliseconds.
    pub completed_at_ms: Option<i64>,
    /// Time limit, or the runtime estimate of the planner at placement; for display.
    pub planned_duration: Option<String>,
    /// Duration of its leases until their end or until now, for display.
    pub actual_duration: String,
    /// The same in milliseconds.
    pub actual_duration_ms: i64,
    /// When it was ordered to stop for a preemptor.
    pub preempted_at: Option<String>,
    /// Job id of the preemptor.
    pub preempted_by: Option<String>,
    /// Reason of the preemption.
    pub preemption_reason: Option<String>,
    /// Kind of exit of its processes: `code`, `signal`, `out-of-memory`, `not-started`, `invalid-job`,
    /// `unknown`.
    pub exit: Option<String>,
    /// Exit code, if the processes exited with one.
    pub exit_code: Option<i32>,
    /// Further details of the exit; may be empty.
    pub message: String,
    /// GPU-hours charged.
    pub gpu_hours: f64,
    /// Cost per hour; 0 if the tenant is not billed.
    pub cost_per_hour: Option<f64>,
    /// Total cost; 0 until it ends.
    pub total_cost: f64,
}

/// One page of allocations, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AllocationList {
    /// The allocations of this page.
    pub allocations: Vec<Allocation>,
    /// Number of allocations on all pages.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}
