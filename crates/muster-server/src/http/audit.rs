//! Administrative acts, done and refused.

use axum::extract::State;
use muster_protocol::audit::{AuditEntry, AuditList};
use muster_store::queries::{Order, Page};
use muster_store::rows::AuditRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::{Query, page_limit, page_start};
use crate::http::written::stamp;

/// Which page.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Begin after so many rows.
    offset: Option<u64>,
    /// Begin after the page before: its `next_cursor`.
    cursor: Option<String>,
}

/// List administrative acts, newest first
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "One page of acts", body = AuditList)))]
pub async fn list(
    State(door): State<Door>,
    Query(query): Query<AuditQuery>,
) -> Result<Json<AuditList>, Fault> {
    let page = Page {
        start: page_start(query.offset, query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
        order: Order::Newest,
    };
    let paged = door.tables(move |tables| Ok(tables.audit(&page)?)).await?;
    Ok(Json(AuditList {
        entries: paged.rows.into_iter().map(shown).collect(),
        total: paged.total,
        next_cursor: paged.next.map(|seq| seq.to_string()),
    }))
}

fn shown(row: AuditRow) -> AuditEntry {
    AuditEntry {
        seq: row.seq,
        at: stamp(row.at_ms),
        at_ms: row.at_ms,
        actor: row.actor,
        actor_kind: row.actor_kind,
        action: row.act,
        object: row.object,
        allowed: row.refused.is_none(),
        refused: row.refused,
        times: row.times,
    }
}
