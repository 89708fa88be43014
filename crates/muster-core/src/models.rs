//! How many GPUs of each limited model tenants hold. A limit counts for all below its tenant together.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::job::PlacedTask;
use crate::model;
use crate::state::State;

/// What tenants with limits per model hold, and may. Free of charge where nobody has such limits.
#[derive(Debug, Clone)]
pub(crate) struct ModelUse<'a> {
    state: &'a State,
    tenants: BTreeMap<&'a TenantId, BTreeMap<&'a str, Limit>>,
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    /// In thousandths of a GPU.
    used: u64,
    limit: u64,
}

/// A limit that would be passed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Over<'a> {
    pub tenant: &'a TenantId,
    pub model: &'a str,
    pub wanted: u64,
    pub limit: u64,
}

impl<'a> ModelUse<'a> {
    /// As it is in the state. O(GPUs) where anyone has limits per model.
    pub fn of(state: &'a State) -> ModelUse<'a> {
        let mut tenants = BTreeMap::new();
        for tenant in state.tenants.values().filter(|tenant| !tenant.config.maximum_by_model.is_empty()) {
            let limits = tenant.config.maximum_by_model.iter();
            let limits = limits.map(|(model, limit)| (model.as_str(), Limit { used: 0, limit: *limit }));
            tenants.insert(&tenant.id, limits.collect());
        }
        let mut models = ModelUse { state, tenants };
        if !models.tenants.is_empty() {
            models.count_all();
        }
        models
    }

    /// Whether a tenant, or one above it, has limits per model.
    pub fn limits(&self, tenant: &TenantId) -> bool {
        !self.tenants.is_empty() && self.state.lineage(tenant).any(|one| self.tenants.contains_key(&one.id))
    }

    /// Count what a task of a tenant takes.
    pub fn take(&mut self, tenant: &TenantId, task: &PlacedTask) {
        if !self.limits(tenant) {
            return;
        }
        let Some(node) = self.state.nodes.get(&task.node) else { return };
        for gpu in task.gpus.iter().filter_map(|gpu| node.facts.gpus.get(usize::from(*gpu))) {
            self.count(tenant, &gpu.model, task.milli_each());
        }
    }

    /// The first limit that is passed when a tenant takes more, told by model in thousandths of a GPU.
    pub fn over(&self, tenant: &TenantId, more_of: impl Fn(&str) -> u64) -> Option<Over<'a>> {
        if self.tenants.is_empty() {
            return None;
        }
        let limited = self.state.lineage(tenant).filter_map(|one| self.tenants.get_key_value(&one.id));
        limited.flat_map(|(tenant, limits)| limits.iter().map(|limit| (*tenant, limit))).find_map(
            |(tenant, (model, Limit { used, limit }))| {
                let more = more_of(model);
                let wanted = (used + more).div_ceil(1_000);
                let over = Over { tenant, model, wanted, limit: *limit };
                (more > 0 && over.wanted > over.limit).then_some(over)
            },
        )
    }

    /// What the limits of a tenant, and of all above it, leave of devices of a model, in thousandths of a GPU.
    pub fn left_milli(&self, tenant: &TenantId, device: &str) -> u64 {
        let limited = self.state.lineage(tenant).filter_map(|one| self.tenants.get(&one.id));
        let of_model = limited.flatten().filter(|(model, _)| model::matches(model, device));
        let left = of_model.map(|(_, Limit { used, limit })| (limit * 1_000).saturating_sub(*used));
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
        for above in self.state.lineage(tenant) {
            let Some(limits) = self.tenants.get_mut(&above.id) else { continue };
            for (_, limit) in limits.iter_mut().filter(|(model, _)| model::matches(model, device)) {
                limit.used += milli;
            }
        }
    }
}
