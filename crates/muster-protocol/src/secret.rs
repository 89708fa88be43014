//! Secrets of jobs: values that jobs find as files and that the API never shows again.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::secret_value::SecretValue;

/// The value of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretSpec {
    /// The value, as base64; at most 64 KiB.
    #[schema(value_type = String)]
    pub value: SecretValue,
    /// Tenant of the secret. Default: the caller's tenant, or `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// User whose jobs get it. Default: the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// True for a secret of all users of the tenant.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
}

/// A secret, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Secret {
    /// Name.
    #[schema(example = "HF_TOKEN")]
    pub name: String,
    /// Tenant of the secret.
    pub tenant_id: String,
    /// User whose jobs get it; absent for a secret of all users of the tenant.
    pub user: Option<String>,
    /// Length of the value.
    pub bytes: u64,
    /// Time at which the value was set, RFC 3339.
    pub set_at: String,
    /// Actor that set the value.
    pub set_by: String,
}

/// Secrets that are visible to the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SecretList {
    /// By tenant, user and name.
    pub secrets: Vec<Secret>,
    /// Number of secrets.
    pub total: u64,
}
