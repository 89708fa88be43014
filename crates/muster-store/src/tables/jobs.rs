//! Rows of jobs without an attempt: submission, hold, release, change and end. Also idempotency keys.

use std::collections::BTreeMap;

use muster_core::facts::command::{IdempotencyKey, JobChange};
use muster_core::objects::job::Outcome;
use muster_core::{JobId, JobSpec, TenantId, Timestamp};

use super::value::replace_nul;
use super::{BoundStatement, BulkStatement, ExpectedRows, Statement, Value, index_column};
use crate::rows::JobState;

static ADD_SPEC: Statement = Statement {
    name: "add a spec",
    sql: "INSERT INTO specs (number, spec) VALUES (?1, ?2)",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO specs (number, spec) SELECT * FROM unnest($1::bigint[], $2::text[])",
        rows: ExpectedRows::OnePerChange,
    }),
};

static ADD_JOB: Statement = Statement {
    name: "add a job",
    sql: "INSERT INTO jobs (number, idx, id, tenant, user_name, name, priority, state, phase, why, held_by, \
          gpus, gpu_milli, gpu_memory_mib, cpus, memory_mib, time_limit_ms, submitted_at, wakes_at, labels) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, 'pending', ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        // The join checks that the tenant exists, at the same cost for one row as for a thousand.
        sql: "INSERT INTO jobs (number, idx, id, tenant, user_name, name, priority, state, phase, why, held_by, \
              gpus, gpu_milli, gpu_memory_mib, cpus, memory_mib, time_limit_ms, submitted_at, wakes_at, labels) \
              SELECT u.number, u.idx, u.job, t.id, u.user_name, u.name, u.priority, 'pending', u.phase, u.why, \
              u.held_by, u.gpus, u.gpu_milli, u.gpu_memory_mib, u.cpus, u.memory_mib, u.time_limit_ms, u.at, \
              u.wakes_at, u.labels FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
              $7::bigint[], $8::text[], $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], \
              $14::bigint[], $15::bigint[], $16::bigint[], $17::bigint[], $18::bigint[], $19::text[]) \
              AS u (number, idx, job, tenant, user_name, name, priority, phase, why, held_by, gpus, gpu_milli, \
              gpu_memory_mib, cpus, memory_mib, time_limit_ms, at, wakes_at, labels) \
              JOIN tenants t ON t.id = u.tenant AND t.deleted_at IS NULL",
        rows: ExpectedRows::OnePerChange,
    }),
};

// Selecting from `tenants` checks that the tenant exists, at a fraction of the cost of a foreign key. A trigger that
// counts each new row would make SQLite open an extra table.
static COUNT_JOBS: Statement = Statement {
    name: "add a job to its tenant's count",
    sql: "INSERT INTO job_counts (tenant, state, jobs) \
          SELECT id, 'pending', CAST(?2 AS BIGINT) FROM tenants WHERE id = ?1 AND deleted_at IS NULL \
          ON CONFLICT (tenant, state) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO job_counts (tenant, state, jobs) \
              SELECT tenant, 'pending', sum(more) FROM unnest($1::text[], $2::bigint[]) AS u (tenant, more) \
              GROUP BY tenant ORDER BY tenant \
              ON CONFLICT (tenant, state) DO UPDATE SET jobs = job_counts.jobs + excluded.jobs",
        rows: ExpectedRows::AtLeastOne,
    }),
};

static ADD_LABEL: Statement = Statement {
    name: "add a job label",
    sql: "INSERT INTO job_labels (label, value, number) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING",
    rows: ExpectedRows::Any,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO job_labels (label, value, number) \
              SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[]) ON CONFLICT DO NOTHING",
        rows: ExpectedRows::Any,
    }),
};

