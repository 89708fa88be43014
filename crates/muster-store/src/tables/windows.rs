//! Rows of windows: nodes booked for a time, for maintenance or for one tenant.

use muster_core::Timestamp;
use muster_core::objects::window::Window;

use super::{BoundStatement, ExpectedRows, Statement};

static OPEN_WINDOW: Statement = Statement {
    name: "open a window",
    sql: "INSERT INTO windows (seq, name, nodes, from_ms, until_ms, tenant, why, booked_by, opened_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static CLOSE_WINDOW: Statement = Statement {
    name: "close a window",
    sql: "UPDATE windows SET closed_at = ?2, closed_why = ?3 WHERE name = ?1 AND closed_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn opened(seq: u64, window: &Window, at: Timestamp) -> Vec<BoundStatement> {
    let nodes: Vec<String> = window.nodes.iter().map(ToString::to_string).collect();
    vec![OPEN_WINDOW.bind(vec![
        seq.into(),
        window.name.as_str().into(),
        muster_json::to_string(&nodes).into(),
        window.from.into(),
        window.until.into(),
        window.tenant.as_ref().map(ToString::to_string).into(),
        window.why.as_str().into(),
        window.by.as_str().into(),
        at.into(),
    ])]
}

/// The window has ended, or was closed before its end.
pub fn closed(name: &str, why: &str, at: Timestamp) -> Vec<BoundStatement> {
    vec![CLOSE_WINDOW.bind(vec![name.into(), at.into(), why.into()])]
}
