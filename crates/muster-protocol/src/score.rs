//! Why a place was chosen.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What the place of an attempt cost when it was chosen; no other that was compared cost less.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Score {
    /// Each by name; those that cost nothing are left out.
    pub terms: Vec<Term>,
    /// How many kinds of free space were compared.
    pub compared: u32,
}

/// One term of a score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Term {
    /// `waste` (GPU that is going to be left over), `locality` (slow links between its GPUs), `health` (GPUs that are
    /// warm or have had errors), `learned`, `policy` or `power`.
    #[schema(example = "waste")]
    pub name: String,
    /// What it costs, in thousandths of a GPU; below 0 where something is gained.
    #[schema(example = 35)]
    pub milli: i64,
}
