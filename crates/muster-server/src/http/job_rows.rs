//! The rows of a list of jobs: in which order, and whether an array is one row or as many as it has tasks.
//!
//! Lists by id are cheap however long they are: each page walks an index, and an array is passed over by its
//! number. A list by anything else looks at every job that matches, so it is cut after it is sorted.

use std::collections::BTreeMap;

use muster_core::{Job, JobId, State};
use muster_protocol::job::{ArrayTasks, JobSummary};
use muster_store::queries::{JobFilter, JobSort, Order, Page, Paged, SortedPage, Start, Tables};
use muster_store::rows::{ArrayTasksRow, JobRow, JobState};

use crate::http::fault::Fault;
use crate::http::query::{check_offset, page_start};
use crate::http::show;

/// Rows that are read after the first array of a page, before more are: arrays often follow each other.
const ROWS_AFTER_ARRAY: u32 = 4;

/// The words of `sort`.
const SORTS: [(&str, JobSort); 13] = [
    ("name", JobSort::Name),
    ("state", JobSort::State),
    ("gpus", JobSort::Gpus),
    ("tenant", JobSort::Tenant),
    ("user", JobSort::User),
    ("priority", JobSort::Priority),
    ("submitted", JobSort::Submitted),
    ("elapsed", JobSort::Elapsed),
    ("left", JobSort::Left),
    ("attempts", JobSort::Attempts),
    ("nodes", JobSort::Nodes),
    ("exit", JobSort::Exit),
    ("gpu-hours", JobSort::GpuHours),
];

/// Which rows of the jobs that match.
pub struct JobRows {
    order: RowOrder,
    one_per_array: bool,
    limit: u32,
}

enum RowOrder {
    ById(Start<JobId>, Order),
    By(SortedPage),
}

/// The rows of a page, and the tasks of the arrays that some of them stand for.
pub struct RowsPage {
    pub rows: Vec<JobRow>,
    pub arrays: BTreeMap<u64, Vec<ArrayTasksRow>>,
    pub next: Option<JobId>,
    pub total: u64,
}

/// What a query says about rows, as it was written.
pub struct Written<'a> {
    pub sort: Option<&'a str>,
    pub group: Option<&'a str>,
    pub offset: Option<u64>,
    pub cursor: Option<&'a str>,
    pub limit: u32,
    pub now_ms: i64,
}

impl JobRows {
    /// Read what was written.
    pub fn of(written: &Written) -> Result<JobRows, Fault> {
        let one_per_array = match written.group {
            None => false,
            Some("array") => true,
            Some(other) => return Err(Fault::invalid("group", format!("`{other}` is not `array`"))),
        };
        let sort = written.sort.unwrap_or("-id");
        let (name, descending) = sort.strip_prefix('-').map_or((sort, false), |name| (name, true));
        let order = match name {
            "id" => by_id(written, descending, one_per_array)?,
            _ => by_other(written, name, descending, one_per_array)?,
        };
        Ok(JobRows { order, one_per_array, limit: written.limit })
    }

    /// Read them from the tables.
    pub fn read(&self, tables: &dyn Tables, filter: &JobFilter) -> Result<RowsPage, Fault> {
        let Paged { rows, next, total } = match &self.order {
            RowOrder::By(page) => {
                let total = tables.jobs(filter, &Page::first(1))?.total;
                Paged { rows: tables.sorted_jobs(filter, page)?, next: None, total }
            }
            RowOrder::ById(start, order) => {
                let page = Page { start: *start, limit: self.limit, order: *order };
                match self.one_per_array {
                    true => one_per_number(tables, filter, page)?,
                    false => tables.jobs(filter, &page)?,
                }
            }
        };
        let mut arrays = BTreeMap::new();
        for row in rows.iter().filter(|row| self.one_per_array && row.id.index.is_some()) {
            arrays.insert(row.id.number, tables.array_tasks(row.id.number)?);
        }
        Ok(RowsPage { rows, arrays, next, total })
    }
}

