//! Policies as values: bundles and their versions, the hooks they implement, and their answers.

mod answer;
mod limit;
mod retry;
pub mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;
use crate::objects::policy::rules::Rules;
use crate::time::Timestamp;

pub use answer::{Admission, JobAnswer};
pub use limit::{GpuLimit, TenantLimit};
pub use retry::{FailedAttempt, FailureView, RETRY_WAIT_MS_MAX, Retry, RetryAnswer};

/// The most that a policy may add to or subtract from the cost of a placement, in thousandths of a device: more than
/// any other term of the score reaches.
pub const POLICY_COST_MILLI_MAX: i64 = 10_000;

/// A hook: a decision at which muster calls the policy function of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Whether a job is accepted, and whether it may start now.
    Admit,
    /// The priority that orders the job.
    Priority,
    /// The cost of placing the job on a node.
    Score,
    /// Which running jobs may be preempted for it.
    Victims,
    /// Whether and when the job restarts after a failure.
    Retry,
    /// The power limit of each of its GPUs.
    Power,
    /// How many GPUs a tenant may hold.
    Limit,
}

impl Hook {
    pub const ALL: [Hook; 7] =
        [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Retry, Hook::Power, Hook::Limit];

    /// Hooks called once per bucket before any job of the bucket starts.
    pub const OF_BUCKETS: [Hook; 4] = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Power];
    /// Hooks called for a job before it starts. The answer for one job does not apply to another.
    pub const BEFORE_START: [Hook; 5] = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Power];

    /// The name of the policy function.
    pub fn as_str(self) -> &'static str {
        match self {
            Hook::Admit => "admit",
            Hook::Priority => "priority",
            Hook::Score => "score",
            Hook::Victims => "victims",
            Hook::Retry => "retry",
            Hook::Power => "power",
            Hook::Limit => "limit",
        }
    }
}

/// A policy bundle: all policy files of one folder, with their compiled result.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyBundle {
    /// Over names and contents of all files.
    pub hash: String,
    /// By name; test files too, so that they travel with the policies.
    pub files: BTreeMap<String, String>,
    pub rules: Rules,
    /// The hooks that the files define.
    pub hooks: BTreeSet<Hook>,
    /// Identifiers and string literals in the files: an upper bound on the attributes they read.
    pub mentions: BTreeSet<String>,
}

/// The scope of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyScope {
    #[default]
    Cluster,
    /// One tenant. The bundle registers no pools or rulesets and its hooks see only jobs of that tenant.
    Tenant(TenantId),
}

impl PolicyScope {
    /// True if the scope includes the jobs of a tenant.
    pub fn applies_to(&self, tenant: &TenantId) -> bool {
        match self {
            PolicyScope::Cluster => true,
            PolicyScope::Tenant(scoped) => scoped == tenant,
        }
    }
}

impl fmt::Display for PolicyScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolicyScope::Cluster => f.write_str("cluster"),
            PolicyScope::Tenant(tenant) => write!(f, "tenant {tenant}"),
        }
    }
}

/// A bundle that was activated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleVersion {
    /// Assigned by one counter over all scopes.
    pub number: u64,
    pub scope: PolicyScope,
    pub bundle: Arc<PolicyBundle>,
    pub by: String,
    /// Why, in a sentence; may be empty.
    #[serde(default)]
    pub why: String,
    pub at: Timestamp,
}
