//! Running jobs that could go on elsewhere so that others fit.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One job that could be moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Move {
    /// Who waits.
    pub job_id: String,
    /// The GPUs it would have.
    pub gpus: Vec<String>,
    /// Who would be moved.
    pub moved_job_id: String,
    /// The GPUs that are free for it now.
    pub to: Vec<String>,
    /// By how much earlier the waiting job starts, in GPU-hours.
    pub gained_gpu_hours: f64,
    /// Work that is done again, and standing still while it moves, in GPU-hours.
    pub lost_gpu_hours: f64,
}

/// What would be moved now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MoveList {
    /// Whether the planner does it by itself (`scheduler.defragment`); if not, this is what it would do.
    pub enabled: bool,
    /// Every move that pays.
    pub moves: Vec<Move>,
}