fn by_id(written: &Written, descending: bool, one_per_array: bool) -> Result<RowOrder, Fault> {
    if one_per_array && written.offset.is_some() {
        return Err(Fault::invalid("offset", "counts jobs, not arrays; send `cursor` with `group=array`"));
    }
    let order = if descending { Order::Newest } else { Order::Oldest };
    Ok(RowOrder::ById(page_start(written.offset, written.cursor)?, order))
}

fn by_other(written: &Written, name: &str, descending: bool, one_per_array: bool) -> Result<RowOrder, Fault> {
    let Some((_, by)) = SORTS.into_iter().find(|(word, _)| *word == name) else {
        let known = SORTS.map(|(word, _)| word).join(", ");
        return Err(Fault::invalid("sort", format!("`{name}` is none of id, {known}")));
    };
    if written.cursor.is_some() {
        return Err(Fault::invalid("cursor", "is for lists by id; a sorted list goes on with `offset`"));
    }
    check_offset(written.offset)?;
    let offset = written.offset.unwrap_or(0);
    let (now_ms, limit) = (written.now_ms, written.limit);
    Ok(RowOrder::By(SortedPage { by, descending, one_per_array, now_ms, offset, limit }))
}

/// One row for each number: the walk goes on behind the last task of an array.
fn one_per_number(
    tables: &dyn Tables,
    filter: &JobFilter,
    mut page: Page<JobId>,
) -> Result<Paged<JobRow, JobId>, Fault> {
    let most = page.limit as usize;
    let mut found: Vec<JobRow> = Vec::new();
    loop {
        let step = tables.jobs(filter, &page)?;
        let array = step.rows.iter().position(|row| row.id.index.is_some());
        found.extend(step.rows.into_iter().take(array.map_or(usize::MAX, |place| place + 1)));
        let left = (most - found.len().min(most)) as u32;
        let last = found.last().map(|row| behind(row.id, page.order));
        let Some(last) = last.filter(|_| array.is_some() || step.next.is_some()) else {
            return Ok(Paged { rows: found, next: None, total: step.total });
        };
        if left == 0 {
            return Ok(Paged { rows: found, next: Some(last), total: step.total });
        }
        let more = if array.is_some() { ROWS_AFTER_ARRAY } else { page.limit.saturating_mul(2) };
        page = Page { start: Start::After(last), limit: more.min(left), order: page.order };
    }
}

/// The place behind a job, or behind all tasks of its array.
fn behind(job: JobId, order: Order) -> JobId {
    match (job.index, order) {
        (Some(_), Order::Oldest) => JobId::of_array(job.number, u32::MAX),
        _ => JobId::single(job.number),
    }
}

/// Let a row that was read as one task stand for its whole array.
pub fn describe(job: &mut JobSummary, number: u64, tasks: &[ArrayTasksRow]) {
    let id = JobId::single(number).to_string();
    (job.id, job.job_id) = (id.clone(), id);
    job.state = show::state(state_of_array(|state| tasks.iter().any(|row| row.state == state)));
    let all: u64 = tasks.iter().map(|row| row.tasks).sum();
    let first = tasks.iter().map(|row| row.first).min().unwrap_or(0);
    let last = tasks.iter().map(|row| row.last).max().unwrap_or(0);
    let by_state = tasks.iter().map(|row| (row.state.word().to_string(), row.tasks)).collect();
    job.array_tasks = Some(ArrayTasks { first, last, tasks: all, by_state });
}

/// The one word for an array whose tasks are in several states.
pub fn state_of_array(any: impl Fn(JobState) -> bool) -> JobState {
    let words =
        [JobState::Running, JobState::Pending, JobState::Preempted, JobState::Failed, JobState::Cancelled];
    words.into_iter().find(|state| any(*state)).unwrap_or(JobState::Completed)
}

/// The first task of an array that waits: its reasons are those of the array.
pub fn waiting_task(state: &State, number: u64) -> Option<&Job> {
    let tasks = state.jobs.range(JobId::of_array(number, 0)..=JobId::of_array(number, u32::MAX));
    tasks.map(|(_, job)| job).find(|job| job.attempt().is_none())
}
