//! Projection of events into the tables, the same for both databases.
//!
//! The projection is pure: it turns an entry into statements with bound values. What an event does not carry (the
//! tenant of a job, its demand) the statements look up themselves, within the transaction. Each statement states how
//! many rows it must affect, so a job in an unexpected phase or a missing tenant fails the batch. The tables thus
//! check the engine a second time.

mod attempts;
mod audit;
mod claims;
mod jobs;
mod leases;
mod nodes;
mod policies;
mod secrets;
mod settings;
mod tenants;
mod tokens;
mod value;
mod waits;
mod windows;

use muster_core::{Event, JobId};

pub use value::{RowCells, Value};

use crate::chain::ChainChecksum;
use crate::error::StoreError;
use crate::record::{Entry, Record};

/// A statement with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundStatement {
    pub statement: &'static Statement,
    /// Values of `?1`, `?2` and so on.
    pub values: Vec<Value>,
}

impl BoundStatement {
    /// The statement affected another number of rows than expected: the tables disagree with the event.
    pub fn wrong_row_count(&self, operation: &str, affected: u64) -> StoreError {
        let expected = self.statement.rows.describe();
        StoreError::invariant_violated(format!(
            "{operation}: affected {affected} rows (expected {expected}), values {:?}",
            self.values
        ))
    }
}

/// SQL that both databases understand.
#[derive(Debug, PartialEq)]
pub struct Statement {
    /// Verb phrase for messages, for example `add a job`.
    pub name: &'static str,
    /// For one change; parameters are `?1`, `?2` and so on.
    pub sql: &'static str,
    pub rows: ExpectedRows,
    /// For many changes at once, in the dialect of PostgreSQL: each parameter is an array.
    pub bulk: Option<BulkStatement>,
}

/// A statement for many changes at once.
#[derive(Debug, PartialEq)]
pub struct BulkStatement {
    pub sql: &'static str,
    pub rows: ExpectedRows,
}

/// Number of rows that a statement must affect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedRows {
    /// Exactly one row per change.
    OnePerChange,
    AtLeastOne,
    Any,
}

impl ExpectedRows {
    /// True if `changes` changes may affect `affected` rows.
    pub fn allows(self, affected: u64, changes: usize) -> bool {
        match self {
            ExpectedRows::OnePerChange => affected == changes as u64,
            ExpectedRows::AtLeastOne => affected > 0,
            ExpectedRows::Any => true,
        }
    }

    /// For messages.
    fn describe(self) -> &'static str {
        match self {
            ExpectedRows::OnePerChange => "exactly one",
            ExpectedRows::AtLeastOne => "at least one",
            ExpectedRows::Any => "any number",
        }
    }
}

impl Statement {
    fn bind(&'static self, values: Vec<Value>) -> BoundStatement {
        BoundStatement { statement: self, values }
    }
}

pub static ADD_JOURNAL_ROW: Statement = Statement {
    name: "write the journal",
    sql: "INSERT INTO journal (seq, epoch, at_ms, kind, version, payload, crc, job_number, job_idx, chain) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO journal (seq, epoch, at_ms, kind, version, payload, crc, job_number, job_idx, \
              chain) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], \
              $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])",
        rows: ExpectedRows::OnePerChange,
    }),
};

/// The journal row of an entry, chained to the previous record. `previous` becomes the chain checksum of this row.
pub fn journal_row(entry: &Entry, previous: &mut ChainChecksum) -> BoundStatement {
    let record = Record::from_entry(entry);
    let chain = previous.next_checksum(record.crc);
    *previous = ChainChecksum::of_record(record.crc, Some(chain));
    let job = job_of(&entry.event);
    ADD_JOURNAL_ROW.bind(vec![
        record.seq.into(),
        record.epoch.into(),
        record.at_ms.into(),
        // Unlike other texts without `replace_nul`: the stored text must match its checksum. JSON has no zero byte.
        Value::Text(record.kind),
        record.version.into(),
        Value::Text(record.payload),
        record.crc.into(),
        job.map(|job| job.number).into(),
        job.map(index_column).into(),
        chain.into(),
    ])
}

