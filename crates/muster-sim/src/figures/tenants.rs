//! The figures of each tenant.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{JobOutcome, round_to_4_decimals, slowdown};
use crate::job_log::LoggedJob;
use crate::run_history::{IntervalEnd, RunHistory};

/// The figures of one tenant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantFigures {
    pub tenant: String,
    /// Jobs that ran.
    pub jobs: u64,
    /// GPU-hours held.
    pub gpu_hours: f64,
    /// The mean time from submission to the first start, in seconds.
    pub wait_s_mean: f64,
    pub slowdown_mean: f64,
    /// How often its jobs were preempted.
    pub preemptions: u64,
}

#[derive(Debug, Default)]
struct TenantSums {
    jobs: u64,
    gpu_milli_ms: u128,
    wait_ms: i64,
    slowdown: f64,
    preemptions: u64,
}

/// The figures of every tenant, by name.
pub fn tenant_figures(jobs: &[LoggedJob], outcomes: &[Option<JobOutcome>], history: &RunHistory) -> Vec<TenantFigures> {
    let mut tenants: BTreeMap<&str, TenantSums> = BTreeMap::new();
    for (job, outcome) in jobs.iter().zip(outcomes) {
        let sums = tenants.entry(&job.tenant).or_default();
        let Some(outcome) = outcome else { continue };
        sums.jobs += 1;
        sums.wait_ms += outcome.wait_ms;
        sums.slowdown += slowdown(job, outcome);
    }
    for interval in &history.intervals {
        let sums = tenants.entry(&jobs[interval.log_index].tenant).or_default();
        sums.gpu_milli_ms += interval.gpu_milli_ms();
        sums.preemptions += u64::from(interval.end == IntervalEnd::Preempted);
    }
    tenants.into_iter().map(|(tenant, sums)| sums.figures(tenant)).collect()
}

impl TenantSums {
    fn figures(self, tenant: &str) -> TenantFigures {
        let mean = |sum: f64| round_to_4_decimals(sum / self.jobs.max(1) as f64);
        TenantFigures {
            tenant: tenant.to_string(),
            jobs: self.jobs,
            gpu_hours: round_to_4_decimals(self.gpu_milli_ms as f64 / 3.6e9),
            wait_s_mean: mean(self.wait_ms as f64 / 1e3),
            slowdown_mean: mean(self.slowdown),
            preemptions: self.preemptions,
        }
    }
}

/// Jain's fairness index of the mean slowdowns of the tenants with jobs.
pub fn jain_index(tenants: &[TenantFigures]) -> f64 {
    let values: Vec<f64> = tenants.iter().filter(|tenant| tenant.jobs > 0).map(|tenant| tenant.slowdown_mean).collect();
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 1.0 }
}
