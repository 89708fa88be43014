//! Who used what, in a span of time.

use axum::extract::State;
use muster_core::time::HOUR;
use muster_protocol::usage::{Usage, UsageReport};
use muster_store::queries::{UsageBy, UsageSpan};
use muster_store::rows::UsageRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::query::Query;
use crate::http::who::Reach;
use crate::http::written::{hours, kwh, moment_text, money, stamp};
use crate::identity::Who;

/// The span when nothing is said: thirty days.
const SPAN_MS: i64 = 30 * 24 * HOUR;

/// Which usage, and what it is added up by.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Attempts that ended at or after this moment, RFC 3339 or Unix milliseconds; thirty days ago when not given.
    from: Option<String>,
    /// And before this one; now when not given.
    to: Option<String>,
    /// `tenant`, `user` or `job`; `tenant` when not given.
    by: Option<String>,
    /// Of this tenant only.
    tenant_id: Option<String>,
}

/// What was used
///
/// Attempts count when they end, so adjoining spans add up exactly.
#[utoipa::path(get, path = "/api/v1/usage", tag = "usage", params(UsageQuery),
    responses((status = 200, description = "The sums", body = UsageReport)))]
pub async fn report(
    State(door): State<Door>,
    who: Who,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageReport>, Fault> {
    let now_ms = door.cluster.now().0;
    let to_ms =
        query.to.as_deref().map(|text| moment_text("to", text)).transpose()?.map_or(now_ms + 1, |to| to.0);
    let from_ms = query.from.as_deref().map(|text| moment_text("from", text)).transpose()?;
    let from_ms = from_ms.map_or(to_ms.saturating_sub(SPAN_MS), |from| from.0);
    if from_ms > to_ms {
        return Err(Fault::invalid("from", "must not be after `to`"));
    }
    let (by, word) = by_of(query.by.as_deref().unwrap_or("tenant"))?;
    let span = UsageSpan { from_ms, to_ms, tenants: who.tenants(query.tenant_id.as_deref()) };
    let rows = door.tables(move |tables| Ok(tables.usage(&span, by)?)).await?;
    let total = rows.iter().fold(nothing(), add);
    Ok(Json(UsageReport {
        from: stamp(from_ms),
        to: stamp(to_ms),
        by: word.to_string(),
        rows: rows.into_iter().map(shown).collect(),
        total: shown(total),
    }))
}

fn by_of(text: &str) -> Result<(UsageBy, &'static str), Fault> {
    match text {
        "tenant" => Ok((UsageBy::Tenant, "tenant")),
        "user" => Ok((UsageBy::User, "user")),
        "job" => Ok((UsageBy::Job, "job")),
        _ => Err(Fault::invalid("by", format!("`{text}` is none of tenant, user, job"))),
    }
}

fn nothing() -> UsageRow {
    UsageRow {
        key: "total".to_string(),
        attempts: 0,
        gpu_ms: 0,
        cpu_ms: 0,
        memory_gib_ms: 0,
        cost_micro: 0,
        energy_mj: 0,
    }
}

fn add(sum: UsageRow, row: &UsageRow) -> UsageRow {
    UsageRow {
        key: sum.key,
        attempts: sum.attempts + row.attempts,
        gpu_ms: sum.gpu_ms + row.gpu_ms,
        cpu_ms: sum.cpu_ms + row.cpu_ms,
        memory_gib_ms: sum.memory_gib_ms + row.memory_gib_ms,
        cost_micro: sum.cost_micro + row.cost_micro,
        energy_mj: sum.energy_mj + row.energy_mj,
    }
}

fn shown(row: UsageRow) -> Usage {
    Usage {
        key: row.key,
        attempts: row.attempts,
        gpu_hours: hours(row.gpu_ms),
        gpu_ms: row.gpu_ms,
        cpu_hours: hours(row.cpu_ms),
        memory_gib_hours: hours(row.memory_gib_ms),
        cost: money(row.cost_micro),
        cost_micro: row.cost_micro,
        energy_kwh: kwh(row.energy_mj),
    }
}
