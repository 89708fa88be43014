//! Guarantees and borrowing: which preemptors may reclaim capacity, and which jobs a guarantee protects.
//!
//! A tenant may use more than its guarantee while the capacity is idle; that part is borrowed. A job within a guarantee
//! of its tenant, or of an ancestor, reclaims borrowed capacity at any priority. A job within a guarantee is evicted
//! only for a stronger job (by priority, for example) within the same guarantee: otherwise a borrower of high priority
//! would take back what an owner of low priority has just reclaimed, in an endless cycle.
//!
//! There are guarantees of amounts and of GPUs of one model. Each entitles and protects by itself: capacity reclaimed
//! by one is not lost to the other.

use std::collections::BTreeMap;

use crate::accounting::preemption_loss::lost_gpu_ms;
use crate::accounting::tenant::Tenant;
use crate::ids::TenantId;
use crate::objects::demand::Demand;
use crate::objects::job::Job;
use crate::objects::tenant::Quota;
use crate::state::State;
use crate::state::usage::Usage;
use crate::state::usage::model_guarantee::{GpusByModel, ModelGuaranteeUsage, guaranteed_models};
use crate::time::Timestamp;

/// Usage that each tenant, with its descendants, releases once pending stops complete.
#[derive(Debug, Clone, Default)]
pub(crate) struct PendingReleases {
    now: Timestamp,
    released: BTreeMap<TenantId, Demand>,
    released_by_model: GpusByModel,
    /// Preemption loss of the added victims, beside what each tenant has lost before.
    lost_gpu_ms: BTreeMap<TenantId, u64>,
}

impl PendingReleases {
    /// Attempts that are stopping. O(running attempts); free of cost if no tenant has a guarantee.
    pub fn of(state: &State, now: Timestamp) -> PendingReleases {
        let mut pending = PendingReleases { now, ..PendingReleases::default() };
        if any_tenant_is_guaranteed(state) {
            pending.released_by_model = GpusByModel::none(state);
            let active = state.nodes.values().flat_map(|node| &node.jobs).filter_map(|id| state.jobs.get(id));
            let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
            let stopping: BTreeMap<_, _> = active.filter(stopping).map(|job| (job.id, job)).collect();
            stopping.values().for_each(|job| pending.count(state, job));
        }
        pending
    }

    /// Add a victim.
    pub fn add(&mut self, state: &State, job: &Job) {
        self.count(state, job);
        for tenant in state.lineage(&job.spec.tenant) {
            let lost = self.lost_gpu_ms.entry(tenant.id.clone()).or_default();
            *lost = lost.saturating_add(loss(job, self.now));
        }
    }

    fn count(&mut self, state: &State, job: &Job) {
        for tenant in state.lineage(&job.spec.tenant) {
            let released = self.released.entry(tenant.id.clone()).or_default();
            *released = released.plus(job.held());
        }
        self.released_by_model.add_job(state, job);
    }

    /// True if the loss of a victim is within the loss limits of its tenant and all ancestors.
    fn is_within_loss_limits(&self, state: &State, victim: &Job) -> bool {
        let lost = loss(victim, self.now);
        state.lineage(&victim.spec.tenant).all(|tenant| {
            let already = self.lost_gpu_ms.get(&tenant.id).copied().unwrap_or_default();
            let is_within = |per_day: u64| {
                let before = tenant.preemption_loss.gpu_ms(per_day, self.now).saturating_add(already);
                before.saturating_add(lost) <= per_day
            };
            tenant.config.preemption_loss_gpu_ms_per_day.is_none_or(is_within)
        })
    }

    /// True if guarantees and loss limits allow the eviction of a victim. Its tenant and every ancestor keep their
    /// guarantee, or return what they borrowed. A preemptor that reclaims may evict a victim that is partly within the
    /// guarantee: otherwise a gang as large as the cluster could never be evicted. The guarantor of the preemptor and
    /// the ancestors of the guarantor lose nothing: they get the preemptor instead of the victim.
    pub fn allows(&self, victim: &Job, reclaimed: bool, cover: &GuaranteeCover, usage: &Usage) -> bool {
        let (state, demand) = (usage.state, victim.held());
        let amounts = |tenant: &Tenant| {
            let guaranteed = &tenant.config.guaranteed;
            let released = self.released.get(&tenant.id).copied().unwrap_or_default();
            let before = usage.tenants.running(&tenant.id).less(released);
            guaranteed.is_kept(before.less(demand), demand) || (reclaimed && !guaranteed.excess(before).is_empty())
        };
        self.is_within_loss_limits(state, victim)
            && state.lineage(&victim.spec.tenant).all(|tenant| {
                (cover.is_from_below(state, &tenant.id) || amounts(tenant))
                    && self.allows_by_model(victim, reclaimed, tenant, cover, usage)
            })
    }

