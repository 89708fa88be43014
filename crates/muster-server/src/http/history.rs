//! Small questions to the tables that several routes ask.

use muster_core::{JobId, Refusal};
use muster_store::queries::{JobFilter, Page, Tables};
use muster_store::rows::JobState;
use muster_store::{StoreError, queries};

use crate::http::Door;
use crate::http::fault::Fault;
use crate::http::who::Reach;
use crate::identity::Who;

/// Whose job this is; an id without index also means an array.
pub fn tenant_of(tables: &dyn Tables, job: JobId) -> Result<Option<String>, StoreError> {
    let page = tables.jobs(&of_number(job), &Page::first(1))?;
    Ok(page.rows.into_iter().next().map(|row| row.tenant))
}

/// The jobs that share a number.
pub fn of_number(job: JobId) -> JobFilter {
    JobFilter { number: Some(job.number), ..JobFilter::default() }
}

/// How many tasks of an array are in each state; empty if there is no such array.
pub fn tasks_by_state(tables: &dyn Tables, job: JobId) -> Result<Vec<(JobState, u64)>, StoreError> {
    let mut counts = Vec::new();
    for state in JobState::ALL {
        let filter = JobFilter { states: Some(vec![state]), ..of_number(job) };
        let total = tables.jobs(&filter, &Page::first(1))?.total;
        counts.extend((total > 0).then_some((state, total)));
    }
    Ok(counts)
}

/// The first page, oldest first.
pub fn oldest<C>(limit: u32) -> Page<C> {
    Page { start: queries::Start::Offset(0), limit, order: queries::Order::Oldest }
}

/// Whether a job exists for the caller. Those who see every tenant are answered by the core.
pub async fn check_sees(door: &Door, who: &Who, job: JobId) -> Result<(), Fault> {
    if who.confined_to().is_none() {
        return Ok(());
    }
    let tenant = door.tables(move |tables| Ok(tenant_of(tables, job)?)).await?;
    match tenant.is_some_and(|tenant| who.sees_tenant(&tenant)) {
        true => Ok(()),
        false => Err(Refusal::UnknownJob { job }.into()),
    }
}
