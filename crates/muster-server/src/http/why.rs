//! Why a job waits (`muster why`): the verdict with its numbers, queue position, start range, remedies and history.

use std::collections::BTreeSet;

use axum::extract::State;
use muster_core::facts::verdict::Verdict;
use muster_core::objects::job::Job;
use muster_core::planner;
use muster_core::planner::{Remedy, position, priority_breakdown};
use muster_core::queue::{Bucket, BucketCriteria, waiting_since};
use muster_core::{Event, JobId, Refusal, Timestamp};
use muster_protocol::explain::{JobAhead, JobExplanation, JobPhase, JobRemedy, WaitNote};
use muster_store::Tables;
use muster_store::rows::{JobRow, WaitRow};

use crate::conversions::{fair_share_factor, human_duration, ms_to_hours, rfc3339};
use crate::evaluations::EvaluationPermit;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::CallerKey;
use crate::http::caller::TenantVisibility;
use crate::http::job_lookup::{filter_by_number, job_event_rows, job_tenant, oldest_page, parse_event};
use crate::http::job_phases::JobPhaseBuilder;
use crate::http::json::Json;
use crate::http::query::PathId;
use crate::http::start_range::StartRangeCheck;
use crate::http::{holders, render};
use crate::identity::Caller;

/// Above this number of live jobs the state is not copied for one reader: no remedies and no own forecast.
pub const STATE_COPY_LIVE_JOBS_MAX: usize = 50_000;
/// Jobs ahead in the queue that are named.
const JOBS_AHEAD_MAX: usize = 5;
/// Up to this number of live jobs, a job that the last forecast does not contain gets a forecast of its own.
pub const OWN_FORECAST_LIVE_JOBS_MAX: usize = 2_000;
/// Planner rounds of each of the two simulated futures.
pub const OWN_FORECAST_ROUNDS_MAX: usize = 100;

/// Why a job waits
///
/// The verdict: every reason with its numbers, the most telling first. For an array, the verdict of its first waiting
/// task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "The explanation", body = JobExplanation)))]
pub async fn why(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    PathId(id): PathId<JobId>,
) -> Result<Json<JobExplanation>, ApiError> {
    let evaluation = app.evaluations.acquire(&caller_key).await?;
    let live = app.read_state(|state| {
        let members = state.live_jobs_of(id);
        let waiting = members.iter().find(|id| state.jobs.get(id).is_some_and(|job| job.attempt().is_none()));
        let job = waiting.or(members.first()).and_then(|id| state.jobs.get(id))?;
        caller.sees_tenant(job.spec.tenant.as_str()).then(|| {
            let mut why = explain_live_job(&app, state, job);
            why.ahead = jobs_ahead(&app, &caller, state, job);
            why.may_change = caller.actor.may_change(&job.spec);
            holders::add_gpu_holders(&mut why, &caller, state, job, app.cluster.now().max(state.clock));
            (job.id, why)
        })
    })?;
    if let Some((job, mut why)) = live {
        if why.waiting_since.is_some() {
            add_forecast_and_remedies(&app, (&caller, evaluation), job, &mut why).await?;
        }
        why.history = wait_history(&app, job).await?;
        set_reason_since(&mut why);
        why.phases = job_phases(&app, &caller, job, &why.history).await?;
        return Ok(Json(why));
    }
    let row = app.read_tables(move |tables| job_or_first_task_row(tables, id)).await?;
    let row = row.filter(|row| caller.sees_tenant(&row.tenant)).ok_or(Refusal::UnknownJob { job: id })?;
    let job = row.id;
    let mut why = explain_ended_job(row);
    why.history = wait_history(&app, job).await?;
    why.phases = job_phases(&app, &caller, job, &why.history).await?;
    Ok(Json(why))
}

/// The phases of a job since its submission. A preemptor is named only if the caller may see it.
async fn job_phases(
    app: &AppState,
    caller: &Caller,
    job: JobId,
    notes: &[WaitNote],
) -> Result<Vec<JobPhase>, ApiError> {
    let (caller, notes, now) = (caller.clone(), notes.to_vec(), app.cluster.now());
    let phases = app.read_tables(move |tables| {
        let Some(detail) = tables.job(job)? else { return Ok(Vec::new()) };
        let events: Vec<Event> = job_event_rows(tables, job)?.iter().filter_map(parse_event).collect();
        let sees =
            |other: JobId| job_tenant(tables, other).ok().flatten().is_some_and(|tenant| caller.sees_tenant(&tenant));
        Ok(JobPhaseBuilder::new(&notes, &sees).build(Timestamp(detail.row.submitted_at), &events, now))
    });
    phases.await
}

