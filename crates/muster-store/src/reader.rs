//! Queries of the [`Tables`] port in SQL that both databases understand; an adapter only runs them.

use std::collections::BTreeMap;

use muster_core::facts::command::IdempotencyRecord;
use muster_core::objects::job::Outcome;
use muster_core::{JobId, Timestamp};

use crate::decode::{attempt_row, audit_row, event_row, job_detail, job_row, job_state, lease_row, usage_row};
use crate::error::StoreError;
use crate::queries::{
    AllocationFilter, JobFilter, PageOfRows, PageOrder, PageRequest, PageStart, SortedPageRequest, Tables, UsageFilter,
    UsageGrouping,
};
use crate::rows::{
    AllocationRow, ArrayTasksRow, AttemptRow, AuditRow, CountRow, EventRow, JobDetail, JobRow, JobState, LeaseRow,
    UsageRow, WaitRow,
};
use crate::select::{Dialect, JOB_COLUMNS, JobQuery, Select};
use crate::tables::{RowCells, Value, index_column};

/// Most rows of wait reasons that one query returns.
const WAIT_ROWS_MAX: u32 = 1_000;

/// A database that runs queries.
pub trait SqlSource: Send + Sync {
    /// SQL dialect of the database.
    const DIALECT: Dialect;

    /// Run a query. Parameters are `$1`, `$2` and so on.
    fn query_rows(&self, operation: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError>;
}

/// The [`Tables`] port over a database.
pub struct TableReader<S>(pub S);

const ATTEMPT_COLUMNS: &str = "seq, job, attempt, tenant, epoch, state, placed_at, started_at, stopping_at, \
    ended_at, stop_cause, exit, exit_code, signal, why, gpus, nodes, gpu_ms, cpu_ms, memory_gib_ms, cost_micro, \
    charged_until, cpus, memory_mib, planned_ms, cost_per_hour_micro, master, master_port";

impl<S: SqlSource> TableReader<S> {
    fn select<T>(
        &self,
        operation: &str,
        select: &Select,
        read: fn(&mut RowCells) -> Result<T, StoreError>,
    ) -> Result<Vec<T>, StoreError> {
        let rows = self.0.query_rows(operation, &select.sql, &select.values)?;
        rows.into_iter().map(|row| read(&mut RowCells::new(row))).collect()
    }

    fn select_number(&self, operation: &str, select: &Select) -> Result<u64, StoreError> {
        let rows = self.select(operation, select, |cells| cells.take::<u64>())?;
        Ok(rows.first().copied().unwrap_or(0))
    }

    /// The leases of these attempts, in order of job, attempt and rank.
    fn leases(&self, attempts: &[AttemptRow]) -> Result<BTreeMap<(JobId, u32), Vec<LeaseRow>>, StoreError> {
        let mut leases: BTreeMap<(JobId, u32), Vec<LeaseRow>> = BTreeMap::new();
        if attempts.is_empty() {
            return Ok(leases);
        }
        let keys: Vec<String> = attempts
            .iter()
            .map(|row| format!("({}, {}, {})", row.job.number, index_column(row.job), row.attempt))
            .collect();
        let sql = format!(
            "SELECT job, attempt, node, gpu, rank, slot, compute_milli, memory_milli, memory_mib, from_ms, to_ms \
             FROM leases WHERE (number, idx, attempt) IN (VALUES {}) ORDER BY number, idx, attempt, rank, node, gpu",
            keys.join(", ")
        );
        for (key, lease) in self.select("read leases", &Select::without_values(sql), lease_row)? {
            leases.entry(key).or_default().push(lease);
        }
        Ok(leases)
    }
}

impl<S: SqlSource> Tables for TableReader<S> {
    fn jobs(&self, filter: &JobFilter, page: &PageRequest<JobId>) -> Result<PageOfRows<JobRow, JobId>, StoreError> {
        let Some(query) = JobQuery::new(filter, S::DIALECT) else {
            return Ok(PageOfRows { rows: Vec::new(), next: None, total: 0 });
        };
        let rows = self.select("list jobs", &query.page(page), job_row)?;
        let total = self.select_number("count jobs", &query.count())?;
        let next = next_cursor(&rows, page.limit, |row| row.id);
        Ok(PageOfRows { rows, next, total })
    }

    fn sorted_jobs(&self, filter: &JobFilter, page: &SortedPageRequest) -> Result<Vec<JobRow>, StoreError> {
        match JobQuery::new(filter, S::DIALECT) {
            Some(query) => self.select("sort jobs", &query.sorted(page), job_row),
            None => Ok(Vec::new()),
        }
    }

    fn array_tasks(&self, number: u64) -> Result<Vec<ArrayTasksRow>, StoreError> {
        let mut select = Select::default();
        let number = select.bind(number);
        select.sql = format!(
            "SELECT state, count(*), min(idx), max(idx) FROM jobs WHERE number = {number} AND idx >= 0 \
             GROUP BY state ORDER BY state"
        );
        self.select("count the tasks of an array", &select, |cells| {
            let (state, tasks) = (job_state(cells)?, cells.take()?);
            Ok(ArrayTasksRow { state, tasks, first: cells.take()?, last: cells.take()? })
        })
    }

