//! Why a job waits, and what would become of one that is not submitted.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use muster_core::facts::command::SubmitJob as SubmitJobCommand;
use muster_core::facts::verdict::Verdict;
use muster_core::objects::job::Job;
use muster_core::objects::job::PlacedTask;
use muster_core::planner;
use muster_core::planner::{Remedy, position, priority_breakdown};
use muster_core::queue::{Bucket, BucketCriteria, waiting_since};
use muster_core::state::Decision;
use muster_core::{Answer, Command, Event, JobId, JobSpec, NodeId, Refusal, Timestamp};
use muster_protocol::explain::{JobAhead, JobPhase, DryRun, DryRunOutcome, JobRemedy, WaitNote, JobExplanation};
use muster_protocol::submit::SubmitJob;
use muster_store::Tables;
use muster_store::rows::{JobRow, WaitRow};

use crate::evaluations::EvaluationPermit;
use crate::http::AppState;
use crate::http::access::CallerKey;
use crate::http::api_error::ApiError;
use crate::http::job_lookup::{filter_by_number, oldest_page, job_tenant};
use crate::http::json::{Json, read_bytes};
use crate::http::job_phases::JobPhaseBuilder;
use crate::http::query::PathId;
use crate::http::receipts::{parse_event, job_event_rows};
use crate::http::start_range::StartRangeCheck;
use crate::http::submit::{SUBMISSION_BYTES_MAX, parse_submission};
use crate::http::caller::TenantVisibility;
use crate::http::conversions::{ms_to_hours, human_duration, rfc3339};
use crate::http::{holders, gpu_share, render};
use crate::identity::Caller;
use crate::policies::query_missing_limits;

/// Beyond so many live jobs nothing is tried for a single one: it would cost more than it is worth.
const STATE_COPY_LIVE_JOBS_MAX: usize = 50_000;
/// Jobs ahead that are named.
const JOBS_AHEAD_MAX: usize = 5;
/// Up to so many live jobs, one that is new is looked ahead for when it is asked about.
const OWN_FORECAST_LIVE_JOBS_MAX: usize = 2_000;
/// Rounds of each of its two futures.
const OWN_FORECAST_ROUNDS_MAX: usize = 100;

/// Why a job waits
///
/// Every blocker with its numbers, the most telling first. For a whole array, of its first waiting task.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/why", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "The answer", body = JobExplanation)))]
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

/// What became of a job from its submission on. Jobs that displaced it are named where the caller may see them.
async fn job_phases(app: &AppState, caller: &Caller, job: JobId, notes: &[WaitNote]) -> Result<Vec<JobPhase>, ApiError> {
    let (caller, notes, now) = (caller.clone(), notes.to_vec(), app.cluster.now());
    let told = app.read_tables(move |tables| {
        let Some(detail) = tables.job(job)? else { return Ok(Vec::new()) };
        let events: Vec<Event> = job_event_rows(tables, job)?.iter().filter_map(parse_event).collect();
        let sees = |other: JobId| {
            job_tenant(tables, other).ok().flatten().is_some_and(|tenant| caller.sees_tenant(&tenant))
        };
        Ok(JobPhaseBuilder::new(&notes, &sees).build(Timestamp(detail.row.submitted_at), &events, now))
    });
    told.await
}

/// The first of those who are ahead, as far as the caller may see them.
fn jobs_ahead(app: &AppState, caller: &Caller, state: &muster_core::State, job: &Job) -> Vec<JobAhead> {
    let now = app.cluster.now().max(state.clock);
    let jobs =
        planner::first_ahead(state, job, now, JOBS_AHEAD_MAX).into_iter().filter_map(|id| state.jobs.get(&id));
    let seen = jobs.filter(|job| caller.sees_tenant(job.spec.tenant.as_str()));
    seen.map(|job| JobAhead {
        job_id: job.id.to_string(),
        name: job.spec.name.clone(),
        tenant_id: job.spec.tenant.to_string(),
        priority: job.spec.priority,
    })
    .collect()
}

/// Since when each reason holds: since the first of the last notes that all name it, or since the job waits.
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

