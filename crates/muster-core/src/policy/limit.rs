//! Limits that policies set on what tenants hold. What depends on others' usage is a limit for a tenant and not an answer
//! about a job: planner and adoption count every start against it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::TenantId;

/// The most GPUs that a tenant may hold together with all tenants below it, in thousandths.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GpuLimit {
    /// Of all GPUs; nothing where there is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_milli: Option<u64>,
    /// Of GPUs held by jobs that named a pool, by pool. A pool that is not listed has no limit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, u64>,
}

impl GpuLimit {
    /// The least of each.
    pub fn and(self, other: GpuLimit) -> GpuLimit {
        let mut pools = self.pools;
        for (pool, milli) in other.pools {
            let least = pools.entry(pool).or_insert(milli);
            *least = milli.min(*least);
        }
        GpuLimit { gpu_milli: self.gpu_milli.into_iter().chain(other.gpu_milli).min(), pools }
    }
}

/// What policies answered of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limited {
    /// Whose limit.
    pub tenant: TenantId,
    /// The least that the bundles in force allow.
    #[serde(default)]
    pub limit: GpuLimit,
    /// Why no job of the tenant or of a tenant below it starts, whatever the limit: a policy failed, and
    /// `scheduler.policy_failure` is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// What went wrong while policies were asked, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl Limited {
    /// No limit is set for a tenant.
    pub fn of(tenant: TenantId) -> Limited {
        Limited { tenant, limit: GpuLimit::default(), blocked: None, failed: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(gpu_milli: Option<u64>, pools: &[(&str, u64)]) -> GpuLimit {
        GpuLimit { gpu_milli, pools: pools.iter().map(|(pool, milli)| (pool.to_string(), *milli)).collect() }
    }

    #[test]
    fn of_two_limits_the_least_of_each_counts() {
        let one = limit(Some(8_000), &[("fast", 4_000), ("cool", 1_000)]);
        let other = limit(Some(7_500), &[("fast", 6_000), ("any", 0)]);
        let both = limit(Some(7_500), &[("fast", 4_000), ("cool", 1_000), ("any", 0)]);
        assert_eq!(one.clone().and(other.clone()), both);
        assert_eq!(other.and(one.clone()), both);
        assert_eq!(one.clone().and(GpuLimit::default()), one);
        assert_eq!(GpuLimit::default().and(one.clone()), one);
    }
}
