//! Nodes that are booked for a time.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::written::{Moment, Span};

/// Nodes to book, for maintenance or for a tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WindowSpec {
    /// What to call it: 1 to 63 of a-z, A-Z, 0-9, `-`, `_`, `.`.
    pub name: String,
    /// Which nodes.
    pub nodes: Vec<String>,
    /// From when; now when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Moment>,
    /// Until when. Either this or `duration`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Moment>,
    /// How long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration: Option<Span>,
    /// For which tenant, with all below it; for nobody when not given, as maintenance needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Why, for those who wait.
    pub why: String,
}

/// Nodes that are booked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Window {
    /// What it is called.
    pub name: String,
    /// Which nodes.
    pub nodes: Vec<String>,
    /// From when, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// Until when, RFC 3339.
    pub until: String,
    /// The same in Unix milliseconds.
    pub until_ms: i64,
    /// For which tenant; absent is for nobody.
    pub tenant: Option<String>,
    /// Why.
    pub why: String,
    /// Who booked it.
    pub by: String,
    /// Whether it has begun.
    pub active: bool,
    /// Jobs that run on its nodes now and are not its own.
    pub jobs: Vec<String>,
}

/// Windows, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WindowList {
    /// The windows.
    pub windows: Vec<Window>,
}
