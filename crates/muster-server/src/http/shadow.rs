//! The shadow: what policies beside those in force would decide otherwise.

use axum::extract::State;
use axum::http::StatusCode;
use muster_core::JobId;
use muster_protocol::policy::{PolicyOtherwise, PolicyShadow};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::json::Json;
use crate::http::policies::shown;
use crate::http::written::stamp;
use crate::shadow::{Otherwise, Run};

/// Look at what a shadow would decide otherwise
#[utoipa::path(get, path = "/api/v1/policies/shadow", tag = "policies",
    responses((status = 200, description = "So far, the newest job first", body = PolicyShadow)))]
pub async fn report(State(door): State<Door>) -> Result<Json<PolicyShadow>, Fault> {
    told(&door, door.shadow.run())
}

/// End the shadow
#[utoipa::path(delete, path = "/api/v1/policies/shadow", tag = "policies",
    responses((status = 200, description = "What it came to", body = PolicyShadow)))]
pub async fn end(State(door): State<Door>) -> Result<Json<PolicyShadow>, Fault> {
    told(&door, door.shadow.end())
}

fn told(door: &Door, run: Option<Run>) -> Result<Json<PolicyShadow>, Fault> {
    let none = || {
        Fault::new(StatusCode::NOT_FOUND, "no-shadow", "no policies run as a shadow")
            .hint("`muster policy apply FOLDER --shadow` begins one")
    };
    let run = run.ok_or_else(none)?;
    let policies = door.state(|state| shown(state, &run.version, false))?;
    let jobs = run.otherwise.iter().rev().map(|(job, otherwise)| of_job(*job, otherwise));
    Ok(Json(PolicyShadow {
        policies,
        since: stamp(run.version.at.0),
        looks: run.looks,
        missed: run.missed,
        alike: run.alike,
        total: run.otherwise.len() as u64,
        jobs: jobs.collect(),
    }))
}

fn of_job(job: JobId, otherwise: &Otherwise) -> PolicyOtherwise {
    PolicyOtherwise {
        job_id: job.to_string(),
        seen_at: stamp(otherwise.at.0),
        times: otherwise.times,
        in_force: otherwise.in_force.to_string(),
        shadow: otherwise.shadow.to_string(),
    }
}
