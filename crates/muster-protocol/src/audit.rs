//! The audit log: administrative acts, done and refused.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One administrative act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Number of its journal entry.
    pub seq: u64,
    /// Time of the act, RFC 3339; of the last one if `times` is above 1.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// Name of the actor.
    pub actor: String,
    /// Kind of the actor: `token`, or `local` for a caller of a server in local mode. Null for acts that an older
    /// server recorded.
    #[serde(default)]
    pub actor_kind: Option<String>,
    /// Kind of act.
    #[schema(example = "tenant.change")]
    pub action: String,
    /// Object of the act, for example a tenant or a job.
    pub object: String,
    /// True if the act was done, false if it was refused.
    pub allowed: bool,
    /// Refusal code, if the act was refused.
    pub refused: Option<String>,
    /// Number of times. Refusals of the same act by the same caller are counted in one entry per minute; `object` is
    /// that of the last one.
    #[serde(default = "times_of_older_servers")]
    pub times: u32,
}

/// An older server records each act by itself.
fn times_of_older_servers() -> u32 {
    1
}

/// One page of acts, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AuditList {
    /// The acts of this page.
    pub entries: Vec<AuditEntry>,
    /// Number of acts on all pages.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}
