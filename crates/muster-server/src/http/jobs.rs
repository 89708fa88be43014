//! Jobs: list, look, steer.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::State;
use muster_core::command::{Answer, JobChange};
use muster_core::node::GpuWord;
use muster_core::{Command, JobId, Refusal, Timestamp};
use muster_protocol::job::{Attempt, AttemptList, Job, JobList, JobSummary};
use muster_protocol::submit::{self as wire, Cancelled, Done, Reasoned};
use muster_store::Tables;
use muster_store::queries::{AllocationFilter, JobFilter, Page};
use muster_store::rows::{JobDetail, JobState, LeaseRow};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::cluster::Declined;
use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::history::{check_sees, of_number, oldest, tasks_by_state};
use crate::http::job_rows::{self, JobRows, Written};
use crate::http::json::{Json, OptionalJson};
use crate::http::query::{Id, Query, key_and_value, page_limit};
use crate::http::start_range::StartFacts;
use crate::http::who::Reach;
use crate::http::written::{hours, humane, money, priority, span_ms};
use crate::http::{share, show};
use crate::identity::Who;

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
    /// Whose name contains this, in upper or lower case.
    name: Option<String>,
    /// With this label, `key=value`.
    label: Option<String>,
    /// Tasks of this array.
    array: Option<String>,
    /// Only jobs that have not ended.
    active: Option<bool>,
    /// `id`, `name`, `state`, `gpus`, `tenant`, `user`, `priority`, `submitted`, `elapsed`, `left`, `attempts`,
    /// `nodes`, `exit` or `gpu-hours`; `-` before it puts the largest first. `-id` when not given: newest first.
    sort: Option<String>,
    /// `array`: one row for each array, with the number of its tasks in each state in `array_tasks`.
    group: Option<String>,
    /// Rows of a page, 1 to 1,000; 50 when not given.
    limit: Option<u32>,
    /// Begin after so many rows.
    offset: Option<u64>,
    /// Begin after the page before: its `next_cursor`. Lists that are not sorted by id have none: they go on with
    /// `offset`.
    cursor: Option<String>,
}

/// List jobs, newest first
///
/// The whole list is sorted before the page is cut from it.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(JobQuery),
    responses((status = 200, description = "One page of jobs", body = JobList)))]
pub async fn list(
    State(door): State<Door>,
    who: Who,
    Query(query): Query<JobQuery>,
) -> Result<Json<JobList>, Fault> {
    let filter = filter(&query, &who)?;
    let now_ms = door.cluster.now().0;
    let rows = JobRows::of(&Written {
        sort: query.sort.as_deref(),
        group: query.group.as_deref(),
        offset: query.offset,
        cursor: query.cursor.as_deref(),
        limit: page_limit(query.limit)?,
        now_ms,
    })?;
    let page = door.tables(move |tables| rows.read(tables, &filter)).await?;
    let ids: Vec<JobId> = page.rows.iter().map(|row| row.id).collect();
    let mut jobs: Vec<JobSummary> = page.rows.into_iter().map(|row| show::summary(row, now_ms)).collect();
    for (job, id) in jobs.iter_mut().zip(&ids) {
        if let Some(tasks) = page.arrays.get(&id.number) {
            job_rows::describe(job, id.number, tasks);
        }
    }
    // A standby answers without what only the leader knows.
    let _ = door.state(|state| {
        for (job, id) in jobs.iter_mut().zip(&ids) {
            tell_live(&door, state, job, *id);
        }
    });
    Ok(Json(JobList { jobs, total: page.total, next_cursor: page.next.map(|job| job.to_string()) }))
}

/// Say of a live job why it waits and what it holds.
fn tell_live(door: &Door, state: &muster_core::State, job: &mut JobSummary, id: JobId) {
    let live = match job.array_tasks {
        Some(_) => job_rows::waiting_task(state, id.number),
        None => state.jobs.get(&id),
    };
    let Some(live) = live else { return };
    let verdict = door.cluster.verdicts().without_position(state, live);
    job.waits_for = verdict.reasons.first().map(|reason| reason.sentence());
    if job.array_tasks.is_none() {
        tell_held(state, door.cluster.now().max(state.clock), job, live);
    }
}

