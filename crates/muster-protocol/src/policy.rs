//! Policies: what is in force, what was, and putting others into force.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Policies to put into force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyApply {
    /// Each file by its name, with its content. No file at all puts no policies into force.
    pub files: BTreeMap<String, String>,
    /// For the jobs of which tenant; for everyone where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Why, for the history.
    #[serde(default)]
    pub why: String,
    /// Only say whether they would do.
    #[serde(default)]
    pub dry_run: bool,
    /// Run them beside those in force, to see what they would decide otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadow: bool,
    /// Apply them although tests among the files fail.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
}

/// Policies to go back to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRollback {
    /// The version; the one before the one in force where none is named.
    #[serde(default)]
    pub version: Option<u64>,
    /// Of which tenant; those for everyone where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Why, for the history.
    #[serde(default)]
    pub why: String,
}

/// Versions, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyList {
    /// Each of them.
    pub policies: Vec<PolicyVersion>,
    /// How many.
    pub total: u64,
    /// What went wrong when policies in force were asked, and how many waiting jobs that concerns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<PolicyFailing>,
}

/// A failure of policies in force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyFailing {
    /// The error.
    pub error: String,
    /// Waiting jobs about which it was asked.
    pub jobs: u64,
    /// Whether these jobs wait until the policy answers; otherwise they are planned as if it had not been asked.
    pub blocks: bool,
}

/// A bundle of policies that was put into force.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyVersion {
    /// Counted up.
    pub version: u64,
    /// For whom: `cluster`, or `tenant` and its name.
    pub scope: String,
    /// For the jobs of which tenant; nothing where it is for everyone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Whether it is in force.
    pub active: bool,
    /// Why it is in force and not asked, where its worker was ended again and again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended: Option<String>,
    /// Of names and contents of all files.
    pub hash: String,
    /// Who put it into force.
    pub applied_by: String,
    /// When.
    pub applied_at: String,
    /// Why.
    pub why: String,
    /// The questions it answers.
    pub hooks: Vec<String>,
    /// The pools it registers.
    pub pools: Vec<PolicyPool>,
    /// The rulesets it registers.
    pub rulesets: Vec<PolicyRuleset>,
    /// The names of its files.
    pub files: Vec<String>,
    /// Their contents, where one version was asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: BTreeMap<String, String>,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyPool {
    /// Its name.
    pub name: String,
    /// Models; any where there is none.
    pub gpu_types: Vec<String>,
    /// Least memory of a device in GB.
    pub min_memory_gb: String,
    /// Highest temperature in degrees.
    pub max_temp_c: String,
    /// Least health, 0 to 1.
    pub health_threshold: String,
    /// How its devices are driven.
    pub power_policy: String,
    /// How its devices are tuned, for the control of devices.
    pub opt_strategies: Vec<String>,
    /// What is looked at, for the control of devices.
    pub health_checks: Vec<String>,
    /// Devices that belong to it.
    pub gpus: u32,
    /// Of those, devices that are given out as warm and healthy as they are.
    pub gpus_open: u32,
}

/// A ruleset.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyRuleset {
    /// Its name.
    pub name: String,
    /// Whether it counts.
    pub active: bool,
    /// Its rules, in words.
    pub rules: Vec<String>,
}

/// What policies that run as a shadow would decide otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyShadow {
    /// What runs, with the version it would be.
    pub policies: PolicyVersion,
    /// Since when.
    pub since: String,
    /// How often both were compared.
    pub looks: u64,
    /// How often there was something to decide and no time to compare.
    pub missed: u64,
    /// How often both would start a job, or make room for it, in the same way.
    pub alike: u64,
    /// Jobs that would be treated otherwise.
    pub total: u64,
    /// Each of them, the newest job first; of very many only the newest.
    pub jobs: Vec<PolicyOtherwise>,
}

/// What would be decided otherwise about a job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct PolicyOtherwise {
    /// Which job.
    pub job_id: String,
    /// When that was seen last.
    pub seen_at: String,
    /// How often it was seen.
    pub times: u64,
    /// With the policies in force.
    pub in_force: String,
    /// With the shadow.
    pub shadow: String,
}
