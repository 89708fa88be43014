//! Pages of the job list: their order, and whether an array is one row or one row per task.
//!
//! A list by id is cheap at any length: each page walks an index, and the walk skips an array by its number. A list
//! by another key reads and sorts every matching job before the page is cut from it.

use std::collections::BTreeMap;

use muster_core::objects::job::Job;
use muster_core::{JobId, State};
use muster_protocol::job::{ArrayTasks, JobSummary};
use muster_store::queries::{
    JobFilter, JobSort, PageOfRows, PageOrder, PageRequest, PageStart, SortedPageRequest, Tables,
};
use muster_store::rows::{ArrayTasksRow, JobRow, JobState};

use crate::http::api_error::ApiError;
use crate::http::query::{check_offset, page_start};
use crate::http::render;

/// Rows read in one step after the walk met an array. Few, because arrays often follow each other.
const ROWS_AFTER_ARRAY: u32 = 4;

/// The values of `sort` beside `id`.
const SORT_KEYS: [(&str, JobSort); 13] = [
    ("name", JobSort::Name),
    ("state", JobSort::State),
    ("gpus", JobSort::Gpus),
    ("tenant", JobSort::Tenant),
    ("user", JobSort::User),
    ("priority", JobSort::Priority),
    ("submitted", JobSort::Submitted),
    ("elapsed", JobSort::Elapsed),
    ("left", JobSort::TimeLeft),
    ("attempts", JobSort::Attempts),
    ("nodes", JobSort::Nodes),
    ("exit", JobSort::Exit),
    ("gpu-hours", JobSort::GpuHours),
];

/// Order and start of a page.
pub struct JobPageRequest {
    order: JobOrder,
    one_per_array: bool,
    limit: u32,
}

enum JobOrder {
    ById(PageStart<JobId>, PageOrder),
    BySortKey(SortedPageRequest),
}

/// The rows of a page, and the tasks of those rows that represent an array.
pub struct JobPage {
    pub rows: Vec<JobRow>,
    pub arrays: BTreeMap<u64, Vec<ArrayTasksRow>>,
    pub next: Option<JobId>,
    pub total: u64,
}

/// The page parameters of a query, not yet parsed.
pub struct RawJobPageQuery<'a> {
    pub sort: Option<&'a str>,
    pub group: Option<&'a str>,
    pub offset: Option<u64>,
    pub cursor: Option<&'a str>,
    pub limit: u32,
    pub now_ms: i64,
}

impl JobPageRequest {
    /// Parse and check the parameters.
    pub fn parse(raw: &RawJobPageQuery) -> Result<JobPageRequest, ApiError> {
        let one_per_array = match raw.group {
            None => false,
            Some("array") => true,
            Some(other) => return Err(ApiError::invalid("group", format!("`{other}` is not `array`"))),
        };
        let sort = raw.sort.unwrap_or("-id");
        let (name, descending) = sort.strip_prefix('-').map_or((sort, false), |name| (name, true));
        let order = match name {
            "id" => order_by_id(raw, descending, one_per_array)?,
            _ => order_by_sort_key(raw, name, descending, one_per_array)?,
        };
        Ok(JobPageRequest { order, one_per_array, limit: raw.limit })
    }

    /// Read the page from the tables.
    pub fn read(&self, tables: &dyn Tables, filter: &JobFilter) -> Result<JobPage, ApiError> {
        let PageOfRows { rows, next, total } = match &self.order {
            JobOrder::BySortKey(page) => {
                let total = tables.jobs(filter, &PageRequest::first(1))?.total;
                PageOfRows { rows: tables.sorted_jobs(filter, page)?, next: None, total }
            }
            JobOrder::ById(start, order) => {
                let page = PageRequest { start: *start, limit: self.limit, order: *order };
                match self.one_per_array {
                    true => page_with_one_row_per_array(tables, filter, page)?,
                    false => tables.jobs(filter, &page)?,
                }
            }
        };
        let mut arrays = BTreeMap::new();
        for row in rows.iter().filter(|row| self.one_per_array && row.id.index.is_some()) {
            arrays.insert(row.id.number, tables.array_tasks(row.id.number)?);
        }
        Ok(JobPage { rows, arrays, next, total })
    }
}