/// Statements that project an entry into the tables, in order.
pub fn project(entry: &Entry) -> Vec<BoundStatement> {
    let seq = entry.seq;
    match &entry.event {
        Event::JobSubmitted { job, spec, array, held_by, key, at, .. } => {
            let indexes = array.as_ref().map(|array| array.indexes.as_slice());
            let mut changes = jobs::submitted(*job, spec, indexes, held_by.as_deref(), *at);
            changes.extend(key.as_ref().map(|key| jobs::idempotency_key_used(*job, &spec.tenant, key, *at)));
            changes
        }
        Event::JobHeld { job, by, why, .. } => jobs::held(*job, by, why),
        Event::JobReleased { job, .. } => jobs::released(*job),
        Event::JobChanged { job, change, .. } => jobs::changed(*job, change),
        Event::JobWoken { job, .. } => jobs::woken(*job),
        Event::JobEnded { job, outcome, why, at } => jobs::ended(*job, *outcome, why, *at),

        Event::JobPlaced { job, attempt, epoch, tasks, held, master_port, at, .. } => {
            let leases = attempts::PlacedLeases { tasks, held: *held, master_port: *master_port };
            attempts::placed(seq, *job, (*attempt, *epoch), leases, *at)
        }
        Event::AttemptStarted { job, attempt, whole: true, at, .. } => attempts::started(*job, *attempt, *at),
        Event::AttemptStopping { job, attempt, cause, at, .. } => attempts::stopping(*job, *attempt, cause, *at),
        Event::AttemptEnded { job, attempt, exit, next, charge, charged_until, held, at, .. } => {
            let (charged_until, held) = (charged_until.unwrap_or(*at), held.as_ref());
            let (job, attempt, at) = (*job, *attempt, *at);
            attempts::ended(&attempts::EndedAttempt { job, attempt, exit, next, charge, charged_until, held, at })
        }
        // No rows: reports of single nodes, early signals, unkillable processes, health programs and forecasts are in the journal only, and a plan shows in the jobs it
        // placed.
        Event::AttemptStarted { whole: false, .. }
        | Event::NodePartEnded { .. }
        | Event::AttemptSignalled { .. }
        | Event::AttemptUnkillable { .. }
        | Event::NodeHealthChanged { .. }
        | Event::NodePowerReported { .. }
        | Event::CheckpointSaved { .. }
        | Event::StartForecast { .. }
        | Event::PlanAdopted { .. } => Vec::new(),

        Event::ClaimMade { job, tasks, victims, at, until } => claims::made(seq, *job, tasks, victims, (*at, *until)),
        Event::WindowOpened { window, at } => windows::opened(seq, window, *at),
        Event::WindowClosed { name, why, at } => windows::closed(name, why, *at),
        Event::SecretSet { secret, .. } => secrets::set(secret),
        Event::SecretRemoved { id, .. } => secrets::removed(id),
        Event::WaitNoted { bucket, reasons, at } => waits::noted(seq, bucket, reasons, *at),
        Event::ClaimEnded { job, why, at } => claims::ended(*job, why, *at),

        Event::TenantCreated { id, config, at } => tenants::created(id, config, *at),
        Event::TenantChanged { id, config, at } => tenants::changed(id, config, *at),
        Event::TenantDeleted { id, at } => tenants::deleted(id, *at),

        Event::NodeRegistered { node, facts, at } => nodes::registered(node, facts, *at),
        Event::NodeDeclared { node, facts, at, .. } => nodes::declared(node, facts, *at),
        Event::NodeLabelled { node, labels, taints, at, .. } => {
            nodes::labelled(node, (labels.as_ref(), taints.as_ref()), *at)
        }
        Event::NodeStateChanged { node, status, by, why, at } => nodes::state_changed(node, *status, (by, why), *at),
        Event::NodeServiceChanged { node, service, by, why, at, .. } => {
            nodes::service_changed(node, *service, (by, why), *at)
        }
        Event::NodeSightChanged { node, sight, by, why, at, .. } => nodes::sight_changed(node, *sight, (by, why), *at),
        Event::NodeRemoved { node, at } => nodes::removed(node, *at),
        Event::GpuHealthChanged { gpu, status, why, cooling_until, at, .. } => {
            nodes::health_changed(gpu, *status, why, *cooling_until, *at)
        }
        Event::GpuPartitioned { gpu, instances, .. } => nodes::partitioned(gpu, instances),

        Event::Configured { settings, at } => settings::changed(settings, *at),
        Event::PolicyApplied { version } => policies::applied(version),
        // Answers of policies are in the journal, and in the state while they apply.
        Event::PolicyAnswered { .. } => Vec::new(),
        Event::RetryAnswered { answer, wakes_at, .. } => jobs::postponed(answer.job, *wakes_at),
        Event::TokenAdded { token, .. } => tokens::added(token),
        Event::TokenRevoked { id, at } => tokens::revoked(id, *at),
        // Join tokens, enrolments and the CA are in the journal and in the state.
        Event::JoinTokenAdded { .. }
        | Event::JoinTokenEnded { .. }
        | Event::NodeEnrolled { .. }
        | Event::ClusterCaChosen { .. } => Vec::new(),
        Event::Acted { by, by_kind, act, object, refused, times, at } => {
            let (by_kind, refused) = (by_kind.as_deref(), refused.as_deref());
            audit::added(seq, audit::AuditEntry { by, by_kind, act, object, refused, times: *times }, *at)
        }
        Event::Forgotten { before, .. } => jobs::idempotency_keys_expired(*before),
    }
}

