//! Jobs: list, get, change, cancel, hold, release, requeue, attempts.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use muster_core::facts::command::{Answer, JobChange};
use muster_core::gpu::device::GpuStatus;
use muster_core::{Command, JobId, Refusal, Timestamp};
use muster_protocol::job::{Attempt, AttemptList, Job, JobList, JobSummary};
use muster_protocol::submit::{self as wire, Acknowledgement, ActionReason, Cancelled};
use muster_store::Tables;
use muster_store::queries::{AllocationFilter, JobFilter, PageRequest};
use muster_store::rows::{JobDetail, JobState, LeaseRow};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::cluster::CommandError;
use crate::conversions::{human_duration, micro_to_money, ms_to_hours, parse_duration_ms, parse_priority};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::job_lookup::{check_job_visible, filter_by_number, oldest_page, tasks_by_state};
use crate::http::job_page::{self, JobPageRequest, RawJobPageQuery};
use crate::http::json::{Json, OptionalJson};
use crate::http::query::{PathId, Query, page_limit, parse_label};
use crate::http::start_range::StartRangeCheck;
use crate::http::{gpu_share, render};
use crate::identity::Caller;

/// Which jobs to list. All conditions must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct JobQuery {
    /// Of this tenant.
    tenant_id: Option<String>,
    /// In this state: `pending`, `running`, `completed`, `failed`, `preempted`, `cancelled`; several with commas.
    state: Option<String>,
    /// In this phase, for example `Held`.
    phase: Option<String>,
    /// Of this user.
    user: Option<String>,
    /// Only the caller's own jobs. Without tokens every job is the caller's own.
    mine: Option<bool>,
    /// With this text in the name, upper or lower case.
    name: Option<String>,
    /// With this label, `key=value`.
    label: Option<String>,
    /// Tasks of this array.
    array: Option<String>,
    /// Only jobs that have not ended.
    active: Option<bool>,
    /// `id`, `name`, `state`, `gpus`, `tenant`, `user`, `priority`, `submitted`, `elapsed`, `left`, `attempts`,
    /// `nodes`, `exit` or `gpu-hours`; `-` before the name sorts in descending order. Default `-id`: newest first.
    sort: Option<String>,
    /// `array`: one row per array; `array_tasks` counts its tasks by state.
    group: Option<String>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Rows to skip.
    offset: Option<u64>,
    /// Cursor: `next_cursor` of the page before. Only lists sorted by id have cursors; other lists use `offset`.
    cursor: Option<String>,
}

/// List jobs, newest first
///
/// The whole list is sorted before it is divided into pages.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, description = "One page of jobs", body = JobList)))]
pub async fn list(
    State(app): State<AppState>,
    caller: Caller,
    Query(query): Query<JobQuery>,
) -> Result<Json<JobList>, ApiError> {
    let filter = job_filter(&query, &caller)?;
    let now_ms = app.cluster.now().0;
    let rows = JobPageRequest::parse(&RawJobPageQuery {
        sort: query.sort.as_deref(),
        group: query.group.as_deref(),
        offset: query.offset,
        cursor: query.cursor.as_deref(),
        limit: page_limit(query.limit)?,
        now_ms,
    })?;
    let page = app.read_tables(move |tables| rows.read(tables, &filter)).await?;
    let ids: Vec<JobId> = page.rows.iter().map(|row| row.id).collect();
    let mut jobs: Vec<JobSummary> = page.rows.into_iter().map(|row| render::api_job_summary(row, now_ms)).collect();
    for (job, id) in jobs.iter_mut().zip(&ids) {
        if let Some(tasks) = page.arrays.get(&id.number) {
            job_page::set_array_summary(job, id.number, tasks);
        }
    }
    // A standby answers without the fields that only the leader knows.
    let _ = app.read_state(|state| {
        for (job, id) in jobs.iter_mut().zip(&ids) {
            add_live_fields(&app, state, job, *id);
        }
    });
    Ok(Json(JobList { jobs, total: page.total, next_cursor: page.next.map(|job| job.to_string()) }))
}

/// Add the fields of a live job that only the leader knows: why the job waits, what it uses.
fn add_live_fields(app: &AppState, state: &muster_core::State, job: &mut JobSummary, id: JobId) {
    let live = match job.array_tasks {
        Some(_) => job_page::first_waiting_task(state, id.number),
        None => state.jobs.get(&id),
    };
    let Some(live) = live else { return };
    let verdict = app.cluster.verdicts().without_position(state, live);
    job.waits_for = verdict.reasons.first().map(|reason| reason.sentence());
    if job.array_tasks.is_none() {
        add_live_usage(state, app.cluster.now().max(state.clock), job, live);
    }
}

