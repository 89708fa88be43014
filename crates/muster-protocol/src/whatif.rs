//! What-if: simulation of the cluster's history under other settings, nodes or policies.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// A hypothetical change and the time span it applies to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfRequest {
    /// Start of the time span: a duration before now such as `7d`, or a time, RFC 3339. Default: `7d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "7d")]
    pub since: Option<String>,
    /// End of the time span, in the same notation. Default: now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Changed settings: `tenants.NAME.FIELD` as in a change of a tenant, `scheduler.KEY` as in the configuration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"tenants.vision.max_gpus": 32}))]
    pub set: BTreeMap<String, Setting>,
    /// Additional nodes: nodes × GPUs per node × model, for example `4x8xH100`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_nodes: Vec<String>,
    /// Nodes that take no jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_nodes: Vec<String>,
    /// Policies of the cluster, instead of all that were active: file contents by file name. Without a file there are
    /// no policies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<BTreeMap<String, String>>,
    /// Number of jobs to list that gain or lose most. Default: 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
}

/// Value of a setting: an integer, a fraction, a boolean, a text, or `null` to remove a limit.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Setting {
    /// `null`: no limit.
    Null,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// A number with a fraction.
    Number(f64),
    /// A text.
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Null => f.write_str("none"),
            Setting::Bool(flag) => flag.fmt(f),
            Setting::Integer(number) => number.fmt(f),
            Setting::Number(number) => number.fmt(f),
            Setting::Text(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Setting {
    /// Parses `none`, `true`, `32` and `1.5`; everything else is a text.
    fn from(text: &str) -> Setting {
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Setting::Number);
        match text {
            "none" | "null" => Setting::Null,
            "true" => Setting::Bool(true),
            "false" => Setting::Bool(false),
            _ => text.parse().ok().map(Setting::Integer).or_else(number).unwrap_or(Setting::Text(text.to_string())),
        }
    }
}

impl<'de> Deserialize<'de> for Setting {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Setting, D::Error> {
        deserializer.deserialize_any(SettingVisitor)
    }
}

struct SettingVisitor;

impl Visitor<'_> for SettingVisitor {
    type Value = Setting;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number, a boolean, a text or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Setting, E> {
        Ok(Setting::Null)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Setting, E> {
        Ok(Setting::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Setting, E> {
        Ok(Setting::Integer(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Setting, E> {
        i64::try_from(number).map(Setting::Integer).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Setting, E> {
        Ok(Setting::Number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Setting, E> {
        Ok(Setting::Text(text.to_string()))
    }
}

/// Result of a what-if simulation.
///
/// `really` is the recorded history. `changed` is the simulation with the change: identical to the history up to the
/// first differing decision, simulated from there on, with the recorded amount of work of each job. `replayed` is the
/// simulation without the change from the same time on. Gains and losses are computed against `replayed`; the
/// difference between `replayed` and `really` is the error of the simulation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIf {
    /// Start of the time span, RFC 3339.
    pub since: String,
    /// End of the time span, RFC 3339.
    pub until: String,
    /// Description of the change.
    pub changes: Vec<String>,
    /// Number of recorded decisions that were repeated from the journal.
    pub decisions: u64,
    /// Number of these decisions that differ without any change; 0 unless the journal was written by another release.
    pub decisions_different: u64,
    /// Time of the first differing decision, RFC 3339; absent if the change has no effect.
    pub differs_from: Option<String>,
    /// Recorded history.
    pub really: WhatIfFigures,
    /// Simulation without the change, from the first differing decision on.
    pub replayed: WhatIfFigures,
    /// Simulation with the change.
    pub changed: WhatIfFigures,
    /// Number of jobs that would have started or ended earlier.
    pub sooner: u64,
    /// Number of jobs that would have started or ended later.
    pub later: u64,
    /// Tenants with jobs in the time span.
    pub tenants: Vec<WhatIfTenant>,
    /// Jobs that gain or lose most.
    pub jobs: Vec<WhatIfJob>,
    /// Jobs that would have been refused.
    pub refused: Vec<WhatIfRefusal>,
    /// Number of jobs with an estimated runtime, because they never ran or had not ended.
    pub guessed: u64,
}

/// Figures of a time span. For jobs that had not started or ended, waits and times count until the end of the time
/// span.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfFigures {
    /// Number of jobs that waited or ran in the time span.
    pub jobs: u64,
    /// Number of jobs that started for the first time.
    pub started: u64,
    /// Number of jobs that ended.
    pub ended: u64,
    /// Mean wait from submission to the first start, in seconds; without jobs that had started before the time span.
    pub wait_mean_s: f64,
    /// 95th percentile of the wait, in seconds.
    pub wait_p95_s: f64,
    /// Maximum wait, in seconds.
    pub wait_max_s: f64,
    /// Mean time from submission to the end of all jobs, in seconds.
    pub time_mean_s: f64,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// Held GPU-hours divided by all GPU-hours of the cluster, 0 to 1; absent for a single tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Number of preemptions.
    pub preemptions: u64,
    /// Preemption loss, in GPU-hours.
    pub lost_gpu_hours: f64,
}

/// Figures of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfTenant {
    /// Tenant id.
    pub tenant_id: String,
    /// Recorded history.
    pub really: WhatIfFigures,
    /// Simulation without the change.
    pub replayed: WhatIfFigures,
    /// Simulation with the change.
    pub changed: WhatIfFigures,
    /// Number of jobs that would have started or ended earlier.
    pub sooner: u64,
    /// Number of jobs that would have started or ended later.
    pub later: u64,
}

/// Times of one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfJob {
    /// Job id.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// How much earlier it ends, or starts if neither simulation includes its end, in seconds; negative if later.
    pub gained_s: f64,
    /// Recorded history.
    pub really: WhatIfTimes,
    /// Simulation without the change.
    pub replayed: WhatIfTimes,
    /// Simulation with the change.
    pub changed: WhatIfTimes,
}

/// Start and end of a job within the time span.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfTimes {
    /// First start, RFC 3339.
    pub started_at: Option<String>,
    /// End, RFC 3339.
    pub ended_at: Option<String>,
    /// Number of preemptions.
    pub preemptions: u64,
}

/// A job that would have been refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfRefusal {
    /// Job id.
    pub job_id: String,
    /// Reason of the refusal.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_round_trips_through_text_and_json() {
        let cases = [
            ("none", "null", Setting::Null),
            ("true", "true", Setting::Bool(true)),
            ("32", "32", Setting::Integer(32)),
            ("1.5", "1.5", Setting::Number(1.5)),
            ("fast", "\"fast\"", Setting::Text("fast".to_string())),
            ("inf", "\"inf\"", Setting::Text("inf".to_string())),
        ];
        for (text, json, setting) in cases {
            assert_eq!(Setting::from(text), setting);
            assert_eq!(muster_json::to_string(&setting), json);
            assert_eq!(muster_json::from_str::<Setting>(json).unwrap(), setting);
            assert_eq!(setting.to_string(), text);
        }
        assert!(muster_json::from_str::<Setting>("[1]").is_err());
    }
}
