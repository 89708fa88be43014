//! Quotas of GPUs per model: how many GPUs of each limited model tenants hold. A limit covers its tenant and all
//! descendants together.

use std::collections::BTreeMap;

use crate::gpu::model;
use crate::ids::TenantId;
use crate::objects::job::PlacedTask;
use crate::state::State;

/// GPUs that tenants with limits per model hold, and the limits. Costs nothing to track if no tenant has such a limit.
#[derive(Debug, Clone)]
pub(crate) struct ModelLimitUsage<'a> {
    state: &'a State,
    tenants: BTreeMap<&'a TenantId, BTreeMap<&'a str, ModelLimit>>,
}

#[derive(Debug, Clone, Copy)]
struct ModelLimit {
    /// In thousandths of a GPU.
    used: u64,
    limit: u64,
}

/// A limit that would be exceeded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModelLimitExcess<'a> {
    pub tenant: &'a TenantId,
    pub model: &'a str,
    pub wanted: u64,
    pub limit: u64,
}

impl<'a> ModelLimitUsage<'a> {
    /// Usage in the state. O(GPUs) if any tenant has limits per model.
    pub fn of(state: &'a State) -> ModelLimitUsage<'a> {
        let mut tenants = BTreeMap::new();
        for tenant in state.tenants.values().filter(|tenant| !tenant.config.maximum_by_model.is_empty()) {
            let limits = tenant.config.maximum_by_model.iter();
            let limits = limits.map(|(model, limit)| (model.as_str(), ModelLimit { used: 0, limit: *limit }));
            tenants.insert(&tenant.id, limits.collect());
        }
        let mut models = ModelLimitUsage { state, tenants };
        if !models.tenants.is_empty() {
            models.count_all();
        }
        models
    }

    /// True if a tenant or an ancestor has limits per model.
    pub fn limits(&self, tenant: &TenantId) -> bool {
        !self.tenants.is_empty() && self.state.lineage(tenant).any(|tenant| self.tenants.contains_key(&tenant.id))
    }

    /// Count the devices of a task.
    pub fn take(&mut self, tenant: &TenantId, task: &PlacedTask) {
        if !self.limits(tenant) {
            return;
        }
        let Some(node) = self.state.nodes.get(&task.node) else { return };
        for gpu in task.gpus.iter().filter_map(|gpu| node.facts.gpus.get(usize::from(*gpu))) {
            self.count(tenant, &gpu.model, task.milli_each());
        }
    }

    /// The first limit that a tenant exceeds by holding more: `more_of` gives thousandths of a GPU by model.
    pub fn over(&self, tenant: &TenantId, more_of: impl Fn(&str) -> u64) -> Option<ModelLimitExcess<'a>> {
        if self.tenants.is_empty() {
            return None;
        }
        let limited = self.state.lineage(tenant).filter_map(|tenant| self.tenants.get_key_value(&tenant.id));
        limited.flat_map(|(tenant, limits)| limits.iter().map(|limit| (*tenant, limit))).find_map(
            |(tenant, (model, ModelLimit { used, limit }))| {
                let more = more_of(model);
                let wanted = (used + more).div_ceil(1_000);
                let over = ModelLimitExcess { tenant, model, wanted, limit: *limit };
                (more > 0 && over.wanted > over.limit).then_some(over)
            },
        )
    }

    /// What the limits of a tenant and its ancestors leave of a device model, in thousandths of a GPU.
    pub fn left_milli(&self, tenant: &TenantId, device: &str) -> u64 {
        let limited = self.state.lineage(tenant).filter_map(|tenant| self.tenants.get(&tenant.id));
        let of_model = limited.flatten().filter(|(model, _)| model::matches(model, device));
        let left = of_model.map(|(_, ModelLimit { used, limit })| (limit * 1_000).saturating_sub(*used));
        left.min().unwrap_or(u64::MAX)
    }

    fn count_all(&mut self) {
        let state = self.state;
        for node in state.nodes.values() {
            for job in node.jobs.iter().filter_map(|job| state.jobs.get(job)) {
                let tasks = job.attempt().into_iter().flat_map(|attempt| &attempt.tasks);
                tasks.filter(|task| task.node == node.id).for_each(|task| self.take(&job.spec.tenant, task));
            }
        }
    }

    fn count(&mut self, tenant: &TenantId, device: &str, milli: u64) {
        for ancestor in self.state.lineage(tenant) {
            let Some(limits) = self.tenants.get_mut(&ancestor.id) else { continue };
            for (_, limit) in limits.iter_mut().filter(|(model, _)| model::matches(model, device)) {
                limit.used += milli;
            }
        }
    }
}
