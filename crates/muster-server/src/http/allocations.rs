//! Allocations: what attempts hold or held. Read-only; giving one up puts its job back into the queue.

use std::fmt;
use std::str::FromStr;

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::event::Held;
use muster_core::{Command, JobId, Refusal, ledger};
use muster_protocol::allocation::{Allocation, AllocationList};
use muster_protocol::score::Score;
use muster_protocol::submit::Done;
use muster_store::queries::{AllocationFilter, Order, Page};
use muster_store::rows::AllocationRow;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::jobs::steer;
use crate::http::json::Json;
use crate::http::query::{Id, Named, Query, page_limit, page_start};
use crate::http::show::stop_cause;
use crate::http::who::Reach;
use crate::http::written::{hours, humane, money, stamp};
use crate::http::{share, show};
use crate::identity::Who;

/// One attempt of a job, `job-42:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptId {
    job: JobId,
    attempt: u32,
}

/// A text that names no attempt.
#[derive(Debug)]
pub struct NotAnAttempt(String);

impl fmt::Display for NotAnAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not an allocation; write `job-42:1`", self.0)
    }
}

impl FromStr for AttemptId {
    type Err = NotAnAttempt;

    fn from_str(text: &str) -> Result<AttemptId, NotAnAttempt> {
        let read = || {
            let (job, attempt) = text.split_once(':')?;
            Some(AttemptId { job: job.parse().ok()?, attempt: attempt.parse().ok()? })
        };
        read().ok_or_else(|| NotAnAttempt(text.to_string()))
    }
}

impl Named for AttemptId {
    const UNKNOWN: &'static str = "unknown-allocation";
}

impl AttemptId {
    fn unknown(self) -> Fault {
        let detail = format!("there is no allocation `{}:{}`", self.job, self.attempt);
        Fault::new(StatusCode::NOT_FOUND, AttemptId::UNKNOWN, detail)
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
    /// Only those that have not ended.
    active: Option<bool>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Begin after so many rows.
    offset: Option<u64>,
    /// Begin after the page before: its `next_cursor`.
    cursor: Option<String>,
}

/// List allocations, newest first
#[utoipa::path(get, path = "/api/v1/allocations", tag = "allocations", params(AllocationQuery),
    responses((status = 200, description = "One page of allocations", body = AllocationList)))]
pub async fn list(
    State(door): State<Door>,
    who: Who,
    Query(query): Query<AllocationQuery>,
) -> Result<Json<AllocationList>, Fault> {
    let job = query.job.as_deref().map(|text| text.parse::<JobId>());
    let filter = AllocationFilter {
        tenants: who.tenants(query.tenant_id.as_deref()),
        job: job.transpose().map_err(|error| Fault::invalid("job", error.to_string()))?,
        node: query.node,
        live_only: query.active.unwrap_or(false),
    };
    let page = Page {
        start: page_start(query.offset, query.cursor.as_deref())?,
        limit: page_limit(query.limit)?,
        order: Order::Newest,
    };
    let paged = door.tables(move |tables| Ok(tables.allocations(&filter, &page)?)).await?;
    Ok(Json(AllocationList {
        allocations: paged.rows.into_iter().map(|row| shown(&door, row)).collect(),
        total: paged.total,
        next_cursor: paged.next.map(|seq| seq.to_string()),
    }))
}

/// Look at one allocation
#[utoipa::path(get, path = "/api/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "Job and attempt, `job-42:1`")),
    responses((status = 200, description = "The allocation", body = Allocation)))]
pub async fn get(
    State(door): State<Door>,
    who: Who,
    Id(id): Id<AttemptId>,
) -> Result<Json<Allocation>, Fault> {
    let row = find(&door, &who, id).await?;
    Ok(Json(shown(&door, row)))
}

async fn find(door: &Door, who: &Who, id: AttemptId) -> Result<AllocationRow, Fault> {
    let filter = AllocationFilter { job: Some(id.job), ..AllocationFilter::default() };
    let rows = door.tables(move |tables| Ok(tables.allocations(&filter, &Page::first(1_000))?.rows)).await?;
    let mut seen = rows.into_iter().filter(|row| who.sees_tenant(&row.attempt.tenant));
    seen.find(|row| row.attempt.attempt == id.attempt).ok_or_else(|| id.unknown())
}

