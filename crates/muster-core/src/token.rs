//! Who may ask for what: tokens, kept only as hashes, each with a role.

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::time::Timestamp;

/// The name under which the server itself acts.
pub const SYSTEM_NAME: &str = "muster";
/// The name of the token that the first start makes.
pub const FIRST_ADMIN_NAME: &str = "admin";
/// The name under which everyone acts on a server in local mode.
pub const LOCAL_NAME: &str = "local";
/// The name under which the server applies the policies of its folder.
pub const POLICY_FOLDER_NAME: &str = "policies.dir";

/// Names that a token cannot have: in the audit log its acts would read as those of another actor.
const RESERVED_NAMES: [&str; 5] = [SYSTEM_NAME, FIRST_ADMIN_NAME, LOCAL_NAME, POLICY_FOLDER_NAME, "system"];

/// True for a name that reads as one of the reserved names.
pub fn is_reserved_name(name: &str) -> bool {
    RESERVED_NAMES.iter().any(|reserved| name.trim().eq_ignore_ascii_case(reserved))
}

/// What a token allows, from least to most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Look at its tenant.
    Viewer,
    /// Submit jobs and change its own.
    Member,
    /// Also every job, the tokens and the policies of its tenant.
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
    /// Highest priority its bearer may give to a job, where that is above the tenant's ceiling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_max: Option<u32>,
}
