//! Port: what people and history pages read from the tables.
//!
//! Every call reads through its own connection and never waits for the writer. The calls block: an async caller
//! uses `spawn_blocking`. Before the first leader has made the tables they answer `Unavailable`.

use std::collections::BTreeMap;

use muster_core::JobId;
use muster_core::job::Outcome;
use muster_core::state::KeyUse;

use crate::error::StoreError;
use crate::rows::{
    AllocationRow, ArrayTasksRow, AttemptRow, AuditRow, CountRow, EventRow, JobDetail, JobRow, JobState,
    UsageRow, WaitRow,
};

/// The tables of one cluster, for reading.
pub trait Tables: Send + Sync {
    /// One page of jobs.
    fn jobs(&self, filter: &JobFilter, page: &Page<JobId>) -> Result<Paged<JobRow, JobId>, StoreError>;
    /// One page of jobs in another order than that of their ids. Looks at every row that matches.
    fn sorted_jobs(&self, filter: &JobFilter, page: &SortedPage) -> Result<Vec<JobRow>, StoreError>;
    /// The tasks of an array, state by state; empty if there is no such array.
    fn array_tasks(&self, number: u64) -> Result<Vec<ArrayTasksRow>, StoreError>;
    /// One job with its spec.
    fn job(&self, id: JobId) -> Result<Option<JobDetail>, StoreError>;
    /// The attempts of a job, oldest first.
    fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError>;
    /// How these jobs ended; those that have not are left out. An id without index means a whole array where
    /// there is one, and it has ended when all its tasks have: as done if they all are, else as failed.
    fn outcomes(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, Outcome>, StoreError>;
    /// What a tenant's idempotency key was last used for, as long as keys are kept.
    fn key_use(&self, tenant: &str, key: &str) -> Result<Option<KeyUse>, StoreError>;
    /// Journal entries after a number, oldest first; of one job if it is named, and of all tasks of an array
    /// if it is named without index.
    fn events(&self, after: u64, limit: u32, job: Option<JobId>) -> Result<Vec<EventRow>, StoreError>;
    /// One page of attempts with their leases. The cursor is `AttemptRow::seq`.
    fn allocations(
        &self,
        filter: &AllocationFilter,
        page: &Page<u64>,
    ) -> Result<Paged<AllocationRow, u64>, StoreError>;
    /// Sums of what attempts used that ended in `[from_ms, to_ms)`, by key. Charges are made once, at the end of
    /// an attempt, so that adjoining spans add up exactly.
    fn usage(&self, span: &UsageSpan, by: UsageBy) -> Result<Vec<UsageRow>, StoreError>;
    /// Why jobs of some buckets waited in a span of time, oldest first: what was noted last before it, and all that
    /// was noted in it.
    fn waits(&self, buckets: &[String], from_ms: i64, to_ms: i64) -> Result<Vec<WaitRow>, StoreError>;
    /// One page of administrative acts. The cursor is `AuditRow::seq`.
    fn audit(&self, page: &Page<u64>) -> Result<Paged<AuditRow, u64>, StoreError>;
    /// How many jobs of each tenant are in each state. Kept up to date by the database, so it is cheap.
    fn counts(&self) -> Result<Vec<CountRow>, StoreError>;
    /// Whether the database answers.
    fn ping(&self) -> Result<(), StoreError>;
}

/// Which jobs. What is not set does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Of these tenants; an empty list finds nothing.
    pub tenants: Option<Vec<String>>,
    /// In these states; an empty list finds nothing.
    pub states: Option<Vec<JobState>>,
    /// In this phase, for example `Held`.
    pub phase: Option<String>,
    /// Of this user.
    pub user: Option<String>,
    /// Whose name contains this, in upper or lower case. Looks at every row that the other conditions leave.
    pub name_contains: Option<String>,
    /// With this label, key and value.
    pub label: Option<(String, String)>,
    /// Tasks of this array, or the one job of this number.
    pub number: Option<u64>,
    /// Only jobs that have not ended.
    pub active_only: bool,
}

/// Which attempts. What is not set does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocationFilter {
    /// Of these tenants; an empty list finds nothing.
    pub tenants: Option<Vec<String>>,
    /// Of this job.
    pub job: Option<JobId>,
    /// With a lease on this node.
    pub node: Option<String>,
    /// Only those that have not ended.
    pub live_only: bool,
}

/// Which part of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<Cursor> {
    /// Where to begin.
    pub start: Start<Cursor>,
    /// At most this many rows.
    pub limit: u32,
    /// In which order.
    pub order: Order,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start<Cursor> {
    /// After so many rows; 0 for the first page. Costs as much as reading the rows that are passed over.
    Offset(u64),
    /// After this row: `Paged::next` of the page before.
    After(Cursor),
}

/// In which order rows come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Highest number first.
    #[default]
    Newest,
    /// Lowest number first.
    Oldest,
}

impl<Cursor> Page<Cursor> {
    /// The first page, newest first.
    pub fn first(limit: u32) -> Page<Cursor> {
        Page { start: Start::Offset(0), limit, order: Order::Newest }
    }

    /// The page after this row, newest first.
    pub fn after(cursor: Cursor, limit: u32) -> Page<Cursor> {
        Page { start: Start::After(cursor), limit, order: Order::Newest }
    }
}

/// What a list of jobs can be sorted by, beside the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobSort {
    /// By name.
    Name,
    /// Running jobs, then waiting ones, then ended ones.
    State,
    /// By how much of GPUs they ask for.
    Gpus,
    /// By tenant.
    Tenant,
    /// By user.
    User,
    /// By priority as asked.
    Priority,
    /// By when they were accepted.
    Submitted,
    /// By how long they have run or ran; waiting jobs by how long they have waited.
    Elapsed,
    /// By what is left of the time limit of running jobs.
    Left,
    /// By the number of attempts.
    Attempts,
    /// By the nodes of the newest attempt.
    Nodes,
    /// By exit code.
    Exit,
    /// By GPU time of the attempts that ended.
    GpuHours,
}

/// A part of a sorted list. Rows without a value come last, ties are in the order of ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedPage {
    /// Sorted by this.
    pub by: JobSort,
    /// Largest first.
    pub descending: bool,
    /// One row for each array: its first task in this order.
    pub one_per_array: bool,
    /// The moment up to which running and waiting jobs are measured.
    pub now_ms: i64,
    /// Rows to pass over.
    pub offset: u64,
    /// At most this many rows.
    pub limit: u32,
}

/// A page of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paged<Row, Cursor> {
    /// The rows.
    pub rows: Vec<Row>,
    /// Where the next page begins, if there may be one.
    pub next: Option<Cursor>,
    /// How many rows there are on all pages together.
    pub total: u64,
}

/// Which usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageSpan {
    /// Attempts that ended at or after this moment.
    pub from_ms: i64,
    /// And before this one.
    pub to_ms: i64,
    /// Of these tenants.
    pub tenants: Option<Vec<String>>,
}

/// What usage is added up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// One row for each tenant.
    Tenant,
    /// One row for each user, over all tenants.
    User,
    /// One row for each job; tasks of an array apart.
    Job,
}
