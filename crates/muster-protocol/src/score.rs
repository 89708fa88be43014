//! Placement score by term.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Score of a placement when it was chosen: its cost by term. No compared alternative had a lower sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Score {
    /// Terms of the sum; terms with cost 0 are omitted.
    pub terms: Vec<ScoreTerm>,
    /// Number of compared alternatives: classes of nodes of the same kind with the same free resources.
    pub compared: u32,
}

/// One term of a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScoreTerm {
    /// `fragmentation` (GPU capacity that the workload mix can no longer use), `locality` (slow links between its
    /// GPUs), `health` (GPUs with a warning or degraded health) or `policy` (the cost that policies add).
    #[schema(example = "fragmentation")]
    pub name: String,
    /// Cost in thousandths of a GPU; negative for a gain.
    #[schema(example = 35)]
    pub milli: i64,
}