/// The first jobs ahead in the queue, without those that the caller may not see.
fn jobs_ahead(app: &AppState, caller: &Caller, state: &muster_core::State, job: &Job) -> Vec<JobAhead> {
    let now = app.cluster.now().max(state.clock);
    let jobs = planner::first_ahead(state, job, now, JOBS_AHEAD_MAX).into_iter().filter_map(|id| state.jobs.get(&id));
    let seen = jobs.filter(|job| caller.sees_tenant(job.spec.tenant.as_str()));
    seen.map(|job| JobAhead {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        priority: job.spec.priority,
    })
    .collect()
}

/// Set since when each reason holds: from the first of the latest consecutive notes with this reason, or from the begin
/// of the wait if all notes have it.
fn set_reason_since(why: &mut JobExplanation) {
    let Some(waiting) = why.waiting_since_ms else { return };
    for reason in &mut why.reasons {
        let names_it = |note: &&WaitNote| note.reasons.iter().any(|noted| noted.reason == reason.reason);
        let first = why.history.iter().rev().take_while(names_it).last().map(|note| note.at_ms);
        let is_from_the_start = why.history.iter().all(|note| names_it(&note));
        let since = if is_from_the_start { Some(waiting) } else { first };
        reason.since_ms = since;
        reason.since = since.map(rfc3339);
    }
}

async fn wait_history(app: &AppState, job: JobId) -> Result<Vec<WaitNote>, ApiError> {
    let criteria = app.read_state(|state| state.policies.bucket_criteria.clone())?;
    app.read_tables(move |tables| read_wait_notes(tables, job, &criteria)).await
}

/// The wait notes of a job's bucket since its submission, until its last placement if the job no longer waits.
fn read_wait_notes(tables: &dyn Tables, id: JobId, criteria: &BucketCriteria) -> Result<Vec<WaitNote>, ApiError> {
    let Some(detail) = tables.job(id)? else { return Ok(Vec::new()) };
    let array = id.index.map(|_| id.number);
    // Whether the array had a running limit is no longer known; one of the two buckets has no notes.
    let buckets = [Some(None), array.map(Some)].into_iter().flatten();
    // Nor are the bucket criteria of that time: try those of the current policies and those without policies.
    let key = |array, criteria| Bucket::of_spec(&detail.spec, array, criteria).key();
    let none = BucketCriteria::default();
    let buckets: BTreeSet<String> = buckets.flat_map(|array| [key(array, &none), key(array, criteria)]).collect();
    let buckets: Vec<String> = buckets.into_iter().collect();
    let waits = matches!(detail.row.phase.as_str(), "Queued" | "Held");
    let until = detail.row.placed_at.or(detail.row.ended_at).filter(|_| !waits).unwrap_or(i64::MAX);
    let rows = tables.wait_reasons(&buckets, detail.row.submitted_at, until)?;
    Ok(rows.into_iter().filter_map(|row| wait_note(row, detail.row.submitted_at)).collect())
}

fn wait_note(row: WaitRow, submitted_at: i64) -> Option<WaitNote> {
    let reasons: Vec<muster_core::facts::verdict::Reason> = muster_json::from_str(&row.reasons).ok()?;
    let at_ms = row.at_ms.max(submitted_at);
    let reasons = render::api_reasons(&Verdict { reasons });
    (!reasons.is_empty()).then(|| WaitNote { at: rfc3339(at_ms), at_ms, reasons })
}

/// A job, or the first task of an array.
fn job_or_first_task_row(tables: &dyn Tables, id: JobId) -> Result<Option<JobRow>, ApiError> {
    if let Some(detail) = tables.job(id)? {
        return Ok(Some(detail.row));
    }
    let tasks = tables.jobs(&filter_by_number(id), &oldest_page(1))?;
    Ok(tasks.rows.into_iter().next().filter(|_| id.index.is_none()))
}

fn explain_live_job(app: &AppState, state: &muster_core::State, job: &Job) -> JobExplanation {
    let now = app.cluster.now().max(state.clock);
    let queue_position = position(state, job, now);
    let verdicts = app.cluster.verdicts();
    let reasons = render::api_reasons(&verdicts.of(state, job, now));
    let since = waiting_since(job);
    let breakdown = since.map(|_| priority_breakdown(state, job, now));
    let (api_state, phase) = render::job_state_and_phase(job);
    let summary = match (reasons.first(), job.attempt()) {
        (Some(first), _) => format!("waits: {}", first.sentence),
        (None, Some(_)) => format!("does not wait: it is {phase}"),
        (None, None) => "waits for the next round".to_string(),
    };
    JobExplanation {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        state: render::api_job_state(api_state),
        phase: phase.to_string(),
        summary,
        waiting_since: since.map(|at| rfc3339(at.0)),
        waiting_since_ms: since.map(|at| at.0),
        waited: since.map(|at| human_duration(now.since(at))),
        queue_position: queue_position.map(|found| found.position),
        queue_length: queue_position.map(|found| found.of),
        nodes: node_names(job),
        score: render::attempt_score(job),
        priority: job.spec.priority,
        effective_priority: breakdown.map(|breakdown| breakdown.effective()),
        aging: breakdown.map(|breakdown| breakdown.aging),
        fair_share_penalty: breakdown.map(|breakdown| breakdown.penalty),
        fair_share_factor: breakdown.and_then(|breakdown| breakdown.share).map(fair_share_factor),
        expected_gpu_hours: breakdown.and_then(|breakdown| breakdown.size_gpu_ms).map(ms_to_hours),
        reasons,
        estimated_start: None,
        expected_start: None,
        no_estimate: None,
        reserved_at_ms: verdicts.reserved_at(job.id).filter(|_| since.is_some()).map(|at| at.0),
        gpus: job.spec.gpus(),
        holders: Vec::new(),
        other_holders: 0,
        sooner_with: Vec::new(),
        may_change: false,
        ahead: Vec::new(),
        history: Vec::new(),
        phases: Vec::new(),
    }
}

