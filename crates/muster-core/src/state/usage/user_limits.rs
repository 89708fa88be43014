//! User limits: what single users hold of a tenant that limits it. A limit covers its tenant and all descendants
//! together.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::tenant::{Excess, Quota};
use crate::state::State;

/// What each user holds of the tenants with user limits. Costs nothing to track if no tenant has such a limit.
#[derive(Debug, Clone)]
pub(crate) struct UserLimitUsage<'a> {
    state: &'a State,
    tenants: BTreeMap<&'a TenantId, BTreeMap<String, Demand>>,
}

impl<'a> UserLimitUsage<'a> {
    /// Usage in the state. O(members) if any tenant has user limits.
    pub fn of(state: &'a State) -> UserLimitUsage<'a> {
        let all = state.tenants.values();
        let limited = all.filter(|tenant| tenant.config.maximum_per_user != Quota::default());
        let tenants: BTreeMap<_, _> = limited.map(|tenant| (&tenant.id, BTreeMap::new())).collect();
        let mut users = UserLimitUsage { state, tenants };
        if !users.tenants.is_empty() {
            users.count_all();
        }
        users
    }

    fn count_all(&mut self) {
        for tenant in self.state.tenants.values() {
            for (user, member) in tenant.members.iter().filter(|(_, member)| member.held.jobs > 0) {
                self.take(&tenant.id, user, member.held);
            }
        }
    }

    /// Count a demand as held by a user of a tenant.
    pub fn take(&mut self, tenant: &TenantId, user: &str, demand: Demand) {
        if self.tenants.is_empty() {
            return;
        }
        for ancestor in self.state.lineage(tenant) {
            let Some(users) = self.tenants.get_mut(&ancestor.id) else { continue };
            let held = users.entry(user.to_string()).or_default();
            *held = held.plus(demand);
        }
    }

    /// Each user limit of a tenant and its ancestors, and what the user holds of it.
    pub fn limits(&self, tenant: &TenantId, user: &str) -> Vec<(&'a Quota, Demand)> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let lineage = self.state.lineage(tenant);
        let limited = lineage.filter_map(|tenant| Some((tenant, self.tenants.get(&tenant.id)?)));
        let held = |users: &BTreeMap<String, Demand>| users.get(user).copied().unwrap_or_default();
        limited.map(|(tenant, users)| (&tenant.config.maximum_per_user, held(users))).collect()
    }

    /// Every limit that a user of a tenant exceeds by holding more, and the tenant that sets it.
    pub fn over(&self, tenant: &TenantId, user: &str, more: Demand) -> Vec<(&'a TenantId, Excess)> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let lineage = self.state.lineage(tenant);
        let limited = lineage.filter_map(|tenant| Some((tenant, self.tenants.get(&tenant.id)?)));
        let over = limited.flat_map(|(tenant, users)| {
            let held = users.get(user).copied().unwrap_or_default();
            let excess = tenant.config.maximum_per_user.excess(held.plus(more)).into_iter();
            excess.map(|excess| (&tenant.id, excess))
        });
        over.collect()
    }
}
