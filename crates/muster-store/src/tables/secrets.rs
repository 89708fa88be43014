//! Rows of sealed secrets. Values are written before their event (`sealed_secrets.rs`); the event removes the former one.

use muster_core::objects::secret::{Secret, SecretId};

use super::{BoundStatement, ExpectedRows, Statement};

static DELETE_FORMER_VALUES: Statement = Statement {
    name: "delete the former value of a secret",
    sql: "DELETE FROM sealed_secrets WHERE tenant = ?1 AND owner = ?2 AND name = ?3 AND id <> ?4",
    rows: ExpectedRows::Any,
    bulk: None,
};

static DELETE_VALUES: Statement = Statement {
    name: "delete the value of a secret",
    sql: "DELETE FROM sealed_secrets WHERE tenant = ?1 AND owner = ?2 AND name = ?3",
    // A rebuild of the tables has none.
    rows: ExpectedRows::Any,
    bulk: None,
};

pub fn set(secret: &Secret) -> Vec<BoundStatement> {
    let mut values = key(&secret.id);
    values.push(secret.value.as_str().into());
    vec![DELETE_FORMER_VALUES.bind(values)]
}

pub fn removed(id: &SecretId) -> Vec<BoundStatement> {
    vec![DELETE_VALUES.bind(key(id))]
}

fn key(id: &SecretId) -> Vec<super::Value> {
    vec![(&id.tenant).into(), id.owner.as_deref().unwrap_or_default().into(), id.name.as_str().into()]
}