/// Why a job has waited, until it was last placed if it no longer does, from what was noted of its bucket.
fn read_wait_notes(tables: &dyn Tables, id: JobId, criteria: &BucketCriteria) -> Result<Vec<WaitNote>, ApiError> {
    let Some(detail) = tables.job(id)? else { return Ok(Vec::new()) };
    let array = id.index.map(|_| id.number);
    // Whether its array was limited is no longer known; one of the two has no notes.
    let buckets = [Some(None), array.map(Some)].into_iter().flatten();
    // Nor is which policies were in force: those of now, or none.
    let key = |array, criteria| Bucket::of_spec(&detail.spec, array, criteria).key();
    let none = BucketCriteria::default();
    let buckets: BTreeSet<String> =
        buckets.flat_map(|array| [key(array, &none), key(array, criteria)]).collect();
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
    let place = position(state, job, now);
    let verdicts = app.cluster.verdicts();
    let reasons = render::api_reasons(&verdicts.of(state, job, now));
    let since = waiting_since(job);
    let breakdown = since.map(|_| priority_breakdown(state, job, now));
    let (api_state, phase) = crate::http::cluster::job_state_and_phase(job);
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
        queue_position: place.map(|place| place.position),
        queue_length: place.map(|place| place.of),
        nodes: node_names(job),
        score: render::attempt_score(job),
        priority: job.spec.priority,
        effective_priority: breakdown.map(|breakdown| breakdown.effective()),
        aging: breakdown.map(|breakdown| breakdown.aging),
        fair_share_penalty: breakdown.map(|breakdown| breakdown.penalty),
        fair_share_factor: breakdown.and_then(|breakdown| breakdown.share).map(render::fair_share_factor),
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

/// When it starts, and what would help the caller. Many rounds are drawn up on the shared copy of the state; a job that
/// the last forecast does not know yet has its own, where that costs little.
async fn add_forecast_and_remedies(
    app: &AppState,
    (caller, evaluation): (&Caller, EvaluationPermit),
    job: JobId,
    why: &mut JobExplanation,
) -> Result<(), ApiError> {
    let (forecast, position) = (app.cluster.forecast(), why.queue_position);
    let reserved = why.reserved_at_ms.map(Timestamp);
    let told = position.and_then(|position| forecast.of(job).or_else(|| forecast.of_position(position)));
    let (app, by) = (app.clone(), caller.actor.clone());
    let looking = tokio::task::spawn_blocking(move || {
        // The work is counted until it is done, also when its caller no longer waits for it.
        let _evaluation = evaluation;
        let now = app.cluster.now();
        let (jobs, facts) =
            app.read_state(|state| (state.jobs.len(), StartRangeCheck::new(state, job, reserved, now)))?;
        let copy = (jobs <= STATE_COPY_LIVE_JOBS_MAX).then(|| app.evaluations.shared_copy(&app.cluster, Some(job)));
        let small = copy.as_ref().filter(|copy| copy.state().jobs.len() <= OWN_FORECAST_LIVE_JOBS_MAX);
        let own = || small.filter(|_| position.is_some())?.forecast(OWN_FORECAST_ROUNDS_MAX).of(job);
        // A range that is over was wrong.
        let range = facts.reliable(told.filter(|range| range.to > now).or_else(own));
        Ok((range, copy.map(|copy| copy.remedies(&by, job)).unwrap_or_default()))
    });
    let found = looking.await.unwrap_or_else(|_| Err(ApiError::internal("looking ahead ended early")));
    let (range, remedies) = found?;
    match range {
        Ok(range) => {
            let reserved = why.reserved_at_ms.map(|at| range.reservation_within(Timestamp(at)).0);
            let range = range.to_api();
            why.reserved_at_ms = reserved;
            why.estimated_start = Some(format!("{} to {}", range.from, range.to));
            why.expected_start = Some(range);
        }
        // A job that is held or waits for another has no turn to estimate.
        Err(because) => why.no_estimate = why.queue_position.map(|_| because),
    }
    why.sooner_with = remedies.iter().map(api_remedy).collect();
    Ok(())
}

fn api_remedy(remedy: &Remedy) -> JobRemedy {
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

/// What would become of a job, without submitting it
#[utoipa::path(post, path = "/api/v1/jobs/plan", tag = "jobs", request_body = SubmitJob,
    responses((status = 200, description = "What would happen", body = DryRun)))]