/// Rows that the changes of an event read or write. Events with disjoint scopes may be reordered within a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionScope {
    /// Rows of one job.
    Job(JobId),
    /// Rows of one job, and the usage counters of its tenant and its GPUs.
    JobAndQuota(JobId),
    /// A new row of the event itself, or none.
    OwnRow,
    /// Any row.
    All,
}

pub fn projection_scope(event: &Event) -> ProjectionScope {
    match (event, job_of(event)) {
        (Event::JobPlaced { job, .. } | Event::AttemptEnded { job, .. }, _) => ProjectionScope::JobAndQuota(*job),
        (_, Some(job)) => ProjectionScope::Job(job),
        (Event::Acted { .. } | Event::PlanAdopted { .. } | Event::Forgotten { .. }, None) => ProjectionScope::OwnRow,
        (_, None) => ProjectionScope::All,
    }
}

/// Array index of a job in column `idx`; -1 if it is not a task of an array.
pub fn index_column(job: JobId) -> i64 {
    job.index.map_or(-1, i64::from)
}

/// The job of an event, for the column `job_number` of the journal.
fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::JobSubmitted { job, .. }
        | Event::JobHeld { job, .. }
        | Event::JobReleased { job, .. }
        | Event::JobChanged { job, .. }
        | Event::JobWoken { job, .. }
        | Event::JobEnded { job, .. }
        | Event::JobPlaced { job, .. }
        | Event::AttemptStarted { job, .. }
        | Event::AttemptStopping { job, .. }
        | Event::NodePartEnded { job, .. }
        | Event::AttemptSignalled { job, .. }
        | Event::AttemptUnkillable { job, .. }
        | Event::CheckpointSaved { job, .. }
        | Event::StartForecast { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::ClaimMade { job, .. }
        | Event::ClaimEnded { job, .. } => Some(*job),
        Event::RetryAnswered { answer, .. } => Some(answer.job),
        _ => None,
    }
}
