//! Who used what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was used in a span of time. Attempts count when they end, so adjoining spans add up exactly; those that run
/// now count in the span that includes now, with what they have used until now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// Attempts that ended at or after this moment, RFC 3339.
    pub from: String,
    /// And before this one.
    pub to: String,
    /// What it is added up by: `tenant`, `user` or `job`.
    pub by: String,
    /// One for each tenant, user or job.
    pub rows: Vec<Usage>,
    /// The sum of all rows.
    pub total: Usage,
    /// Whether attempts that run now are in it: the span includes now, and the server is the leader.
    #[serde(default)]
    pub includes_running: bool,
}

/// What one tenant, user or job used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// The tenant, user or job; `total` for the sum.
    pub key: String,
    /// Attempts that ended, and those that run.
    pub attempts: u64,
    /// Attempts that run.
    #[serde(default)]
    pub running_attempts: u64,
    /// The part of `gpu_ms` that is of attempts that run: it is not charged yet.
    #[serde(default)]
    pub running_gpu_ms: u64,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// The same, exactly, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// CPU-core-hours.
    pub cpu_hours: f64,
    /// GiB-hours of main memory.
    pub memory_gib_hours: f64,
    /// What it cost.
    pub cost: f64,
    /// The same, exactly, in millionths.
    pub cost_micro: u64,
    /// Kilowatt-hours, as if the GPUs had drawn all that their power limits allow.
    #[serde(default)]
    pub energy_kwh: f64,
}
