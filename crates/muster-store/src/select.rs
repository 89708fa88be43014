//! SQL queries for lists of jobs.
//!
//! The cost of a page must depend on its own rows only, and neither planner of the two databases is reliable without
//! statistics. So the access path is chosen here: each pair of tenant and state becomes one branch, each branch scans
//! its index in order up to the limit, and the branches are merged.

use muster_core::JobId;

use crate::queries::{JobFilter, JobSort, PageOrder, PageRequest, PageStart, SortedPageRequest};
use crate::rows::JobState;
use crate::tables::{Value, index_column};

macro_rules! job_columns {
    ($ran_until:literal) => {
        concat!(
            "id, tenant, user_name, name, priority, state, phase, why, gpus, gpu_milli, gpu_memory_mib, cpus, \
             memory_mib, time_limit_ms, submitted_at, placed_at, started_at, ended_at, ",
            $ran_until,
            ", wakes_at, attempt, nodes, exit_code, signal, preemptions, restarts, requeues, gpu_ms, cpu_ms, \
             cost_micro, labels"
        )
    };
}

/// Columns of a [`crate::rows::JobRow`], from the table `jobs`; `ran_until` comes from the newest attempt.
pub(crate) const JOB_COLUMNS: &str = job_columns!(
    "(SELECT charged_until FROM attempts AS newest WHERE newest.number = jobs.number AND newest.idx = jobs.idx \
     AND newest.attempt = jobs.attempt) AS ran_until"
);

/// The same columns, selected from a subquery.
const JOB_COLUMN_NAMES: &str = job_columns!("ran_until");

/// SQL dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Sqlite,
    Postgres,
}

/// A query with its parameter values.
#[derive(Debug, Clone, Default)]
pub struct Select {
    /// Parameters are `$1`, `$2` and so on.
    pub sql: String,
    pub values: Vec<Value>,
}

impl Select {
    pub fn without_values(sql: impl Into<String>) -> Select {
        Select { sql: sql.into(), values: Vec::new() }
    }

    /// Add a value and return its parameter.
    pub fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// The same values with another SQL text.
    pub fn with_sql(mut self, sql: String) -> Select {
        self.sql = sql;
        self
    }

    /// `column IN (…)`; true without a list, false for an empty one.
    pub fn in_list(&mut self, column: &str, names: Option<&[String]>) -> String {
        match names {
            None => "1 = 1".to_string(),
            Some([]) => "1 = 0".to_string(),
            Some(names) => {
                let params: Vec<String> = names.iter().map(|name| self.bind(name.as_str())).collect();
                format!("{column} IN ({})", params.join(", "))
            }
        }
    }
}

/// With more branches the access path is left to the database.
const BRANCHES_MAX: usize = 32;

/// A query for jobs.
pub struct JobQuery<'a> {
    filter: &'a JobFilter,
    dialect: Dialect,
    /// States that satisfy all conditions of the filter; `None` for all states.
    states: Option<Vec<JobState>>,
}

