//! Guarantees of GPUs per model: which devices belong to a guaranteed model, how many of them each tenant holds, and
//! which jobs accept no other model.
//!
//! `guarantee.rs` describes what a guarantee entitles to. A guarantee per model covers a job only if the job accepts no
//! other model: otherwise the job could reclaim by the guarantee of one model, run on another, and be evicted again
//! without any change of the guarantee's usage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::accounting::tenant::Tenant;
use crate::gpu::model;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::job::{Job, PlacedTask, Resources};
use crate::objects::shape::Shape;
use crate::state::State;

/// GPUs of guaranteed models that tenants hold, with what a plan has taken so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelGuaranteeUsage {
    /// Running attempts, claims and evictions in progress.
    held: GpusByModel,
    runs: GpusByModel,
    /// The models that ready jobs request, each with the guaranteed models that all devices which satisfy the request
    /// belong to. Names are compared once, because each queue head is checked many times.
    requested_models: BTreeMap<String, BTreeSet<String>>,
}

impl ModelGuaranteeUsage {
    /// Usage in the state. O(running + buckets); free of cost if no tenant has a guarantee per model.
    pub fn of(state: &State) -> ModelGuaranteeUsage {
        let runs = GpusByModel::running(state);
        let mut requested_models = BTreeMap::new();
        if !runs.devices.is_empty() {
            let groups = state.queue.buckets().flat_map(|(bucket, _)| &bucket.shape.groups);
            for requested in groups.flat_map(|(_, each)| &each.gpu_models) {
                if !requested_models.contains_key(requested) {
                    requested_models.insert(requested.clone(), runs.devices.sole_models(requested));
                }
            }
        }
        ModelGuaranteeUsage { held: runs.clone(), runs, requested_models }
    }

    /// True if no tenant has a guarantee per model.
    pub fn is_empty(&self) -> bool {
        self.runs.devices.is_empty()
    }

    /// Count devices as held by a tenant, or by a claim of it.
    pub fn take(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.held.add(state, tenant, tasks);
    }

    /// Count devices as held no longer.
    pub fn give_back(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.held.remove(state, tenant, tasks);
    }

    /// Count devices as running a job of a tenant.
    pub fn start(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.runs.add(state, tenant, tasks);
    }

    /// Every tenant of the lineage whose guarantee per model covers a shape, and the model.
    pub fn guarantors<'a>(&self, state: &'a State, tenant: &TenantId, shape: &Shape) -> Vec<(&'a TenantId, &'a str)> {
        if self.is_empty() {
            return Vec::new();
        }
        let more = shape.gpu_milli();
        let within = |tenant: &TenantId, model: &str, guaranteed: u64| {
            let wanted = self.held.get(tenant, model).saturating_add(more);
            wanted <= guaranteed.saturating_mul(1_000) && self.asks_only_for(shape, model)
        };
        let mut found = Vec::new();
        for tenant in state.lineage(tenant) {
            let models = tenant.config.guaranteed_by_model.iter();
            let models = models.filter(|(model, guaranteed)| within(&tenant.id, model, **guaranteed));
            found.extend(models.map(|(model, _)| (&tenant.id, model.as_str())));
        }
        found
    }

    /// GPUs of a model that the jobs of a tenant and its descendants run on, in thousandths.
    pub fn runs(&self, tenant: &TenantId, model: &str) -> u64 {
        self.runs.get(tenant, model)
    }

    /// GPUs of a guaranteed model that a job runs on, in thousandths.
    pub fn held_by(&self, state: &State, job: &Job, model: &str) -> u64 {
        self.runs.devices.held_by(state, job, model)
    }

    /// True if a shape requests GPUs, and only devices of the model are eligible for them.
    fn asks_only_for(&self, shape: &Shape, model: &str) -> bool {
        let mut groups = shape.groups.iter().map(|(_, each)| each).filter(|each| each.gpus > 0).peekable();
        let accepts_only = |each: &Resources| {
            !each.gpu_models.is_empty() && each.gpu_models.iter().all(|requested| self.is_only(requested, model))
        };
        groups.peek().is_some() && groups.all(accepts_only)
    }

    fn is_only(&self, requested: &str, model: &str) -> bool {
        match self.requested_models.get(requested) {
            Some(models) => models.contains(model),
            None => self.runs.devices.sole_models(requested).contains(model),
        }
    }
}

/// GPUs of guaranteed models by tenant, each with its descendants, in thousandths.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpusByModel {
    devices: GuaranteedDevices,
    tenants: BTreeMap<TenantId, BTreeMap<String, u64>>,
}

