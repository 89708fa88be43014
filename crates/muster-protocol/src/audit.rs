//! Administrative acts, done and refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Number of its journal entry.
    pub seq: u64,
    /// When, RFC 3339; of several the last.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// Name of the actor.
    pub actor: String,
    /// Kind of the actor: `token`, or `local` for the person at the machine of a server in local mode. Null for acts that
    /// an older server recorded.
    #[serde(default)]
    pub actor_kind: Option<String>,
    /// What.
    #[schema(example = "tenant.change")]
    pub action: String,
    /// On what.
    pub object: String,
    /// It was done.
    pub allowed: bool,
    /// The code of the refusal, if it was refused.
    pub refused: Option<String>,
    /// How often. Refusals of the same act by the same caller are counted together, in one entry a minute; `object` is
    /// that of the last.
    #[serde(default = "once")]
    pub times: u32,
}

/// An older server counts nothing together.
fn once() -> u32 {
    1
}

/// One page of acts, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The acts of this page.
    pub entries: Vec<AuditEntry>,
    /// How many there are on all pages together.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}
