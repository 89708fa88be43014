//! GPUs of single models that tenants can count on: which devices they are, who has how many of them, and which
//! jobs ask for nothing else.
//!
//! What such a guarantee entitles to is told in `guarantee.rs`. A job is within one only if it can sit on nothing but
//! devices of the model: else it could have its way by the right to one model, sit on another, and be displaced
//! again without the guarantee ever being touched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Job, PlacedTask, Resources};
use crate::model;
use crate::queue::Shape;
use crate::state::State;
use crate::tenant::Tenant;

/// What tenants have of the models they are guaranteed, as a plan is drawn up or adopted.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelBooks {
    /// With what is set aside for jobs that wait.
    held: ByModel,
    /// Without it.
    runs: ByModel,
    /// The wishes of those who are ready, each with the guaranteed models that it can only be met by. Names are
    /// compared once, because everyone in the order is asked again and again.
    wishes: BTreeMap<String, BTreeSet<String>>,
}

impl ModelBooks {
    /// As it is in the state. O(running + buckets); nothing where nobody has a guarantee per model.
    pub fn of(state: &State) -> ModelBooks {
        let runs = ByModel::running(state);
        let mut wishes = BTreeMap::new();
        if !runs.devices.is_empty() {
            let groups = state.queue.buckets().flat_map(|(bucket, _)| &bucket.shape.groups);
            for wish in groups.flat_map(|(_, each)| &each.gpu_models) {
                if !wishes.contains_key(wish) {
                    wishes.insert(wish.clone(), runs.devices.sole_models(wish));
                }
            }
        }
        ModelBooks { held: runs.clone(), runs, wishes }
    }

    /// Whether there is nothing to count.
    pub fn is_empty(&self) -> bool {
        self.runs.devices.is_empty()
    }

    /// Count devices that a tenant has, or that are set aside for it.
    pub fn take(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.held.add(state, tenant, tasks);
    }

    /// They are no longer set aside.
    pub fn give_back(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.held.remove(state, tenant, tasks);
    }

    /// Count devices on which a job of a tenant starts.
    pub fn start(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask]) {
        self.runs.add(state, tenant, tasks);
    }

    /// Every tenant, itself or one above it, whose guarantee of one model a job stays within, and the model.
    pub fn guarantors<'a>(
        &self,
        state: &'a State,
        tenant: &TenantId,
        shape: &Shape,
    ) -> Vec<(&'a TenantId, &'a str)> {
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

    /// What the jobs of a tenant, and of all below it, run on of a model, in thousandths of a GPU.
    pub fn runs(&self, tenant: &TenantId, model: &str) -> u64 {
        self.runs.get(tenant, model)
    }

    /// What a job runs on of a guaranteed model, in thousandths of a GPU.
    pub fn held_by(&self, state: &State, job: &Job, model: &str) -> u64 {
        self.runs.devices.held_by(state, job, model)
    }

    /// Whether there are GPUs among what a shape asks for, and only devices of the model would do for them.
    fn asks_only_for(&self, shape: &Shape, model: &str) -> bool {
        let mut asking = shape.groups.iter().map(|(_, each)| each).filter(|each| each.gpus > 0).peekable();
        let named = |each: &Resources| {
            !each.gpu_models.is_empty() && each.gpu_models.iter().all(|wish| self.is_only(wish, model))
        };
        asking.peek().is_some() && asking.all(named)
    }

    fn is_only(&self, wish: &str, model: &str) -> bool {
        match self.wishes.get(wish) {
            Some(models) => models.contains(model),
            None => self.runs.devices.sole_models(wish).contains(model),
        }
    }
}

/// GPUs of guaranteed models by tenant, each with all below it.
#[derive(Debug, Clone, Default)]
pub(crate) struct ByModel {
    devices: Devices,
    tenants: BTreeMap<TenantId, BTreeMap<String, u64>>,
}

impl ByModel {
    /// Nothing counted yet.
    pub fn none(state: &State) -> ByModel {
        ByModel { devices: Devices::of(state), tenants: BTreeMap::new() }
    }

    fn running(state: &State) -> ByModel {
        let mut running = ByModel::none(state);
        if !running.devices.is_empty() {
            let jobs: BTreeSet<JobId> = state.nodes.values().flat_map(|node| &node.jobs).copied().collect();
            jobs.iter().filter_map(|job| state.jobs.get(job)).for_each(|job| running.add_job(state, job));
        }
        running
    }

    /// How many of a model a tenant has.
    pub fn get(&self, tenant: &TenantId, model: &str) -> u64 {
        self.tenants.get(tenant).and_then(|models| models.get(model)).copied().unwrap_or_default()
    }

    /// Count what a job runs on.
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

    fn change(&mut self, state: &State, tenant: &TenantId, tasks: &[PlacedTask], to: fn(u64, u64) -> u64) {
        if self.devices.is_empty() {
            return;
        }
        for above in state.lineage(tenant) {
            for model in guaranteed_models(above) {
                let count = self.devices.count(state, tasks, model);
                let models = self.tenants.entry(above.id.clone()).or_default();
                let sum = models.entry(model.clone()).or_default();
                *sum = to(*sum, count);
            }
        }
    }
}

/// Every device of the cluster by what it calls itself, with the guaranteed models it is of. Nothing where nobody has
/// a guarantee per model.
#[derive(Debug, Clone, Default)]
struct Devices(Arc<BTreeMap<String, BTreeSet<String>>>);

impl Devices {
    /// As they are registered. O(kinds).
    fn of(state: &State) -> Devices {
        let guaranteed: BTreeSet<&String> = state.tenants.values().flat_map(guaranteed_models).collect();
        if guaranteed.is_empty() {
            return Devices::default();
        }
        let mut devices = BTreeMap::new();
        for device in state.capacity.kinds().flat_map(|(kind, _)| &kind.gpus).map(|gpu| &gpu.model) {
            let models = || guaranteed.iter().filter(|model| model::matches(model, device));
            let models = || models().map(|model| model.to_string()).collect();
            devices.entry(device.clone()).or_insert_with(models);
        }
        Devices(Arc::new(devices))
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn is_of(&self, device: &str, model: &str) -> bool {
        self.0.get(device).is_some_and(|models| models.contains(model))
    }

    /// What some tasks have of devices of a model, in thousandths.
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

    /// The guaranteed models that a wish can only be met by.
    ///
    /// A model is looked for in the wish as if the wish were a device: `H100` is in `H100-80GB`, so whatever meets the
    /// wish is an H100. The other way round says nothing: what meets `H100` need not have 80 GB. Wishes may be cut into
    /// other words than devices are, so the devices that meet one are asked as well.
    fn sole_models(&self, wish: &str) -> BTreeSet<String> {
        let met_by_others = |model: &str| {
            let mut others = self.0.keys().filter(|device| !self.is_of(device, model));
            others.any(|device| model::matches(wish, device))
        };
        let named: BTreeSet<&String> = self.0.values().flatten().collect();
        let named = named.into_iter().filter(|model| model::matches(model, wish));
        named.filter(|model| !met_by_others(model)).cloned().collect()
    }
}

/// The models of which a tenant is guaranteed any.
pub(crate) fn guaranteed_models(tenant: &Tenant) -> impl Iterator<Item = &String> {
    tenant.config.guaranteed_by_model.iter().filter(|(_, count)| **count > 0).map(|(model, _)| model)
}
