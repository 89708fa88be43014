//! Access tokens: a role and a tenant for each bearer. Only the hash of a token is stored.

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::time::Timestamp;

/// The actor name of the server itself.
pub const SYSTEM_NAME: &str = "muster";
/// The name of the token that the first start of a server creates.
pub const FIRST_ADMIN_NAME: &str = "admin";
/// The actor name of every caller of a server in local mode.
pub const LOCAL_NAME: &str = "local";
/// The actor name under which the server applies the policies of its folder.
pub const POLICY_FOLDER_NAME: &str = "policies.dir";

/// Names that a token may not have: the audit log would show its acts as those of another actor.
const RESERVED_NAMES: [&str; 5] = [SYSTEM_NAME, FIRST_ADMIN_NAME, LOCAL_NAME, POLICY_FOLDER_NAME, "system"];

/// True for a reserved name, ignoring case and surrounding spaces.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED_NAMES.iter().any(|reserved| name.trim().eq_ignore_ascii_case(reserved))
}

/// The role of a token, from least to most rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Reads its tenant.
    Viewer,
    /// Also submits jobs and changes its own.
    Member,
    /// Also changes every job, the tokens and the policies of its tenant.
    TenantAdmin,
    /// Also changes nodes and the jobs of every tenant.
    Operator,
    Admin,
}

impl Role {
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Member => "member",
            Role::TenantAdmin => "tenant-admin",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    pub fn is_cluster_wide(self) -> bool {
        self >= Role::Operator
    }
}

/// A stored token; the secret itself is never stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// Short public id, for example `t-7`.
    pub id: String,
    /// SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// The name of the bearer, for people.
    pub name: String,
    pub role: Role,
    /// `None` for cluster-wide roles.
    #[serde(default)]
    pub tenant: Option<TenantId>,
    pub made_at: Timestamp,
    #[serde(default)]
    pub expires_at: Option<Timestamp>,
    /// Highest priority that the bearer may give to a job, if above the tenant's ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<u32>,
}