    fn job(&self, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        let mut select = Select::default();
        let (number, index) = (select.bind(id.number), select.bind(index_column(id)));
        select.sql = format!(
            "SELECT {JOB_COLUMNS}, spec FROM jobs JOIN specs ON specs.number = jobs.number \
             WHERE jobs.number = {number} AND idx = {index}"
        );
        let found = self.select("read a job", &select, |cells| Ok((job_row(cells)?, cells.take::<String>()?)))?;
        found.into_iter().next().map(|(row, spec)| job_detail(row, &spec)).transpose()
    }

    fn attempts(&self, job: JobId) -> Result<Vec<AttemptRow>, StoreError> {
        let mut select = Select::default();
        let (number, index) = (select.bind(job.number), select.bind(index_column(job)));
        select.sql = format!(
            "SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE number = {number} AND idx = {index} ORDER BY attempt"
        );
        self.select("read attempts", &select, attempt_row)
    }

    fn outcomes(&self, ids: &[JobId]) -> Result<BTreeMap<JobId, Outcome>, StoreError> {
        let mut outcomes = BTreeMap::new();
        for id in ids {
            let mut select = Select::default();
            let (number, index) = (select.bind(id.number), select.bind(index_column(*id)));
            select.sql = format!(
                "SELECT state, max(idx) FROM jobs WHERE number = {number} AND ({index} = -1 OR idx = {index}) \
                 GROUP BY state"
            );
            let states = self.select("read outcomes", &select, |cells| Ok((job_state(cells)?, cells.take()?)))?;
            if let Some(outcome) = outcome(*id, &states) {
                outcomes.insert(*id, outcome);
            }
        }
        Ok(outcomes)
    }

    fn idempotency_key_use(&self, tenant: &str, key: &str) -> Result<Option<IdempotencyRecord>, StoreError> {
        let mut select = Select::default();
        let (tenant, key) = (select.bind(tenant), select.bind(key));
        select.sql =
            format!("SELECT number, body_hash, at_ms FROM submission_keys WHERE tenant = {tenant} AND key = {key}");
        let used = |cells: &mut RowCells| {
            let job = JobId::single(cells.take()?);
            Ok(IdempotencyRecord { job, body_hash: cells.take()?, at: Timestamp(cells.take()?) })
        };
        Ok(self.select("read an idempotency key", &select, used)?.into_iter().next())
    }

    fn events(&self, after: u64, limit: u32, job: Option<JobId>) -> Result<Vec<EventRow>, StoreError> {
        let mut select = Select::default();
        let mut wheres = vec![format!("seq > {}", select.bind(after))];
        if let Some(job) = job {
            wheres.push(format!("job_number = {}", select.bind(job.number)));
        }
        if let Some(index) = job.and_then(|job| job.index) {
            // An array is submitted by one event, which has no index.
            wheres.push(format!("job_idx IN (-1, {})", select.bind(index)));
        }
        let limit = select.bind(limit);
        select.sql = format!(
            "SELECT seq, epoch, at_ms, kind, version, payload, crc FROM journal WHERE {} ORDER BY seq LIMIT {limit}",
            wheres.join(" AND ")
        );
        let events = self.select("read events", &select, event_row)?;
        if job.is_none() {
            refuse_gaps(after, &events)?;
        }
        Ok(events)
    }

    fn allocations(
        &self,
        filter: &AllocationFilter,
        page: &PageRequest<u64>,
    ) -> Result<PageOfRows<AllocationRow, u64>, StoreError> {
        let mut select = Select::default();
        let wheres = allocation_wheres(filter, &mut select);
        let total = select.clone().with_sql(format!("SELECT count(*) FROM attempts WHERE {wheres}"));
        let head = format!("SELECT {ATTEMPT_COLUMNS} FROM attempts WHERE {wheres}");
        let attempts = self.select("list allocations", &seq_page(select, &head, page), attempt_row)?;
        let total = self.select_number("count allocations", &total)?;
        let next = next_cursor(&attempts, page.limit, |row| row.seq);
        let mut leases = self.leases(&attempts)?;
        let mut with_leases = |attempt: AttemptRow| AllocationRow {
            leases: leases.remove(&(attempt.job, attempt.attempt)).unwrap_or_default(),
            attempt,
        };
        Ok(PageOfRows { rows: attempts.into_iter().map(&mut with_leases).collect(), next, total })
    }

    fn usage(&self, span: &UsageFilter, by: UsageGrouping) -> Result<Vec<UsageRow>, StoreError> {
        let (key, group) = match by {
            UsageGrouping::Tenant => ("tenant", "tenant"),
            UsageGrouping::User => ("user_name", "user_name"),
            UsageGrouping::Job => ("job", "number, idx, job"),
        };
        let mut select = Select::default();
        let (from, to) = (select.bind(span.from_ms), select.bind(span.to_ms));
        let tenants = select.in_list("tenant", span.tenants.as_deref());
        select.sql = format!(
            "SELECT {key}, count(*), CAST(sum(gpu_ms) AS BIGINT), CAST(sum(cpu_ms) AS BIGINT), \
             CAST(sum(memory_gib_ms) AS BIGINT), CAST(sum(cost_micro) AS BIGINT), \
             CAST(sum(energy_mj) AS BIGINT) FROM usage \
             WHERE to_ms >= {from} AND to_ms < {to} AND {tenants} GROUP BY {group} ORDER BY {group}"
        );
        self.select("sum usage", &select, usage_row)
    }

