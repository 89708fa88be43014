//! Builds the queries for lists of jobs.
//!
//! A page must cost what its rows cost, however many others there are, and neither database can be trusted to
//! choose well without statistics. So the choice is made here: a list of tenants and states becomes one branch
//! for each pair, every branch walks its index in order and stops at the limit, and the branches are merged.

use muster_core::JobId;

use crate::queries::{JobFilter, JobSort, Order, Page, SortedPage, Start};
use crate::rows::JobState;
use crate::tables::{Value, idx};

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

/// The columns of a job, from the table `jobs`; `ran_until` comes from its newest attempt.
pub(crate) const JOB_COLUMNS: &str = job_columns!(
    "(SELECT charged_until FROM attempts AS newest WHERE newest.number = jobs.number AND newest.idx = jobs.idx \
     AND newest.attempt = jobs.attempt) AS ran_until"
);

/// The same from a query that has them.
const JOB_NAMES: &str = job_columns!("ran_until");

/// Where the two databases differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// A query with its values.
#[derive(Debug, Clone, Default)]
pub struct Select {
    /// The text; parameters are `$1`, `$2` and so on.
    pub sql: String,
    /// The values.
    pub values: Vec<Value>,
}

impl Select {
    /// A query without values.
    pub fn plain(sql: impl Into<String>) -> Select {
        Select { sql: sql.into(), values: Vec::new() }
    }

    /// Add a value and return its parameter.
    pub fn bind(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }

    /// The same values under another text.
    pub fn with(mut self, sql: String) -> Select {
        self.sql = sql;
        self
    }

    /// `column IN (…)`, true where there is no list, false where it is empty.
    pub fn one_of(&mut self, column: &str, words: Option<&[String]>) -> String {
        match words {
            None => "1 = 1".to_string(),
            Some([]) => "1 = 0".to_string(),
            Some(words) => {
                let params: Vec<String> = words.iter().map(|word| self.bind(word.as_str())).collect();
                format!("{column} IN ({})", params.join(", "))
            }
        }
    }
}

/// More branches than this are left to the database.
const BRANCHES_MAX: usize = 32;

/// A question about jobs.
pub struct JobQuery<'a> {
    filter: &'a JobFilter,
    dialect: Dialect,
    /// The states that remain after all that is said about them; `None` for any.
    states: Option<Vec<JobState>>,
}

