//! Errors of the API, as `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Error answer of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// URN of this kind of problem: `urn:muster:problem:` and the code.
    #[serde(rename = "type")]
    #[schema(example = "urn:muster:problem:over-quota")]
    pub kind: String,
    /// Name of the HTTP status.
    #[schema(example = "Forbidden")]
    pub title: String,
    /// HTTP status.
    #[schema(example = 403)]
    pub status: u16,
    /// Problem code, stable across releases.
    #[schema(example = "over-quota")]
    pub code: String,
    /// Description in a sentence.
    #[schema(example = "the job requests 6 GPUs; the quota of tenant `vision` is 5")]
    pub detail: String,
    /// What the caller can do next, if there is a suggestion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "request at most 5 GPUs, or ask an admin to raise the quota")]
    pub hint: Option<String>,
    /// The same as `detail`, for older clients.
    pub error: String,
}
