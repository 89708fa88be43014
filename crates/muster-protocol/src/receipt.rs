//! Preemption receipts: preemptor, victim and lost work of each preemption.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Receipt of one preemption.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// Job id of the victim.
    pub job_id: String,
    /// Number of the victim's attempt.
    pub attempt: u32,
    /// Job id of the preemptor.
    pub by_job_id: String,
    /// When the victim was ordered to save its work and stop, RFC 3339.
    pub asked_at: String,
    /// When its attempt had ended, RFC 3339.
    pub gone_at: String,
    /// Last checkpoint of the victim, RFC 3339; absent if it reported none.
    pub saved_at: Option<String>,
    /// Runtime of the attempt, in seconds.
    pub ran_seconds: i64,
    /// Preemption loss, in GPU-hours.
    pub lost_gpu_hours: f64,
}

/// Receipts of a job, as victim and as preemptor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceiptList {
    /// Job id.
    pub job_id: String,
    /// Preemptions in which the job was the victim, oldest first.
    pub lost: Vec<Receipt>,
    /// Preemptions in which the job was the preemptor, oldest first; victims of other tenants only if visible to the
    /// caller.
    pub caused: Vec<Receipt>,
}