impl<'a> JobQuery<'a> {
    /// `None` if no job can match.
    pub fn new(filter: &'a JobFilter, dialect: Dialect) -> Option<JobQuery<'a>> {
        let conditions: [Option<&[JobState]>; 3] = [
            filter.states.as_deref(),
            filter.active_only.then_some(JobState::LIVE.as_slice()),
            filter.phase.as_deref().map(states_of_phase),
        ];
        let allowed = |state: &JobState| conditions.iter().flatten().all(|states| states.contains(state));
        let states: Vec<JobState> = JobState::ALL.into_iter().filter(allowed).collect();
        let no_tenants = filter.tenants.as_ref().is_some_and(Vec::is_empty);
        if states.is_empty() || no_tenants {
            return None;
        }
        let states = (states.len() < JobState::ALL.len()).then_some(states);
        Some(JobQuery { filter, dialect, states })
    }

    pub fn page(&self, page: &PageRequest<JobId>) -> Select {
        let mut select = Select::default();
        let mut wheres = self.indexed_conditions(&mut select);
        wheres.extend(self.unindexed_conditions(&mut select));
        let (after, direction) = match page.order {
            PageOrder::NewestFirst => ("<", "DESC"),
            PageOrder::OldestFirst => (">", "ASC"),
        };
        let mut skip = 0;
        match page.start {
            PageStart::Offset(rows) => skip = rows,
            PageStart::After(id) => {
                let (number, index) = (select.bind(id.number), select.bind(index_column(id)));
                wheres.push(format!("(number, idx) {after} ({number}, {index})"));
            }
        }
        let order = format!("ORDER BY number {direction}, idx {direction}");
        let rows_max = select.bind(skip.saturating_add(u64::from(page.limit)));
        let branches: Vec<String> = self
            .branches(&mut select)
            .into_iter()
            .map(|mut branch| {
                branch.extend(wheres.iter().cloned());
                let wheres = branch.join(" AND ");
                format!("SELECT * FROM (SELECT {JOB_COLUMNS}, number, idx FROM jobs WHERE {wheres} {order} LIMIT {rows_max}) AS branch")
            })
            .collect();
        let (limit, skip) = (select.bind(page.limit), select.bind(skip));
        let sql = format!("{} {order} LIMIT {limit} OFFSET {skip}", branches.join(" UNION ALL "));
        select.with_sql(sql)
    }

    /// One page in another order than by id. No index has that order, so all matching rows are scanned.
    pub fn sorted(&self, page: &SortedPageRequest) -> Select {
        let mut select = Select::default();
        let mut wheres = self.indexed_conditions(&mut select);
        wheres.extend(self.unindexed_conditions(&mut select));
        wheres.push(select.in_list("tenant", self.filter.tenants.as_deref()));
        wheres.push(select.in_list("state", self.state_names().as_deref()));
        let now = select.bind(page.now_ms);
        let (key, wheres) = (sort_key(self.dialect, page.by, &now), wheres.join(" AND "));
        let direction = if page.descending { "DESC" } else { "ASC" };
        let rank_in_array = match page.one_per_array {
            true => format!(
                "ROW_NUMBER() OVER (PARTITION BY number ORDER BY CASE WHEN {key} IS NULL THEN 1 ELSE 0 END, \
                 {key} {direction}, idx {direction})"
            ),
            false => "1".to_string(),
        };
        let (limit, offset) = (select.bind(page.limit), select.bind(page.offset));
        let sql = format!(
            "SELECT {JOB_COLUMN_NAMES} FROM (SELECT {JOB_COLUMNS}, number, idx, {key} AS sort_key, {rank_in_array} AS rank_in_array \
             FROM jobs WHERE {wheres}) AS sorted WHERE rank_in_array = 1 \
             ORDER BY CASE WHEN sort_key IS NULL THEN 1 ELSE 0 END, sort_key {direction}, number {direction}, \
             idx {direction} LIMIT {limit} OFFSET {offset}"
        );
        select.with_sql(sql)
    }

    /// Number of matching jobs.
    pub fn count(&self) -> Select {
        let mut select = Select::default();
        let mut wheres = self.indexed_conditions(&mut select);
        wheres.extend(self.unindexed_conditions(&mut select));
        let is_in_job_counts = wheres.is_empty();
        // The expression hides these columns from the planner, which otherwise may prefer their less selective index.
        let column = if self.has_indexed_condition() { |name| format!("COALESCE({name}, '')") } else { str::to_string };
        wheres.push(select.in_list(&column("tenant"), self.filter.tenants.as_deref()));
        wheres.push(select.in_list(&column("state"), self.state_names().as_deref()));
        let wheres = wheres.join(" AND ");
        select.with_sql(if is_in_job_counts {
            format!("SELECT CAST(COALESCE(sum(jobs), 0) AS BIGINT) FROM job_counts WHERE {wheres}")
        } else {
            format!("SELECT count(*) FROM jobs WHERE {wheres}")
        })
    }

    /// True if a condition is selective and has its own index.
    fn has_indexed_condition(&self) -> bool {
        self.filter.number.is_some() || self.filter.user.is_some() || self.filter.label.is_some()
    }

    fn state_names(&self) -> Option<Vec<String>> {
        self.states.as_deref().map(names_of_states)
    }

    /// Number of index scans that the branches need.
    fn index_scans(&self) -> usize {
        let states = self.states.as_ref().map(Vec::len);
        match &self.filter.tenants {
            None => states.unwrap_or(1),
            Some(tenants) => tenants.len() * states.unwrap_or(JobState::ALL.len()),
        }
    }

    /// Conditions that have their own index.
    fn indexed_conditions(&self, select: &mut Select) -> Vec<String> {
        let mut wheres = Vec::new();
        if let Some(number) = self.filter.number {
            wheres.push(format!("number = {}", select.bind(number)));
        }
        if let Some(user) = &self.filter.user {
            wheres.push(format!("user_name = {}", select.bind(user.as_str())));
        }
        if let Some((key, value)) = &self.filter.label {
            let (key, value) = (select.bind(key.as_str()), select.bind(value.as_str()));
            wheres.push(format!("number IN (SELECT number FROM job_labels WHERE label = {key} AND value = {value})"));
            wheres.push(match self.dialect {
                Dialect::Sqlite => format!(
                    "EXISTS (SELECT 1 FROM json_each(jobs.labels) AS l WHERE l.key = {key} AND l.value = {value})"
                ),
                Dialect::Postgres => format!("CAST(labels AS jsonb) ->> {key} = {value}"),
            });
        }
        wheres
    }

    /// Conditions that are evaluated row by row.
    fn unindexed_conditions(&self, select: &mut Select) -> Vec<String> {
        let mut wheres = Vec::new();
        if let Some(phase) = &self.filter.phase {
            wheres.push(format!("phase = {}", select.bind(phase.as_str())));
        }
        if let Some(part) = &self.filter.name_contains {
            let pattern = select.bind(like_pattern(part));
            // LIKE of SQLite ignores case, for ASCII letters only.
            let like = match self.dialect {
                Dialect::Sqlite => "LIKE",
                Dialect::Postgres => "ILIKE",
            };
            wheres.push(format!("name {like} {pattern} ESCAPE '\\'"));
        }
        wheres
    }

    /// Conditions on tenant and state, one list per index scan.
    fn branches(&self, select: &mut Select) -> Vec<Vec<String>> {
        let tenants = self.filter.tenants.as_deref();
        let states = self.state_names();
        if self.has_indexed_condition() || self.index_scans() > BRANCHES_MAX {
            return vec![vec![
                select.in_list("COALESCE(tenant, '')", tenants),
                select.in_list("COALESCE(state, '')", states.as_deref()),
            ]];
        }
        // The index on the jobs of a tenant starts with tenant and state.
        let states = states.or_else(|| tenants.map(|_| names_of_states(&JobState::ALL)));
        let tenants: Vec<Option<String>> = equalities(select, "tenant", tenants);
        let states: Vec<Option<String>> = equalities(select, "state", states.as_deref());
        let pair = |tenant: &Option<String>, state: &Option<String>| -> Vec<String> {
            let mut wheres: Vec<String> = [tenant, state].into_iter().flatten().cloned().collect();
            if wheres.is_empty() {
                wheres.push("1 = 1".to_string());
            }
            wheres
        };
        tenants.iter().flat_map(|tenant| states.iter().map(move |state| pair(tenant, state))).collect()
    }
}

fn names_of_states(states: &[JobState]) -> Vec<String> {
    states.iter().map(|state| state.as_str().to_string()).collect()
}

fn equalities(select: &mut Select, column: &str, names: Option<&[String]>) -> Vec<Option<String>> {
    match names {
        None => vec![None],
        Some(names) => names.iter().map(|name| Some(format!("{column} = {}", select.bind(name.as_str())))).collect(),
    }
}

/// SQL expression of a sort key. Both databases sort texts by code point.
fn sort_key(dialect: Dialect, by: JobSort, now: &str) -> String {
    let text = |column: &str| match dialect {
        Dialect::Sqlite => column.to_string(),
        Dialect::Postgres => format!("{column} COLLATE \"C\""),
    };
    match by {
        JobSort::Name => text("name"),
        JobSort::State => "CASE state WHEN 'running' THEN 0 WHEN 'preempted' THEN 1 WHEN 'pending' THEN 2 \
                           WHEN 'failed' THEN 3 WHEN 'cancelled' THEN 4 ELSE 5 END"
            .to_string(),
        JobSort::Gpus => "gpu_milli".to_string(),
        JobSort::Tenant => text("tenant"),
        JobSort::User => text("user_name"),
        JobSort::Priority => "priority".to_string(),
        JobSort::Submitted => "submitted_at".to_string(),
        JobSort::Elapsed => format!(
            "CASE WHEN ended_at IS NOT NULL THEN ended_at - started_at \
             WHEN state = 'running' AND started_at IS NOT NULL THEN CAST({now} AS BIGINT) - started_at \
             ELSE CAST({now} AS BIGINT) - submitted_at END"
        ),
        JobSort::TimeLeft => {
            format!("CASE WHEN state = 'running' THEN started_at + time_limit_ms - CAST({now} AS BIGINT) ELSE NULL END")
        }
        JobSort::Attempts => "attempt".to_string(),
        JobSort::Nodes => text("nodes"),
        JobSort::Exit => "COALESCE(exit_code, 128 + signal)".to_string(),
        JobSort::GpuHours => "gpu_ms".to_string(),
    }
}

/// States in which a job of this phase can be.
fn states_of_phase(phase: &str) -> &'static [JobState] {
    match phase {
        "Queued" => &[JobState::Pending, JobState::Preempted],
        "Held" | "Starting" => &[JobState::Pending],
        "Running" | "Stopping" | "LostNode" => &[JobState::Running],
        "Done" => &[JobState::Completed],
        "Failed" => &[JobState::Failed],
        "Cancelled" => &[JobState::Cancelled],
        _ => &[],
    }
}

fn like_pattern(part: &str) -> String {
    let escaped = part.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_");
    format!("%{escaped}%")
}
