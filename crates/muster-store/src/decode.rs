//! Rows of the tables, cell by cell. The order of the cells is that of the columns in `reader.rs`.

use muster_core::{JobId, JobSpec};

use crate::error::StoreError;
use crate::record::Record;
use crate::rows::{AttemptRow, AuditRow, EventRow, JobDetail, JobRow, JobState, LeaseRow, UsageRow};
use crate::tables::Cells;

/// The state of a job.
pub fn state(cells: &mut Cells) -> Result<JobState, StoreError> {
    let word: String = cells.take()?;
    JobState::of_word(&word)
        .ok_or_else(|| StoreError::broken(format!("a table holds the job state `{word}`")))
}

fn json<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, StoreError> {
    muster_json::from_str(text)
        .map_err(|error| StoreError::broken(format!("{what} in a table is not readable: {error}")))
}

/// A row of `select::JOB_COLUMNS`.
pub fn job(cells: &mut Cells) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        id: cells.take()?,
        tenant: cells.take()?,
        user: cells.take()?,
        name: cells.take()?,
        priority: cells.take()?,
        state: state(cells)?,
        phase: cells.take()?,
        why: cells.take()?,
        gpus: cells.take()?,
        gpu_milli: cells.take()?,
        gpu_memory_mib: cells.take()?,
        cpus: cells.take()?,
        memory_mib: cells.take()?,
        time_limit_ms: cells.take()?,
        submitted_at: cells.take()?,
        placed_at: cells.take()?,
        started_at: cells.take()?,
        ended_at: cells.take()?,
        ran_until: cells.take()?,
        wakes_at: cells.take()?,
        attempt: cells.take()?,
        nodes: json(&cells.take::<String>()?, "a list of nodes")?,
        exit_code: cells.take()?,
        signal: cells.take()?,
        preemptions: cells.take()?,
        restarts: cells.take()?,
        requeues: cells.take()?,
        gpu_ms: cells.take()?,
        cpu_ms: cells.take()?,
        cost_micro: cells.take()?,
        labels: json(&cells.take::<String>()?, "a set of labels")?,
    })
}

/// What changed since the submission is in columns of its own.
pub fn detail(row: JobRow, spec: &str) -> Result<JobDetail, StoreError> {
    let mut spec: JobSpec = json(spec, "a job spec")?;
    spec.name = row.name.clone();
    spec.priority = row.priority;
    spec.time_limit_ms = row.time_limit_ms;
    spec.labels = row.labels.clone();
    Ok(JobDetail { row, spec })
}

/// A row of `reader::ATTEMPT_COLUMNS`.
pub fn attempt(cells: &mut Cells) -> Result<AttemptRow, StoreError> {
    Ok(AttemptRow {
        seq: cells.take()?,
        job: cells.take()?,
        attempt: cells.take()?,
        tenant: cells.take()?,
        epoch: cells.take()?,
        state: cells.take()?,
        placed_at: cells.take()?,
        started_at: cells.take()?,
        stopping_at: cells.take()?,
        ended_at: cells.take()?,
        stop_cause: cells.take()?,
        exit: cells.take()?,
        exit_code: cells.take()?,
        signal: cells.take()?,
        why: cells.take()?,
        gpus: cells.take()?,
        nodes: json(&cells.take::<String>()?, "a list of nodes")?,
        gpu_ms: cells.take()?,
        cpu_ms: cells.take()?,
        memory_gib_ms: cells.take()?,
        cost_micro: cells.take()?,
        charged_until: cells.take()?,
        cpus: cells.take()?,
        memory_mib: cells.take()?,
        planned_ms: cells.take()?,
        cost_per_hour_micro: cells.take()?,
    })
}

/// A lease, under its job and attempt.
pub fn lease(cells: &mut Cells) -> Result<((JobId, u32), LeaseRow), StoreError> {
    let key = (cells.take()?, cells.take()?);
    let lease = LeaseRow {
        node: cells.take()?,
        gpu: cells.take()?,
        rank: cells.take()?,
        slot: cells.take()?,
        compute_milli: cells.take()?,
        memory_milli: cells.take()?,
        memory_mib: cells.take()?,
        from_ms: cells.take()?,
        to_ms: cells.take()?,
    };
    Ok((key, lease))
}

/// A journal entry.
pub fn event(cells: &mut Cells) -> Result<EventRow, StoreError> {
    let record = Record {
        seq: cells.take()?,
        epoch: cells.take()?,
        at_ms: cells.take()?,
        kind: cells.take()?,
        version: cells.take()?,
        payload: cells.take()?,
        crc: cells.take()?,
        chain: None,
    };
    record.check()?;
    let Record { seq, epoch, at_ms, kind, payload, .. } = record;
    Ok(EventRow { seq, epoch, at_ms, kind, payload })
}

/// A sum of usage.
pub fn usage(cells: &mut Cells) -> Result<UsageRow, StoreError> {
    Ok(UsageRow {
        key: cells.take()?,
        attempts: cells.take()?,
        gpu_ms: cells.take()?,
        cpu_ms: cells.take()?,
        memory_gib_ms: cells.take()?,
        cost_micro: cells.take()?,
        energy_mj: cells.take()?,
    })
}

/// An administrative act.
pub fn act(cells: &mut Cells) -> Result<AuditRow, StoreError> {
    Ok(AuditRow {
        seq: cells.take()?,
        at_ms: cells.take()?,
        actor: cells.take()?,
        actor_kind: cells.take()?,
        act: cells.take()?,
        object: cells.take()?,
        refused: cells.take()?,
        times: cells.take()?,
    })
}
