//! Limits that policies set on the GPUs of tenants. A rule that depends on the usage of other jobs is a limit of a
//! tenant and not an answer about one job: planner and adoption count every start against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;

/// The most GPUs that a tenant and its descendants may hold together, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuLimit {
    /// Limit on all GPUs; `None` is unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milli: Option<u64>,
    /// Limit on GPUs held by jobs that requested a pool, by pool. A pool that is not listed is unlimited.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, u64>,
}

impl GpuLimit {
    /// The minimum of each limit.
    pub fn and(self, other: GpuLimit) -> GpuLimit {
        let mut pools = self.pools;
        for (pool, milli) in other.pools {
            let least = pools.entry(pool).or_insert(milli);
            *least = milli.min(*least);
        }
        GpuLimit { gpu_milli: self.gpu_milli.into_iter().chain(other.gpu_milli).min(), pools }
    }
}

/// Policy answers about a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantLimit {
    pub tenant: TenantId,
    /// The minimum over the active bundles.
    #[serde(default)]
    pub limit: GpuLimit,
    /// The reason why no job of the tenant or its descendants starts, whatever the limit: a policy failed, and
    /// `scheduler.policy_failure` is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// The error if a policy failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl TenantLimit {
    /// The answer without a limit.
    pub fn of(tenant: TenantId) -> TenantLimit {
        TenantLimit { tenant, limit: GpuLimit::default(), blocked: None, failed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(gpu_milli: Option<u64>, pools: &[(&str, u64)]) -> GpuLimit {
        GpuLimit { gpu_milli, pools: pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect() }
    }

    #[test]
    fn combined_limits_are_the_minimum_of_each() {
        let one = limit(Some(8_000), &[("fast", 4_000), ("cool", 1_000)]);
        let other = limit(Some(7_500), &[("fast", 6_000), ("any", 0)]);
        let both = limit(Some(7_500), &[("fast", 4_000), ("cool", 1_000), ("any", 0)]);
        assert_eq!(one.clone().and(other.clone()), both);
        assert_eq!(other.and(one.clone()), both);
        assert_eq!(one.clone().and(GpuLimit::default()), one);
        assert_eq!(GpuLimit::default().and(one.clone()), one);
    }
}
