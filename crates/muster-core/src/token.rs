//! Who may ask for what: tokens, kept only as hashes, each with a role.

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::time::Timestamp;

/// What a token allows, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at its tenant.
    Viewer,
    /// Submit and steer its own tenant's jobs.
    Member,
    /// Also change its tenant's members and tokens.
    TenantAdmin,
    /// Also nodes and every tenant's jobs.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Member => "member",
            Role::TenantAdmin => "tenant-admin",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    /// Whether it reaches beyond one tenant.
    pub fn is_cluster_wide(self) -> bool {
        self >= Role::Operator
    }
}

/// A token as it is kept: the secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Short public name, for example `t-7`.
    pub id: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// Whose it is, for people.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// Where; `None` for cluster-wide roles.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    /// When it was made.
    pub made_at: Timestamp,
    /// When it ends by itself.
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
}
