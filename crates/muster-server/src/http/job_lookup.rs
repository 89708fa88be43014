//! Job lookups in the tables, shared by several routes: tenant of a job, tasks of an array, events, visibility.

use muster_core::{Event, JobId, Refusal};
use muster_store::queries::{JobFilter, PageRequest, Tables};
use muster_store::rows::{EventRow, JobState};
use muster_store::{StoreError, queries};

use crate::http::AppState;
use crate::http::api_error::ApiError;
use crate::http::caller::TenantVisibility;
use crate::identity::Caller;

/// Journal entries read at a time.
const JOURNAL_PAGE_ROWS: u32 = 500;

/// The tenant of a job. An id without index also means an array.
pub fn job_tenant(tables: &dyn Tables, job: JobId) -> Result<Option<String>, StoreError> {
    let page = tables.jobs(&filter_by_number(job), &PageRequest::first(1))?;
    Ok(page.rows.into_iter().next().map(|row| row.tenant))
}

/// All jobs with the number of this one: itself, or all tasks of its array.
pub fn filter_by_number(job: JobId) -> JobFilter {
    JobFilter { number: Some(job.number), ..JobFilter::default() }
}

/// The number of tasks of an array in each state; empty if there is no such array.
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

/// Refuse a job that the caller may not see, as unknown. A caller that sees every tenant passes: the core then refuses
/// an unknown job.
pub async fn check_job_visible(app: &AppState, caller: &Caller, job: JobId) -> Result<(), ApiError> {
    if caller.tenant_scope().is_none() {
        return Ok(());
    }
    let tenant = app.read_tables(move |tables| Ok(job_tenant(tables, job)?)).await?;
    match tenant.is_some_and(|tenant| caller.sees_tenant(&tenant)) {
        true => Ok(()),
        false => Err(Refusal::UnknownJob { job }.into()),
    }
}

/// The journal entries of a job, oldest first.
pub fn job_event_rows(tables: &dyn Tables, job: JobId) -> Result<Vec<EventRow>, ApiError> {
    let mut all = Vec::new();
    loop {
        let after = all.last().map_or(0, |row: &EventRow| row.seq);
        let page = tables.events(after, JOURNAL_PAGE_ROWS, Some(job))?;
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
    }
}

/// The event of a journal entry; `None` if this version cannot parse it.
pub fn parse_event(row: &EventRow) -> Option<Event> {
    row.event().ok()
}