impl GpusByModel {
    pub fn none(state: &State) -> GpusByModel {
        GpusByModel { devices: GuaranteedDevices::of(state), tenants: BTreeMap::new() }
    }

    fn running(state: &State) -> GpusByModel {
        let mut running = GpusByModel::none(state);
        if !running.devices.is_empty() {
            let jobs: BTreeSet<JobId> = state.nodes.values().flat_map(|node| &node.jobs).copied().collect();
            jobs.iter().filter_map(|job| state.jobs.get(job)).for_each(|job| running.add_job(state, job));
        }
        running
    }

    pub fn get(&self, tenant: &TenantId, model: &str) -> u64 {
        self.tenants.get(tenant).and_then(|models| models.get(model)).copied().unwrap_or_default()
    }

    /// Count the devices of a job's attempt.
    pub fn add_job(&mut self, state: &State, job: &Job) {
        if let Some(attempt) = job.attempt() {
            self.add(state, &job.spec.tenant, &attempt.tasks);
        }
    }

    fn add(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.change(state, tenant, tasks, u64::saturating_add);
    }

    fn remove(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.change(state, tenant, tasks, u64::saturating_sub);
    }

    fn change(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask], op: fn(u64, u64) -> u64) {
        if self.devices.is_empty() {
            return;
        }
        for ancestor in state.lineage(tenant) {
            for model in guaranteed_models(ancestor) {
                let count = self.devices.count(state, tasks, model);
                let models = self.tenants.entry(ancestor.id.clone()).or_default();
                let sum = models.entry(model.clone()).or_default();
                *sum = op(*sum, count);
            }
        }
    }
}

/// Device models of the cluster as their drivers spell them, each with the guaranteed models it belongs to. Empty if no
/// tenant has a guarantee per model.
#[derive(Debug, Clone, Default)]
struct GuaranteedDevices(Arc<BTreeMap<String, BTreeSet<String>>>);

impl GuaranteedDevices {
    /// The registered devices. O(kinds).
    fn of(state: &State) -> GuaranteedDevices {
        let guaranteed: BTreeSet<&String> = state.tenants.values().flat_map(guaranteed_models).collect();
        if guaranteed.is_empty() {
            return GuaranteedDevices::default();
        }
        let mut devices = BTreeMap::new();
        for device in state.resources.kinds().flat_map(|(kind, _)| &kind.gpus).map(|gpu| &gpu.model) {
            let models = || guaranteed.iter().filter(|model| model::matches(model, device));
            let models = || models().map(|model| model.to_string()).collect();
            devices.entry(device.clone()).or_insert_with(models);
        }
        GuaranteedDevices(Arc::new(devices))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_of(&self, device: &str, model: &str) -> bool {
        self.0.get(device).is_some_and(|models| models.contains(model))
    }

    /// GPUs of a model that some tasks hold, in thousandths.
    fn count(&self, state: &State, tasks: &[PlacedTask], model: &str) -> u64 {
        let facts = |(node, gpu): (&NodeId, u8)| state.nodes.get(node)?.facts.gpus.get(usize::from(gpu));
        let of_model = |task: &PlacedTask| {
            let devices = task.devices().filter_map(facts).filter(|gpu| self.is_of(&gpu.model, model));
            devices.count() as u64 * task.milli_each()
        };
        tasks.iter().map(of_model).sum()
    }

    fn held_by(&self, state: &State, job: &Job, model: &str) -> u64 {
        job.attempt().map_or(0, |attempt| self.count(state, &attempt.tasks, model))
    }

    /// The guaranteed models that every device which satisfies a requested model belongs to.
    ///
    /// The guaranteed model is matched against the requested one as if that were a device: `H100` matches `H100-80GB`,
    /// so every device that satisfies the request is an H100. The reverse does not hold: a device that satisfies `H100`
    /// need not have 80 GB. A request may be split into other words than device names are, so the registered devices
    /// that satisfy it are checked as well.
    fn sole_models(&self, requested: &str) -> BTreeSet<String> {
        let met_by_others = |model: &str| {
            let mut others = self.0.keys().filter(|device| !self.is_of(device, model));
            others.any(|device| model::matches(requested, device))
        };
        let guaranteed: BTreeSet<&String> = self.0.values().flatten().collect();
        let named = guaranteed.into_iter().filter(|model| model::matches(model, requested));
        named.filter(|model| !met_by_others(model)).cloned().collect()
    }
}

/// The models that a tenant is guaranteed GPUs of.
pub(crate) fn guaranteed_models(tenant: &Tenant) -> impl Iterator<Item = &String> {
    tenant.config.guaranteed_by_model.iter().filter(|(_, count)| **count > 0).map(|(model, _)| model)
}
