//! Shadow policies: where policies on trial would decide differently from the active ones.

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::JobId;
use muster_protocol::policy::{PolicyDifference, PolicyShadow};

use crate::conversions::rfc3339;
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::json::Json;
use crate::http::policies::api_policy_version;
use crate::shadow::{Divergence, ShadowRun};

/// Report where shadow policies decide differently
#[utoipa::path(get, path = "/api/v1/policies/shadow", tag = "policies",
    responses((status = 200, description = "The differences so far, the newest job first", body = PolicyShadow)))]
pub async fn report(State(app): State<AppState>) -> Result<Json<PolicyShadow>, ApiError> {
    shadow_report(&app, app.shadow.current_run())
}

/// End the shadow
#[utoipa::path(delete, path = "/api/v1/policies/shadow", tag = "policies",
    responses((status = 200, description = "The final report", body = PolicyShadow)))]
pub async fn end(State(app): State<AppState>) -> Result<Json<PolicyShadow>, ApiError> {
    shadow_report(&app, app.shadow.stop())
}

fn shadow_report(app: &AppState, run: Option<ShadowRun>) -> Result<Json<PolicyShadow>, ApiError> {
    let none = || {
        ApiError::new(StatusCode::NOT_FOUND, "no-shadow", "no policies run as a shadow")
            .hint("`muster policy apply FOLDER --shadow` starts one")
    };
    let run = run.ok_or_else(none)?;
    let policies = app.read_state(|state| api_policy_version(state, &run.version, false))?;
    let jobs = run.divergences.iter().rev().map(|(job, divergence)| api_difference(*job, divergence));
    Ok(Json(PolicyShadow {
        policies,
        since: rfc3339(run.version.at.0),
        looks: run.comparisons,
        missed: run.skipped,
        alike: run.agreements,
        total: run.divergences.len() as u64,
        jobs: jobs.collect(),
    }))
}

fn api_difference(job: JobId, divergence: &Divergence) -> PolicyDifference {
    PolicyDifference {
        job_id: job.to_string(),
        seen_at: rfc3339(divergence.last_seen_at.0),
        times: divergence.times,
        in_force: divergence.active.to_string(),
        shadow: divergence.shadow.to_string(),
    }
}