fn filter(query: &JobQuery, who: &Who) -> Result<JobFilter, Fault> {
    let states = query.state.as_deref().map(|words| words.split(',').map(state_of).collect());
    let array = query.array.as_deref().map(|text| text.parse::<JobId>());
    let own = who.user().filter(|_| query.mine.unwrap_or(false));
    let is_other = |user: &String| own.is_some_and(|own| own != user);
    // The jobs of another user are not the caller's own.
    let none = query.user.as_ref().is_some_and(is_other);
    Ok(JobFilter {
        tenants: if none { Some(Vec::new()) } else { who.tenants(query.tenant_id.as_deref()) },
        states: states.transpose()?,
        phase: query.phase.clone(),
        user: query.user.clone().or(own.map(str::to_string)),
        name_contains: query.name.clone(),
        label: query.label.as_deref().map(key_and_value).transpose()?,
        number: array
            .transpose()
            .map_err(|error| Fault::invalid("array", error.to_string()))?
            .map(|id| id.number),
        active_only: query.active.unwrap_or(false),
    })
}

fn state_of(word: &str) -> Result<JobState, Fault> {
    let known = JobState::ALL.map(JobState::word).join(", ");
    JobState::of_word(word.trim())
        .ok_or_else(|| Fault::invalid("state", format!("`{word}` is none of {known}")))
}

/// Look at one job
///
/// An id without index also means a whole array: then `array` counts its tasks by state, and the rest is that
/// of its first task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "`job-42`, `42`, or `job-42.3` for one task of an array")),
    responses((status = 200, description = "The job", body = Job)))]
pub async fn get(State(door): State<Door>, who: Who, Id(id): Id<JobId>) -> Result<Json<Job>, Fault> {
    let now_ms = door.cluster.now().0;
    let found = door.tables(move |tables| find(tables, id)).await?;
    let (detail, leases, array) = found
        .filter(|(detail, ..)| who.sees_tenant(&detail.row.tenant))
        .ok_or(Refusal::UnknownJob { job: id })?;
    let first = detail.row.id;
    let is_own = who.actor.owns(&detail.row.tenant, &detail.row.user);
    let mut job = show::job(detail, now_ms);
    if !is_own {
        show::hide_environment(&mut job);
    }
    (job.allocated_gpus, job.shares) = (share::gpus(&leases), share::shares(&leases));
    if let Some(counts) = array {
        describe_array(&mut job, id, counts);
    }
    // A standby answers without what only the leader knows.
    let _ = door.state(|state| {
        let now = door.cluster.now().max(state.clock);
        let Some(live) = state.jobs.get(&first) else { return };
        let position = muster_core::plan::position(state, live, now);
        job.queue_position = position.map(|place| place.position);
        job.queue_length = position.map(|place| place.of);
        job.estimated_wait =
            position.and_then(|place| estimated_wait(&door, state, (first, place.position), now));
        let cap = live.attempt().and_then(|attempt| attempt.gpu_milliwatts_max);
        job.gpu_power_max_watts = cap.map(|milliwatts| milliwatts as f64 / 1_000.0);
        job.reasons = show::reasons(&door.cluster.verdicts().of(state, live, now));
        job.summary.waits_for = job.reasons.first().map(|reason| reason.sentence.clone());
        tell_held(state, now, &mut job.summary, live);
    });
    Ok(Json(job))
}

/// How long a job still waits by the newest forecast, where that is worth telling.
fn estimated_wait(
    door: &Door,
    state: &muster_core::State,
    (job, position): (JobId, u64),
    now: Timestamp,
) -> Option<String> {
    let forecast = door.cluster.forecast();
    let range = forecast.of(job).or_else(|| forecast.of_position(position));
    let range = StartFacts::of(state, job, None, now).told(range).ok()?.range();
    let (from, to) = (humane(range.from.since(now).max(0)), humane(range.to.since(now).max(0)));
    Some(if from == to { from } else { format!("{from} to {to}") })
}

/// The GPUs of a running attempt that were declared or read as unhealthy, and why.
fn unhealthy_gpus(state: &muster_core::State, attempt: &muster_core::job::Attempt) -> Option<String> {
    let devices = attempt.tasks.iter().flat_map(|task| task.devices());
    let told = devices.filter_map(|(node, gpu)| {
        let health = state.nodes.get(node)?.gpu_health.get(usize::from(gpu))?;
        let why = if health.why.is_empty() { String::new() } else { format!(": {}", health.why) };
        (health.word == GpuWord::Unhealthy)
            .then(|| format!("runs on {node}/gpu-{gpu}, which is unhealthy{why}"))
    });
    let told: BTreeSet<String> = told.collect();
    (!told.is_empty()).then(|| told.into_iter().collect::<Vec<_>>().join("; "))
}

