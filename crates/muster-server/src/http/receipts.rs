//! What displacing jobs has cost, read from the journal, and the word of a job that its work is saved.

use axum::extract::State;
use muster_core::command::Said;
use muster_core::{Command, Event, JobId, Refusal, Timestamp};
use muster_protocol::receipt::{Receipt, ReceiptList};
use muster_protocol::submit::Done;
use muster_store::Tables;
use muster_store::rows::EventRow;

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::history::tenant_of;
use crate::http::jobs::steer;
use crate::http::json::Json;
use crate::http::query::Id;
use crate::http::who::Reach;
use crate::http::written::{hours, stamp};
use crate::identity::Who;

/// Journal entries read at a time.
const PAGE: u32 = 500;

/// What preemption has cost a job, and what it has cost others for it
///
/// Each displaced job is listed with how long it ran, when it last saved its work and how much is lost.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/receipts", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Its receipts", body = ReceiptList)))]
pub async fn receipts(
    State(door): State<Door>,
    who: Who,
    Id(job): Id<JobId>,
) -> Result<Json<ReceiptList>, Fault> {
    let looker = who.clone();
    let found = door.tables(move |tables| {
        if !sees(&looker, tables, job)? {
            return Ok(None);
        }
        let own = events_of(tables, job)?;
        let victims: Vec<JobId> = own.iter().flat_map(victims).collect();
        let mut caused = Vec::new();
        for victim in victims {
            let seen = sees(&looker, tables, victim)?;
            let theirs = if seen { events_of(tables, victim)? } else { Vec::new() };
            caused.extend(
                theirs.iter().filter_map(receipt).filter(|(_, one)| one.by_job_id == job.to_string()),
            );
        }
        caused.sort_by_key(|(place, _)| *place);
        caused.dedup();
        let caused = caused.into_iter().map(|(_, receipt)| receipt).collect();
        let lost = own.iter().filter_map(receipt).map(|(_, receipt)| receipt).collect();
        Ok(Some(ReceiptList { job_id: job.to_string(), lost, caused }))
    });
    Ok(Json(found.await?.ok_or(Refusal::UnknownJob { job })?))
}

fn sees(who: &Who, tables: &dyn Tables, job: JobId) -> Result<bool, Fault> {
    Ok(tenant_of(tables, job)?.is_some_and(|tenant| who.sees_tenant(&tenant)))
}

/// Say that a running job has saved its work
///
/// From then on only what came after is lost if the job is displaced. A job that says so after it was asked to stop,
/// and will come back, is not waited for any longer: what it left running is ended two seconds later. One word counts
/// for all tasks of a gang, so say it when all have saved.
#[utoipa::path(post, path = "/api/v1/jobs/{id}/checkpoint", tag = "jobs",
    params(("id" = String, Path, description = "The job")),
    responses((status = 200, description = "Noted", body = Done)))]
pub async fn saved(State(door): State<Door>, who: Who, Id(job): Id<JobId>) -> Result<Json<Done>, Fault> {
    let attempt = door.state(|state| {
        let attempt = state.jobs.get(&job)?.attempt()?;
        Some((attempt.number, attempt.tasks.first()?.node.clone()))
    })?;
    let Some((attempt, node)) = attempt else {
        return Err(not_running(&door, &who, job).await?);
    };
    let command = Command::ReportTask { node, job, attempt, said: Said::Saved };
    steer(&door, who, job, command, "has saved its work").await
}

/// The word for a job that has no work to save.
async fn not_running(door: &Door, who: &Who, job: JobId) -> Result<Fault, Fault> {
    let live = door.state(|state| state.jobs.get(&job).map(|job| job.phase_word()))?;
    let row = door.tables(move |tables| Ok(tables.job(job)?.map(|detail| detail.row))).await?;
    row.filter(|row| who.sees_tenant(&row.tenant)).ok_or(Refusal::UnknownJob { job })?;
    let phase = live.unwrap_or("over");
    Ok(Refusal::WrongPhase { job, phase, verb: "checkpoint", needs: "running" }.into())
}

/// The journal entries of a job, oldest first.
pub fn events_of(tables: &dyn Tables, job: JobId) -> Result<Vec<EventRow>, Fault> {
    let mut all = Vec::new();
    loop {
        let after = all.last().map_or(0, |row: &EventRow| row.seq);
        let page = tables.events(after, PAGE, Some(job))?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// What a journal entry says; nothing if this version cannot read it.
pub fn event(row: &EventRow) -> Option<Event> {
    muster_json::from_str(&row.payload).ok()
}

fn victims(row: &EventRow) -> Vec<JobId> {
    match event(row) {
        Some(Event::ClaimMade { victims, .. }) => victims,
        _ => Vec::new(),
    }
}

/// A receipt, and its place among others: those who were asked first, and of those the first job. Not by what is written
/// of it, where `job-10` comes before `job-2`.
fn receipt(row: &EventRow) -> Option<((Timestamp, JobId), Receipt)> {
    let Event::AttemptEnded { job, attempt, receipt: Some(receipt), at, .. } = event(row)? else {
        return None;
    };
    let place = (receipt.asked_at, job);
    let receipt = Receipt {
        job_id: job.to_string(),
        attempt,
        by_job_id: receipt.by.to_string(),
        asked_at: stamp(receipt.asked_at.0),
        gone_at: stamp(at.0),
        saved_at: receipt.saved_at.map(|at| stamp(at.0)),
        ran_seconds: receipt.ran_ms / 1_000,
        lost_gpu_hours: hours(receipt.lost_gpu_ms),
    };
    Some((place, receipt))
}
