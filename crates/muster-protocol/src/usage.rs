//! Usage reports by tenant, user or job.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Usage in a time span. An attempt counts at its end, so adjacent time spans add up exactly. Running attempts count in
/// the time span that includes the current time, with their usage until now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct UsageReport {
    /// Start of the time span, RFC 3339: attempts that ended at or after this time.
    pub from: String,
    /// End of the time span, RFC 3339: attempts that ended before this time.
    pub to: String,
    /// Key of the sums: `tenant`, `user` or `job`.
    pub by: String,
    /// One row per tenant, user or job.
    pub rows: Vec<Usage>,
    /// Sum of all rows.
    pub total: Usage,
    /// True if running attempts are included: the time span includes the current time, and the server is the leader.
    #[serde(default)]
    pub includes_running: bool,
}

/// Usage of one tenant, user or job.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Tenant, user or job; `total` for the sum.
    pub key: String,
    /// Number of attempts that ended or run.
    pub attempts: u64,
    /// Number of running attempts.
    #[serde(default)]
    pub running_attempts: u64,
    /// Part of `gpu_ms` that belongs to running attempts and is not charged yet.
    #[serde(default)]
    pub running_gpu_ms: u64,
    /// GPU-hours.
    pub gpu_hours: f64,
    /// Exact value of `gpu_hours`, in GPU-milliseconds.
    pub gpu_ms: u64,
    /// CPU-core-hours.
    pub cpu_hours: f64,
    /// GiB-hours of main memory.
    pub memory_gib_hours: f64,
    /// Cost.
    pub cost: f64,
    /// Exact value of `cost`, in millionths.
    pub cost_micro: u64,
    /// Kilowatt-hours, counted at the power limits of the GPUs.
    #[serde(default)]
    pub energy_kwh: f64,
}
