//! Rows of wait reasons, by bucket and time.

use muster_core::Timestamp;
use muster_core::facts::verdict::Reason;

use super::{BoundStatement, ExpectedRows, Statement};

static ADD_WAIT: Statement = Statement {
    name: "add wait reasons",
    sql: "INSERT INTO waits (seq, bucket, at_ms, reasons) VALUES (?1, ?2, ?3, ?4)",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn noted(seq: u64, bucket: &str, reasons: &[Reason], at: Timestamp) -> Vec<BoundStatement> {
    let reasons = muster_json::to_string(&reasons);
    vec![ADD_WAIT.bind(vec![seq.into(), bucket.into(), at.into(), reasons.into()])]
}
