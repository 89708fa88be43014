//! Decoding of table rows, cell by cell. The order of the cells is that of the columns in `reader.rs`.

use muster_core::{JobId, JobSpec};

use crate::error::StoreError;
use crate::record::Record;
use crate::rows::{AttemptRow, AuditRow, EventRow, JobDetail, JobRow, JobState, LeaseRow, UsageRow};
use crate::tables::RowCells;

pub fn job_state(cells: &mut RowCells) -> Result<JobState, StoreError> {
    let name: String = cells.take()?;
    JobState::parse(&name)
        .ok_or_else(|| StoreError::invariant_violated(format!("a table holds the unknown job state `{name}`")))
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &str, what: &str) -> Result<T, StoreError> {
    muster_json::from_str(text)
        .map_err(|error| StoreError::invariant_violated(format!("{what} in a table is not valid JSON: {error}")))
}

/// A row of `select::JOB_COLUMNS`.
pub fn job_row(cells: &mut RowCells) -> Result<JobRow, StoreError> {
    Ok(JobRow {
        id: cells.take()?,
        tenant: cells.take()?,
        user: cells.take()?,
        name: cells.take()?,
        priority: cells.take()?,
        state: job_state(cells)?,
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
        nodes: parse_json(&cells.take::<String>()?, "a list of nodes")?,
        exit_code: cells.take()?,
        signal: cells.take()?,
        preemptions: cells.take()?,
        restarts: cells.take()?,
        requeues: cells.take()?,
        gpu_ms: cells.take()?,
        cpu_ms: cells.take()?,
        cost_micro: cells.take()?,
        labels: parse_json(&cells.take::<String>()?, "a set of labels")?,
    })
}

/// The spec as submitted, with the columns that may have changed since.
pub fn job_detail(row: JobRow, spec: &str) -> Result<JobDetail, StoreError> {
    let mut spec: JobSpec = parse_json(spec, "a job spec")?;
    spec.name = row.name.clone();
    spec.priority = row.priority;
    spec.time_limit_ms = row.time_limit_ms;
    spec.labels = row.labels.clone();
    Ok(JobDetail { row, spec })
}

/// A row of `reader::ATTEMPT_COLUMNS`.
pub fn attempt_row(cells: &mut RowCells) -> Result<AttemptRow, StoreError> {
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
        nodes: parse_json(&cells.take::<String>()?, "a list of nodes")?,
        gpu_ms: cells.take()?,
        cpu_ms: cells.take()?,
        memory_gib_ms: cells.take()?,
        cost_micro: cells.take()?,
        charged_until: cells.take()?,
        cpus: cells.take()?,
        memory_mib: cells.take()?,
        planned_ms: cells.take()?,
        cost_per_hour_micro: cells.take()?,
        master: cells.take()?,
        master_port: cells.take()?,
    })
}

/// A lease, with its job and attempt.
pub fn lease_row(cells: &mut RowCells) -> Result<((JobId, u32), LeaseRow), StoreError> {
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

pub fn event_row(cells: &mut RowCells) -> Result<EventRow, StoreError> {
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
    record.verify_checksum()?;
    Ok(EventRow::from(record))
}

pub fn usage_row(cells: &mut RowCells) -> Result<UsageRow, StoreError> {
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

pub fn audit_row(cells: &mut RowCells) -> Result<AuditRow, StoreError> {
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