fn order_by_id(raw: &RawJobPageQuery, descending: bool, one_per_array: bool) -> Result<JobOrder, ApiError> {
    if one_per_array && raw.offset.is_some() {
        return Err(ApiError::invalid("offset", "counts jobs, not arrays; send `cursor` with `group=array`"));
    }
    let order = if descending { PageOrder::NewestFirst } else { PageOrder::OldestFirst };
    Ok(JobOrder::ById(page_start(raw.offset, raw.cursor)?, order))
}

fn order_by_sort_key(
    raw: &RawJobPageQuery,
    name: &str,
    descending: bool,
    one_per_array: bool,
) -> Result<JobOrder, ApiError> {
    let Some((_, by)) = SORT_KEYS.into_iter().find(|(key, _)| *key == name) else {
        let known = SORT_KEYS.map(|(key, _)| key).join(", ");
        return Err(ApiError::invalid("sort", format!("`{name}` is none of id, {known}")));
    };
    if raw.cursor.is_some() {
        return Err(ApiError::invalid("cursor", "is for lists by id; continue a sorted list with `offset`"));
    }
    check_offset(raw.offset)?;
    let offset = raw.offset.unwrap_or(0);
    let (now_ms, limit) = (raw.now_ms, raw.limit);
    Ok(JobOrder::BySortKey(SortedPageRequest { by, descending, one_per_array, now_ms, offset, limit }))
}

/// One row for each job number: the walk continues after the last task of an array.
fn page_with_one_row_per_array(
    tables: &dyn Tables,
    filter: &JobFilter,
    mut page: PageRequest<JobId>,
) -> Result<PageOfRows<JobRow, JobId>, ApiError> {
    let limit = page.limit as usize;
    let mut found: Vec<JobRow> = Vec::new();
    loop {
        let step = tables.jobs(filter, &page)?;
        let array = step.rows.iter().position(|row| row.id.index.is_some());
        found.extend(step.rows.into_iter().take(array.map_or(usize::MAX, |index| index + 1)));
        let left = (limit - found.len().min(limit)) as u32;
        let last = found.last().map(|row| cursor_after(row.id, page.order));
        let Some(last) = last.filter(|_| array.is_some() || step.next.is_some()) else {
            return Ok(PageOfRows { rows: found, next: None, total: step.total });
        };
        if left == 0 {
            return Ok(PageOfRows { rows: found, next: Some(last), total: step.total });
        }
        let more = if array.is_some() { ROWS_AFTER_ARRAY } else { page.limit.saturating_mul(2) };
        page = PageRequest { start: PageStart::After(last), limit: more.min(left), order: page.order };
    }
}

/// The cursor after a job, or after all tasks of its array.
fn cursor_after(job: JobId, order: PageOrder) -> JobId {
    match (job.index, order) {
        (Some(_), PageOrder::OldestFirst) => JobId::of_array(job.number, u32::MAX),
        _ => JobId::single(job.number),
    }
}

/// Turn the row of one task into the row of its array.
pub fn set_array_summary(job: &mut JobSummary, number: u64, tasks: &[ArrayTasksRow]) {
    let id = JobId::single(number).to_string();
    (job.id, job.job_id) = (id.clone(), id);
    job.state = render::api_job_state(array_state(|state| tasks.iter().any(|row| row.state == state)));
    let all: u64 = tasks.iter().map(|row| row.tasks).sum();
    let first = tasks.iter().map(|row| row.first).min().unwrap_or(0);
    let last = tasks.iter().map(|row| row.last).max().unwrap_or(0);
    let by_state = tasks.iter().map(|row| (row.state.as_str().to_string(), row.tasks)).collect();
    job.array_tasks = Some(ArrayTasks { first, last, tasks: all, by_state });
}

/// The state of an array whose tasks may be in several states.
pub fn array_state(any: impl Fn(JobState) -> bool) -> JobState {
    let by_precedence =
        [JobState::Running, JobState::Pending, JobState::Preempted, JobState::Failed, JobState::Cancelled];
    by_precedence.into_iter().find(|state| any(*state)).unwrap_or(JobState::Completed)
}

/// The first waiting task of an array. The array shows the reasons of this task.
pub fn first_waiting_task(state: &State, number: u64) -> Option<&Job> {
    let tasks = state.jobs.range(JobId::of_array(number, 0)..=JobId::of_array(number, u32::MAX));
    tasks.map(|(_, job)| job).find(|job| job.attempt().is_none())
}
