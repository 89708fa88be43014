//! Parts of devices.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a GPU, as one task has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Share {
    /// The GPU.
    #[schema(example = "gpu01/gpu-3")]
    pub gpu: String,
    /// How it is shared: `mig` (an instance of its own), `mps` (side by side, within limits) or `time-slice` (in turns).
    #[schema(example = "mps")]
    pub mode: String,
    /// Thousandths of its compute.
    #[schema(example = 500)]
    pub compute_milli: u32,
    /// What the task may use of its memory, in MiB.
    #[schema(example = 40779)]
    pub memory_mib: u64,
    /// What the instance is called, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "1g.18gb")]
    pub profile: Option<String>,
    /// Why it is shared in this way.
    #[schema(example = "the GPU is not partitioned and can keep each within limits")]
    pub why: String,
}

/// Who holds a GPU, or a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Holder {
    /// The job.
    pub job_id: String,
    /// Its attempt.
    pub allocation_id: String,
    /// Its tenant.
    pub tenant_id: String,
    /// `whole`, or how the GPU is shared: `mig`, `mps` or `time-slice`.
    #[schema(example = "mps")]
    pub mode: String,
    /// Thousandths of its compute.
    #[schema(example = 500)]
    pub compute_milli: u32,
    /// What it may use of its memory, in MiB.
    #[schema(example = 40779)]
    pub memory_mib: u64,
    /// What the instance is called, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}
