//! Runtime estimates of jobs, from time limits and from the runtimes of earlier jobs.
//!
//! Backfill, forecasts and the objective `fast` use this model and no other.
//!
//! Backfill uses the longest recent runtime of the job's own user: a job that backfilled on a runtime of other users
//! would be revoked as soon as it outlived them. Forecasts need a runtime for every job, so they fall back from job
//! type to user, tenant and cluster. The objective `fast` orders by remaining time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::estimate::gittins::{ClassHistory, RemainingTime};
use crate::estimate::recent::RecentRuntimes;
use crate::estimate::remaining::RemainingModel;
use crate::estimate::runtimes::TenantRuntimes;
use crate::time::Timestamp;

/// Runtimes of one user's jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UserRuntimes {
    pub recent: RecentRuntimes,
    /// The part of their time limits that the last jobs used, in thousandths.
    pub limit_use_milli: RecentRuntimes,
    /// Job history by class: the GPUs a job requests, in thousandths.
    pub classes: BTreeMap<u64, ClassHistory>,
}

impl UserRuntimes {
    /// Add a job that ended by itself.
    pub(crate) fn add(&mut self, ms: i64, limit_ms: Option<i64>) {
        self.recent.add(ms);
        if let Some(limit_ms) = limit_ms.filter(|limit| *limit > 0) {
            self.limit_use_milli.add(ms.saturating_mul(1_000) / limit_ms);
        }
    }
}

/// The runtime history behind the estimates for a user's jobs.
#[derive(Debug, Clone, Copy)]
pub struct RuntimeModel<'a> {
    pub(crate) user: Option<&'a UserRuntimes>,
    pub(crate) tenant: Option<&'a TenantRuntimes>,
    pub(crate) cluster: &'a RecentRuntimes,
    /// The configured runtime of a job without history.
    pub(crate) default_ms: i64,
}

impl<'a> RuntimeModel<'a> {
    /// The runtime on which a job without a time limit backfills: the longest of its user's recent jobs.
    pub fn backfill_ms(&self) -> i64 {
        let recent = self.user.and_then(|user| user.recent.median_and_longest_ms());
        recent.map_or(self.default_ms, |(_, longest)| longest)
    }

    /// Median and longest runtime to expect of a job, by the narrowest history with enough ended jobs: its type, its
    /// user, its tenant, the cluster. `None` while no job of the cluster has ended.
    pub fn median_and_longest_ms(&self, job_name: &str) -> Option<(i64, i64)> {
        let of_type = || self.tenant?.of_type(job_name)?.median_and_longest_ms();
        let of_user = || self.user?.recent.median_and_longest_ms();
        let of_tenant = || self.tenant?.of_all_types().median_and_longest_ms();
        of_type().or_else(of_user).or_else(of_tenant).or_else(|| cluster_median_and_longest_ms(self.cluster))
    }

    /// The usual runtime of a job, for forecasts: the median of its history, or half of the longest possible runtime.
    pub fn usual_ms(&self, job_name: &str, limit_ms: Option<i64>) -> i64 {
        match self.median_and_longest_ms(job_name) {
            Some((median, _)) => median.min(limit_ms.unwrap_or(i64::MAX)),
            None => limit_ms.unwrap_or(self.default_ms) / 2,
        }
    }

    /// The longest runtime of a job, for forecasts: its time limit, or the longest runtime of its history.
    pub fn longest_ms(&self, job_name: &str, limit_ms: Option<i64>) -> i64 {
        let longest_known = || self.median_and_longest_ms(job_name).map(|(_, longest)| longest);
        limit_ms.or_else(longest_known).unwrap_or(self.default_ms)
    }

    /// Remaining time of the user's jobs that request `gpu_milli` thousandths of GPUs.
    pub(crate) fn remaining(&self, gpu_milli: u64, now: Timestamp) -> RemainingModel<'a> {
        let class = self.user.and_then(|user| user.classes.get(&gpu_milli));
        let all = self.user.into_iter().flat_map(|user| user.classes.values());
        let used = self.user.and_then(|user| user.limit_use_milli.median_and_longest_ms());
        let recent = self.user.and_then(|user| user.recent.median_and_longest_ms());
        RemainingModel {
            by_class: RemainingTime::new(class, all, self.default_ms, now),
            limit_used_milli: used.map(|(median, _)| median.min(1_000)),
            median_ms: recent.map(|(median, _)| median),
            gpu_milli,
        }
    }
}

/// Median and longest runtime of the cluster's recent jobs; from one or two jobs an order of magnitude.
pub(crate) fn cluster_median_and_longest_ms(cluster: &RecentRuntimes) -> Option<(i64, i64)> {
    cluster.median_and_longest_ms().or_else(|| cluster.median_and_longest_ms_of_few())
}