static HOLD: Statement = Statement {
    name: "hold a waiting job",
    sql: "UPDATE jobs SET state = 'pending', phase = 'Held', held_by = ?3, why = ?4 \
          WHERE number = ?1 AND idx = ?2 AND phase IN ('Queued', 'Held')",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static RELEASE: Statement = Statement {
    name: "release a held job",
    sql: "UPDATE jobs SET phase = 'Queued', held_by = NULL, why = '', requeues = 0 \
          WHERE number = ?1 AND idx = ?2 AND phase = 'Held'",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static WAKE: Statement = Statement {
    name: "clear the start time of a delayed job",
    sql: "UPDATE jobs SET wakes_at = NULL WHERE number = ?1 AND idx = ?2",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static POSTPONE: Statement = Statement {
    name: "postpone a job",
    sql: "UPDATE jobs SET wakes_at = ?3 WHERE number = ?1 AND idx = ?2",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static CHANGE: Statement = Statement {
    name: "change a job",
    sql: "UPDATE jobs SET name = COALESCE(?3, name), priority = COALESCE(?4, priority), \
          time_limit_ms = CASE WHEN ?5 THEN ?6 ELSE time_limit_ms END, labels = COALESCE(?7, labels) \
          WHERE number = ?1 AND idx = ?2",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static END: Statement = Statement {
    name: "end a waiting job",
    sql: "UPDATE jobs SET state = ?3, phase = ?4, why = ?5, held_by = NULL, ended_at = ?6 \
          WHERE number = ?1 AND idx = ?2 AND phase IN ('Queued', 'Held')",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "UPDATE jobs SET state = u.state, phase = u.phase, why = u.why, held_by = NULL, ended_at = u.at \
              FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[]) \
              AS u (number, idx, state, phase, why, at) \
              WHERE jobs.number = u.number AND jobs.idx = u.idx AND jobs.phase IN ('Queued', 'Held')",
        rows: ExpectedRows::OnePerChange,
    }),
};

static SAVE_IDEMPOTENCY_KEY: Statement = Statement {
    name: "store an idempotency key",
    sql: "INSERT INTO submission_keys (tenant, key, number, body_hash, at_ms) VALUES (?1, ?2, ?3, ?4, ?5) \
          ON CONFLICT (tenant, key) DO UPDATE SET number = excluded.number, body_hash = excluded.body_hash, \
          at_ms = excluded.at_ms",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static DELETE_IDEMPOTENCY_KEYS: Statement = Statement {
    name: "delete expired idempotency keys",
    sql: "DELETE FROM submission_keys WHERE at_ms < ?1",
    rows: ExpectedRows::Any,
    bulk: None,
};

/// A job was submitted with an idempotency key.
pub fn idempotency_key_used(job: JobId, tenant: &TenantId, key: &IdempotencyKey, at: Timestamp) -> BoundStatement {
    let (key, hash) = (key.key.as_str(), key.body_hash.as_str());
    SAVE_IDEMPOTENCY_KEY.bind(vec![tenant.into(), key.into(), job.number.into(), hash.into(), at.into()])
}

pub fn idempotency_keys_expired(before: Timestamp) -> Vec<BoundStatement> {
    vec![DELETE_IDEMPOTENCY_KEYS.bind(vec![before.into()])]
}

/// A job was submitted, or an array, whose tasks share one spec.
pub fn submitted(
    job: JobId,
    spec: &JobSpec,
    indexes: Option<&[u32]>,
    held_by: Option<&str>,
    at: Timestamp,
) -> Vec<BoundStatement> {
    let ids: Vec<JobId> = match indexes {
        None => vec![job],
        Some(indexes) => indexes.iter().map(|index| JobId::of_array(job.number, *index)).collect(),
    };
    let labels = labels_json(&spec.labels);
    let mut changes = Vec::with_capacity(2 + ids.len() + spec.labels.len());
    changes.push(ADD_SPEC.bind(vec![job.number.into(), muster_json::to_string(spec).into()]));
    changes.push(COUNT_JOBS.bind(vec![(&spec.tenant).into(), (ids.len() as u64).into()]));
    changes.extend(ids.into_iter().map(|id| new_job(id, spec, &labels, held_by, at)));
    changes.extend(label_rows(job.number, &spec.labels));
    changes
}

fn new_job(id: JobId, spec: &JobSpec, labels: &str, held_by: Option<&str>, at: Timestamp) -> BoundStatement {
    let demand = spec.demand();
    let (phase, why) = if held_by.is_some() { ("Held", "held at submission") } else { ("Queued", "") };
    ADD_JOB.bind(vec![
        id.number.into(),
        index_column(id).into(),
        id.into(),
        (&spec.tenant).into(),
        spec.user.as_str().into(),
        spec.name.as_str().into(),
        spec.priority.into(),
        phase.into(),
        why.into(),
        held_by.into(),
        spec.gpus().into(),
        demand.gpu_milli.into(),
        demand.gpu_memory_mib.into(),
        demand.cpus.into(),
        demand.memory_mib.into(),
        spec.time_limit_ms.into(),
        at.into(),
        spec.start_after.filter(|start| *start > at).into(),
        labels.into(),
    ])
}

/// Labels as JSON without NUL, which PostgreSQL cannot parse in `jsonb`.
fn labels_json(labels: &BTreeMap<String, String>) -> String {
    let labels: BTreeMap<String, String> =
        labels.iter().map(|(key, value)| (replace_nul(key), replace_nul(value))).collect();
    muster_json::to_string(&labels)
}

fn label_rows(number: u64, labels: &BTreeMap<String, String>) -> impl Iterator<Item = BoundStatement> + '_ {
    labels
        .iter()
        .map(move |(key, value)| ADD_LABEL.bind(vec![key.as_str().into(), value.as_str().into(), number.into()]))
}

pub fn held(job: JobId, by: &str, why: &str) -> Vec<BoundStatement> {
    vec![HOLD.bind(vec![job.number.into(), index_column(job).into(), by.into(), why.into()])]
}

pub fn released(job: JobId) -> Vec<BoundStatement> {
    vec![RELEASE.bind(vec![job.number.into(), index_column(job).into()])]
}

/// The start time or backoff of a job has passed.
pub fn woken(job: JobId) -> Vec<BoundStatement> {
    vec![WAKE.bind(vec![job.number.into(), index_column(job).into()])]
}

/// A policy moved the restart of a job.
pub fn postponed(job: JobId, wakes_at: Timestamp) -> Vec<BoundStatement> {
    vec![POSTPONE.bind(vec![job.number.into(), index_column(job).into(), wakes_at.into()])]
}

/// Fields of a job that may change have their own columns; the stored spec stays as submitted.
pub fn changed(job: JobId, change: &JobChange) -> Vec<BoundStatement> {
    // Destructured, so that a new field is a compile error here.
    let JobChange { name, priority, time_limit_ms, labels } = change;
    let update = CHANGE.bind(vec![
        job.number.into(),
        index_column(job).into(),
        name.as_deref().into(),
        (*priority).into(),
        time_limit_ms.is_some().into(),
        time_limit_ms.flatten().into(),
        labels.as_ref().map(labels_json).into(),
    ]);
    let labels = labels.iter().flat_map(|labels| label_rows(job.number, labels));
    [update].into_iter().chain(labels).collect()
}

/// A job without an attempt ended.
pub fn ended(job: JobId, outcome: Outcome, why: &str, at: Timestamp) -> Vec<BoundStatement> {
    vec![END.bind(vec![
        job.number.into(),
        index_column(job).into(),
        final_state(outcome).as_str().into(),
        outcome.as_str().into(),
        why.into(),
        Value::from(at),
    ])]
}

/// Final job state of an outcome.
pub fn final_state(outcome: Outcome) -> JobState {
    match outcome {
        Outcome::Done => JobState::Completed,
        Outcome::Failed => JobState::Failed,
        Outcome::Cancelled => JobState::Cancelled,
    }
}
