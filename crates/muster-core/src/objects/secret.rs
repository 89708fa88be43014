//! Secrets of jobs: what the journal knows of them. Their values are in a table of the store, sealed, and never here.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::time::Timestamp;

/// Identifies a secret: a user may have one of the same name as the tenant, and then the jobs of the user get the former.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretId {
    pub tenant: TenantId,
    /// The user whose jobs get it; `None` for all jobs of the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    pub name: String,
}

/// `TENANT/NAME`, or `TENANT/USER/NAME`.
impl fmt::Display for SecretId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            Some(owner) => write!(f, "{}/{owner}/{}", self.tenant, self.name),
            None => write!(f, "{}/{}", self.tenant, self.name),
        }
    }
}

/// A secret without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret {
    #[serde(flatten)]
    pub id: SecretId,
    /// Where the store holds the sealed value. Each value has another one.
    pub value: String,
    /// Identifies the key that seals it, without revealing it.
    pub key: String,
    /// Length of the value.
    pub bytes: u64,
    pub set_by: String,
    pub set_at: Timestamp,
}

/// A secret that a job uses, and the name of its file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SecretUse {
    pub name: String,
    pub file: String,
}
