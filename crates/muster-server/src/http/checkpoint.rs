//! Checkpoint acknowledgement: a running job reports that it has saved its work.

use axum::extract::State;
use muster_core::facts::command::TaskReport;
use muster_core::{Command, JobId, Refusal};
use muster_protocol::submit::Acknowledgement;

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::jobs::send_job_command;
use crate::http::json::Json;
use crate::http::query::PathId;
use crate::identity::Caller;

/// Report a checkpoint of a running job
///
/// Preemption then loses only the work since this checkpoint. If a preempted job reports a checkpoint during its grace
/// time, its remaining processes are killed two seconds later. One report covers all tasks of the gang: send it when
/// all tasks have saved.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/checkpoint", tag = "jobs", operation_id = "saved",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Recorded", body = Acknowledgement)))]
pub async fn report_checkpoint(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<Acknowledgement>, ApiError> {
    let attempt = app.read_state(|state| {
        let attempt = state.jobs.get(&job)?.attempt()?;
        Some((attempt.number, attempt.tasks.first()?.node.clone()))
    })?;
    let Some((attempt, node)) = attempt else {
        return Err(not_running_error(&app, &caller, job).await?);
    };
    let command = Command::ReportTask { node, job, attempt, report: TaskReport::Saved };
    send_job_command(&app, caller, job, command).await?;
    Ok(Json(Acknowledgement { message: format!("checkpoint of `{job}` recorded") }))
}

/// The refusal for a job that does not run, or is unknown to the caller.
async fn not_running_error(app: &AppState, caller: &Caller, job: JobId) -> Result<ApiError, ApiError> {
    let live = app.read_state(|state| state.jobs.get(&job).map(|job| job.phase_name()))?;
    let (row, outcome) = app
        .read_tables(move |tables| {
            Ok((tables.job(job)?.map(|detail| detail.row), tables.outcomes(&[job])?.remove(&job)))
        })
        .await?;
    row.filter(|row| caller.sees_tenant(&row.tenant)).ok_or(Refusal::UnknownJob { job })?;
    let phase = live.or(outcome.map(|outcome| outcome.as_str())).unwrap_or("not running");
    Ok(Refusal::WrongPhase { job, phase, verb: "checkpoint", needs: "running" }.into())
}
