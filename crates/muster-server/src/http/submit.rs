//! Step 2, receive: a job as it was written becomes a command of the core.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use muster_core::command::{IdempotencyKey, SubmitJob};
use muster_core::job::Outcome;
use muster_core::state::KeyUse;
use muster_core::tenant::Tier;
use muster_core::{Answer, Command, JobId, JobSpec, Refusal, TenantId};
use muster_protocol::submit::{self as wire, Submitted};
use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tracing::warn;

use crate::http::Door;
use crate::http::array;
use crate::http::fault::Fault;
use crate::http::history::tenant_of;
use crate::http::json::{Json, parse, read_bytes};
use crate::http::spec::spec;
use crate::http::who::Reach;
use crate::http::written::priority;
use crate::identity::{Verb, Who};
use crate::policies::Applicant;

/// Largest body of a submission.
pub const JOB_BYTES_MAX: usize = 256 << 10;
/// Most submissions that wait for policies at the same time.
const ADMISSIONS_MAX: usize = 16;
/// Longest idempotency key.
const KEY_LENGTH_MAX: usize = 255;

/// Accept a job
///
/// The job is durable when this answers. A request with an `Idempotency-Key` header can be repeated: the same
/// key with the same body answers with the first job, with another body it is refused.
#[utoipa::path(post, path = "/api/v1/jobs", tag = "jobs", request_body = wire::SubmitJob,
    params(("Idempotency-Key" = Option<String>, Header, description = "A word of the client for this submission, kept for a day")),
    responses((status = 201, description = "Accepted", body = Submitted)))]
pub async fn submit(
    State(door): State<Door>,
    who: Who,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Fault> {
    let bytes = read_bytes(&headers, body, JOB_BYTES_MAX).await?;
    let key = idempotency_key(&headers, &bytes)?;
    let ask = read_ask(&door, &who, &bytes).await?;
    let known_key = known_key(&door, &ask.spec.tenant, key.as_ref()).await?;
    let ask = SubmitJob { key, known_key, ..ask };
    see_policies(&door, &ask).await?;
    let held = ask.hold;
    let Answer::Job(job) = door.cluster.ask(who.actor, Command::SubmitJob(ask)).await? else {
        return Err(Fault::internal("the engine answered something else"));
    };
    let message = format!("`{job}` was accepted{}", if held { " and is held" } else { "" });
    let submitted = Submitted { job_id: job.to_string(), status: "submitted".to_string(), message };
    let location = [(LOCATION, format!("/api/v1/jobs/{job}"))];
    Ok((StatusCode::CREATED, location, Json(submitted)).into_response())
}

/// A semaphore for the submissions that wait for policies: each of them occupies a thread.
pub fn admission_slots() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(ADMISSIONS_MAX))
}

/// Policies may refuse a job before the planner sees it. A policy that fails or is slow refuses no submission: the planner
/// asks `admit` again before the job starts, and a failure then counts as configured.
async fn see_policies(door: &Door, ask: &SubmitJob) -> Result<(), Fault> {
    let Some(interpreter) = door.interpreter.clone() else { return Ok(()) };
    let now = door.cluster.now();
    let Some(applicant) = door.state(|state| Applicant::of(state, &ask.spec, now))? else { return Ok(()) };
    let (wait, slots) = (interpreter.admission_wait(), door.admission_slots.clone());
    let asking = async move {
        let slot = slots.acquire_owned().await;
        // A policy may take its time; the threads that serve others are not for that. The slot is free once the thread is.
        let asked = tokio::task::spawn_blocking(move || (applicant.refused(&*interpreter), slot).0);
        asked.await.map_err(|_| Fault::internal("asking the policies ended early"))
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
pub async fn read_ask(door: &Door, who: &Who, bytes: &[u8]) -> Result<SubmitJob, Fault> {
    let written: wire::SubmitJob = parse(bytes)?;
    let tenant = who.acts_for(written.tenant_id.as_deref())?;
    let priority = match &written.priority {
        Some(said) => priority(said)?,
        None => door.state(|state| usual_priority(state, who, &tenant))?,
    };
    let spec = spec(&written, who, tenant, priority)?;
    let known_outcomes = known_outcomes(door, who, &spec).await?;
    Ok(SubmitJob {
        spec: Arc::new(spec),
        array: written.array.as_deref().map(array::parse).transpose()?,
        hold: written.hold.unwrap_or(false),
        key: None,
        known_outcomes,
        known_key: None,
        is_operator: who.may(Verb::Operate, None),
    })
}

/// What a key was used for, where the state may no longer remember it.
async fn known_key(
    door: &Door,
    tenant: &TenantId,
    key: Option<&IdempotencyKey>,
) -> Result<Option<KeyUse>, Fault> {
    let Some(key) = key.map(|key| key.key.clone()) else { return Ok(None) };
    let kept_from = |state: &muster_core::State| door.cluster.now().plus(-state.settings.memory_ms);
    let (kept_from, trimmed) = door.state(|state| (kept_from(state), state.trimmed_before))?;
    if trimmed <= kept_from {
        return Ok(None);
    }
    let tenant = tenant.to_string();
    let used = door.tables(move |tables| Ok(tables.key_use(&tenant, &key)?)).await?;
    Ok(used.filter(|used| used.at >= kept_from))
}

/// The priority of a job that names none. A default above the caller's ceiling would refuse every such job.
fn usual_priority(state: &muster_core::State, who: &Who, tenant: &TenantId) -> u32 {
    let usual = match state.tenants.get(tenant).map(|known| known.config.tier) {
        // The usual tier leaves the choice to the cluster.
        None | Some(Tier::Medium) => state.settings.default_priority,
        Some(tier) => tier.priority(),
    };
    usual.min(state.priority_ceiling(&who.actor, tenant).priority)
}

fn idempotency_key(headers: &HeaderMap, body: &[u8]) -> Result<Option<IdempotencyKey>, Fault> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key) if (1..=KEY_LENGTH_MAX).contains(&key.len()) => {
            Ok(Some(IdempotencyKey { key: key.to_string(), body_hash: sha256(body) }))
        }
        _ => {
            let problem = format!("must be 1 to {KEY_LENGTH_MAX} printable characters");
            Err(Fault::invalid("Idempotency-Key", problem))
        }
    }
}

/// How dependencies ended that the state no longer remembers. Jobs of other tenants do not exist.
async fn known_outcomes(door: &Door, who: &Who, spec: &JobSpec) -> Result<BTreeMap<JobId, Outcome>, Fault> {
    let jobs: BTreeSet<JobId> = spec.after.iter().map(|dependency| dependency.job).collect();
    if jobs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let jobs: Vec<JobId> = jobs.into_iter().collect();
    let own = who.confined_to().cloned();
    door.tables(move |tables| {
        for job in own.iter().flat_map(|_| &jobs) {
            let tenant = tenant_of(tables, *job)?;
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
