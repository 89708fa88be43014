//! What happened, as people and dashboards follow it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One fact of the journal. Secrets are left out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Its number; also the `id` of the server-sent event.
    pub seq: u64,
    /// Under which leadership.
    pub epoch: u64,
    /// When, RFC 3339.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// What kind of fact, also the `event` of the server-sent event.
    #[schema(example = "JobPlaced")]
    pub kind: String,
    /// The job it is about, if it is about one.
    pub job_id: Option<String>,
    /// All of it.
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

/// Facts, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The facts.
    pub events: Vec<Event>,
    /// Send it as `after` to go on; the same as before when there was nothing new.
    pub next_after: u64,
}

/// A listener was too slow and has missed facts: connect again, they are read from the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lagged {
    /// The last number that was sent.
    pub after: u64,
    /// A sentence for people.
    pub message: String,
}
