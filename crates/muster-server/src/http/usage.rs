//! Who used what, in a span of time: what ended attempts were charged, and what running ones have accrued.

use std::collections::BTreeMap;

use axum::extract::State;
use muster_core::ledger::Charge;
use muster_core::time::HOUR;
use muster_core::{Job, JobId, State as Core, Timestamp};
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
/// Attempts count when they end, so adjoining spans add up exactly. Attempts that run now count in a span that includes
/// now, with what they have used until now.
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
    // A standby does not know what runs.
    let running = match (from_ms..to_ms).contains(&now_ms) {
        true => door.state(|state| accrued(state, &span, by, now_ms)).ok(),
        false => None,
    };
    let includes_running = running.is_some();
    let ended = door.tables(move |tables| Ok(tables.usage(&span, by)?)).await?;
    let rows = merged(ended, running.unwrap_or_default(), by);
    let total = rows.iter().fold(Row::default(), |mut total, row| {
        total.add(row);
        total
    });
    Ok(Json(UsageReport {
        from: stamp(from_ms),
        to: stamp(to_ms),
        by: word.to_string(),
        rows: rows.into_iter().map(Row::shown).collect(),
        total: Row { key: "total".to_string(), ..total }.shown(),
        includes_running,
    }))
}

/// What the live attempts have used until now, by key.
fn accrued(state: &Core, span: &UsageSpan, by: UsageBy, now_ms: i64) -> Vec<Row> {
    let now = Timestamp(now_ms).max(state.clock);
    let seen = |job: &&Job| {
        span.tenants.as_ref().is_none_or(|tenants| tenants.iter().any(|one| one == job.spec.tenant.as_str()))
    };
    let row = |job: &Job| {
        let charge = state.accrued(job, now)?;
        let key = match by {
            UsageBy::Tenant => job.spec.tenant.to_string(),
            UsageBy::User => job.spec.user.clone(),
            UsageBy::Job => job.id.to_string(),
        };
        Some(Row { key, attempts: 1, running_attempts: 1, charge, running_gpu_ms: charge.gpu_ms })
    };
    state.jobs.values().filter(seen).filter_map(row).collect()
}

/// One row for each key, in the order of the keys.
fn merged(ended: Vec<UsageRow>, running: Vec<Row>, by: UsageBy) -> Vec<Row> {
    // The ids of jobs are in the order of their numbers, not of their letters.
    let place = |key: &str| (key.parse::<JobId>().ok().filter(|_| by == UsageBy::Job), key.to_string());
    let mut rows: BTreeMap<(Option<JobId>, String), Row> = BTreeMap::new();
    for row in ended.into_iter().map(Row::from).chain(running) {
        let sum =
            rows.entry(place(&row.key)).or_insert_with(|| Row { key: row.key.clone(), ..Row::default() });
        sum.add(&row);
    }
    rows.into_values().collect()
}

/// Sums of one key.
#[derive(Debug, Clone, Default)]
struct Row {
    key: String,
    attempts: u64,
    running_attempts: u64,
    charge: Charge,
    running_gpu_ms: u64,
}

impl From<UsageRow> for Row {
    fn from(row: UsageRow) -> Row {
        let UsageRow { key, attempts, gpu_ms, cpu_ms, memory_gib_ms, cost_micro, energy_mj } = row;
        let charge = Charge { gpu_ms, cpu_ms, memory_gib_ms, cost_micro, energy_mj };
        Row { key, attempts, charge, ..Row::default() }
    }
}

impl Row {
    fn add(&mut self, row: &Row) {
        self.attempts += row.attempts;
        self.running_attempts += row.running_attempts;
        self.running_gpu_ms += row.running_gpu_ms;
        self.charge += row.charge;
    }

    fn shown(self) -> Usage {
        Usage {
            key: self.key,
            attempts: self.attempts,
            running_attempts: self.running_attempts,
            running_gpu_ms: self.running_gpu_ms,
            gpu_hours: hours(self.charge.gpu_ms),
            gpu_ms: self.charge.gpu_ms,
            cpu_hours: hours(self.charge.cpu_ms),
            memory_gib_hours: hours(self.charge.memory_gib_ms),
            cost: money(self.charge.cost_micro),
            cost_micro: self.charge.cost_micro,
            energy_kwh: kwh(self.charge.energy_mj),
        }
    }
}

fn by_of(text: &str) -> Result<(UsageBy, &'static str), Fault> {
    match text {
        "tenant" => Ok((UsageBy::Tenant, "tenant")),
        "user" => Ok((UsageBy::User, "user")),
        "job" => Ok((UsageBy::Job, "job")),
        _ => Err(Fault::invalid("by", format!("`{text}` is none of tenant, user, job"))),
    }
}
