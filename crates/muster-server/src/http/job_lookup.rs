//! Small questions to the tables that several routes ask.

use muster_core::{JobId, Refusal};
use muster_store::queries::{JobFilter, PageRequest, Tables};
use muster_store::rows::JobState;
use muster_store::{StoreError, queries};

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::identity::Caller;

/// Whose job this is; an id without index also means an array.
pub fn job_tenant(tables: &dyn Tables, job: JobId) -> Result<Option<String>, StoreError> {
    let page = tables.jobs(&filter_by_number(job), &PageRequest::first(1))?;
    Ok(page.rows.into_iter().next().map(|row| row.tenant))
}

/// The jobs that share a number.
pub fn filter_by_number(job: JobId) -> JobFilter {
    JobFilter { number: Some(job.number), ..JobFilter::default() }
}

/// How many tasks of an array are in each state; empty if there is no such array.
pub fn tasks_by_state(tables: &dyn Tables, job: JobId) -> Result<Vec<(JobState, u64)>, StoreError> {
    let mut counts = Vec::new();
    for state in JobState::ALL {
        let filter = JobFilter { states: Some(vec![state]), ..filter_by_number(job) };
        let total = tables.jobs(&filter, &PageRequest::first(1))?.total;
        counts.extend((total > 0).then_some((state, total)));
    }
    Ok(counts)
}

/// The first page, oldest first.
pub fn oldest_page<C>(limit: u32) -> PageRequest<C> {
    PageRequest { start: queries::PageStart::Offset(0), limit, order: queries::PageOrder::OldestFirst }
}

/// Whether a job exists for the caller. Those who see every tenant are answered by the core.
pub async fn check_job_visible(door: &AppState, who: &Caller, job: JobId) -> Result<(), ApiError> {
    if who.tenant_scope().is_none() {
        return Ok(());
    }
    let tenant = door.read_tables(move |tables| Ok(job_tenant(tables, job)?)).await?;
    match tenant.is_some_and(|tenant| who.sees_tenant(&tenant)) {
        true => Ok(()),
        false => Err(Refusal::UnknownJob { job }.into()),
    }
}
