//! Events of the journal, for event streams and dashboards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One event of the journal. Secrets are removed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Sequence number; also the `id` of the server-sent event.
    pub seq: u64,
    /// Epoch of the leader that recorded it.
    pub epoch: u64,
    /// Time of the event, RFC 3339.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// Kind of event; also the `event` of the server-sent event.
    #[schema(example = "JobPlaced")]
    pub kind: String,
    /// Job of the event, if it concerns one.
    pub job_id: Option<String>,
    /// All fields of the event.
    #[schema(value_type = Object)]
    pub data: serde_json::Value,
}

/// Events, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct EventList {
    /// The events.
    pub events: Vec<Event>,
    /// Send it as `after` for the next events; unchanged if there were none.
    pub next_after: u64,
}

/// The client was too slow and has missed events. It must reconnect; the missed events are then read from the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lagged {
    /// Sequence number of the last event that was sent.
    pub after: u64,
    /// Message for display.
    pub message: String,
}