    /// The same for the guarantees per model of one tenant. Each model counts by itself: a tenant that borrows GPUs of
    /// one model loses nothing of another.
    fn allows_by_model(
        &self,
        victim: &Job,
        reclaimed: bool,
        tenant: &Tenant,
        cover: &GuaranteeCover,
        usage: &Usage,
    ) -> bool {
        let (state, by_model) = (usage.state, &usage.guaranteed);
        tenant.config.guaranteed_by_model.iter().all(|(model, guaranteed)| {
            let demand = by_model.held_by(state, victim, model);
            let released = self.released_by_model.get(&tenant.id, model);
            let before = by_model.runs(&tenant.id, model).saturating_sub(released);
            let guaranteed = guaranteed.saturating_mul(1_000);
            demand == 0
                || guaranteed <= before.saturating_sub(demand)
                || (reclaimed && before > guaranteed)
                || cover.is_from_below_of(state, &tenant.id, model)
        })
    }
}

/// The guarantees that a waiting job stays within, each of its tenant or of an ancestor.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuaranteeCover<'a> {
    /// The first tenant of the lineage whose guarantee of amounts covers the job.
    pub amounts: Option<&'a TenantId>,
    /// Tenants of the lineage whose guarantee per model covers the job, and the only model that the job accepts.
    pub models: Vec<(&'a TenantId, &'a str)>,
}

impl GuaranteeCover<'_> {
    /// True if any guarantee covers the job.
    pub fn is_some(&self) -> bool {
        self.amounts.is_some() || !self.models.is_empty()
    }

    /// True if a victim holds capacity that may be reclaimed: its tenant is not the guarantor or below it, and under a
    /// guarantee per model the victim holds a device of that model.
    pub fn reclaims(&self, state: &State, victim: &Job, usage: &ModelGuaranteeUsage) -> bool {
        let outside = |guarantor: &TenantId| !is_below(state, &victim.spec.tenant, guarantor);
        let on_model =
            |(guarantor, model): &(&TenantId, &str)| outside(guarantor) && usage.held_by(state, victim, model) > 0;
        self.amounts.is_some_and(outside) || self.models.iter().any(on_model)
    }

    /// True if a guarantor is this tenant or below it: the tenant gets the preemptor instead of the victim.
    fn is_from_below(&self, state: &State, tenant: &TenantId) -> bool {
        let models = self.models.iter().map(|(guarantor, _)| *guarantor);
        self.amounts.into_iter().chain(models).any(|guarantor| is_below(state, guarantor, tenant))
    }

    /// The same for a guarantee per model: the preemptor must be covered by a guarantee of the same model.
    fn is_from_below_of(&self, state: &State, tenant: &TenantId, model: &str) -> bool {
        self.models.iter().any(|(guarantor, covered)| *covered == model && is_below(state, guarantor, tenant))
    }
}

fn loss(job: &Job, now: Timestamp) -> u64 {
    job.attempt().map_or(0, |attempt| lost_gpu_ms(job, attempt, now))
}

/// True if a tenant is `top` or a descendant of it.
pub(crate) fn is_below(state: &State, tenant: &TenantId, top: &TenantId) -> bool {
    state.lineage(tenant).any(|ancestor| ancestor.id == *top)
}

/// The first tenant of the lineage whose guarantee of amounts covers a demand beside what is held.
pub(crate) fn guarantor<'a>(
    state: &'a State,
    tenant: &TenantId,
    demand: Demand,
    held: impl Fn(&TenantId) -> Demand,
) -> Option<&'a TenantId> {
    let covers = |tenant: &&Tenant| {
        let guaranteed = &tenant.config.guaranteed;
        guaranteed.covers_resource_of(demand) && guaranteed.excess(held(&tenant.id).plus(demand)).is_empty()
    };
    state.lineage(tenant).find(covers).map(|tenant| &tenant.id)
}

/// True if any tenant has a guarantee.
pub(crate) fn any_tenant_is_guaranteed(state: &State) -> bool {
    let any = |tenant: &Tenant| tenant.config.guaranteed.is_set() || guaranteed_models(tenant).next().is_some();
    state.tenants.values().any(any)
}

impl Quota {
    /// True if it sets any amount.
    pub fn is_set(&self) -> bool {
        self.amounts(Demand::default()).iter().any(|(quota, _)| *quota > 0)
    }

    /// True if it sets an amount of a demanded resource. A guarantee of GPUs does not cover a job without GPUs: such a
    /// job could reclaim and be evicted again without any change of the guarantee's usage.
    fn covers_resource_of(&self, demand: Demand) -> bool {
        self.amounts(demand).iter().any(|(quota, demand)| *quota > 0 && *demand > 0)
    }

    /// True if `left` still covers every amount that a victim of this demand reduces.
    fn is_kept(&self, left: Demand, demand: Demand) -> bool {
        let amounts = self.amounts(left).into_iter().zip(self.amounts(demand));
        amounts.into_iter().all(|((quota, left), (_, demand))| demand == 0 || quota <= left)
    }

    /// The guaranteed amount of each resource, 0 if unset, beside the held or demanded amount.
    fn amounts(&self, other: Demand) -> [(u64, u64); 5] {
        [
            (self.gpus.unwrap_or(0).saturating_mul(1_000), other.gpu_milli),
            (self.gpu_memory_mib.unwrap_or(0), other.gpu_memory_mib),
            (self.cpus.unwrap_or(0), other.cpus),
            (self.memory_mib.unwrap_or(0), other.memory_mib),
            (self.jobs.unwrap_or(0), other.jobs),
        ]
    }
}