fn job_filter(query: &JobQuery, caller: &Caller) -> Result<JobFilter, ApiError> {
    let states = query.state.as_deref().map(|names| names.split(',').map(parse_job_state).collect());
    let array = query.array.as_deref().map(|text| text.parse::<JobId>());
    let own = caller.user().filter(|_| query.mine.unwrap_or(false));
    let is_other = |user: &String| own.is_some_and(|own| own != user);
    // The jobs of another user are not the caller's own.
    let none = query.user.as_ref().is_some_and(is_other);
    Ok(JobFilter {
        tenants: if none { Some(Vec::new()) } else { caller.tenant_filter(query.tenant_id.as_deref()) },
        states: states.transpose()?,
        phase: query.phase.clone(),
        user: query.user.clone().or(own.map(str::to_string)),
        name_contains: query.name.clone(),
        label: query.label.as_deref().map(parse_label).transpose()?,
        number: array.transpose().map_err(|error| ApiError::invalid("array", error.to_string()))?.map(|id| id.number),
        active_only: query.active.unwrap_or(false),
    })
}

fn parse_job_state(name: &str) -> Result<JobState, ApiError> {
    let known = JobState::ALL.map(JobState::as_str).join(", ");
    JobState::parse(name.trim()).ok_or_else(|| ApiError::invalid("state", format!("`{name}` is none of {known}")))
}

/// Get one job
///
/// An id without index also means an array: then `array` counts its tasks by state, and the other fields are those of
/// its first task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "`job-42`, `42`, or `job-42.3` for one task of an array")),
    responses((status = 200, description = "The job", body = Job)))]
pub async fn get(
    State(app): State<AppState>,
    caller: Caller,
    PathId(id): PathId<JobId>,
) -> Result<Json<Job>, ApiError> {
    let now_ms = app.cluster.now().0;
    let found = app.read_tables(move |tables| find_job_or_array(tables, id)).await?;
    let (detail, leases, array) =
        found.filter(|(detail, ..)| caller.sees_tenant(&detail.row.tenant)).ok_or(Refusal::UnknownJob { job: id })?;
    let first = detail.row.id;
    let is_own = caller.actor.owns(&detail.row.tenant, &detail.row.user);
    let mut job = render::api_job(detail, now_ms);
    if !is_own {
        render::hide_environment(&mut job);
    }
    (job.allocated_gpus, job.shares) = (gpu_share::leased_gpus(&leases), gpu_share::leased_shares(&leases));
    if let Some(counts) = array {
        set_array_fields(&mut job, id, counts);
    }
    // A standby answers without the fields that only the leader knows.
    let _ = app.read_state(|state| {
        let now = app.cluster.now().max(state.clock);
        let Some(live) = state.jobs.get(&first) else { return };
        let position = muster_core::planner::position(state, live, now);
        job.queue_position = position.map(|place| place.position);
        job.queue_length = position.map(|place| place.of);
        job.estimated_wait = position.and_then(|place| estimated_wait(&app, state, (first, place.position), now));
        let cap = live.attempt().and_then(|attempt| attempt.gpu_milliwatts_max);
        job.gpu_power_max_watts = cap.map(|milliwatts| milliwatts as f64 / 1_000.0);
        job.reasons = render::api_reasons(&app.cluster.verdicts().of(state, live, now));
        job.summary.waits_for = job.reasons.first().map(|reason| reason.sentence.clone());
        add_live_usage(state, now, &mut job.summary, live);
    });
    Ok(Json(job))
}

/// The remaining wait of a job by the newest forecast, if recent forecasts were mostly right.
fn estimated_wait(
    app: &AppState,
    state: &muster_core::State,
    (job, position): (JobId, u64),
    now: Timestamp,
) -> Option<String> {
    let forecast = app.cluster.forecast();
    let range = forecast.of(job).or_else(|| forecast.of_position(position));
    let range = StartRangeCheck::new(state, job, None, now).reliable(range).ok()?.range();
    let (from, to) = (human_duration(range.from.since(now).max(0)), human_duration(range.to.since(now).max(0)));
    Some(if from == to { from } else { format!("{from} to {to}") })
}

/// The unhealthy GPUs of a running attempt, with the reason of their declaration or reading.
fn unhealthy_gpus_message(state: &muster_core::State, attempt: &muster_core::objects::job::Attempt) -> Option<String> {
    let devices = attempt.tasks.iter().flat_map(|task| task.devices());
    let unhealthy = devices.filter_map(|(node, gpu)| {
        let health = state.nodes.get(node)?.gpu_health.get(usize::from(gpu))?;
        let why = if health.why.is_empty() { String::new() } else { format!(": {}", health.why) };
        (health.status == GpuStatus::Unhealthy).then(|| format!("runs on {node}/gpu-{gpu}, which is unhealthy{why}"))
    });
    let unhealthy: BTreeSet<String> = unhealthy.collect();
    (!unhealthy.is_empty()).then(|| unhealthy.into_iter().collect::<Vec<_>>().join("; "))
}

