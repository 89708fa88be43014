//! Windows: nodes booked for a time, for maintenance or for one tenant.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::input::{Moment, Span};

/// A new window.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WindowSpec {
    /// Name: 1 to 63 characters of a-z, A-Z, 0-9, `-`, `_`, `.`.
    pub name: String,
    /// Booked nodes.
    pub nodes: Vec<String>,
    /// Start. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Moment>,
    /// End; either this or `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// Length; either this or `until`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// Tenant that may use the nodes, with its descendants; without a tenant the window is for maintenance, and no job
    /// runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Reason, shown to the users of waiting jobs.
    pub why: String,
}

/// A window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// Name.
    pub name: String,
    /// Booked nodes.
    pub nodes: Vec<String>,
    /// Start, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// End, RFC 3339.
    pub until: String,
    /// The same in Unix milliseconds.
    pub until_ms: i64,
    /// Tenant that may use the nodes; absent for maintenance.
    pub tenant: Option<String>,
    /// Reason.
    pub why: String,
    /// Actor that booked it.
    pub by: String,
    /// True if it has begun.
    pub active: bool,
    /// Jobs that run on its nodes now and may not use the window.
    pub jobs: Vec<String>,
}

/// Windows, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowList {
    /// The windows.
    pub windows: Vec<Window>,
}
