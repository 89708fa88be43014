//! Every error of the API, as `application/problem+json` (RFC 9457).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A name for this kind of problem, `urn:muster:problem:` and the code.
    #[serde(rename = "type")]
    #[schema(example = "urn:muster:problem:over-quota")]
    pub kind: String,
    /// The status in words.
    #[schema(example = "Forbidden")]
    pub title: String,
    /// The HTTP status.
    #[schema(example = 403)]
    pub status: u16,
    /// Stable across releases: scripts may rely on it.
    #[schema(example = "over-quota")]
    pub code: String,
    /// What happened, in a sentence for people.
    #[schema(example = "the job asks for 6 GPUs, tenant `vision` may hold 5 at most")]
    pub detail: String,
    /// The next thing to try, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "ask for at most 5 GPUs, or have the quota raised")]
    pub hint: Option<String>,
    /// The same as `detail`, under the name that older clients read.
    pub error: String,
}
