//! Phase admit: whether a job may run at all now, wherever there is room. Every blocker is collected.

use std::collections::BTreeMap;

use crate::capacity::{Kind, bits};
use crate::ids::TenantId;
use crate::model;
use crate::plan::ask::{Ask, Match};
use crate::plan::draft::{Draft, Spot};
use crate::queue::Bucket;
use crate::state::State;
use crate::verdict::Reason;

/// What keeps the jobs of a bucket from running, apart from room.
pub(super) fn blockers(draft: &Draft, bucket: &Bucket, ask: &Ask) -> Vec<Reason> {
    let mut found = Vec::new();
    found.extend(array_limit(draft, bucket));
    found.extend(quota(draft, bucket, ask));
    found.extend(budget(draft, bucket));
    found.extend(ask.model_limits.iter().cloned());
    found
}

fn array_limit(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let array = bucket.array?;
    let limit = draft.state.arrays.get(&array)?.running_max?;
    let running = draft.running_of_array(array);
    (running >= limit).then_some(Reason::ArrayLimit { running, limit })
}

fn quota(draft: &Draft, bucket: &Bucket, ask: &Ask) -> Vec<Reason> {
    let mut found = Vec::new();
    for tenant in draft.state.lineage(&bucket.tenant) {
        let wanted = draft.shares.held(&tenant.id).plus(ask.demand);
        let excess = tenant.config.maximum.excess(wanted).into_iter();
        found.extend(excess.map(|excess| Reason::QuotaTenant { tenant: tenant.id.clone(), excess }));
    }
    found
}

fn budget(draft: &Draft, bucket: &Bucket) -> Option<Reason> {
    let (tenant, spent) = draft.state.out_of_budget(&bucket.tenant, draft.now)?;
    Some(Reason::Budget { tenant: tenant.id.clone(), spent, budget: tenant.config.budget })
}

/// How many GPUs of each limited model a tenant would hold. Only tenants with such limits are in it.
#[derive(Debug, Default)]
pub(super) struct ModelUse {
    tenants: BTreeMap<TenantId, BTreeMap<String, Limit>>,
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    used: u64,
    limit: u64,
}

impl ModelUse {
    /// As it is in the state. Free of charge when no tenant has limits per model.
    pub fn of(state: &State) -> ModelUse {
        let mut tenants = BTreeMap::new();
        for tenant in state.tenants.values().filter(|tenant| !tenant.config.maximum_by_model.is_empty()) {
            let limits = tenant.config.maximum_by_model.iter();
            let limits = limits.map(|(model, limit)| (model.clone(), Limit { used: 0, limit: *limit }));
            tenants.insert(tenant.id.clone(), limits.collect());
        }
        let mut models = ModelUse { tenants };
        if !models.tenants.is_empty() {
            models.count_all(state);
        }
        models
    }

    /// Whether a tenant has limits per model.
    pub fn limits(&self, tenant: &TenantId) -> bool {
        self.tenants.contains_key(tenant)
    }

    /// Leave out the kinds of nodes on which the gang would pass a limit.
    ///
    /// On a node with several models the gang is counted as if it took the limited one: simple, and never
    /// above the limit.
    pub fn narrow(&self, tenant: &TenantId, ask: &Ask) -> Ask {
        let over = |found: &Match| self.over(tenant, ask, found);
        let (out, matches): (Vec<Match>, Vec<Match>) =
            ask.matches.iter().cloned().partition(|m| over(m).is_some());
        let none_left = matches.is_empty();
        let mut model_limits: Vec<Reason> = out.iter().filter(|_| none_left).filter_map(over).collect();
        model_limits.dedup();
        Ask { shape: ask.shape.clone(), demand: ask.demand, matches, model_limits }
    }

    /// Count the devices that a gang would sit on.
    pub fn take(&mut self, state: &State, tenant: &TenantId, spot: &Spot) {
        let (Some(limits), Some(node)) = (self.tenants.get_mut(tenant), state.nodes.get(&spot.node)) else {
            return;
        };
        for gpu in spot.chosen.iter().flat_map(|mask| bits(*mask)) {
            count(limits, &node.facts.gpus[usize::from(gpu)].model);
        }
    }

    fn over(&self, tenant: &TenantId, ask: &Ask, found: &Match) -> Option<Reason> {
        let limits = self.tenants.get(tenant)?;
        limits.iter().find_map(|(model, limit)| {
            let more = ask.demand.gpus.min(devices_of(&found.kind, found.useful, model));
            let wanted = limit.used + more;
            (more > 0 && wanted > limit.limit).then(|| Reason::QuotaModel {
                tenant: tenant.clone(),
                model: model.clone(),
                wanted,
                limit: limit.limit,
            })
        })
    }

    fn count_all(&mut self, state: &State) {
        for node in state.nodes.values() {
            for (gpu, holder) in node.facts.gpus.iter().zip(&node.holders) {
                let tenant = holder.and_then(|job| state.jobs.get(&job)).map(|job| &job.spec.tenant);
                if let Some(limits) = tenant.and_then(|tenant| self.tenants.get_mut(tenant)) {
                    count(limits, &gpu.model);
                }
            }
        }
    }
}

fn count(limits: &mut BTreeMap<String, Limit>, device: &str) {
    for (_, limit) in limits.iter_mut().filter(|(model, _)| model::matches(model, device)) {
        limit.used += 1;
    }
}

/// How many of the useful devices are of a model.
fn devices_of(kind: &Kind, useful: u64, model: &str) -> u64 {
    let named = bits(useful).into_iter().filter_map(|index| kind.gpus.get(usize::from(index)));
    named.filter(|(device, _)| model::matches(model, device)).count() as u64
}