impl<'a> JobQuery<'a> {
    /// `None` if no job can match.
    pub fn of(filter: &'a JobFilter, dialect: Dialect) -> Option<JobQuery<'a>> {
        let said: [Option<&[JobState]>; 3] = [
            filter.states.as_deref(),
            filter.active_only.then_some(JobState::LIVE.as_slice()),
            filter.phase.as_deref().map(states_of_phase),
        ];
        let allowed = |state: &JobState| said.iter().flatten().all(|states| states.contains(state));
        let states: Vec<JobState> = JobState::ALL.into_iter().filter(allowed).collect();
        let nobody = filter.tenants.as_ref().is_some_and(Vec::is_empty);
        if states.is_empty() || nobody {
            return None;
        }
        let states = (states.len() < JobState::ALL.len()).then_some(states);
        Some(JobQuery { filter, dialect, states })
    }

    /// One page.
    pub fn page(&self, page: &Page<JobId>) -> Select {
        let mut select = Select::default();
        let mut wheres = self.narrow(&mut select);
        wheres.extend(self.broad(&mut select));
        let (after, direction) = match page.order {
            Order::Newest => ("<", "DESC"),
            Order::Oldest => (">", "ASC"),
        };
        let mut skip = 0;
        match page.start {
            Start::Offset(rows) => skip = rows,
            Start::After(id) => {
                let (number, index) = (select.bind(id.number), select.bind(idx(id)));
                wheres.push(format!("(number, idx) {after} ({number}, {index})"));
            }
        }
        let order = format!("ORDER BY number {direction}, idx {direction}");
        let reach = select.bind(skip.saturating_add(u64::from(page.limit)));
        let branches: Vec<String> = self
            .branches(&mut select)
            .into_iter()
            .map(|mut branch| {
                branch.extend(wheres.iter().cloned());
                let wheres = branch.join(" AND ");
                format!("SELECT * FROM (SELECT {JOB_COLUMNS}, number, idx FROM jobs WHERE {wheres} {order} LIMIT {reach}) AS branch")
            })
            .collect();
        let (limit, skip) = (select.bind(page.limit), select.bind(skip));
        let sql = format!("{} {order} LIMIT {limit} OFFSET {skip}", branches.join(" UNION ALL "));
        select.with(sql)
    }

    /// One page in another order than that of the ids. No index goes by it, so every match is looked at.
    pub fn sorted(&self, page: &SortedPage) -> Select {
        let mut select = Select::default();
        let mut wheres = self.narrow(&mut select);
        wheres.extend(self.broad(&mut select));
        wheres.push(select.one_of("tenant", self.filter.tenants.as_deref()));
        wheres.push(select.one_of("state", self.state_words().as_deref()));
        let now = select.bind(page.now_ms);
        let (key, wheres) = (sort_key(self.dialect, page.by, &now), wheres.join(" AND "));
        let direction = if page.descending { "DESC" } else { "ASC" };
        let place = match page.one_per_array {
            true => format!(
                "ROW_NUMBER() OVER (PARTITION BY number ORDER BY CASE WHEN {key} IS NULL THEN 1 ELSE 0 END, \
                 {key} {direction}, idx {direction})"
            ),
            false => "1".to_string(),
        };
        let (limit, offset) = (select.bind(page.limit), select.bind(page.offset));
        let sql = format!(
            "SELECT {JOB_NAMES} FROM (SELECT {JOB_COLUMNS}, number, idx, {key} AS sort_key, {place} AS place \
             FROM jobs WHERE {wheres}) AS sorted WHERE place = 1 \
             ORDER BY CASE WHEN sort_key IS NULL THEN 1 ELSE 0 END, sort_key {direction}, number {direction}, \
             idx {direction} LIMIT {limit} OFFSET {offset}"
        );
        select.with(sql)
    }

    /// How many there are.
    pub fn total(&self) -> Select {
        let mut select = Select::default();
        let mut wheres = self.narrow(&mut select);
        wheres.extend(self.broad(&mut select));
        let counted = wheres.is_empty();
        // An index on these columns would lead away from the narrower one.
        let column = if self.is_narrow() { |name| format!("COALESCE({name}, '')") } else { str::to_string };
        wheres.push(select.one_of(&column("tenant"), self.filter.tenants.as_deref()));
        wheres.push(select.one_of(&column("state"), self.state_words().as_deref()));
        let wheres = wheres.join(" AND ");
        select.with(if counted {
            format!("SELECT CAST(COALESCE(sum(jobs), 0) AS BIGINT) FROM job_counts WHERE {wheres}")
        } else {
            format!("SELECT count(*) FROM jobs WHERE {wheres}")
        })
    }

    /// Whether something is asked that few rows answer to and that has an index of its own.
    fn is_narrow(&self) -> bool {
        self.filter.number.is_some() || self.filter.user.is_some() || self.filter.label.is_some()
    }

    fn state_words(&self) -> Option<Vec<String>> {
        self.states.as_deref().map(words)
    }

    /// How many walks along an index it takes.
    fn walks(&self) -> usize {
        let states = self.states.as_ref().map(Vec::len);
        match &self.filter.tenants {
            None => states.unwrap_or(1),
            Some(tenants) => tenants.len() * states.unwrap_or(JobState::ALL.len()),
        }
    }

    /// Conditions with an index of their own.
    fn narrow(&self, select: &mut Select) -> Vec<String> {
        let mut wheres = Vec::new();
        if let Some(number) = self.filter.number {
            wheres.push(format!("number = {}", select.bind(number)));
        }
        if let Some(user) = &self.filter.user {
            wheres.push(format!("user_name = {}", select.bind(user.as_str())));
        }
        if let Some((key, value)) = &self.filter.label {
            let (key, value) = (select.bind(key.as_str()), select.bind(value.as_str()));
            wheres.push(format!(
                "number IN (SELECT number FROM job_labels WHERE label = {key} AND value = {value})"
            ));
            wheres.push(match self.dialect {
                Dialect::Sqlite => format!(
                    "EXISTS (SELECT 1 FROM json_each(jobs.labels) AS l WHERE l.key = {key} AND l.value = {value})"
                ),
                Dialect::Postgres => format!("CAST(labels AS jsonb) ->> {key} = {value}"),
            });
        }
        wheres
    }

    /// Conditions that every row must be looked at for.
    fn broad(&self, select: &mut Select) -> Vec<String> {
        let mut wheres = Vec::new();
        if let Some(phase) = &self.filter.phase {
            wheres.push(format!("phase = {}", select.bind(phase.as_str())));
        }
        if let Some(part) = &self.filter.name_contains {
            let pattern = select.bind(like_pattern(part));
            // LIKE looks past upper and lower case in SQLite, though only for the letters of English.
            let like = match self.dialect {
                Dialect::Sqlite => "LIKE",
                Dialect::Postgres => "ILIKE",
            };
            wheres.push(format!("name {like} {pattern} ESCAPE '\\'"));
        }
        wheres
    }

    /// The conditions on tenant and state, one list for each walk along an index.
    fn branches(&self, select: &mut Select) -> Vec<Vec<String>> {
        let tenants = self.filter.tenants.as_deref();
        let states = self.state_words();
        if self.is_narrow() || self.walks() > BRANCHES_MAX {
            return vec![vec![
                select.one_of("COALESCE(tenant, '')", tenants),
                select.one_of("COALESCE(state, '')", states.as_deref()),
            ]];
        }
        // The index of a tenant's jobs goes by state.
        let states = states.or_else(|| tenants.map(|_| words(&JobState::ALL)));
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

fn words(states: &[JobState]) -> Vec<String> {
    states.iter().map(|state| state.word().to_string()).collect()
}

fn equalities(select: &mut Select, column: &str, words: Option<&[String]>) -> Vec<Option<String>> {
    match words {
        None => vec![None],
        Some(words) => {
            words.iter().map(|word| Some(format!("{column} = {}", select.bind(word.as_str())))).collect()
        }
    }
}

/// The expression that rows are sorted by. Letters are sorted by their numbers in both databases.
fn sort_key(dialect: Dialect, by: JobSort, now: &str) -> String {
    let letters = |column: &str| match dialect {
        Dialect::Sqlite => column.to_string(),
        Dialect::Postgres => format!("{column} COLLATE \"C\""),
    };
    match by {
        JobSort::Name => letters("name"),
        JobSort::State => "CASE state WHEN 'running' THEN 0 WHEN 'preempted' THEN 1 WHEN 'pending' THEN 2 \
                           WHEN 'failed' THEN 3 WHEN 'cancelled' THEN 4 ELSE 5 END"
            .to_string(),
        JobSort::Gpus => "gpu_milli".to_string(),
        JobSort::Tenant => letters("tenant"),
        JobSort::User => letters("user_name"),
        JobSort::Priority => "priority".to_string(),
        JobSort::Submitted => "submitted_at".to_string(),
        JobSort::Elapsed => format!(
            "CASE WHEN ended_at IS NOT NULL THEN ended_at - started_at \
             WHEN state = 'running' AND started_at IS NOT NULL THEN CAST({now} AS BIGINT) - started_at \
             ELSE CAST({now} AS BIGINT) - submitted_at END"
        ),
        JobSort::Left => format!(
            "CASE WHEN state = 'running' THEN started_at + time_limit_ms - CAST({now} AS BIGINT) ELSE NULL END"
        ),
        JobSort::Attempts => "attempt".to_string(),
        JobSort::Nodes => letters("nodes"),
        JobSort::Exit => "COALESCE(exit_code, 128 + signal)".to_string(),
        JobSort::GpuHours => "gpu_ms".to_string(),
    }
}

/// The states that jobs of a phase can be in.
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
