//! Rows of the audit log: administrative acts, done or refused.

use muster_core::Timestamp;

use super::{BoundStatement, BulkStatement, ExpectedRows, Statement};

static ADD_AUDIT_ENTRY: Statement = Statement {
    name: "add an audit entry",
    sql: "INSERT INTO audit (seq, at_ms, actor, actor_kind, act, object, refused, times) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    rows: ExpectedRows::OnePerChange,
    bulk: Some(BulkStatement {
        sql: "INSERT INTO audit (seq, at_ms, actor, actor_kind, act, object, refused, times) SELECT * FROM \
              unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
              $8::bigint[])",
        rows: ExpectedRows::OnePerChange,
    }),
};

/// An administrative act.
pub struct AuditEntry<'a> {
    pub by: &'a str,
    pub by_kind: Option<&'a str>,
    pub act: &'a str,
    pub object: &'a str,
    /// The code of the refusal.
    pub refused: Option<&'a str>,
    pub times: u32,
}

pub fn added(seq: u64, entry: AuditEntry, at: Timestamp) -> Vec<BoundStatement> {
    let AuditEntry { by, by_kind, act, object, refused, times } = entry;
    vec![ADD_AUDIT_ENTRY.bind(vec![
        seq.into(),
        at.into(),
        by.into(),
        by_kind.into(),
        act.into(),
        object.into(),
        refused.into(),
        times.into(),
    ])]
}
