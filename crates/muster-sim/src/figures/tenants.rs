//! What each tenant had of it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Fate, rounded, slowdown};
use crate::history::{End, History};
use crate::jobs::LoggedJob;

/// What one tenant had of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TenantFigures {
    /// Which.
    pub tenant: String,
    /// Its jobs that ran.
    pub jobs: u64,
    /// GPU-hours it held.
    pub gpu_hours: f64,
    /// The mean time from submission to the first start, in seconds.
    pub wait_s_mean: f64,
    /// The mean slowdown.
    pub slowdown_mean: f64,
    /// How often its jobs had to give way.
    pub preemptions: u64,
}

#[derive(Debug, Default)]
struct Sums {
    jobs: u64,
    gpu_milli_ms: u128,
    wait_ms: i64,
    slowdown: f64,
    preemptions: u64,
}

/// Every tenant, in order of names.
pub fn of(jobs: &[LoggedJob], fates: &[Option<Fate>], history: &History) -> Vec<TenantFigures> {
    let mut tenants: BTreeMap<&str, Sums> = BTreeMap::new();
    for (job, fate) in jobs.iter().zip(fates) {
        let sums = tenants.entry(&job.tenant).or_default();
        let Some(fate) = fate else { continue };
        sums.jobs += 1;
        sums.wait_ms += fate.wait_ms;
        sums.slowdown += slowdown(job, fate);
    }
    for stretch in &history.stretches {
        let sums = tenants.entry(&jobs[stretch.job].tenant).or_default();
        sums.gpu_milli_ms += stretch.gpu_milli_ms();
        sums.preemptions += u64::from(stretch.end == End::Displaced);
    }
    tenants.into_iter().map(|(tenant, sums)| sums.figures(tenant)).collect()
}

impl Sums {
    fn figures(self, tenant: &str) -> TenantFigures {
        let mean = |sum: f64| rounded(sum / self.jobs.max(1) as f64);
        TenantFigures {
            tenant: tenant.to_string(),
            jobs: self.jobs,
            gpu_hours: rounded(self.gpu_milli_ms as f64 / 3.6e9),
            wait_s_mean: mean(self.wait_ms as f64 / 1e3),
            slowdown_mean: mean(self.slowdown),
            preemptions: self.preemptions,
        }
    }
}

/// Jain's index of the mean slowdowns of those with jobs.
pub fn jain(tenants: &[TenantFigures]) -> f64 {
    let values: Vec<f64> =
        tenants.iter().filter(|tenant| tenant.jobs > 0).map(|tenant| tenant.slowdown_mean).collect();
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    if squares > 0.0 { sum * sum / (values.len() as f64 * squares) } else { 1.0 }
}
