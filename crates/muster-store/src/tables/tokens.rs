//! Rows of tokens. Only the hash of the secret is stored.

use muster_core::Timestamp;
use muster_core::objects::token::Token;

use super::{BoundStatement, ExpectedRows, Statement};

// The id of a revoked token may be used again. A live token is not overwritten: then no row is affected.
static ADD_TOKEN: Statement = Statement {
    name: "add a token",
    sql: "INSERT INTO tokens (id, hash, name, role, tenant, made_at, expires_at) \
          VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
          ON CONFLICT (id) DO UPDATE SET hash = excluded.hash, name = excluded.name, role = excluded.role, \
          tenant = excluded.tenant, made_at = excluded.made_at, expires_at = excluded.expires_at, \
          revoked_at = NULL WHERE tokens.revoked_at IS NOT NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

static REVOKE_TOKEN: Statement = Statement {
    name: "revoke a token",
    sql: "UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
    rows: ExpectedRows::OnePerChange,
    bulk: None,
};

pub fn added(token: &Token) -> Vec<BoundStatement> {
    vec![ADD_TOKEN.bind(vec![
        token.id.as_str().into(),
        token.hash.as_str().into(),
        token.name.as_str().into(),
        token.role.as_str().into(),
        token.tenant.as_ref().into(),
        token.made_at.into(),
        token.expires_at.into(),
    ])]
}

pub fn revoked(id: &str, at: Timestamp) -> Vec<BoundStatement> {
    vec![REVOKE_TOKEN.bind(vec![id.into(), at.into()])]
}
