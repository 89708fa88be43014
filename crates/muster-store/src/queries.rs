//! Port: queries over the tables, for lists, reports and history.
//!
//! Each call reads through its own connection and never waits for the writer. The calls block: an async caller uses
//! `spawn_blocking`. Until the first leader has created the tables they return `Unavailable`.

use std::collections::BTreeMap;

use muster_core::JobId;
use muster_core::facts::command::IdempotencyRecord;
use muster_core::objects::job::Outcome;

use crate::error::StoreError;
use crate::rows::{
    AllocationRow, ArrayTasksRow, AttemptRow, AuditRow, CountRow, EventRow, JobDetail, JobRow, JobState, UsageRow,
    WaitRow,
};

/// The tables of one cluster, for reading.
pub trait Tables: Send + Sync {
    /// One page of jobs.
    fn jobs(&self, filter: &JobFilter, page: &PageRequest<JobId>) -> Result<PageOfRows<JobRow, JobId>, StoreError>;
    /// One page of jobs in another order than by id. Scans all matching rows.
    fn sorted_jobs(&self, filter: &JobFilter, page: &SortedPageRequest) -> Result<Vec<JobRow>, StoreError>;
    /// The tasks of an array, counted by state; empty if there is no such array.
    fn array_tasks(&self, number: u64) -> Result<Vec<ArrayTasksRow>, StoreError>;
    /// One job with its spec.
    fn job(&self, id: JobId) -> Result<Option<JobDetail>, StoreError>;
    /// The attempts of a job, oldest first.
    fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError>;
    /// Outcomes of the jobs that have ended. An id without an index names a whole array if there is one. An array has
    /// ended when all its tasks have: as done if all tasks are done, otherwise as failed.
    fn outcomes(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, Outcome>, StoreError>;
    /// The last submission with an idempotency key of a tenant, unless the key has expired.
    fn idempotency_key_use(&self, tenant: &str, key: &str) -> Result<Option<IdempotencyRecord>, StoreError>;
    /// Journal entries after number `after`, oldest first. With `job`, only the entries of that job; an id without an
    /// index names all tasks of an array.
    fn events(&self, after: u64, limit: u32, job: Option<JobId>) -> Result<Vec<EventRow>, StoreError>;
    /// One page of attempts with their leases. The cursor is `AttemptRow::seq`.
    fn allocations(
        &self,
        filter: &AllocationFilter,
        page: &PageRequest<u64>,
    ) -> Result<PageOfRows<AllocationRow, u64>, StoreError>;
    /// Usage of the attempts that ended in `[from_ms, to_ms)`, summed by key. An attempt is charged once, at its end,
    /// so adjacent time spans add up exactly.
    fn usage(&self, span: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, StoreError>;
    /// Wait reasons of the jobs of some buckets in a time span, oldest first: the last ones recorded before the span
    /// and all recorded within it.
    fn wait_reasons(&self, buckets: &[String], from_ms: i64, to_ms: i64) -> Result<Vec<WaitRow>, StoreError>;
    /// One page of administrative acts. The cursor is `AuditRow::seq`.
    fn audit(&self, page: &PageRequest<u64>) -> Result<PageOfRows<AuditRow, u64>, StoreError>;
    /// Number of jobs by tenant and state. The database maintains the counts, so the query is cheap.
    fn job_counts(&self) -> Result<Vec<CountRow>, StoreError>;
    /// `Ok` if the database answers.
    fn ping(&self) -> Result<(), StoreError>;
}

/// Conditions on jobs. An unset field does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// An empty list matches nothing.
    pub tenants: Option<Vec<String>>,
    /// An empty list matches nothing.
    pub states: Option<Vec<JobState>>,
    /// For example `Held`.
    pub phase: Option<String>,
    pub user: Option<String>,
    /// Part of the name, ignoring case. Scans all rows that the other conditions leave.
    pub name_contains: Option<String>,
    /// Key and value of a label.
    pub label: Option<(String, String)>,
    /// Number of a job or of an array with all its tasks.
    pub number: Option<u64>,
    /// Only jobs that have not ended.
    pub active_only: bool,
}

/// Conditions on attempts. An unset field does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocationFilter {
    /// An empty list matches nothing.
    pub tenants: Option<Vec<String>>,
    pub job: Option<JobId>,
    /// Attempts with a lease on this node.
    pub node: Option<String>,
    /// Only attempts that have not ended.
    pub live_only: bool,
}

/// A part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageRequest<Cursor> {
    pub start: PageStart<Cursor>,
    /// Maximum number of rows.
    pub limit: u32,
    pub order: PageOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageStart<Cursor> {
    /// Number of rows to skip; 0 for the first page. Costs as much as reading the skipped rows.
    Offset(u64),
    /// Cursor of the last row of the previous page: its [`PageOfRows::next`].
    After(Cursor),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageOrder {
    /// Highest number first.
    #[default]
    NewestFirst,
    /// Lowest number first.
    OldestFirst,
}

impl<Cursor> PageRequest<Cursor> {
    /// The first page, newest first.
    pub fn first(limit: u32) -> PageRequest<Cursor> {
        PageRequest { start: PageStart::Offset(0), limit, order: PageOrder::NewestFirst }
    }

    /// The page after this row, newest first.
    pub fn after(cursor: Cursor, limit: u32) -> PageRequest<Cursor> {
        PageRequest { start: PageStart::After(cursor), limit, order: PageOrder::NewestFirst }
    }
}

/// Sort keys of a list of jobs, besides the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSort {
    Name,
    /// Running jobs, then waiting ones, then ended ones.
    State,
    /// Requested GPUs, in thousandths.
    Gpus,
    Tenant,
    User,
    /// Priority of the job, without aging and fair share.
    Priority,
    /// Time of submission.
    Submitted,
    /// Runtime of the newest attempt; waiting time if the job waits.
    Elapsed,
    /// Rest of the time limit; running jobs only.
    TimeLeft,
    /// Number of attempts.
    Attempts,
    /// Nodes of the newest attempt.
    Nodes,
    /// Exit code, or 128 plus the signal.
    Exit,
    /// GPU time of the attempts that have ended.
    GpuHours,
}

/// A part of a sorted list. Rows without a value come last; ties are ordered by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedPageRequest {
    pub by: JobSort,
    pub descending: bool,
    /// Show only the first task of each array, in this order.
    pub one_per_array: bool,
    /// Current time, for the elapsed time of running and waiting jobs.
    pub now_ms: i64,
    /// Number of rows to skip.
    pub offset: u64,
    /// Maximum number of rows.
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageOfRows<Row, Cursor> {
    pub rows: Vec<Row>,
    /// Cursor of the next page; `None` on the last page.
    pub next: Option<Cursor>,
    /// Number of rows on all pages.
    pub total: u64,
}

/// Conditions on usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFilter {
    /// Attempts that ended at or after this time.
    pub from_ms: i64,
    /// Attempts that ended before this time.
    pub to_ms: i64,
    pub tenants: Option<Vec<String>>,
}

/// Key of usage sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageGrouping {
    Tenant,
    /// One row per user, over all tenants.
    User,
    /// One row per job; each task of an array is a job.
    Job,
}