/// An elastic gang may hold more than it needs, and what runs has used something that is not charged yet.
fn tell_held(state: &muster_core::State, now: Timestamp, job: &mut JobSummary, live: &muster_core::Job) {
    if let Some(attempt) = live.attempt() {
        job.gpu_count = attempt.gpu_count();
        job.gpu_amount = share::in_parts(attempt.gpu_milli());
        if let Some(ailing) = unhealthy_gpus(state, attempt) {
            job.message = ailing;
        }
    }
    if let Some(used) = state.accrued(live, now) {
        job.gpu_hours += hours(used.gpu_ms);
        job.cost += money(used.cost_micro);
    }
}

type Found = (JobDetail, Vec<LeaseRow>, Option<Vec<(JobState, u64)>>);

/// A job with the leases it holds, or the first task of an array with the counts of all.
fn find(tables: &dyn Tables, id: JobId) -> Result<Option<Found>, Fault> {
    if let Some(detail) = tables.job(id)? {
        let held = AllocationFilter { job: Some(id), live_only: true, ..AllocationFilter::default() };
        let live = tables.allocations(&held, &Page::first(1))?.rows;
        let leases = live.into_iter().flat_map(|row| row.leases).collect();
        return Ok(Some((detail, leases, None)));
    }
    let first = match id.index {
        Some(_) => None,
        None => tables.jobs(&of_number(id), &oldest(1))?.rows.into_iter().next(),
    };
    let Some(first) = first else { return Ok(None) };
    let counts = tasks_by_state(tables, id)?;
    Ok(tables.job(first.id)?.map(|detail| (detail, Vec::new(), Some(counts))))
}

/// Say of a whole array what can be said of it.
fn describe_array(job: &mut Job, id: JobId, counts: Vec<(JobState, u64)>) {
    let state = job_rows::state_of_array(|state| counts.iter().any(|(other, _)| *other == state));
    let tasks: u64 = counts.iter().map(|(_, count)| count).sum();
    let parts: Vec<String> =
        counts.iter().map(|(state, count)| format!("{count} {}", state.word())).collect();
    let summary = &mut job.summary;
    summary.id = id.to_string();
    summary.job_id = id.to_string();
    summary.state = show::state(state);
    summary.message = format!("array of {tasks} tasks: {}", parts.join(", "));
    job.array =
        Some(BTreeMap::from_iter(counts.iter().map(|(state, count)| (state.word().to_string(), *count))));
}

/// Change a job that has not ended
#[utoipa::path(patch, path = "/api/v1/jobs/{id}", tag = "jobs", request_body = wire::JobChange,
    params(("id" = String, Path, description = "The job, or a whole array")),
    responses((status = 200, description = "Changed", body = Done)))]
pub async fn change(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
    Json(written): Json<wire::JobChange>,
) -> Result<Json<Done>, Fault> {
    let limit =
        written.time_limit.as_ref().map(|limit| limit.as_ref().map(|span| span_ms("time_limit", span)));
    let change = JobChange {
        name: written.name,
        priority: written.priority.as_ref().map(priority).transpose()?,
        time_limit_ms: limit.map(Option::transpose).transpose()?,
        labels: written.labels,
    };
    steer(&door, who, job, Command::ChangeJob { job, change }, "was changed").await
}

/// Cancel a job, waiting or running
///
/// A job that waits ends at once, as cancelled. One that runs is told to stop: the reply says `phase: Stopping`, and the
/// job ends when its processes are gone. It ends as cancelled, unless its processes had exited with code 0 before they
/// were told to stop: then its work is done, and it ends as completed. Wait for the job to learn which of the two holds.
#[utoipa::path(delete, path = "/api/v1/jobs/{id}", tag = "jobs",
    params(("id" = String, Path, description = "The job, or a whole array")),
    responses((status = 200, description = "Cancelled, or told to stop", body = Cancelled)))]
pub async fn cancel(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
) -> Result<Json<Cancelled>, Fault> {
    let stopping = match ask(&door, who, job, Command::CancelJob { job }).await? {
        Answer::Cancelled { stopping } => stopping,
        Answer::Done | Answer::Job(_) | Answer::Adopted { .. } => 0,
    };
    let phase = if stopping == 0 { "Cancelled" } else { "Stopping" };
    let message = cancelled(job, stopping);
    Ok(Json(Cancelled { message, phase: phase.to_string(), stopping: stopping as u64 }))
}

