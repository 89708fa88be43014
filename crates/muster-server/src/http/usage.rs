//! Usage per tenant, user or job over a period: charges of ended attempts, and what running attempts have accrued.

use std::collections::BTreeMap;

use axum::extract::State;
use muster_core::objects::charge::Charge;
use muster_core::objects::job::Job;
use muster_core::time::HOUR;
use muster_core::{JobId, State as Core, Timestamp};
use muster_protocol::usage::{Usage, UsageReport};
use muster_store::queries::{UsageFilter, UsageGrouping};
use muster_store::rows::UsageRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::{micro_to_money, mj_to_kwh, ms_to_hours, parse_timestamp_text, rfc3339};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::json::Json;
use crate::http::query::Query;
use crate::identity::Caller;

/// The period without `from`: thirty days.
const DEFAULT_PERIOD_MS: i64 = 30 * 24 * HOUR;

/// Which usage, and how it is grouped.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Attempts that ended at or after this time, RFC 3339 or Unix milliseconds; thirty days before `to` when not
    /// given.
    from: Option<String>,
    /// Attempts that ended before this time; now when not given.
    to: Option<String>,
    /// Group by `tenant`, `user` or `job`; `tenant` when not given.
    by: Option<String>,
    /// Of this tenant only.
    tenant_id: Option<String>,
}

/// Usage per tenant, user or job over a period
///
/// An attempt counts when it ends, so adjacent periods add up exactly. Running attempts count in a period that includes
/// now, with what they have used so far.
#[utoipa::path(get, path = "/api/v1/usage", tag = "usage", params(UsageQuery),
    responses((status = 200, description = "The sums", body = UsageReport)))]
pub async fn report(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageReport>, ApiError> {
    let now_ms = app.cluster.now().0;
    let to_ms =
        query.to.as_deref().map(|text| parse_timestamp_text("to", text)).transpose()?.map_or(now_ms + 1, |to| to.0);
    let from_ms = query.from.as_deref().map(|text| parse_timestamp_text("from", text)).transpose()?;
    let from_ms = from_ms.map_or(to_ms.saturating_sub(DEFAULT_PERIOD_MS), |from| from.0);
    if from_ms > to_ms {
        return Err(ApiError::invalid("from", "must not be after `to`"));
    }
    let (by, by_name) = parse_grouping(query.by.as_deref().unwrap_or("tenant"))?;
    let filter = UsageFilter { from_ms, to_ms, tenants: caller.tenant_filter(query.tenant_id.as_deref()) };
    // A standby does not know the running attempts.
    let running = match (from_ms..to_ms).contains(&now_ms) {
        true => app.read_state(|state| running_usage(state, &filter, by, now_ms)).ok(),
        false => None,
    };
    let includes_running = running.is_some();
    let ended = app.read_tables(move |tables| Ok(tables.usage(&filter, by)?)).await?;
    let rows = merge_by_key(ended, running.unwrap_or_default(), by);
    let total = rows.iter().fold(UsageSum::default(), |mut total, row| {
        total.add(row);
        total
    });
    Ok(Json(UsageReport {
        from: rfc3339(from_ms),
        to: rfc3339(to_ms),
        by: by_name.to_string(),
        rows: rows.into_iter().map(UsageSum::into_api).collect(),
        total: UsageSum { key: "total".to_string(), ..total }.into_api(),
        includes_running,
    }))
}

/// What live attempts have used until now, by key.
fn running_usage(state: &Core, filter: &UsageFilter, by: UsageGrouping, now_ms: i64) -> Vec<UsageSum> {
    let now = Timestamp(now_ms).max(state.clock);
    let seen = |job: &&Job| {
        filter.tenants.as_ref().is_none_or(|tenants| tenants.iter().any(|tenant| tenant == job.spec.tenant.as_str()))
    };
    let row = |job: &Job| {
        let charge = state.accrued(job, now)?;
        let key = match by {
            UsageGrouping::Tenant => job.spec.tenant.to_string(),
            UsageGrouping::User => job.spec.user.clone(),
            UsageGrouping::Job => job.id.to_string(),
        };
        Some(UsageSum { key, attempts: 1, running_attempts: 1, charge, running_gpu_ms: charge.gpu_ms })
    };
    state.jobs.values().filter(seen).filter_map(row).collect()
}

/// One row for each key, in the order of the keys.
fn merge_by_key(ended: Vec<UsageRow>, running: Vec<UsageSum>, by: UsageGrouping) -> Vec<UsageSum> {
    // Job ids are sorted by number, not as text.
    let sort_key = |key: &str| (key.parse::<JobId>().ok().filter(|_| by == UsageGrouping::Job), key.to_string());
    let mut rows: BTreeMap<(Option<JobId>, String), UsageSum> = BTreeMap::new();
    for row in ended.into_iter().map(UsageSum::from).chain(running) {
        let sum =
            rows.entry(sort_key(&row.key)).or_insert_with(|| UsageSum { key: row.key.clone(), ..UsageSum::default() });
        sum.add(&row);
    }
    rows.into_values().collect()
}

/// The usage of one key.
#[derive(Debug, Clone, Default)]
struct UsageSum {
    key: String,
    attempts: u64,
    running_attempts: u64,
    charge: Charge,
    running_gpu_ms: u64,
}

impl From<UsageRow> for UsageSum {
    fn from(row: UsageRow) -> UsageSum {
        let UsageRow { key, attempts, gpu_ms, cpu_ms, memory_gib_ms, cost_micro, energy_mj } = row;
        let charge = Charge { gpu_ms, cpu_ms, memory_gib_ms, cost_micro, energy_mj };
        UsageSum { key, attempts, charge, ..UsageSum::default() }
    }
}

impl UsageSum {
    fn add(&mut self, row: &UsageSum) {
        self.attempts += row.attempts;
        self.running_attempts += row.running_attempts;
        self.running_gpu_ms += row.running_gpu_ms;
        self.charge += row.charge;
    }

    fn into_api(self) -> Usage {
        Usage {
            key: self.key,
            attempts: self.attempts,
            running_attempts: self.running_attempts,
            running_gpu_ms: self.running_gpu_ms,
            gpu_hours: ms_to_hours(self.charge.gpu_ms),
            gpu_ms: self.charge.gpu_ms,
            cpu_hours: ms_to_hours(self.charge.cpu_ms),
            memory_gib_hours: ms_to_hours(self.charge.memory_gib_ms),
            cost: micro_to_money(self.charge.cost_micro),
            cost_micro: self.charge.cost_micro,
            energy_kwh: mj_to_kwh(self.charge.energy_mj),
        }
    }
}

fn parse_grouping(text: &str) -> Result<(UsageGrouping, &'static str), ApiError> {
    match text {
        "tenant" => Ok((UsageGrouping::Tenant, "tenant")),
        "user" => Ok((UsageGrouping::User, "user")),
        "job" => Ok((UsageGrouping::Job, "job")),
        _ => Err(ApiError::invalid("by", format!("`{text}` is none of tenant, user, job"))),
    }
}
