//! What if: the history of the cluster under other rules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
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
    #[schema(value_type = BTreeMap<String, Object>, example = json!({"tenants.vision.max_gpus": 32}))]
    pub set: BTreeMap<String, serde_json::Value>,
    /// Nodes that would have been there too: nodes × GPUs of each × model, for example `4x8xH100`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub add_nodes: Vec<String>,
    /// Nodes that would have taken no more work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_nodes: Vec<String>,
    /// Tell of so many jobs that gain or lose most; 20 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
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
