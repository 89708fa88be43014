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

pub use value::{Cells, Value};

use crate::chain::Link;
use crate::error::StoreError;
use crate::record::{Entry, Record};

/// One statement with its values.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What is done.
    pub statement: &'static Statement,
    /// With what, in order of `?1`, `?2` and so on.
    pub values: Vec<Value>,
}

impl Change {
    /// The tables do not hold what the event says they should.
    pub fn wrong_rows(&self, doing: &str, touched: u64) -> StoreError {
        StoreError::broken(format!("{doing}: touched {touched} rows, with {:?}", self.values))
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
    pub rows: Rows,
    /// For many changes at once in PostgreSQL, in its own tongue: each parameter is an array.
    pub bulk: Option<Bulk>,
}

/// A statement for many changes at once.
#[derive(Debug, PartialEq)]
pub struct Bulk {
    /// The text.
    pub sql: &'static str,
    /// How many rows it must touch.
    pub rows: Rows,
}

/// How many rows a statement must touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Exactly one for each change.
    Each,
    /// At least one.
    Some,
    /// Any number.
    Any,
}

impl Rows {
    /// Whether `touched` rows are right for `changes` changes.
    pub fn allow(self, touched: u64, changes: usize) -> bool {
        match self {
            Rows::Each => touched == changes as u64,
            Rows::Some => touched > 0,
            Rows::Any => true,
        }
    }
}

impl Statement {
    fn change(&'static self, values: Vec<Value>) -> Change {
        Change { statement: self, values }
    }
}

/// The row of the journal itself.
pub static JOURNAL: Statement = Statement {
    name: "write the journal",
    sql: "INSERT INTO journal (seq, epoch, at_ms, kind, version, payload, crc, job_number, job_idx, chain) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
    rows: Rows::Each,
    bulk: Some(Bulk {
        sql: "INSERT INTO journal (seq, epoch, at_ms, kind, version, payload, crc, job_number, job_idx, \
              chain) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], \
              $6::text[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])",
        rows: Rows::Each,
    }),
};

/// The journal row of an entry, chained to the record before it; `link` moves on.
pub fn journal_row(entry: &Entry, link: &mut Link) -> Change {
    let record = Record::of(entry);
    let chain = link.next(record.crc);
    *link = Link::of(record.crc, Some(chain));
    let job = job_of(&entry.event);
    JOURNAL.change(vec![
        record.seq.into(),
        record.epoch.into(),
        record.at_ms.into(),
        // Not cleaned like other texts: what is read back must match its checksum. JSON holds no zero byte.
        Value::Text(record.kind),
        record.version.into(),
        Value::Text(record.payload),
        record.crc.into(),
        job.map(|job| job.number).into(),
        job.map(idx).into(),
        chain.into(),
    ])
}

/// What an entry changes in the tables, in order.
pub fn project(entry: &Entry) -> Vec<Change> {
    let seq = entry.seq;
    match &entry.event {
        Event::JobSubmitted { job, spec, array, held_by, key, at, .. } => {
            let indexes = array.as_ref().map(|array| array.indexes.as_slice());
            let mut changes = jobs::submitted(*job, spec, indexes, held_by.as_deref(), *at);
            changes.extend(key.as_ref().map(|key| jobs::key_used(*job, &spec.tenant, key, *at)));
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
            attempts::ended(&attempts::End { job, attempt, exit, next, charge, charged_until, held, at })
        }
        // Parts of a gang are told by the journal alone, and plans by the jobs they placed.
        Event::AttemptStarted { whole: false, .. }
        | Event::PartEnded { .. }
        | Event::CheckpointSaved { .. }
        | Event::StartForeseen { .. }
        | Event::PlanAdopted { .. } => Vec::new(),

        Event::ClaimMade { job, tasks, victims, at, until } => {
            desk::claim_made(seq, *job, tasks, victims, (*at, *until))
        }
        Event::WindowOpened { window, at } => desk::window_opened(seq, window, *at),
        Event::WindowClosed { name, why, at } => desk::window_closed(name, why, *at),
        Event::WaitNoted { bucket, reasons, at } => desk::wait_noted(seq, bucket, reasons, *at),
        Event::ClaimEnded { job, why, at } => desk::claim_ended(*job, why, *at),

        Event::TenantCreated { id, config, at } => tenants::created(id, config, *at),
        Event::TenantChanged { id, config, at } => tenants::changed(id, config, *at),
        Event::TenantDeleted { id, at } => tenants::deleted(id, *at),

        Event::NodeRegistered { node, facts, at } => nodes::registered(node, facts, *at),
        Event::NodeDeclared { node, facts, at, .. } => nodes::declared(node, facts, *at),
        Event::NodeLabelled { node, labels, taints, at, .. } => {
            nodes::labelled(node, (labels.as_ref(), taints.as_ref()), *at)
        }
        Event::NodeStateChanged { node, word, by, why, at } => {
            nodes::state_changed(node, *word, (by, why), *at)
        }
        Event::NodeRemoved { node, at } => nodes::removed(node, *at),
        Event::GpuHealthChanged { gpu, word, why, cooling_until, at, .. } => {
            nodes::health_changed(gpu, *word, why, *cooling_until, *at)
        }
        Event::GpuPartitioned { gpu, instances, .. } => nodes::partitioned(gpu, instances),

        Event::Configured { settings, at } => desk::configured(settings, *at),
        Event::PolicyApplied { version } => desk::policy_applied(version),
        // What was answered is in the journal, and in the state as long as it matters.
        Event::PolicyAnswered { .. } => Vec::new(),
        Event::RetryAnswered { answer, wakes_at, .. } => jobs::put_off(answer.job, *wakes_at),
        Event::TokenAdded { token, .. } => desk::token_added(token),
        Event::TokenRevoked { id, at } => desk::token_revoked(id, *at),
        Event::Acted { by, by_kind, act, object, refused, times, at } => {
            let actor = (by.as_str(), by_kind.as_deref());
            desk::acted(seq, actor, (act, object), (refused.as_deref(), *times), *at)
        }
        Event::Forgotten { before, .. } => jobs::keys_forgotten(*before),
    }
}

/// What the changes of an event depend on and change, so that others may overtake them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Rows of one job alone.
    Job(JobId),
    /// Rows of one job, and what its tenant and its GPUs have left.
    JobAndQuota(JobId),
    /// Only a row of its own, or none.
    Itself,
    /// Anything.
    All,
}

/// How far an event reaches.
pub fn reach(event: &Event) -> Reach {
    match (event, job_of(event)) {
        (Event::JobPlaced { job, .. } | Event::AttemptEnded { job, .. }, _) => Reach::JobAndQuota(*job),
        (_, Some(job)) => Reach::Job(job),
        (Event::Acted { .. } | Event::PlanAdopted { .. } | Event::Forgotten { .. }, None) => Reach::Itself,
        (_, None) => Reach::All,
    }
}

/// The index of a job as the tables keep it: -1 where there is no array.
pub fn idx(job: JobId) -> i64 {
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
        | Event::PartEnded { job, .. }
        | Event::CheckpointSaved { job, .. }
        | Event::StartForeseen { job, .. }
        | Event::AttemptEnded { job, .. }
        | Event::ClaimMade { job, .. }
        | Event::ClaimEnded { job, .. } => Some(*job),
        Event::RetryAnswered { answer, .. } => Some(answer.job),
        _ => None,
    }
}
