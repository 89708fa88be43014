//! Moves of running jobs that would let waiting jobs fit (`muster moves`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One job that could be moved for a waiting job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// Id of the waiting job.
    pub job_id: String,
    /// GPUs that the waiting job would get.
    pub gpus: Vec<String>,
    /// Id of the job that would be moved.
    pub moved_job_id: String,
    /// Free GPUs that the moved job would get.
    pub to: Vec<String>,
    /// Gain: how much earlier the waiting job starts, in GPU-hours.
    pub gained_gpu_hours: f64,
    /// Cost: work that the moved job repeats and its idle time during the move, in GPU-hours.
    pub lost_gpu_hours: f64,
}

/// Moves that would pay now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveList {
    /// True if the planner makes the moves itself (`scheduler.defragment`); otherwise they are only proposals.
    pub enabled: bool,
    /// Moves whose gain exceeds their cost.
    pub moves: Vec<Move>,
}
