//! Preemption receipts, read from the journal: what each preemption cost its victim.

use axum::extract::State;
use muster_core::{Event, JobId, Refusal, Timestamp};
use muster_protocol::receipt::{Receipt, ReceiptList};
use muster_store::Tables;
use muster_store::rows::EventRow;

use crate::conversions::{ms_to_hours, rfc3339};
use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::http::job_lookup::{job_event_rows, job_tenant, parse_event};
use crate::http::json::Json;
use crate::http::query::PathId;
use crate::identity::Caller;

/// Preemption receipts of a job: as victim (`lost`) and as preemptor (`caused`)
///
/// Each receipt says how long the victim ran, when it last reported a checkpoint and how many GPU-hours were lost.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/receipts", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Its receipts", body = ReceiptList)))]
pub async fn receipts(
    State(app): State<AppState>,
    caller: Caller,
    PathId(job): PathId<JobId>,
) -> Result<Json<ReceiptList>, ApiError> {
    let found = app.read_tables(move |tables| {
        if !sees_job(&caller, tables, job)? {
            return Ok(None);
        }
        let own = job_event_rows(tables, job)?;
        let victims: Vec<JobId> = own.iter().flat_map(claim_victims).collect();
        let mut caused = Vec::new();
        for victim in victims {
            let seen = sees_job(&caller, tables, victim)?;
            let victim_rows = if seen { job_event_rows(tables, victim)? } else { Vec::new() };
            caused.extend(
                victim_rows
                    .iter()
                    .filter_map(receipt_with_sort_key)
                    .filter(|(_, receipt)| receipt.by_job_id == job.to_string()),
            );
        }
        caused.sort_by_key(|(key, _)| *key);
        caused.dedup();
        let caused = caused.into_iter().map(|(_, receipt)| receipt).collect();
        let lost = own.iter().filter_map(receipt_with_sort_key).map(|(_, receipt)| receipt).collect();
        Ok(Some(ReceiptList { job_id: job.to_string(), lost, caused }))
    });
    Ok(Json(found.await?.ok_or(Refusal::UnknownJob { job })?))
}

fn sees_job(caller: &Caller, tables: &dyn Tables, job: JobId) -> Result<bool, ApiError> {
    Ok(job_tenant(tables, job)?.is_some_and(|tenant| caller.sees_tenant(&tenant)))
}

fn claim_victims(row: &EventRow) -> Vec<JobId> {
    match parse_event(row) {
        Some(Event::ClaimMade { victims, .. }) => victims,
        _ => Vec::new(),
    }
}

/// A receipt with its sort key: time of the stop request, then job id (numeric, so `job-2` precedes `job-10`).
fn receipt_with_sort_key(row: &EventRow) -> Option<((Timestamp, JobId), Receipt)> {
    let Event::AttemptEnded { job, attempt, receipt: Some(receipt), at, .. } = parse_event(row)? else {
        return None;
    };
    let sort_key = (receipt.stop_ordered_at, job);
    let receipt = Receipt {
        job_id: job.to_string(),
        attempt,
        by_job_id: receipt.by.to_string(),
        asked_at: rfc3339(receipt.stop_ordered_at.0),
        gone_at: rfc3339(at.0),
        saved_at: receipt.saved_at.map(|at| rfc3339(at.0)),
        ran_seconds: receipt.ran_ms / 1_000,
        lost_gpu_hours: ms_to_hours(receipt.lost_gpu_ms),
    };
    Some((sort_key, receipt))
}
