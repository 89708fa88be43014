//! Tokens: authentication and roles of callers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::input::{Priority, Span};

/// A new token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// Name of the bearer; its acts are recorded under this name. Names that the server uses itself are reserved.
    pub name: String,
    /// `viewer`, `member`, `tenant-admin`, `operator` or `admin`.
    pub role: String,
    /// Tenant of the bearer; required for the first three roles and not allowed for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Lifetime: seconds, or a text such as `30d`. Default: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// Priority ceiling of the bearer, as a number or a tier name. It raises the ceiling of the tenant for this token;
    /// the creator of the token can grant at most its own ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<Priority>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Public id.
    #[schema(example = "t-7")]
    pub id: String,
    /// Name of the bearer.
    pub name: String,
    /// Role of the bearer.
    pub role: String,
    /// Tenant of the bearer; absent for roles with access to all tenants.
    pub tenant_id: Option<String>,
    /// Time of creation, RFC 3339.
    pub created_at: String,
    /// Time of expiry, RFC 3339.
    pub expires_at: Option<String>,
    /// Priority ceiling of the bearer, if one is granted to the token.
    pub max_priority: Option<u32>,
}

/// A token that was created. Its secret is shown only once and is not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// The token.
    #[serde(flatten)]
    pub token: Token,
    /// Send it as `Authorization: Bearer …`.
    pub secret: String,
}

/// Tokens that are visible to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// In order of id.
    pub tokens: Vec<Token>,
    /// Number of tokens.
    pub total: u64,
}
