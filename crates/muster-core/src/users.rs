//! What single users hold where that is limited. A limit counts for all tenants below its own together.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::job::Demand;
use crate::state::State;
use crate::tenant::{Excess, Quota};

/// What the users of tenants with such limits hold. Free of charge where nobody has one.
#[derive(Debug, Clone)]
pub(crate) struct UserUse<'a> {
    state: &'a State,
    tenants: BTreeMap<&'a TenantId, BTreeMap<String, Demand>>,
}

impl<'a> UserUse<'a> {
    /// As it is in the state. O(members) where anyone has such limits.
    pub fn of(state: &'a State) -> UserUse<'a> {
        let all = state.tenants.values();
        let limited = all.filter(|tenant| tenant.config.maximum_per_user != Quota::default());
        let tenants: BTreeMap<_, _> = limited.map(|tenant| (&tenant.id, BTreeMap::new())).collect();
        let mut users = UserUse { state, tenants };
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

    /// Count what a user takes in a tenant.
    pub fn take(&mut self, tenant: &TenantId, user: &str, demand: Demand) {
        if self.tenants.is_empty() {
            return;
        }
        for above in self.state.lineage(tenant) {
            let Some(users) = self.tenants.get_mut(&above.id) else { continue };
            let held = users.entry(user.to_string()).or_default();
            *held = held.plus(demand);
        }
    }

    /// Each limit of a user of a tenant, and what the user holds of it.
    pub fn limits(&self, tenant: &TenantId, user: &str) -> Vec<(&'a Quota, Demand)> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let limited = self.state.lineage(tenant).filter_map(|one| Some((one, self.tenants.get(&one.id)?)));
        let held = |users: &BTreeMap<String, Demand>| users.get(user).copied().unwrap_or_default();
        limited.map(|(one, users)| (&one.config.maximum_per_user, held(users))).collect()
    }

    /// Every limit that a user of a tenant would pass by taking more, and the tenant that sets it.
    pub fn over(&self, tenant: &TenantId, user: &str, more: Demand) -> Vec<(&'a TenantId, Excess)> {
        if self.tenants.is_empty() {
            return Vec::new();
        }
        let limited = self.state.lineage(tenant).filter_map(|one| Some((one, self.tenants.get(&one.id)?)));
        let over = limited.flat_map(|(one, users)| {
            let held = users.get(user).copied().unwrap_or_default();
            let excess = one.config.maximum_per_user.excess(held.plus(more)).into_iter();
            excess.map(|excess| (&one.id, excess))
        });
        over.collect()
    }
}
