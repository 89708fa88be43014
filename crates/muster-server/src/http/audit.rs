//! The audit log: administrative acts, done and refused.

use axum::extract::State;
use muster_protocol::audit::{AuditEntry, AuditList};
use muster_store::queries::{PageOrder, PageRequest};
use muster_store::rows::AuditRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::http::query::{Query, page_limit, page_start};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AuditQuery {
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Rows to skip.
    offset: Option<u64>,
    /// Cursor: `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List administrative acts, newest first
#[utoipa::path(get, path = "/api/v1/audit", tag = "audit", params(AuditQuery),
    responses((status = 200, description = "One page of acts", body = AuditList)))]
pub async fn list(State(app): State<AppState>, Query(query): Query<AuditQuery>) -> Result<Json<AuditList>, ApiError> {
    let page = PageRequest {
        start: page_start(query.offset, query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
        order: PageOrder::NewestFirst,
    };
    let paged = app.read_tables(move |tables| Ok(tables.audit(&page)?)).await?;
    Ok(Json(AuditList {
        entries: paged.rows.into_iter().map(api_audit_entry).collect(),
        total: paged.total,
        next_cursor: paged.next.map(|seq| seq.to_string()),
    }))
}

fn api_audit_entry(row: AuditRow) -> AuditEntry {
    AuditEntry {
        seq: row.seq,
        at: rfc3339(row.at_ms),
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