/// Add what a running attempt holds and has accrued: an elastic gang may hold more than its minimum, and usage is
/// charged only when the attempt ends.
fn add_live_usage(
    state: &muster_core::State,
    now: Timestamp,
    job: &mut JobSummary,
    live: &muster_core::objects::job::Job,
) {
    if let Some(attempt) = live.attempt() {
        job.gpu_count = attempt.gpu_count();
        job.gpu_amount = gpu_share::fractional_gpus(attempt.gpu_milli());
        if let Some(message) = unhealthy_gpus_message(state, attempt) {
            job.message = message;
        }
    }
    if let Some(used) = state.accrued(live, now) {
        job.gpu_hours += ms_to_hours(used.gpu_ms);
        job.cost += micro_to_money(used.cost_micro);
    }
}

type JobWithLeases = (JobDetail, Vec<LeaseRow>, Option<Vec<(JobState, u64)>>);

/// A job with its leases, or the first task of an array with the number of tasks in each state.
fn find_job_or_array(tables: &dyn Tables, id: JobId) -> Result<Option<JobWithLeases>, ApiError> {
    if let Some(detail) = tables.job(id)? {
        let held = AllocationFilter { job: Some(id), live_only: true, ..AllocationFilter::default() };
        let live = tables.allocations(&held, &PageRequest::first(1))?.rows;
        let leases = live.into_iter().flat_map(|row| row.leases).collect();
        return Ok(Some((detail, leases, None)));
    }
    let first = match id.index {
        Some(_) => None,
        None => tables.jobs(&filter_by_number(id), &oldest_page(1))?.rows.into_iter().next(),
    };
    let Some(first) = first else { return Ok(None) };
    let counts = tasks_by_state(tables, id)?;
    Ok(tables.job(first.id)?.map(|detail| (detail, Vec::new(), Some(counts))))
}

/// Replace the fields of the first task by those of the whole array.
fn set_array_fields(job: &mut Job, id: JobId, counts: Vec<(JobState, u64)>) {
    let state = job_page::array_state(|state| counts.iter().any(|(other, _)| *other == state));
    let tasks: u64 = counts.iter().map(|(_, count)| count).sum();
    let parts: Vec<String> = counts.iter().map(|(state, count)| format!("{count} {}", state.as_str())).collect();
    let summary = &mut job.summary;
    summary.id = id.to_string();
    summary.job_id = id.to_string();
    summary.state = render::api_job_state(state);
    summary.message = format!("array of {tasks} tasks: {}", parts.join(", "));
    job.array = Some(BTreeMap::from_iter(counts.iter().map(|(state, count)| (state.as_str().to_string(), *count))));
}

/// Change a job that has not ended
#[utoipa::path(patch, path = "/api/v1/jobs/{id}", tag = "jobs", request_body = wire::JobChange,
    params(("id" = String, Path, description = "The job or array")),
    responses((status = 200, description = "Changed", body = Acknowledgement)))]
pub async fn change(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
    Json(written): Json<wire::JobChange>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let limit =
        written.time_limit.as_ref().map(|limit| limit.as_ref().map(|span| parse_duration_ms("time_limit", span)));
    let change = JobChange {
        name: written.name,
        priority: written.priority.as_ref().map(parse_priority).transpose()?,
        time_limit_ms: limit.map(Option::transpose).transpose()?,
        labels: written.labels,
    };
    control_job(&app, caller, job, Command::ChangeJob { job, change }, "was changed").await
}

/// Cancel a job, waiting or running
///
/// A waiting job ends at once, as cancelled. A running job is stopped: the response has `phase: Stopping`, and the job
/// ends when its processes are gone. It ends as cancelled, unless its processes had exited with code 0 before the stop
/// signal: then it ends as completed. Poll the job to learn its final state.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job or array")),
    responses((status = 200, description = "Cancelled, or stopping", body = Cancelled)))]
