//! The row of the queue benchmark for one trace and policy.

use serde::Serialize;

use super::{QueuePolicyName, ReplayOutcome};

/// Figures with as many decimals as the published ones.
#[derive(Debug, Clone, Serialize)]
pub struct ReplayRow {
    pub trace: String,
    pub policy: &'static str,
    pub avg_jct_s: f64,
    pub p99_jct_s: f64,
    pub makespan_s: f64,
    pub max_slowdown: f64,
    pub preemptions: u64,
    pub lost_gpu_s: f64,
}

impl ReplayRow {
    pub fn of_outcome(trace: &str, policy: QueuePolicyName, outcome: &ReplayOutcome) -> ReplayRow {
        let rounded = |value: f64| (value * 1e3).round() / 1e3;
        ReplayRow {
            trace: trace.to_string(),
            policy: policy.as_str(),
            avg_jct_s: rounded(outcome.avg_jct_s),
            p99_jct_s: rounded(outcome.p99_jct_s),
            makespan_s: rounded(outcome.makespan_s),
            max_slowdown: rounded(outcome.max_slowdown),
            preemptions: outcome.preemptions,
            lost_gpu_s: rounded(outcome.lost_gpu_s),
        }
    }
}
