//! Step 2, receive: a job as it was written becomes a command of the core.

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

use crate::http::AppState;
use crate::http::array_indexes;
use crate::http::api_error::ApiError;
use crate::http::job_lookup::job_tenant;
use crate::http::json::{Json, parse, read_bytes};
use crate::http::job_spec::job_spec;
use crate::http::caller::TenantVisibility;
use crate::http::conversions::parse_priority;
use crate::identity::{Permission, Caller};
use crate::policies::AdmissionCheck;

/// Largest body of a submission.
pub const SUBMISSION_BYTES_MAX: usize = 256 << 10;
/// Most submissions that wait for policies at the same time.
const ADMISSION_CHECKS_MAX: usize = 16;
/// Longest idempotency key.
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;

/// Accept a job
///
/// The job is durable when this answers. A request with an `Idempotency-Key` header can be repeated: the same
/// key with the same body answers with the first job, with another body it is refused.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", request_body = wire::SubmitJob,
    params(("Idempotency-Key" = Option<String>, Header, description = "A word of the client for this submission, kept for a day")),
    responses((status = 201, description = "Accepted", body = Submitted)))]
pub async fn submit(
    State(door): State<AppState>,
    who: Caller,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let bytes = read_bytes(&headers, body, SUBMISSION_BYTES_MAX).await?;
    let key = idempotency_key(&headers, &bytes)?;
    let ask = parse_submission(&door, &who, &bytes).await?;
    let known_key = stored_key_use(&door, &ask.spec.tenant, key.as_ref()).await?;
    let ask = SubmitJob { key, known_key, ..ask };
    check_admission(&door, &ask).await?;
    let held = ask.hold;
    let Answer::Job(job) = door.cluster.execute(who.actor, Command::SubmitJob(ask)).await? else {
        return Err(ApiError::internal("the engine answered something else"));
    };
    let message = format!("`{job}` was accepted{}", if held { " and is held" } else { "" });
    let submitted = Submitted { job_id: job.to_string(), status: "submitted".to_string(), message };
    let location = [(LOCATION, format!("/api/v1/jobs/{job}"))];
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

/// A semaphore for the submissions that wait for policies: each of them occupies a thread.
pub fn admission_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ADMISSION_CHECKS_MAX))
}

/// Policies may refuse a job before the planner sees it. A policy that fails or is slow refuses no submission: the planner
/// asks `admit` again before the job starts, and a failure then counts as configured.
async fn check_admission(door: &AppState, ask: &SubmitJob) -> Result<(), ApiError> {
    let Some(interpreter) = door.interpreter.clone() else { return Ok(()) };
    let now = door.cluster.now();
    let Some(applicant) = door.read_state(|state| AdmissionCheck::for_spec(state, &ask.spec, now))? else { return Ok(()) };
    let (wait, slots) = (interpreter.admission_timeout(), door.admission_slots.clone());
    let asking = async move {
        let slot = slots.acquire_owned().await;
        // A policy may take its time; the threads that serve others are not for that. The slot is free once the thread is.
        let asked = tokio::task::spawn_blocking(move || (applicant.refusal(&*interpreter), slot).0);
        asked.await.map_err(|_| ApiError::internal("asking the policies ended early"))
    };
    match tokio::time::timeout(wait, asking).await {
        Ok(Ok(None)) => Ok(()),
        Ok(Ok(Some(why))) => Err(Refusal::PolicyRefuses { why }.into()),
        Ok(Err(fault)) => Err(fault),
        Err(_) => {
            warn!(job = %ask.spec.name, "`admit` took longer than {wait:?}; the job is accepted, and the planner asks again");
            Ok(())
        }
    }
}

/// A job as it was written, as a command without key.
pub async fn parse_submission(door: &AppState, who: &Caller, bytes: &[u8]) -> Result<SubmitJob, ApiError> {
    let written: wire::SubmitJob = parse(bytes)?;
    let tenant = who.target_tenant(written.tenant_id.as_deref())?;
    let priority = match &written.priority {
        Some(said) => parse_priority(said)?,
        None => door.read_state(|state| default_priority(state, who, &tenant))?,
    };
    let spec = job_spec(&written, who, tenant, parse_priority)?;
    let known_outcomes = dependency_outcomes(door, who, &job_spec).await?;
    Ok(SubmitJob {
        spec: Arc::new(job_spec),
        array: written.array.as_deref().map(array_indexes::parse_array).transpose()?,
        hold: written.hold.unwrap_or(false),
        key: None,
        known_outcomes,
        known_key: None,
        is_operator: who.may(Permission::Operate, None),
    })
}

/// What a key was used for, where the state may no longer remember it.
async fn stored_key_use(
    door: &AppState,
    tenant: &TenantId,
    key: Option<&IdempotencyKey>,
) -> Result<Option<IdempotencyRecord>, ApiError> {
    let Some(key) = key.map(|key| key.key.clone()) else { return Ok(None) };
    let kept_from = |state: &muster_core::State| door.cluster.now().plus(-state.settings.memory_ms);
    let (kept_from, trimmed) = door.read_state(|state| (kept_from(state), state.trimmed_before))?;
    if trimmed <= kept_from {
        return Ok(None);
    }
    let tenant = tenant.to_string();
    let used = door.read_tables(move |tables| Ok(tables.idempotency_key_use(&tenant, &key)?)).await?;
    Ok(used.filter(|used| used.at >= kept_from))
}

/// The priority of a job that names none. A default above the caller's ceiling would refuse every such job.
fn default_priority(state: &muster_core::State, who: &Caller, tenant: &TenantId) -> u32 {
    let usual = match state.tenants.get(tenant).map(|known| known.config.tier) {
        // The usual tier leaves the choice to the cluster.
        None | Some(Tier::Medium) => state.settings.default_priority,
        Some(tier) => tier.priority(),
    };
    usual.min(state.priority_ceiling(&who.actor, tenant).priority)
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

/// How dependencies ended that the state no longer remembers. Jobs of other tenants do not exist.
async fn dependency_outcomes(door: &AppState, who: &Caller, spec: &JobSpec) -> Result<BTreeMap<JobId, Outcome>, ApiError> {
    let jobs: BTreeSet<JobId> = job_spec.after.iter().map(|dependency| dependency.job).collect();
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs: Vec<JobId> = jobs.into_iter().collect();
    let own = who.tenant_scope().cloned();
    door.read_tables(move |tables| {
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
