//! What displacing jobs has cost.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One job that was displaced for another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// Who was displaced.
    pub job_id: String,
    /// Which attempt of it.
    pub attempt: u32,
    /// For whom.
    pub by_job_id: String,
    /// When it was asked to save its work and stop, RFC 3339.
    pub asked_at: String,
    /// When it was gone, RFC 3339.
    pub gone_at: String,
    /// When it last saved its work, RFC 3339; absent if it never said so.
    pub saved_at: Option<String>,
    /// How long it had run, in seconds.
    pub ran_seconds: i64,
    /// Work that is lost, in GPU-hours.
    pub lost_gpu_hours: f64,
}

/// What a job has lost to others, and others to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReceiptList {
    /// Which job.
    pub job_id: String,
    /// Each time it was displaced, oldest first.
    pub lost: Vec<Receipt>,
    /// Each job that was displaced for it, oldest first; of other tenants only where the caller may see them.
    pub caused: Vec<Receipt>,
}
