//! What if: the history of the cluster under other rules.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

/// What would be otherwise, and since when.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfAsk {
    /// From when on: a span before now such as `7d`, or a moment, RFC 3339; seven days when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(example = "7d")]
    pub since: Option<String>,
    /// Until when, written alike; now when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Other values: `tenants.NAME.FIELD` as in a change of a tenant, `scheduler.KEY` as in the configuration.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(example = json!({"tenants.vision.max_gpus": 32}))]
    pub set: BTreeMap<String, Setting>,
    /// Nodes that would have been there too: nodes × GPUs of each × model, for example `4x8xH100`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_nodes: Vec<String>,
    /// Nodes that would have taken no more work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_nodes: Vec<String>,
    /// Policies that would have been in force for the cluster, in place of all that were: files by name. Without any file
    /// there would have been none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies: Option<BTreeMap<String, String>>,
    /// Tell of so many jobs that gain or lose most; 20 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
}

/// Another value: a whole number, a fraction, a flag, a word, or `null` to lift a limit.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum Setting {
    /// None.
    Nothing,
    /// Yes or no.
    Flag(bool),
    /// A whole number.
    Whole(i64),
    /// Any number.
    Number(f64),
    /// A word.
    Word(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Nothing => f.write_str("none"),
            Setting::Flag(flag) => flag.fmt(f),
            Setting::Whole(number) => number.fmt(f),
            Setting::Number(number) => number.fmt(f),
            Setting::Word(word) => f.write_str(word),
        }
    }
}

impl From<&str> for Setting {
    /// As people write it: `none`, `true`, `32`, `1.5`, and all else is a word.
    fn from(text: &str) -> Setting {
        let number = || text.parse().ok().filter(|number: &f64| number.is_finite()).map(Setting::Number);
        match text {
            "none" | "null" => Setting::Nothing,
            "true" => Setting::Flag(true),
            "false" => Setting::Flag(false),
            _ => text
                .parse()
                .ok()
                .map(Setting::Whole)
                .or_else(number)
                .unwrap_or(Setting::Word(text.to_string())),
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
        f.write_str("a number, a flag, a word or null")
    }

    fn visit_unit<E: Error>(self) -> Result<Setting, E> {
        Ok(Setting::Nothing)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Setting, E> {
        Ok(Setting::Flag(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Setting, E> {
        Ok(Setting::Whole(number))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Setting, E> {
        i64::try_from(number).map(Setting::Whole).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Setting, E> {
        Ok(Setting::Number(number))
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Setting, E> {
        Ok(Setting::Word(word.to_string()))
    }
}

/// What would have been.
///
/// `really` is what happened. `changed` is what would have happened under the change; up to the first decision that
/// would have been another one it is the same to the millisecond, and from there on it is simulated, with every job
/// working as long as it really did. `replayed` is simulated from that same moment without the change: what it differs
/// from `really` by is how far the simulation can be trusted. Who starts or ends sooner is told against `replayed`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIf {
    /// From when on, RFC 3339.
    pub since: String,
    /// Until when.
    pub until: String,
    /// The change, in words.
    pub changes: Vec<String>,
    /// How many decisions of that time were made again from the journal.
    pub decisions: u64,
    /// How many of them would be others today without any change: 0 unless the planner is another release.
    pub decisions_different: u64,
    /// The first moment at which something would have been decided otherwise; nothing if the change changes nothing.
    pub differs_from: Option<String>,
    /// What happened.
    pub really: WhatIfFigures,
    /// The same, simulated from the first difference on.
    pub replayed: WhatIfFigures,
    /// What would have happened.
    pub changed: WhatIfFigures,
    /// Jobs that would have started or ended sooner.
    pub sooner: u64,
    /// Jobs that would have started or ended later.
    pub later: u64,
    /// Each tenant that had jobs.
    pub tenants: Vec<WhatIfTenant>,
    /// The jobs that gain or lose most.
    pub jobs: Vec<WhatIfJob>,
    /// Jobs that would not have been accepted, and why.
    pub refused: Vec<WhatIfRefused>,
    /// Jobs whose length was guessed, because they never ran or had not ended.
    pub guessed: u64,
}

/// What a span of time came to. Waits and times count to the end of the span for jobs that had not started or ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfFigures {
    /// Jobs that lived in the span.
    pub jobs: u64,
    /// How many of them started in it for the first time.
    pub started: u64,
    /// How many ended in it.
    pub ended: u64,
    /// From submission to the first start, of those that had not started before: the mean, in seconds.
    pub wait_mean_s: f64,
    /// Of twenty of them nineteen waited no longer.
    pub wait_p95_s: f64,
    /// The longest.
    pub wait_max_s: f64,
    /// From submission to the end, of all: the mean, in seconds.
    pub time_mean_s: f64,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// The same, of all GPU-hours there were; nothing for a single tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// How often a running job had to give way.
    pub preemptions: u64,
    /// GPU-hours of work that were lost by that.
    pub lost_gpu_hours: f64,
}

/// What it is to one tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfTenant {
    /// Which.
    pub tenant_id: String,
    /// What happened.
    pub really: WhatIfFigures,
    /// The same, simulated.
    pub replayed: WhatIfFigures,
    /// What would have happened.
    pub changed: WhatIfFigures,
    /// Jobs that would have started or ended sooner.
    pub sooner: u64,
    /// Jobs that would have started or ended later.
    pub later: u64,
}

/// What it is to one job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfJob {
    /// Which.
    pub job_id: String,
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub tenant_id: String,
    /// By how much sooner it ends, or starts if neither shows its end, in seconds; below zero if later.
    pub gained_s: f64,
    /// What happened.
    pub really: WhatIfTimes,
    /// The same, simulated.
    pub replayed: WhatIfTimes,
    /// What would have happened.
    pub changed: WhatIfTimes,
}

/// When a job started and ended, within the span.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfTimes {
    /// Its first start, RFC 3339.
    pub started_at: Option<String>,
    /// Its end.
    pub ended_at: Option<String>,
    /// How often it had to give way.
    pub preemptions: u64,
}

/// A job that would not have been accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WhatIfRefused {
    /// Which.
    pub job_id: String,
    /// Why.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_keeps_its_kind() {
        let cases = [
            ("none", "null", Setting::Nothing),
            ("true", "true", Setting::Flag(true)),
            ("32", "32", Setting::Whole(32)),
            ("1.5", "1.5", Setting::Number(1.5)),
            ("fast", "\"fast\"", Setting::Word("fast".to_string())),
            ("inf", "\"inf\"", Setting::Word("inf".to_string())),
        ];
        for (said, json, setting) in cases {
            assert_eq!(Setting::from(said), setting);
            assert_eq!(muster_json::to_string(&setting), json);
            assert_eq!(muster_json::from_str::<Setting>(json).unwrap(), setting);
            assert_eq!(setting.to_string(), said);
        }
        assert!(muster_json::from_str::<Setting>("[1]").is_err());
    }
}
