//! Policies: active and earlier versions, activation, rollback, and the shadow.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A policy bundle to activate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyApply {
    /// File contents by file name. Without a file all policies are deactivated.
    pub files: BTreeMap<String, String>,
    /// Tenant whose jobs it applies to; without a tenant it applies to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Reason, for the history.
    #[serde(default)]
    pub why: String,
    /// Only check the bundle, without activating it.
    #[serde(default)]
    pub dry_run: bool,
    /// Run the bundle as a shadow beside the active one and report where decisions differ.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// Activate the bundle although its tests fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Rollback to an earlier policy version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRollback {
    /// Version to activate. Default: the one before the active version.
    #[serde(default)]
    pub version: Option<u64>,
    /// Tenant of the policies; without a tenant, those of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Reason, for the history.
    #[serde(default)]
    pub why: String,
}

/// Policy versions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    /// The versions.
    pub policies: Vec<PolicyVersion>,
    /// Number of versions.
    pub total: u64,
    /// Failed calls of active policies, with the number of affected waiting jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<PolicyCallFailure>,
}

/// A failed call of active policies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyCallFailure {
    /// Error message.
    pub error: String,
    /// Number of waiting jobs that the call was about.
    pub jobs: u64,
    /// True if these jobs wait until the policy answers; otherwise they are planned without its answer.
    pub blocks: bool,
}

/// A policy bundle that was activated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersion {
    /// Version number, increasing.
    pub version: u64,
    /// `cluster`, or `tenant` and its name.
    pub scope: String,
    /// Tenant whose jobs it applies to; absent if it applies to the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// True if it is the active version.
    pub active: bool,
    /// Reason of the suspension: its worker was killed repeatedly, so its hooks are not called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Hash of names and contents of all files.
    pub hash: String,
    /// Actor that activated it.
    pub applied_by: String,
    /// Time of the activation, RFC 3339.
    pub applied_at: String,
    /// Reason; may be empty.
    pub why: String,
    /// Hooks it implements.
    pub hooks: Vec<String>,
    /// Pools it registers.
    pub pools: Vec<PolicyPool>,
    /// Rulesets it registers.
    pub rulesets: Vec<PolicyRuleset>,
    /// Names of its files.
    pub files: Vec<String>,
    /// Contents of its files; only in the answer for a single version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
}

/// A pool that policies register.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyPool {
    /// Name.
    pub name: String,
    /// Allowed GPU models; empty for any.
    pub gpu_types: Vec<String>,
    /// Minimum memory of a GPU in GB.
    pub min_memory_gb: String,
    /// Maximum temperature of a GPU in °C.
    pub max_temp_c: String,
    /// Minimum health of a GPU, 0 to 1.
    pub health_threshold: String,
    /// Power policy of its GPUs.
    pub power_policy: String,
    /// Tuning directives for its GPUs, for the agent.
    pub opt_strategies: Vec<String>,
    /// Health checks of its GPUs, for the agent.
    pub health_checks: Vec<String>,
    /// Number of GPUs in the pool.
    pub gpus: u32,
    /// Number of these GPUs whose temperature and health allow a placement now.
    pub gpus_open: u32,
}

/// A ruleset that policies register.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyRuleset {
    /// Name.
    pub name: String,
    /// True if it is in effect.
    pub active: bool,
    /// Its rules, as text.
    pub rules: Vec<String>,
}

/// Decisions in which the shadow policies differ from the active ones.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyShadow {
    /// The shadow bundle, with the version number that it would get.
    pub policies: PolicyVersion,
    /// Start of the shadow, RFC 3339.
    pub since: String,
    /// Number of comparisons.
    pub looks: u64,
    /// Number of planning rounds with decisions that were not compared for lack of time.
    pub missed: u64,
    /// Number of starts and evictions on which both agree.
    pub alike: u64,
    /// Number of jobs with different decisions.
    pub total: u64,
    /// These jobs, newest first; limited in number.
    pub jobs: Vec<PolicyDifference>,
}

/// A job about which the shadow decides differently.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyDifference {
    /// Job id.
    pub job_id: String,
    /// Time of the last difference, RFC 3339.
    pub seen_at: String,
    /// Number of differences.
    pub times: u64,
    /// Decision of the active policies.
    pub in_force: String,
    /// Decision of the shadow.
    pub shadow: String,
}
