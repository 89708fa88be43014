//! Rows of what is kept beside jobs and nodes: reservations, settings, tokens, the audit log.

use std::collections::BTreeSet;

use muster_core::job::PlacedTask;
use muster_core::policy::Version;
use muster_core::token::Token;
use muster_core::verdict::Reason;
use muster_core::window::Window;
use muster_core::{JobId, Settings, Timestamp};

use super::{Bulk, Change, Rows, Statement, idx};

static ADD_CLAIM: Statement = Statement {
    name: "reserve space",
    sql: "INSERT INTO reservations (seq, number, idx, job, node, gpus, victims, made_at, until) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    rows: Rows::Each,
    bulk: None,
};

static OPEN_WINDOW: Statement = Statement {
    name: "book nodes",
    sql: "INSERT INTO windows (seq, name, nodes, from_ms, until_ms, tenant, why, booked_by, opened_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    rows: Rows::Each,
    bulk: None,
};

static CLOSE_WINDOW: Statement = Statement {
    name: "give booked nodes back",
    sql: "UPDATE windows SET closed_at = ?2, closed_why = ?3 WHERE name = ?1 AND closed_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static ADD_WAIT: Statement = Statement {
    name: "note why jobs wait",
    sql: "INSERT INTO waits (seq, bucket, at_ms, reasons) VALUES (?1, ?2, ?3, ?4)",
    rows: Rows::Each,
    bulk: None,
};

static END_CLAIM: Statement = Statement {
    name: "free reserved space",
    sql: "UPDATE reservations SET ended_at = ?3, why = ?4 WHERE number = ?1 AND idx = ?2 AND ended_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static SET_SETTINGS: Statement = Statement {
    name: "keep the settings",
    sql: "INSERT INTO settings (name, value, updated_at) VALUES ('cluster', ?1, ?2) \
          ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
    rows: Rows::Each,
    bulk: None,
};

static ADD_POLICY: Statement = Statement {
    name: "keep the policies",
    sql: "INSERT INTO policies (version, scope, hash, files, hooks, applied_by, why, applied_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    rows: Rows::Each,
    bulk: None,
};

static ADD_TOKEN: Statement = Statement {
    name: "add a token",
    sql: "INSERT INTO tokens (id, hash, name, role, tenant, made_at, expires_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
          ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, name = excluded.name, role = excluded.role, \
          tenant = excluded.tenant, made_at = excluded.made_at, expires_at = excluded.expires_at, \
          revoked_at = NULL WHERE tokens.revoked_at IS NOT NULL",
    rows: Rows::Each,
    bulk: None,
};

static REVOKE_TOKEN: Statement = Statement {
    name: "revoke a token",
    sql: "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
    rows: Rows::Each,
    bulk: None,
};

static ADD_ACT: Statement = Statement {
    name: "write the audit log",
    sql: "INSERT INTO audit (seq, at_ms, actor, actor_kind, act, object, refused, times) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    rows: Rows::Each,
    bulk: Some(Bulk {
        sql: "INSERT INTO audit (seq, at_ms, actor, actor_kind, act, object, refused, times) SELECT * FROM \
              unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
              $8::bigint[])",
        rows: Rows::Each,
    }),
};

/// Space is held for a job.
pub fn claim_made(
    seq: u64,
    job: JobId,
    tasks: &[PlacedTask],
    victims: &[JobId],
    (at, until): (Timestamp, Timestamp),
) -> Vec<Change> {
    let nodes: BTreeSet<String> = tasks.iter().map(|task| task.node.to_string()).collect();
    let nodes: Vec<String> = nodes.into_iter().collect();
    let gpus = tasks.iter().flat_map(PlacedTask::devices).map(|(node, gpu)| format!("{node}/gpu-{gpu}"));
    let gpus: Vec<String> = gpus.collect();
    vec![ADD_CLAIM.change(vec![
        seq.into(),
        job.number.into(),
        idx(job).into(),
        job.into(),
        nodes.join(", ").into(),
        muster_json::to_string(&gpus).into(),
        muster_json::to_string(&victims).into(),
        at.into(),
        until.into(),
    ])]
}

/// Nodes are booked.
pub fn window_opened(seq: u64, window: &Window, at: Timestamp) -> Vec<Change> {
    let nodes: Vec<String> = window.nodes.iter().map(ToString::to_string).collect();
    vec![OPEN_WINDOW.change(vec![
        seq.into(),
        window.name.as_str().into(),
        muster_json::to_string(&nodes).into(),
        window.from.into(),
        window.until.into(),
        window.tenant.as_ref().map(ToString::to_string).into(),
        window.why.as_str().into(),
        window.by.as_str().into(),
        at.into(),
    ])]
}

/// They are free again.
pub fn window_closed(name: &str, why: &str, at: Timestamp) -> Vec<Change> {
    vec![CLOSE_WINDOW.change(vec![name.into(), at.into(), why.into()])]
}

/// Why jobs of one bucket wait.
pub fn wait_noted(seq: u64, bucket: &str, reasons: &[Reason], at: Timestamp) -> Vec<Change> {
    let reasons = muster_json::to_string(&reasons);
    vec![ADD_WAIT.change(vec![seq.into(), bucket.into(), at.into(), reasons.into()])]
}

/// Held space is free again.
pub fn claim_ended(job: JobId, why: &str, at: Timestamp) -> Vec<Change> {
    vec![END_CLAIM.change(vec![job.number.into(), idx(job).into(), at.into(), why.into()])]
}

/// The settings of the cluster changed.
pub fn configured(settings: &Settings, at: Timestamp) -> Vec<Change> {
    vec![SET_SETTINGS.change(vec![muster_json::to_string(settings).into(), at.into()])]
}

/// Policies were put into force.
pub fn policy_applied(version: &Version) -> Vec<Change> {
    vec![ADD_POLICY.change(vec![
        (version.number as i64).into(),
        version.scope.to_string().into(),
        version.bundle.hash.as_str().into(),
        muster_json::to_string(&version.bundle.files).into(),
        muster_json::to_string(&version.bundle.hooks).into(),
        version.by.as_str().into(),
        version.why.as_str().into(),
        version.at.into(),
    ])]
}

/// A token was made.
pub fn token_added(token: &Token) -> Vec<Change> {
    vec![ADD_TOKEN.change(vec![
        token.id.as_str().into(),
        token.hash.as_str().into(),
        token.name.as_str().into(),
        token.role.word().into(),
        token.tenant.as_ref().into(),
        token.made_at.into(),
        token.expires_at.into(),
    ])]
}

/// A token was revoked.
pub fn token_revoked(id: &str, at: Timestamp) -> Vec<Change> {
    vec![REVOKE_TOKEN.change(vec![id.into(), at.into()])]
}

/// An administrative act, done or refused.
pub fn acted(
    seq: u64,
    (by, by_kind): (&str, Option<&str>),
    (act, object): (&str, &str),
    (refused, times): (Option<&str>, u32),
    at: Timestamp,
) -> Vec<Change> {
    vec![ADD_ACT.change(vec![
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