/// Stop an attempt and queue its job again
#[utoipa::path(delete, path = "/api/v1/allocations/{id}", tag = "allocations",
    params(("id" = String, Path, description = "Job and attempt, `job-42:1`")),
    responses((status = 200, description = "Told to stop; its job queues again", body = Done)))]
pub async fn give_up(State(door): State<Door>, who: Who, Id(id): Id<AttemptId>) -> Result<Json<Done>, Fault> {
    let row = find(&door, &who, id).await?;
    if row.attempt.ended_at.is_some() {
        let ended = Refusal::WrongPhase {
            job: id.job,
            phase: "no longer in that attempt",
            verb: "this",
            needs: "running",
        };
        return Err(ended.into());
    }
    steer(&door, who, id.job, Command::RequeueJob { job: id.job }, "is requeued").await
}

/// The state of an attempt in the words of the commissioning document, and a few more.
fn state_of(attempt_state: &str) -> &'static str {
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

fn shown(door: &Door, row: AllocationRow) -> Allocation {
    let AllocationRow { attempt, leases } = row;
    let until = attempt.charged_until.or(attempt.ended_at).unwrap_or_else(|| door.cluster.now().0);
    let held_ms = (until - attempt.placed_at).max(0);
    let cause = attempt.stop_cause.as_deref().map(stop_cause);
    let preempted_by = cause.filter(|(cause, _)| cause == "preempted").and_then(|(_, by)| by);
    let live = live(door, attempt.job).filter(|_| attempt.ended_at.is_none());
    Allocation {
        id: format!("{}:{}", attempt.job, attempt.attempt),
        job_id: attempt.job.to_string(),
        attempt: attempt.attempt,
        tenant_id: attempt.tenant,
        state: state_of(&attempt.state).to_string(),
        phase: attempt.state,
        gpu_ids: share::gpus(&leases),
        shares: share::shares(&leases),
        node_id: attempt.nodes.first().cloned(),
        nodes: attempt.nodes,
        score: live.as_ref().and_then(|live| live.score.clone()),
        cpu_cores: live.as_ref().map(|live| live.held.cpus).or(attempt.cpus),
        memory_mb: live.as_ref().map(|live| live.held.memory_mib).or(attempt.memory_mib),
        allocated_at: stamp(attempt.placed_at),
        allocated_at_ms: attempt.placed_at,
        started_at: attempt.started_at.map(stamp),
        completed_at: attempt.ended_at.map(stamp),
        completed_at_ms: attempt.ended_at,
        planned_duration: live
            .as_ref()
            .and_then(|live| live.held.planned_ms)
            .or(attempt.planned_ms)
            .map(humane),
        actual_duration: humane(held_ms),
        actual_duration_ms: held_ms,
        preempted_at: preempted_by.as_ref().and(attempt.stopping_at).map(stamp),
        preemption_reason: preempted_by.as_ref().map(|_| "higher priority job".to_string()),
        preempted_by,
        exit: attempt.exit,
        exit_code: attempt.exit_code,
        message: attempt.why,
        gpu_hours: hours(attempt.gpu_ms),
        cost_per_hour: live
            .map(|live| live.held.cost_per_hour_micro)
            .or(attempt.cost_per_hour_micro)
            .map(money),
        total_cost: money(attempt.cost_micro),
    }
}

/// What only the state knows of an attempt that has not ended.
struct Live {
    held: Held,
    score: Option<Score>,
}

fn live(door: &Door, job: JobId) -> Option<Live> {
    let found = door.state(|state| {
        let job = state.jobs.get(&job)?;
        let tenant = &state.tenants.get(&job.spec.tenant)?.config;
        Some(Live { held: ledger::held(&job.spec, job.attempt()?, tenant), score: show::score_of(job) })
    });
    found.ok().flatten()
}