    fn wait_reasons(&self, buckets: &[String], from_ms: i64, to_ms: i64) -> Result<Vec<WaitRow>, StoreError> {
        let mut select = Select::default();
        let buckets = select.in_list("bucket", Some(buckets));
        let (from, to) = (select.bind(from_ms), select.bind(to_ms));
        select.sql = format!(
            "SELECT at_ms, reasons FROM waits WHERE {buckets} AND at_ms < {to} AND at_ms >= \
             COALESCE((SELECT max(at_ms) FROM waits WHERE {buckets} AND at_ms <= {from}), {from}) \
             ORDER BY seq LIMIT {WAIT_ROWS_MAX}"
        );
        self.select("read wait reasons", &select, |cells| Ok(WaitRow { at_ms: cells.take()?, reasons: cells.take()? }))
    }

    fn audit(&self, page: &PageRequest<u64>) -> Result<PageOfRows<AuditRow, u64>, StoreError> {
        let head = "SELECT seq, at_ms, actor, actor_kind, act, object, refused, times FROM audit WHERE 1 = 1";
        let rows = self.select("list audit entries", &seq_page(Select::default(), head, page), audit_row)?;
        let total = self.select_number("count audit entries", &Select::without_values("SELECT count(*) FROM audit"))?;
        let next = next_cursor(&rows, page.limit, |row| row.seq);
        Ok(PageOfRows { rows, next, total })
    }

    fn job_counts(&self) -> Result<Vec<CountRow>, StoreError> {
        let select =
            Select::without_values("SELECT tenant, state, jobs FROM job_counts WHERE jobs > 0 ORDER BY tenant, state");
        self.select("count jobs", &select, |cells| {
            Ok(CountRow { tenant: cells.take()?, state: job_state(cells)?, jobs: cells.take()? })
        })
    }

    fn ping(&self) -> Result<(), StoreError> {
        self.0.query_rows("ping", "SELECT 1", &[]).map(drop)
    }
}

/// Sequence numbers have no gaps, so a missing record is detected.
fn refuse_gaps(after: u64, events: &[EventRow]) -> Result<(), StoreError> {
    let gap = events.iter().zip(after + 1..).find(|(event, wanted)| event.seq != *wanted);
    gap.map_or(Ok(()), |(event, wanted)| {
        Err(StoreError::unreadable_record(wanted, format!("is missing; the next is {}", event.seq)))
    })
}

fn allocation_wheres(filter: &AllocationFilter, select: &mut Select) -> String {
    let mut wheres = vec![select.in_list("tenant", filter.tenants.as_deref())];
    if let Some(job) = filter.job {
        let (number, index) = (select.bind(job.number), select.bind(index_column(job)));
        wheres.push(format!("number = {number} AND idx = {index}"));
    }
    if let Some(node) = &filter.node {
        wheres.push(format!("seq IN (SELECT seq FROM leases WHERE node = {})", select.bind(node.as_str())));
    }
    if filter.live_only {
        wheres.push("ended_at IS NULL".to_string());
    }
    wheres.join(" AND ")
}

/// A page of rows in the order of their journal entries.
fn seq_page(mut select: Select, head: &str, page: &PageRequest<u64>) -> Select {
    let (after, direction) = match page.order {
        PageOrder::NewestFirst => ("<", "DESC"),
        PageOrder::OldestFirst => (">", "ASC"),
    };
    let (key, offset) = match page.start {
        PageStart::Offset(rows) => (String::new(), rows),
        PageStart::After(seq) => (format!(" AND seq {after} {}", select.bind(seq)), 0),
    };
    let (limit, offset) = (select.bind(page.limit), select.bind(offset));
    let sql = format!("{head}{key} ORDER BY seq {direction} LIMIT {limit} OFFSET {offset}");
    select.with_sql(sql)
}

/// `None` if the page is not full: then it is the last one.
fn next_cursor<Row, Cursor>(rows: &[Row], limit: u32, cursor: fn(&Row) -> Cursor) -> Option<Cursor> {
    rows.last().filter(|_| rows.len() >= limit as usize).map(cursor)
}

/// The outcome of a job, or of a whole array whose tasks are in these states, each with its highest index.
fn outcome(id: JobId, states: &[(JobState, i64)]) -> Option<Outcome> {
    let ended = |(state, _): &(JobState, i64)| !JobState::LIVE.contains(state);
    if states.is_empty() || !states.iter().all(ended) {
        return None;
    }
    match states {
        [(JobState::Completed, _)] => Some(Outcome::Done),
        [(JobState::Cancelled, index)] if *index == index_column(id) => Some(Outcome::Cancelled),
        _ => Some(Outcome::Failed),
    }
}
