//! GPU shares and the jobs that hold them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Share of a GPU that one task holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// Id of the GPU.
    #[schema(example = "gpu01/gpu-3")]
    pub gpu: String,
    /// Sharing mode: `mig` (a MIG instance), `mps` (concurrent, with limits) or `time-slice` (in turns).
    #[schema(example = "mps")]
    pub mode: String,
    /// Compute share in thousandths.
    #[schema(example = 500)]
    pub compute_milli: u32,
    /// GPU memory that the task may use, in MiB.
    #[schema(example = 40779)]
    pub memory_mib: u64,
    /// MIG profile, if the share is a MIG instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1g.18gb")]
    pub profile: Option<String>,
    /// Why this sharing mode was chosen.
    #[schema(example = "the GPU is not partitioned: MPS enforces the limits")]
    pub why: String,
}

/// A job that holds a GPU or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// Job id.
    pub job_id: String,
    /// Allocation id of its attempt.
    pub allocation_id: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// `whole`, or the sharing mode: `mig`, `mps` or `time-slice`.
    #[schema(example = "mps")]
    pub mode: String,
    /// Compute share in thousandths.
    #[schema(example = 500)]
    pub compute_milli: u32,
    /// GPU memory that the job may use, in MiB.
    #[schema(example = 40779)]
    pub memory_mib: u64,
    /// MIG profile, if the share is a MIG instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}
