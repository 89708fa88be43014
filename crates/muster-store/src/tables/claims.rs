//! Rows of claims: space freed by preemption and held for the preemptor.

use std::collections::BTreeSet;

use muster_core::objects::job::PlacedTask;
use muster_core::{JobId, Timestamp};

use super::{BoundStatement, ExpectedRows, Statement, index_column};

static ADD_CLAIM: Statement = Statement {
    name: "add a claim",
    sql: "INSERT INTO claims (seq, number, idx, job, node, gpus, victims, made_at, until) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static END_CLAIM: Statement = Statement {
    name: "end a claim",
    sql: "UPDATE claims SET ended_at = ?3, why = ?4 WHERE number = ?1 AND idx = ?2 AND ended_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

/// Victims are being evicted for a job, which holds the space they free until `until`.
pub fn made(
    seq: u64,
    job: JobId,
    tasks: &[PlacedTask],
    victims: &[JobId],
    (at, until): (Timestamp, Timestamp),
) -> Vec<BoundStatement> {
    let nodes: BTreeSet<String> = tasks.iter().map(|task| task.node.to_string()).collect();
    let nodes: Vec<String> = nodes.into_iter().collect();
    let gpus = tasks.iter().flat_map(PlacedTask::devices).map(|(node, gpu)| format!("{node}/gpu-{gpu}"));
    let gpus: Vec<String> = gpus.collect();
    vec![ADD_CLAIM.bind(vec![
        seq.into(),
        job.number.into(),
        index_column(job).into(),
        job.into(),
        nodes.join(", ").into(),
        muster_json::to_string(&gpus).into(),
        muster_json::to_string(&victims).into(),
        at.into(),
        until.into(),
    ])]
}

/// The preemptor has started or ended, or the claim has expired.
pub fn ended(job: JobId, why: &str, at: Timestamp) -> Vec<BoundStatement> {
    vec![END_CLAIM.bind(vec![job.number.into(), index_column(job).into(), at.into(), why.into()])]
}