fn node_names(job: &Job) -> Vec<String> {
    let nodes = job.attempt().map(|attempt| attempt.nodes()).unwrap_or_default();
    nodes.iter().map(ToString::to_string).collect()
}

/// Add the start range and the remedies. Many rounds are planned on the shared copy of the state; a job that the last
/// forecast does not contain gets a forecast of its own on small clusters.
async fn add_forecast_and_remedies(
    app: &AppState,
    (caller, evaluation): (&Caller, EvaluationPermit),
    job: JobId,
    why: &mut JobExplanation,
) -> Result<(), ApiError> {
    let (forecast, position) = (app.cluster.forecast(), why.queue_position);
    let reserved = why.reserved_at_ms.map(Timestamp);
    let forecast_range = position.and_then(|position| forecast.of(job).or_else(|| forecast.of_position(position)));
    let (app, by) = (app.clone(), caller.actor.clone());
    let evaluating = tokio::task::spawn_blocking(move || {
        // The permit is held until the work is done, even if the caller no longer waits for it.
        let _evaluation = evaluation;
        let now = app.cluster.now();
        let (jobs, check) =
            app.read_state(|state| (state.jobs.len(), StartRangeCheck::new(state, job, reserved, now)))?;
        let copy = (jobs <= STATE_COPY_LIVE_JOBS_MAX).then(|| app.evaluations.shared_copy(&app.cluster, Some(job)));
        let small = copy.as_ref().filter(|copy| copy.state().jobs.len() <= OWN_FORECAST_LIVE_JOBS_MAX);
        let own = || small.filter(|_| position.is_some())?.forecast(OWN_FORECAST_ROUNDS_MAX).of(job);
        // A range that has passed was wrong.
        let range = check.reliable(forecast_range.filter(|range| range.to > now).or_else(own));
        Ok((range, copy.map(|copy| copy.remedies(&by, job)).unwrap_or_default()))
    });
    let found = evaluating.await.unwrap_or_else(|_| Err(ApiError::internal("the forecast was aborted")));
    let (range, remedies) = found?;
    match range {
        Ok(range) => {
            let reserved = why.reserved_at_ms.map(|at| range.reservation_within(Timestamp(at)).0);
            let range = range.to_api();
            why.reserved_at_ms = reserved;
            why.estimated_start = Some(format!("{} to {}", range.from, range.to));
            why.expected_start = Some(range);
        }
        // A job that is held or waits for a dependency has no queue position, so there is no start to estimate.
        Err(because) => why.no_estimate = why.queue_position.map(|_| because),
    }
    why.sooner_with = remedies.iter().map(api_remedy).collect();
    Ok(())
}

pub fn api_remedy(remedy: &Remedy) -> JobRemedy {
    JobRemedy {
        words: remedy.phrase(),
        keeps_its_place: remedy.keeps_queue_position(),
        change: serde_json::to_value(remedy).unwrap_or_default(),
    }
}

fn explain_ended_job(row: JobRow) -> JobExplanation {
    let because = if row.why.is_empty() { String::new() } else { format!(": {}", row.why) };
    JobExplanation {
        job_id: row.id.to_string(),
        name: row.name,
        tenant_id: row.tenant,
        state: render::api_job_state(row.state),
        summary: format!("does not wait: it has ended as {}{because}", row.phase),
        phase: row.phase,
        waiting_since: None,
        waiting_since_ms: None,
        waited: None,
        queue_position: None,
        queue_length: None,
        nodes: Vec::new(),
        score: None,
        priority: row.priority,
        effective_priority: None,
        aging: None,
        fair_share_penalty: None,
        fair_share_factor: None,
        expected_gpu_hours: None,
        reasons: Vec::new(),
        estimated_start: None,
        expected_start: None,
        no_estimate: None,
        reserved_at_ms: None,
        gpus: u32::try_from(row.gpus).unwrap_or(u32::MAX),
        holders: Vec::new(),
        other_holders: 0,
        sooner_with: Vec::new(),
        may_change: false,
        ahead: Vec::new(),
        history: Vec::new(),
        phases: Vec::new(),
    }
}
