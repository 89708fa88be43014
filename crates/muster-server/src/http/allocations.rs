//! Allocations: the resources that attempts hold or held. Deleting one requeues its job.

use std::fmt;
use std::str::FromStr;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::accounting::ledger;
use muster_core::objects::charge::HeldResources;
use muster_core::{Command, JobId, Refusal};
use muster_protocol::allocation::{Allocation, AllocationList};
use muster_protocol::score::Score;
use muster_protocol::submit::Acknowledgement;
use muster_store::queries::{AllocationFilter, PageOrder, PageRequest};
use muster_store::rows::AllocationRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::conversions::{human_duration, micro_to_money, ms_to_hours, rfc3339};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::jobs::control_job;
use crate::http::json::Json;
use crate::http::query::{PathId, PathParam, Query, page_limit, page_start};
use crate::http::render::parse_stop_cause;
use crate::http::{gpu_share, render};
use crate::identity::Caller;

/// One attempt of a job, `job-42:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptId {
    job: JobId,
    attempt: u32,
}

/// Text that is not an attempt id.
#[derive(Debug)]
pub struct ParseAttemptIdError(String);

impl fmt::Display for ParseAttemptIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an allocation; write `job-42:1`", self.0)
    }
}

impl FromStr for AttemptId {
    type Err = ParseAttemptIdError;

    fn from_str(text: &str) -> Result<AttemptId, ParseAttemptIdError> {
        let read = || {
            let (job, attempt) = text.split_once(':')?;
            Some(AttemptId { job: job.parse().ok()?, attempt: attempt.parse().ok()? })
        };
        read().ok_or_else(|| ParseAttemptIdError(text.to_string()))
    }
}

impl PathParam for AttemptId {
    const UNKNOWN_CODE: &'static str = "unknown-allocation";
}

impl AttemptId {
    fn not_found(self) -> ApiError {
        let detail = format!("unknown allocation `{}:{}`", self.job, self.attempt);
        ApiError::new(StatusCode::NOT_FOUND, AttemptId::UNKNOWN_CODE, detail)
    }
}

/// Which allocations to list. All conditions must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct AllocationQuery {
    /// Of this tenant.
    tenant_id: Option<String>,
    /// Of this job.
    job: Option<String>,
    /// On this node.
    node: Option<String>,
    /// Only allocations that have not ended.
    active: Option<bool>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Rows to skip.
    offset: Option<u64>,
    /// Cursor: `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List allocations, newest first
#[utoipa::path(get, path = "/api/v1/allocations", tag = "allocations", params(AllocationQuery),
    responses((status = 200, description = "One page of allocations", body = AllocationList)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<AllocationQuery>,
) -> Result<Json<AllocationList>, ApiError> {
    let job = query.job.as_deref().map(|text| text.parse::<JobId>());
    let filter = AllocationFilter {
        tenants: caller.tenant_filter(query.tenant_id.as_deref()),
        job: job.transpose().map_err(|error| ApiError::invalid("job", error.to_string()))?,
        node: query.node,
        live_only: query.active.unwrap_or(false),
    };
    let page = PageRequest {
        start: page_start(query.offset, query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
        order: PageOrder::NewestFirst,
    };
    let paged = app.read_tables(move |tables| Ok(tables.allocations(&filter, &page)?)).await?;
    Ok(Json(AllocationList {
        allocations: paged.rows.into_iter().map(|row| api_allocation(&app, row)).collect(),
        total: paged.total,
        next_cursor: paged.next.map(|seq| seq.to_string()),
    }))
}

/// Get one allocation
#[utoipa::path(get, path = "/api/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "Job and attempt, `job-42:1`")),
    responses((status = 200, description = "The allocation", body = Allocation)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<AttemptId>,
) -> Result<Json<Allocation>, ApiError> {
    let row = find_allocation(&app, &caller, id).await?;
    Ok(Json(api_allocation(&app, row)))
}

async fn find_allocation(app: &AppState, caller: &Caller, id: AttemptId) -> Result<AllocationRow, ApiError> {
    let filter = AllocationFilter { job: Some(id.job), ..AllocationFilter::default() };
    let rows = app.read_tables(move |tables| Ok(tables.allocations(&filter, &PageRequest::first(1_000))?.rows)).await?;
    let mut seen = rows.into_iter().filter(|row| caller.sees_tenant(&row.attempt.tenant));
    seen.find(|row| row.attempt.attempt == id.attempt).ok_or_else(|| id.not_found())
}

/// Stop an attempt and queue its job again
#[utoipa::path(delete, path = "/api/v1/allocations/{id}", tag = "allocations", operation_id = "give_up",
    params(("id" = String, Path, description = "Job and attempt, `job-42:1`")),
    responses((status = 200, description = "Stopping; its job queues again", body = Acknowledgement)))]