/// What a cancellation means for jobs that run, in a sentence.
fn cancelled(job: JobId, stopping: usize) -> String {
    match stopping {
        0 => format!("`{job}` is cancelled"),
        1 => format!(
            "`{job}` is stopping; it ends as cancelled unless its processes had already exited with code 0"
        ),
        tasks => format!(
            "`{job}` is cancelled; {tasks} tasks are stopping and end as cancelled unless their processes had \
             already exited with code 0"
        ),
    }
}

/// Keep a job from starting, or stop it and keep it
#[utoipa::path(post, path = "/api/v1/jobs/{id}/hold", tag = "jobs", request_body = Reasoned,
    params(("id" = String, Path, description = "The job, or a whole array")),
    responses((status = 200, description = "Held, or told to stop", body = Done)))]
pub async fn hold(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
    OptionalJson(Reasoned { why }): OptionalJson<Reasoned>,
) -> Result<Json<Done>, Fault> {
    steer(&door, who, job, Command::HoldJob { job, why }, "is held").await
}

/// Let a held job queue again
#[utoipa::path(post, path = "/api/v1/jobs/{id}/release", tag = "jobs",
    params(("id" = String, Path, description = "The job, or a whole array")),
    responses((status = 200, description = "Released", body = Done)))]
pub async fn release(State(door): State<Door>, who: Who, Id(job): Id<JobId>) -> Result<Json<Done>, Fault> {
    steer(&door, who, job, Command::ReleaseJob { job }, "waits again").await
}

/// Stop a running job and queue it again
#[utoipa::path(post, path = "/api/v1/jobs/{id}/requeue", tag = "jobs",
    params(("id" = String, Path, description = "The job, or a whole array")),
    responses((status = 200, description = "Told to stop; it queues again", body = Done)))]
pub async fn requeue(State(door): State<Door>, who: Who, Id(job): Id<JobId>) -> Result<Json<Done>, Fault> {
    steer(&door, who, job, Command::RequeueJob { job }, "is requeued").await
}

/// The attempts of a job, oldest first
#[utoipa::path(get, path = "/api/v1/jobs/{id}/attempts", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Its attempts", body = AttemptList)))]
pub async fn attempts(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
) -> Result<Json<AttemptList>, Fault> {
    let found = door.tables(move |tables| {
        let tenant = crate::http::history::tenant_of(tables, job)?;
        Ok(tenant.zip(Some(tables.attempts(job)?)))
    });
    let (_, rows) =
        found.await?.filter(|(tenant, _)| who.sees_tenant(tenant)).ok_or(Refusal::UnknownJob { job })?;
    let mut attempts: Vec<Attempt> = rows.into_iter().map(show::attempt).collect();
    // A standby answers without what only the leader knows.
    let known = door.state(|state| {
        let live = state.jobs.get(&job)?;
        Some((show::score_of(live), state.accrued(live, door.cluster.now().max(state.clock))?))
    });
    let live = attempts.iter_mut().rev().find(|attempt| attempt.ended_at.is_none());
    if let (Some(live), Some((score, used))) = (live, known.ok().flatten()) {
        live.score = score;
        (live.gpu_hours, live.cost) = (hours(used.gpu_ms), money(used.cost_micro));
    }
    Ok(Json(AttemptList { attempts }))
}

/// Ask the engine for something about one job.
pub async fn steer(
    door: &Door,
    who: Who,
    job: JobId,
    command: Command,
    became: &str,
) -> Result<Json<Done>, Fault> {
    ask(door, who, job, command).await?;
    Ok(Json(Done { message: format!("`{job}` {became}") }))
}

async fn ask(door: &Door, who: Who, job: JobId, command: Command) -> Result<Answer, Fault> {
    check_sees(door, &who, job).await?;
    match door.cluster.ask(who.actor, command).await {
        Ok(answer) => Ok(answer),
        Err(Declined::Refused(Refusal::UnknownJob { .. })) => Err(gone(door, job).await?),
        Err(declined) => Err(declined.into()),
    }
}

/// The state forgets ended jobs after a day; the tables never do.
async fn gone(door: &Door, job: JobId) -> Result<Fault, Fault> {
    let outcome = door.tables(move |tables| Ok(tables.outcomes(&[job])?.remove(&job))).await?;
    let refusal = match outcome {
        None => Refusal::UnknownJob { job },
        Some(outcome) => {
            Refusal::WrongPhase { job, phase: outcome.word(), verb: "this", needs: "waiting or running" }
        }
    };
    Ok(refusal.into())
}
