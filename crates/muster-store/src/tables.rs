//! What the events mean for the tables, the same for both databases.
//!
//! The projection is pure: an entry becomes changes, each a statement with its values. Facts that an event does
//! not carry (whose job it is, what it takes) are looked up by the statements themselves, inside the transaction.
//! Each statement says how many rows it must touch: a job that is not in the phase it should be in, or a tenant
//! that does not exist, stops the batch. So the tables check the engine a second time.

mod attempts;
mod desk;
mod jobs;
mod leases;
mod nodes;
mod tenants;
mod value;

use muster_core::{Event, JobId};

pub use value::{RowCells, Value};

use crate::chain::ChainChecksum;
use crate::error::StoreError;
use crate::record::{Entry, Record};

/// One statement with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundStatement {
    /// What is done.
    pub statement: &'static Statement,
    /// With what, in order of `?1`, `?2` and so on.
    pub values: Vec<Value>,
}

impl BoundStatement {
    /// The tables do not hold what the event says they should.
    pub fn wrong_row_count(&self, operation: &str, affected: u64) -> StoreError {
        StoreError::invariant_violated(format!(
            "{operation}: affected {affected} rows, with {:?}",
            self.values
        ))
    }
}

/// SQL that both databases understand.
#[derive(Debug, PartialEq)]
pub struct Statement {
    /// What it does, for messages.
    pub name: &'static str,
    /// For one change; parameters are `?1`, `?2` and so on.
    pub sql: &'static str,
    /// How many rows it must touch.
    pub rows: ExpectedRows,
    /// For many changes at once in PostgreSQL, in its own tongue: each parameter is an array.
    pub bulk: Option<BulkStatement>,
}

/// A statement for many changes at once.
#[derive(Debug, PartialEq)]
pub struct BulkStatement {
    /// The text.
    pub sql: &'static str,
    /// How many rows it must touch.
    pub rows: ExpectedRows,
}

/// How many rows a statement must touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedRows {
    /// Exactly one for each change.
    OnePerChange,
    /// At least one.
    AtLeastOne,
    /// Any number.
    Any,
}

impl ExpectedRows {
    /// Whether `affected` rows are right for `changes` changes.
    pub fn allows(self, affected: u64, changes: usize) -> bool {
        match self {
            ExpectedRows::OnePerChange => affected == changes as u64,
            ExpectedRows::AtLeastOne => affected > 0,
            ExpectedRows::Any => true,
        }
    }
}

impl Statement {
    fn bind(&'static self, values: Vec<Value>) -> BoundStatement {
        BoundStatement { statement: self, values }
    }
}

/// The row of the journal itself.
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

/// The journal row of an entry, chained to the record before it; `link` moves on.
pub fn journal_row(entry: &Entry, link: &mut ChainChecksum) -> BoundStatement {
    let record = Record::from_entry(entry);
    let chain = link.next_checksum(record.crc);
    *link = ChainChecksum::of_record(record.crc, Some(chain));
    let job = job_of(&entry.event);
    ADD_JOURNAL_ROW.bind(vec![
        record.seq.into(),
        record.epoch.into(),
        record.at_ms.into(),
        // Not cleaned like other texts: what is read back must match its checksum. JSON holds no zero byte.
        Value::Text(record.kind),
        record.version.into(),
        Value::Text(record.payload),
        record.crc.into(),
        job.map(|job| job.number).into(),
        job.map(index_column).into(),
        chain.into(),
    ])
}

