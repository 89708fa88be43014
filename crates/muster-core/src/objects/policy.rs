//! Policies as values: bundles and their versions, the questions they answer, and their answers.

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

/// The most a policy may add to or take from the cost of a place, in thousandths of a device: more than any other term
/// comes to.
pub const POLICY_COST_MILLI_MAX: i64 = 10_000;

/// A question that a policy may answer, by a function of this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hook {
    /// Whether a job may be accepted, and whether it may start now.
    Admit,
    /// Which priority it is ordered by.
    Priority,
    /// How welcome it is on a node.
    Score,
    /// Who may be displaced for it.
    Victims,
    /// Whether and when it starts again after a failure.
    Retry,
    /// How much power each of its GPUs may draw.
    Power,
    /// How many GPUs a tenant may hold.
    Limit,
}

impl Hook {
    pub const ALL: [Hook; 7] =
        [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Retry, Hook::Power, Hook::Limit];

    /// Those that are asked about a bucket before anyone of it starts.
    pub const OF_BUCKETS: [Hook; 4] = [Hook::Admit, Hook::Priority, Hook::Score, Hook::Power];
    /// Those that are asked about a job before it starts. What they say of one job tells nothing of another.
    pub const BEFORE_START: [Hook; 5] =
        [Hook::Admit, Hook::Priority, Hook::Score, Hook::Victims, Hook::Power];

    /// The name of the function.
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

/// Files of policies, and what became of them when they were compiled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyBundle {
    /// Of names and contents of all files.
    pub hash: String,
    /// Each by its name; tests too, so that they go where the policies go.
    pub files: BTreeMap<String, String>,
    pub rules: Rules,
    /// The questions they answer.
    pub hooks: BTreeSet<Hook>,
    /// Names and texts that they write: what they could look at.
    pub mentions: BTreeSet<String>,
}

/// For whom a bundle speaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyScope {
    #[default]
    Cluster,
    /// For the jobs of one tenant. It registers nothing and speaks of its own jobs only.
    Tenant(TenantId),
}

impl PolicyScope {
    /// Whether it is about the jobs of a tenant.
    pub fn applies_to(&self, tenant: &TenantId) -> bool {
        match self {
            PolicyScope::Cluster => true,
            PolicyScope::Tenant(own) => own == tenant,
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

/// A bundle that was put into force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BundleVersion {
    /// Counted up, over all scopes.
    pub number: u64,
    pub scope: PolicyScope,
    pub bundle: Arc<PolicyBundle>,
    pub by: String,
    /// Why, in a sentence; may be empty.
    #[serde(default)]
    pub why: String,
    pub at: Timestamp,
}
