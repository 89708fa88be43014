//! The row of the cluster settings.

use muster_core::{Settings, Timestamp};

use super::{BoundStatement, ExpectedRows, Statement};

static SET_SETTINGS: Statement = Statement {
    name: "store the settings",
    sql: "INSERT INTO settings (name, value, updated_at) VALUES ('cluster', ?1, ?2) \
          ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = excluded.updated_at",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn changed(settings: &Settings, at: Timestamp) -> Vec<BoundStatement> {
    vec![SET_SETTINGS.bind(vec![muster_json::to_string(settings).into(), at.into()])]
}