pub async fn cancel(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<Cancelled>, ApiError> {
    let stopping = match send_job_command(&app, caller, job, Command::CancelJob { job }).await? {
        Answer::Cancelled { stopping } => stopping,
        Answer::Done | Answer::Job(_) | Answer::Adopted { .. } => 0,
    };
    let phase = if stopping == 0 { "Cancelled" } else { "Stopping" };
    let message = cancel_message(job, stopping);
    Ok(Json(Cancelled { message, phase: phase.to_string(), stopping: stopping as u64 }))
}

/// The sentence for people about a cancellation; `stopping` counts the running jobs.
fn cancel_message(job: JobId, stopping: usize) -> String {
    match stopping {
        0 => format!("`{job}` is cancelled"),
        1 => format!("`{job}` is stopping; it ends as cancelled unless its processes had already exited with code 0"),
        tasks => format!(
            "`{job}` is cancelled; {tasks} tasks are stopping and end as cancelled unless their processes had \
             already exited with code 0"
        ),
    }
}

/// Hold a job (a running job is stopped first)
#[utoipa::path(post, path = "/api/v1/jobs/{id}/hold", tag = "jobs", request_body = ActionReason,
    params(("id" = String, Path, description = "The job or array")),
    responses((status = 200, description = "Held, or stopping", body = Acknowledgement)))]
pub async fn hold(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
    OptionalJson(ActionReason { why }): OptionalJson<ActionReason>,
) -> Result<Json<Acknowledgement>, ApiError> {
    control_job(&app, caller, job, Command::HoldJob { job, why }, "is held").await
}

/// Release a held job
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", tag = "jobs",
    params(("id" = String, Path, description = "The job or array")),
    responses((status = 200, description = "Released", body = Acknowledgement)))]
pub async fn release(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    control_job(&app, caller, job, Command::ReleaseJob { job }, "was released").await
}

/// Stop a running job and queue it again
#[utoipa::path(post, path = "/api/v1/jobs/{id}/requeue", tag = "jobs",
    params(("id" = String, Path, description = "The job or array")),
    responses((status = 200, description = "Stopping; the job queues again", body = Acknowledgement)))]
pub async fn requeue(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    control_job(&app, caller, job, Command::RequeueJob { job }, "is requeued").await
}

/// List the attempts of a job, oldest first
#[utoipa::path(get, path = "/api/v1/jobs/{id}/attempts", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Its attempts", body = AttemptList)))]
pub async fn attempts(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<AttemptList>, ApiError> {
    let found = app.read_tables(move |tables| {
        let tenant = crate::http::job_lookup::job_tenant(tables, job)?;
        Ok(tenant.zip(Some(tables.attempts(job)?)))
    });
    let (_, rows) = found.await?.filter(|(tenant, _)| caller.sees_tenant(tenant)).ok_or(Refusal::UnknownJob { job })?;
    let mut attempts: Vec<Attempt> = rows.into_iter().map(render::api_attempt).collect();
    // A standby answers without the fields that only the leader knows.
    let known = app.read_state(|state| {
        let live = state.jobs.get(&job)?;
        Some((render::attempt_score(live), state.accrued(live, app.cluster.now().max(state.clock))?))
    });
    let live = attempts.iter_mut().rev().find(|attempt| attempt.ended_at.is_none());
    if let (Some(live), Some((score, used))) = (live, known.ok().flatten()) {
        live.score = score;
        (live.gpu_hours, live.cost) = (ms_to_hours(used.gpu_ms), micro_to_money(used.cost_micro));
    }
    Ok(Json(AttemptList { attempts }))
}

/// Send a command about one job to the engine, and acknowledge it.
pub async fn control_job(
    app: &AppState,
    caller: Caller,
    job: JobId,
    command: Command,
    outcome: &str,
) -> Result<Json<Acknowledgement>, ApiError> {
    send_job_command(app, caller, job, command).await?;
    Ok(Json(Acknowledgement { message: format!("`{job}` {outcome}") }))
}

/// Send a command about one job to the engine, if the caller may see the job.
pub async fn send_job_command(
    app: &AppState,
    caller: Caller,
    job: JobId,
    command: Command,
) -> Result<Answer, ApiError> {
    check_job_visible(app, &caller, job).await?;
    match app.cluster.execute(caller.actor, command).await {
        Ok(answer) => Ok(answer),
        Err(CommandError::Refused(Refusal::UnknownJob { .. })) => Err(ended_or_unknown(app, job).await?),
        Err(error) => Err(error.into()),
    }
}

/// The refusal for a job that is not in the state: ended jobs leave the state after a day, and stay in the tables.
async fn ended_or_unknown(app: &AppState, job: JobId) -> Result<ApiError, ApiError> {
    let outcome = app.read_tables(move |tables| Ok(tables.outcomes(&[job])?.remove(&job))).await?;
    let refusal = match outcome {
        None => Refusal::UnknownJob { job },
        Some(outcome) => {
            Refusal::WrongPhase { job, phase: outcome.as_str(), verb: "this", needs: "waiting or running" }
        }
    };
    Ok(refusal.into())
}