/// What an entry changes in the tables, in order.
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

        Event::JobPlaced { job, attempt, epoch, tasks, held, at, .. } => {
            attempts::placed(seq, *job, (*attempt, *epoch), (tasks, *held), *at)
        }
        Event::AttemptStarted { job, attempt, whole: true, at, .. } => attempts::started(*job, *attempt, *at),
        Event::AttemptStopping { job, attempt, cause, at, .. } => {
            attempts::stopping(*job, *attempt, cause, *at)
        }
        Event::AttemptEnded { job, attempt, exit, next, charge, charged_until, held, at, .. } => {
            let (charged_until, held) = (charged_until.unwrap_or(*at), held.as_ref());
            let (job, attempt, at) = (*job, *attempt, *at);
            attempts::ended(&attempts::EndedAttempt {
                job,
                attempt,
                exit,
                next,
                charge,
                charged_until,
                held,
                at,
            })
        }
        // Parts of a gang are told by the journal alone, and plans by the jobs they placed.
        Event::AttemptStarted { whole: false, .. }
        | Event::NodePartEnded { .. }
        | Event::CheckpointSaved { .. }
        | Event::StartForecast { .. }
        | Event::PlanAdopted { .. } => Vec::new(),

        Event::ClaimMade { job, tasks, victims, at, until } => {
            desk::claim_made(seq, *job, tasks, victims, (*at, *until))
        }
        Event::WindowOpened { window, at } => desk::window_opened(seq, window, *at),
        Event::WindowClosed { name, why, at } => desk::window_closed(name, why, *at),
        Event::WaitNoted { bucket, reasons, at } => desk::wait_reasons_noted(seq, bucket, reasons, *at),
        Event::ClaimEnded { job, why, at } => desk::claim_ended(*job, why, *at),

        Event::TenantCreated { id, config, at } => tenants::created(id, config, *at),
        Event::TenantChanged { id, config, at } => tenants::changed(id, config, *at),
        Event::TenantDeleted { id, at } => tenants::deleted(id, *at),

        Event::NodeRegistered { node, facts, at } => nodes::registered(node, facts, *at),
        Event::NodeDeclared { node, facts, at, .. } => nodes::declared(node, facts, *at),
        Event::NodeLabelled { node, labels, taints, at, .. } => {
            nodes::labelled(node, (labels.as_ref(), taints.as_ref()), *at)
        }
        Event::NodeStateChanged { node, status: word, by, why, at } => {
            nodes::state_changed(node, *word, (by, why), *at)
        }
        Event::NodeRemoved { node, at } => nodes::removed(node, *at),
        Event::GpuHealthChanged { gpu, status: word, why, cooling_until, at, .. } => {
            nodes::health_changed(gpu, *word, why, *cooling_until, *at)
        }
        Event::GpuPartitioned { gpu, instances, .. } => nodes::partitioned(gpu, instances),

        Event::Configured { settings, at } => desk::settings_changed(settings, *at),
        Event::PolicyApplied { version } => desk::policy_applied(version),
        // What was answered is in the journal, and in the state as long as it matters.
        Event::PolicyAnswered { .. } => Vec::new(),
        Event::RetryAnswered { answer, wakes_at, .. } => jobs::postponed(answer.job, *wakes_at),
        Event::TokenAdded { token, .. } => desk::token_added(token),
        Event::TokenRevoked { id, at } => desk::token_revoked(id, *at),
        Event::Acted { by, by_kind, act, object, refused, times, at } => {
            let actor = (by.as_str(), by_kind.as_deref());
            desk::audit_entry_added(seq, actor, (act, object), (refused.as_deref(), *times), *at)
        }
        Event::Forgotten { before, .. } => jobs::idempotency_keys_expired(*before),
    }
}

/// What the changes of an event depend on and change, so that others may overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectionScope {
    /// Rows of one job alone.
    Job(JobId),
    /// Rows of one job, and what its tenant and its GPUs have left.
    JobAndQuota(JobId),
    /// Only a row of its own, or none.
    OwnRow,
    /// Anything.
    All,
}

/// How far an event reaches.
pub fn projection_scope(event: &Event) -> ProjectionScope {
    match (event, job_of(event)) {
        (Event::JobPlaced { job, .. } | Event::AttemptEnded { job, .. }, _) => {
            ProjectionScope::JobAndQuota(*job)
        }
        (_, Some(job)) => ProjectionScope::Job(job),
        (Event::Acted { .. } | Event::PlanAdopted { .. } | Event::Forgotten { .. }, None) => {
            ProjectionScope::OwnRow
        }
        (_, None) => ProjectionScope::All,
    }
}

/// The index of a job as the tables keep it: -1 where there is no array.
pub fn index_column(job: JobId) -> i64 {
    job.index.map_or(-1, i64::from)
}

/// The job an event is about.
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
        | Event::CheckpointSaved { job, .. }
        | Event::StartForecast { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::ClaimMade { job, .. }
        | Event::ClaimEnded { job, .. } => Some(*job),
        Event::RetryAnswered { answer, .. } => Some(answer.job),
        _ => None,
    }
}
