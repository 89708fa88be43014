//! Dry run (`muster plan`): what would happen to a job if it were submitted now. Nothing is recorded.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use muster_core::facts::command::SubmitJob as SubmitJobCommand;
use muster_core::objects::job::PlacedTask;
use muster_core::planner;
use muster_core::state::Decision;
use muster_core::{Answer, Command, JobSpec, NodeId, Refusal, Timestamp};
use muster_protocol::explain::{DryRun, DryRunOutcome};
use muster_protocol::submit::SubmitJob;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::CallerKey;
use crate::http::json::{Json, read_bytes};
use crate::http::start_range::StartRangeCheck;
use crate::http::submit::{SUBMISSION_BYTES_MAX, parse_submission};
use crate::http::why::{OWN_FORECAST_LIVE_JOBS_MAX, OWN_FORECAST_ROUNDS_MAX, STATE_COPY_LIVE_JOBS_MAX, api_remedy};
use crate::http::{gpu_share, render};
use crate::identity::Caller;
use crate::policies::query_missing_limits;

/// Dry run: what would happen to a job if it were submitted now
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
    let submit = parse_submission(&app, &caller, &bytes).await?;
    let evaluation = app.evaluations.acquire(&caller_key).await?;
    // A whole round is planned, which may take a while on a large cluster.
    let running = tokio::task::spawn_blocking(move || {
        let _evaluation = evaluation;
        dry_run(&app, &caller, &Command::SubmitJob(submit))
    });
    let found = running.await.unwrap_or_else(|_| Err(ApiError::internal("the dry run was aborted")))?;
    Ok(Json(found))
}

/// Plan a round with the job on the shared copy of the state. Whether the job would be accepted is decided on the
/// current state.
fn dry_run(app: &AppState, caller: &Caller, submit: &Command) -> Result<DryRun, ApiError> {
    let Command::SubmitJob(SubmitJobCommand { spec, .. }) = submit else {
        return Err(ApiError::internal("only a submission can be dry-run"));
    };
    let decide = |state: &muster_core::State| state.decide(&caller.actor, submit, app.cluster.now());
    let (jobs, decided) = app.read_state(|state| (state.jobs.len(), decide(state)))?;
    if let Err(refusal) = decided {
        return Ok(refused_dry_run(refusal));
    }
    if jobs > STATE_COPY_LIVE_JOBS_MAX {
        // Copying the state would cost more than the round.
        return app.read_state(|state| api_dry_run(planner::dry_run(state, spec, app.cluster.now().max(state.clock))));
    }
    let copy = app.evaluations.shared_copy(&app.cluster, None);
    let now = app.cluster.now().max(copy.state().clock);
    let limited = with_policy_limits(app, copy.state(), spec, now);
    let state = limited.as_ref().unwrap_or(copy.state());
    let mut found = api_dry_run(planner::dry_run(state, spec, now));
    if found.outcome == DryRunOutcome::Waits
        && jobs <= OWN_FORECAST_LIVE_JOBS_MAX
        && let Ok(decision) = decide(state)
    {
        add_dry_run_forecast(state, caller, &decision, now, &mut found);
    }
    Ok(found)
}

/// The state with the policy limits of the job's tenant, if they are missing: limits are kept only for tenants with
/// waiting jobs.
fn with_policy_limits(
    app: &AppState,
    state: &muster_core::State,
    spec: &JobSpec,
    now: Timestamp,
) -> Option<muster_core::State> {
    let limits = query_missing_limits(state, &spec.tenant, app.interpreter.as_deref()?, now);
    (!limits.is_empty()).then(|| state.with_limits(limits))
}

/// Add the forecast and the remedies: the job is submitted to a copy of the state.
fn add_dry_run_forecast(
    state: &muster_core::State,
    caller: &Caller,
    decision: &Decision,
    now: Timestamp,
    dry_run: &mut DryRun,
) {
    let mut copy = state.clone();
    decision.events.iter().for_each(|event| copy.apply(event));
    let Answer::Job(job) = decision.answer else { return };
    let range = planner::forecast(&copy, now, OWN_FORECAST_ROUNDS_MAX).of(job);
    match StartRangeCheck::new(&copy, job, None, now).reliable(range) {
        Ok(range) => dry_run.expected_start = Some(range.to_api()),
        Err(because) => dry_run.no_estimate = Some(because),
    }
    dry_run.sooner_with = planner::remedies(&copy, &caller.actor, job, now).iter().map(api_remedy).collect();
}

fn refused_dry_run(refusal: Refusal) -> DryRun {
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

fn api_dry_run(found: planner::DryRun) -> DryRun {
    let reasons = render::api_reasons(&found.verdict);
    let (outcome, summary) = match (&found.start, &found.eviction) {
        (Some(_), _) => (DryRunOutcome::Starts, "would start in the next round".to_string()),
        (None, Some(eviction)) => (
            DryRunOutcome::Preempts,
            format!("would preempt {} on {}", job_count_text(eviction.victims.len()), node_list_text(&eviction.tasks)),
        ),
        (None, None) => {
            let first =
                reasons.first().map_or("the planner has not considered it yet", |reason| reason.sentence.as_str());
            (DryRunOutcome::Waits, format!("would wait: {first}"))
        }
    };
    let starts = found.start.as_deref().unwrap_or_default();
    let eviction = found.eviction.as_ref();
    let tasks = || starts.iter().chain(eviction.into_iter().flat_map(|eviction| &eviction.tasks));
    DryRun {
        outcome,
        summary,
        node_name: tasks().next().map(|task| task.node.to_string()),
        gpus: gpu_share::placed_gpus(tasks()),
        shares: gpu_share::placed_shares(tasks()),
        score: found.score.as_deref().map(render::api_score),
        victims: eviction.into_iter().flat_map(|eviction| eviction.victims.iter().map(ToString::to_string)).collect(),
        queue_position: found.start.is_none().then_some(found.position.position),
        queue_length: found.start.is_none().then_some(found.position.of),
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

/// The node of a gang by name, or the number of its nodes.
fn node_list_text(tasks: &[PlacedTask]) -> String {
    let nodes: BTreeSet<&NodeId> = tasks.iter().map(|task| &task.node).collect();
    match nodes.first() {
        Some(node) if nodes.len() == 1 => format!("`{node}`"),
        _ => format!("{} nodes", nodes.len()),
    }
}