pub async fn requeue_job(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<AttemptId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let row = find_allocation(&app, &caller, id).await?;
    if row.attempt.ended_at.is_some() {
        let ended = Refusal::WrongPhase { job: id.job, phase: "past that attempt", verb: "this", needs: "running" };
        return Err(ended.into());
    }
    control_job(&app, caller, id.job, Command::RequeueJob { job: id.job }, "is requeued").await
}

/// The state of an allocation: the names of the specification, and `requeued` and `cancelled`.
fn allocation_state(attempt_state: &str) -> &'static str {
    match attempt_state {
        "Starting" => "pending",
        "Running" | "Stopping" => "active",
        "Preempted" => "preempted",
        "Requeued" | "Held" => "requeued",
        "Done" => "completed",
        "Cancelled" => "cancelled",
        _ => "failed",
    }
}

fn api_allocation(app: &AppState, row: AllocationRow) -> Allocation {
    let AllocationRow { attempt, leases } = row;
    let until = attempt.charged_until.or(attempt.ended_at).unwrap_or_else(|| app.cluster.now().0);
    let held_ms = (until - attempt.placed_at).max(0);
    let cause = attempt.stop_cause.as_deref().map(parse_stop_cause);
    let preempted_by = cause.filter(|(cause, _)| cause == "preempted").and_then(|(_, by)| by);
    let live = live_attempt(app, attempt.job).filter(|_| attempt.ended_at.is_none());
    Allocation {
        id: format!("{}:{}", attempt.job, attempt.attempt),
        job_id: attempt.job.to_string(),
        attempt: attempt.attempt,
        tenant_id: attempt.tenant,
        state: allocation_state(&attempt.state).to_string(),
        phase: attempt.state,
        gpu_ids: gpu_share::leased_gpus(&leases),
        shares: gpu_share::leased_shares(&leases),
        node_id: attempt.nodes.first().cloned(),
        nodes: attempt.nodes,
        score: live.as_ref().and_then(|live| live.score.clone()),
        cpu_cores: live.as_ref().map(|live| live.held.cpus).or(attempt.cpus),
        memory_mb: live.as_ref().map(|live| live.held.memory_mib).or(attempt.memory_mib),
        allocated_at: rfc3339(attempt.placed_at),
        allocated_at_ms: attempt.placed_at,
        started_at: attempt.started_at.map(rfc3339),
        completed_at: attempt.ended_at.map(rfc3339),
        completed_at_ms: attempt.ended_at,
        planned_duration: live
            .as_ref()
            .and_then(|live| live.held.planned_ms)
            .or(attempt.planned_ms)
            .map(human_duration),
        actual_duration: human_duration(held_ms),
        actual_duration_ms: held_ms,
        preempted_at: preempted_by.as_ref().and(attempt.stopping_at).map(rfc3339),
        preemption_reason: preempted_by.as_ref().map(|by| format!("preempted by {by}")),
        preempted_by,
        exit: attempt.exit,
        exit_code: attempt.exit_code,
        message: attempt.why,
        gpu_hours: ms_to_hours(attempt.gpu_ms),
        cost_per_hour: live
            .map(|live| live.held.cost_per_hour_micro)
            .or(attempt.cost_per_hour_micro)
            .map(micro_to_money),
        total_cost: micro_to_money(attempt.cost_micro),
    }
}

/// Fields of a live attempt that only the state has.
struct LiveAttempt {
    held: HeldResources,
    score: Option<Score>,
}

fn live_attempt(app: &AppState, job: JobId) -> Option<LiveAttempt> {
    let found = app.read_state(|state| {
        let job = state.jobs.get(&job)?;
        let tenant = &state.tenants.get(&job.spec.tenant)?.config;
        Some(LiveAttempt { held: ledger::held(&job.spec, job.attempt()?, tenant), score: render::attempt_score(job) })
    });
    found.ok().flatten()
}
