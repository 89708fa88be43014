//! Step 2, receive: a submission becomes a command of the core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_core::facts::command::IdempotencyRecord;
use muster_core::facts::command::{IdempotencyKey, SubmitJob};
use muster_core::objects::job::Outcome;
use muster_core::objects::tenant::Tier;
use muster_core::{Answer, Command, JobId, JobSpec, Refusal, TenantId};
use muster_protocol::submit::{self as wire, Submitted};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::conversions::parse_priority;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::array_indexes;
use crate::http::caller::TenantVisibility;
use crate::http::job_lookup::job_tenant;
use crate::http::job_spec::job_spec;
use crate::http::json::{Json, read_bytes};
use crate::identity::{Caller, Permission};
use crate::policies::AdmissionCheck;
use crate::request_json::parse;

/// Largest body of a submission.
pub const SUBMISSION_BYTES_MAX: usize = 256 << 10;
/// Submissions that may wait for policies at the same time.
const ADMISSION_CHECKS_MAX: usize = 16;
/// Longest idempotency key.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Submit a job
///
/// The job is durable when the response arrives. A request with an `Idempotency-Key` header can be repeated: the same
/// key with the same body returns the first job; with another body it is refused.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", request_body = wire::SubmitJob,
    params(("Idempotency-Key" = Option<String>, Header,
        description = "Idempotency key chosen by the client, kept for a day")),
    responses((status = 201, description = "Accepted", body = Submitted)))]
pub async fn submit(
    State(app): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = read_bytes(&headers, body, SUBMISSION_BYTES_MAX).await?;
    let key = idempotency_key(&headers, &bytes)?;
    let submit = parse_submission(&app, &caller, &bytes).await?;
    let known_key = stored_key_use(&app, &submit.spec.tenant, key.as_ref()).await?;
    let submit = SubmitJob { key, known_key, ..submit };
    check_admission(&app, &submit).await?;
    let held = submit.hold;
    let Answer::Job(job) = app.cluster.execute(caller.actor, Command::SubmitJob(submit)).await? else {
        return Err(ApiError::internal("the engine returned an unexpected answer"));
    };
    let message = format!("`{job}` was accepted{}", if held { " and is held" } else { "" });
    let submitted = Submitted { job_id: job.to_string(), status: "submitted".to_string(), message };
    let location = [(LOCATION, format!("/api/v1/jobs/{job}"))];
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

/// A semaphore for submissions that wait for policies: each of them occupies a thread.
pub fn admission_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ADMISSION_CHECKS_MAX))
}

/// Call the policy hook `admit`, which may refuse a job before the planner sees it. A policy that fails or is slow
/// refuses no submission: the planner calls `admit` again before the start, and a failure then counts as configured.
async fn check_admission(app: &AppState, submit: &SubmitJob) -> Result<(), ApiError> {
    let Some(interpreter) = app.interpreter.clone() else { return Ok(()) };
    let now = app.cluster.now();
    let check = app.read_state(|state| AdmissionCheck::for_spec(state, &submit.spec, now))?;
    let Some(check) = check else { return Ok(()) };
    let (wait, slots) = (interpreter.admission_timeout(), app.admission_slots.clone());
    let calling = async move {
        let slot = slots.acquire_owned().await;
        // A policy may be slow, so it must not block a thread that serves requests. The slot is released with its
        // thread.
        let refusal = tokio::task::spawn_blocking(move || (check.refusal(&*interpreter), slot).0);
        refusal.await.map_err(|_| ApiError::internal("the call of the policies was aborted"))
    };
    match tokio::time::timeout(wait, calling).await {
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(why))) => Err(Refusal::PolicyRefuses { why }.into()),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let job = &submit.spec.name;
            warn!(
                %job,
                "policy hook `admit` exceeded {wait:?}; job accepted, the planner calls `admit` again before the start"
            );
            Ok(())
        }
    }
}

/// A submission as a command without idempotency key.
pub async fn parse_submission(app: &AppState, caller: &Caller, bytes: &[u8]) -> Result<SubmitJob, ApiError> {
    let submission: wire::SubmitJob = parse(bytes)?;
    let tenant = caller.target_tenant(submission.tenant_id.as_deref())?;
    let priority = match &submission.priority {
        Some(priority) => parse_priority(priority)?,
        None => app.read_state(|state| default_priority(state, caller, &tenant))?,
    };
    let spec = job_spec(&submission, caller, tenant, priority)?;
    let known_outcomes = dependency_outcomes(app, caller, &spec).await?;
    Ok(SubmitJob {
        spec: Arc::new(spec),
        array: submission.array.as_deref().map(array_indexes::parse_array).transpose()?,
        hold: submission.hold.unwrap_or(false),
        key: None,
        known_outcomes,
        known_key: None,
        is_operator: caller.may(Permission::Operate, None),
    })
}

/// The job of an idempotency key, from the tables. `None` if the state still holds all keys that are kept.
async fn stored_key_use(
    app: &AppState,
    tenant: &TenantId,
    key: Option<&IdempotencyKey>,
) -> Result<Option<IdempotencyRecord>, ApiError> {
    let Some(key) = key.map(|key| key.key.clone()) else { return Ok(None) };
    let kept_from = |state: &muster_core::State| app.cluster.now().plus(-state.settings.memory_ms);
    let (kept_from, trimmed) = app.read_state(|state| (kept_from(state), state.trimmed_before))?;
    if trimmed <= kept_from {
        return Ok(None);
    }
    let tenant = tenant.to_string();
    let used = app.read_tables(move |tables| Ok(tables.idempotency_key_use(&tenant, &key)?)).await?;
    Ok(used.filter(|used| used.at >= kept_from))
}

/// The priority of a job that names none, at most the caller's ceiling: a default above it would refuse every such job.
fn default_priority(state: &muster_core::State, caller: &Caller, tenant: &TenantId) -> u32 {
    let default = match state.tenants.get(tenant).map(|known| known.config.tier) {
        // The medium tier is the default, so the cluster's setting decides.
        None | Some(Tier::Medium) => state.settings.default_priority,
        Some(tier) => tier.priority(),
    };
    default.min(state.priority_ceiling(&caller.actor, tenant).priority)
}

fn idempotency_key(headers: &HeaderMap, body: &[u8]) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) => {
            Ok(Some(IdempotencyKey { key: key.to_string(), body_hash: sha256(body) }))
        }
        _ => {
            let problem = format!("must be 1 to {IDEMPOTENCY_KEY_BYTES_MAX} printable characters");
            Err(ApiError::invalid("Idempotency-Key", problem))
        }
    }
}

/// The outcomes of dependencies that have left the state. Jobs of other tenants are unknown.
async fn dependency_outcomes(
    app: &AppState,
    caller: &Caller,
    spec: &JobSpec,
) -> Result<BTreeMap<JobId, Outcome>, ApiError> {
    let jobs: BTreeSet<JobId> = spec.after.iter().map(|dependency| dependency.job).collect();
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs: Vec<JobId> = jobs.into_iter().collect();
    let own = caller.tenant_scope().cloned();
    app.read_tables(move |tables| {
        for job in own.iter().flat_map(|_| &jobs) {
            let tenant = job_tenant(tables, *job)?;
            if tenant.as_deref() != own.as_ref().map(TenantId::as_str) {
                return Err(Refusal::UnknownJob { job: *job }.into());
            }
        }
        Ok(tables.outcomes(&jobs)?)
    })
    .await
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
