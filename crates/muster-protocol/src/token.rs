//! Tokens: who may ask for what.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::written::{Priority, Span};

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenSpec {
    /// Whose it is, for people; acts are recorded under this name. Names of the server itself are reserved.
    pub name: String,
    /// `viewer`, `member`, `tenant-admin`, `operator` or `admin`.
    pub role: String,
    /// Where; must be given for the first three roles and not for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// It ends by itself after this time: seconds, or a text such as `30d`; never when not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Span>,
    /// Highest priority its bearer may give to a job, as a number or a tier name. It raises the ceiling of the tenant
    /// for this token; the maker of the token grants at most what it may give itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_priority: Option<Priority>,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Short public name.
    #[schema(example = "t-7")]
    pub id: String,
    /// Whose it is.
    pub name: String,
    /// What it allows.
    pub role: String,
    /// Where; absent for roles that reach every tenant.
    pub tenant_id: Option<String>,
    /// When it was made, RFC 3339.
    pub created_at: String,
    /// When it ends by itself.
    pub expires_at: Option<String>,
    /// Highest priority its bearer may give to a job, where one is granted to the token.
    pub max_priority: Option<u32>,
}

/// A token that was made. Its secret is shown this once and never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenMade {
    /// The token.
    #[serde(flatten)]
    pub token: Token,
    /// Send it as `Authorization: Bearer …`.
    pub secret: String,
}

/// The tokens the caller may see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// In order of id.
    pub tokens: Vec<Token>,
    /// How many there are.
    pub total: u64,
}