pub async fn plan(
    State(app): State<AppState>,
    caller: Caller,
    CallerKey(caller_key): CallerKey,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DryRun>, ApiError> {
    let bytes = read_bytes(&headers, body, SUBMISSION_BYTES_MAX).await?;
    let ask = parse_submission(&app, &caller, &bytes).await?;
    let evaluation = app.evaluations.acquire(&caller_key).await?;
    // A whole round is drawn up, which may take a while in a large cluster.
    let looking = tokio::task::spawn_blocking(move || {
        let _evaluation = evaluation;
        dry_run(&app, &caller, &Command::SubmitJob(ask))
    });
    let outlook = looking.await.unwrap_or_else(|_| Err(ApiError::internal("the outlook ended early")))?;
    Ok(Json(outlook))
}

/// Plan the round with the job on the shared copy. Whether it would be accepted, the state of now decides.
fn dry_run(app: &AppState, caller: &Caller, submit: &Command) -> Result<DryRun, ApiError> {
    let Command::SubmitJob(SubmitJobCommand { spec, .. }) = submit else {
        return Err(ApiError::internal("only a submission has an outlook"));
    };
    let decide = |state: &muster_core::State| state.decide(&caller.actor, submit, app.cluster.now());
    let (jobs, decided) = app.read_state(|state| (state.jobs.len(), decide(state)))?;
    if let Err(refusal) = decided {
        return Ok(refused_outlook(refusal));
    }
    if jobs > STATE_COPY_LIVE_JOBS_MAX {
        // A copy would cost more than the round.
        return app
            .read_state(|state| api_outlook(planner::dry_run(state, spec, app.cluster.now().max(state.clock))));
    }
    let copy = app.evaluations.shared_copy(&app.cluster, None);
    let now = app.cluster.now().max(copy.state().clock);
    let limited = with_policy_limits(app, copy.state(), spec, now);
    let state = limited.as_ref().unwrap_or(copy.state());
    let mut outlook = api_outlook(planner::dry_run(state, spec, now));
    if outlook.outcome == DryRunOutcome::Waits
        && jobs <= OWN_FORECAST_LIVE_JOBS_MAX
        && let Ok(decision) = decide(state)
    {
        add_dry_run_forecast(state, caller, &decision, now, &mut outlook);
    }
    Ok(outlook)
}

/// The cluster with what policies let the tenant of a job hold, where that is not known because nobody of it waits.
fn with_policy_limits(
    app: &AppState,
    state: &muster_core::State,
    spec: &JobSpec,
    now: Timestamp,
) -> Option<muster_core::State> {
    let limits = query_missing_limits(state, &spec.tenant, app.interpreter.as_deref()?, now);
    (!limits.is_empty()).then(|| state.with_limits(limits))
}

/// When it would start, and what would help: the job is submitted to a copy of the cluster.
fn add_dry_run_forecast(
    state: &muster_core::State,
    caller: &Caller,
    decision: &Decision,
    now: Timestamp,
    outlook: &mut DryRun,
) {
    let mut copy = state.clone();
    decision.events.iter().for_each(|event| copy.apply(parse_event));
    let Answer::Job(job) = decision.answer else { return };
    let range = planner::forecast(&copy, now, OWN_FORECAST_ROUNDS_MAX).of(job);
    match StartRangeCheck::new(&copy, job, None, now).reliable(range) {
        Ok(range) => outlook.expected_start = Some(range.to_api()),
        Err(because) => outlook.no_estimate = Some(because),
    }
    outlook.sooner_with = planner::remedies(&copy, &caller.actor, job, now).iter().map(api_remedy).collect();
}

fn refused_outlook(refusal: Refusal) -> DryRun {
    DryRun {
        outcome: DryRunOutcome::Refused,
        summary: format!("would be refused: {refusal}"),
        node_name: None,
        gpus: Vec::new(),
        shares: Vec::new(),
        score: None,
        victims: Vec::new(),
        queue_position: None,
        queue_length: None,
        reasons: Vec::new(),
        refusal: Some(ApiError::from(refusal).problem()),
        expected_start: None,
        no_estimate: None,
        sooner_with: Vec::new(),
    }
}

fn api_outlook(outlook: planner::DryRun) -> DryRun {
    let reasons = render::api_reasons(&outlook.verdict);
    let (outcome, summary) = match (&outlook.start, &outlook.eviction) {
        (Some(_), _) => (DryRunOutcome::Starts, "would start in the next round".to_string()),
        (None, Some(room)) => (
            DryRunOutcome::Preempts,
            format!("{} would make room for it on {}", job_count_text(room.victims.len()), node_list_text(&room.tasks)),
        ),
        (None, None) => {
            let first = reasons.first().map_or("its turn has not come", |reason| reason.sentence.as_str());
            (DryRunOutcome::Waits, format!("would wait: {first}"))
        }
    };
    let starts = outlook.start.as_deref().unwrap_or_default();
    let room = outlook.eviction.as_ref();
    let tasks = || starts.iter().chain(room.into_iter().flat_map(|room| &room.tasks));
    DryRun {
        outcome,
        summary,
        node_name: tasks().next().map(|task| task.node.to_string()),
        gpus: gpu_share::placed_gpus(tasks()),
        shares: gpu_share::placed_shares(tasks()),
        score: outlook.score.as_deref().map(render::api_score),
        victims: room.into_iter().flat_map(|room| room.victims.iter().map(ToString::to_string)).collect(),
        queue_position: outlook.start.is_none().then_some(outlook.position.position),
        queue_length: outlook.start.is_none().then_some(outlook.position.of),
        reasons,
        refusal: None,
        expected_start: None,
        no_estimate: None,
        sooner_with: Vec::new(),
    }
}

fn job_count_text(count: usize) -> String {
    format!("{count} job{}", if count == 1 { "" } else { "s" })
}

/// The nodes of a gang, in words.
fn node_list_text(tasks: &[PlacedTask]) -> String {
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    match nodes.first() {
        Some(node) if nodes.len() == 1 => format!("`{node}`"),
        _ => format!("{} nodes", nodes.len()),
    }
}
