//! What tenants can count on, and what they borrow.
//!
//! A tenant may use more than it is guaranteed while nobody else needs it; that part is borrowed. A job that stays
//! within a guarantee of its tenant, or of one above, may have borrowed space back, whatever the priorities. And
//! nobody is displaced out of a guarantee but by a stronger job within the same one: else a strong borrower would
//! take back what a weak owner has just reclaimed, and so on for ever.
//!
//! There are guarantees of amounts, and of GPUs of one model. Each entitles by itself, and each shields by itself: what
//! was had back by the one is not lost to the other.

use std::collections::BTreeMap;

use crate::ids::TenantId;
use crate::job::{Demand, Job};
use crate::loss::lost_gpu_ms;
use crate::model_guarantee::{ByModel, ModelBooks, guaranteed_models};
use crate::state::State;
use crate::tenant::{Quota, Tenant};
use crate::time::Timestamp;

/// What of all that tenants hold will be gone soon, each with all below it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Leaving {
    now: Timestamp,
    gone: BTreeMap<TenantId, Demand>,
    gone_of_models: ByModel,
    /// Work that is lost by those who were added, beside what tenants have lost before.
    lost_gpu_ms: BTreeMap<TenantId, u64>,
}

impl Leaving {
    /// Attempts that were told to stop. O(running attempts); nothing where nobody has a guarantee.
    pub fn of(state: &State, now: Timestamp) -> Leaving {
        let mut leaving = Leaving { now, ..Leaving::default() };
        if anyone_is_guaranteed(state) {
            leaving.gone_of_models = ByModel::none(state);
            let active = state.nodes.values().flat_map(|node| &node.jobs).filter_map(|id| state.jobs.get(id));
            let stopping = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
            let stopping: BTreeMap<_, _> = active.filter(stopping).map(|job| (job.id, job)).collect();
            stopping.values().for_each(|job| leaving.count(state, job));
        }
        leaving
    }

    /// One more is displaced.
    pub fn add(&mut self, state: &State, job: &Job) {
        self.count(state, job);
        for tenant in state.lineage(&job.spec.tenant) {
            let lost = self.lost_gpu_ms.entry(tenant.id.clone()).or_default();
            *lost = lost.saturating_add(loss(job, self.now));
        }
    }

    fn count(&mut self, state: &State, job: &Job) {
        for tenant in state.lineage(&job.spec.tenant) {
            let gone = self.gone.entry(tenant.id.clone()).or_default();
            *gone = gone.plus(job.held());
        }
        self.gone_of_models.add_job(state, job);
    }

    /// Whether its tenant, and everyone above it, can bear the loss of a job.
    fn is_bearable(&self, state: &State, victim: &Job) -> bool {
        let lost = loss(victim, self.now);
        state.lineage(&victim.spec.tenant).all(|tenant| {
            let already = self.lost_gpu_ms.get(&tenant.id).copied().unwrap_or_default();
            let bears = |per_day: u64| {
                let before = tenant.damage.gpu_ms(per_day, self.now).saturating_add(already);
                before.saturating_add(lost) <= per_day
            };
            tenant.config.damage_gpu_ms_per_day.is_none_or(bears)
        })
    }

    /// Whether a job may go for another as far as guarantees and limits of damage are concerned. Everyone above it keeps what they are
    /// guaranteed, or gives back what was borrowed: whoever reclaims may have the job that lies across the line, or a
    /// gang as large as the cluster could never be asked to go. The guarantor of the other, and who is above that,
    /// loses nothing by it.
    pub fn allows(
        &self,
        state: &State,
        (victim, reclaimed): (&Job, bool),
        cover: &Cover,
        (runs, books): (impl Fn(&TenantId) -> Demand, &ModelBooks),
    ) -> bool {
        let demand = victim.held();
        let amounts = |tenant: &Tenant| {
            let guaranteed = &tenant.config.guaranteed;
            let gone = self.gone.get(&tenant.id).copied().unwrap_or_default();
            let before = runs(&tenant.id).less(gone);
            guaranteed.is_kept(before.less(demand), demand)
                || (reclaimed && !guaranteed.excess(before).is_empty())
        };
        self.is_bearable(state, victim)
            && state.lineage(&victim.spec.tenant).all(|tenant| {
                (cover.is_from_below(state, &tenant.id) || amounts(tenant))
                    && self.allows_by_model(state, (victim, reclaimed), tenant, (cover, books))
            })
    }

    /// The same for what one tenant is guaranteed of single models. Each model counts by itself: who has borrowed of
    /// one loses nothing of another.
    fn allows_by_model(
        &self,
        state: &State,
        (victim, reclaimed): (&Job, bool),
        tenant: &Tenant,
        (cover, books): (&Cover, &ModelBooks),
    ) -> bool {
        tenant.config.guaranteed_by_model.iter().all(|(model, guaranteed)| {
            let demand = books.held_by(state, victim, model);
            let gone = self.gone_of_models.get(&tenant.id, model);
            let before = books.runs(&tenant.id, model).saturating_sub(gone);
            let guaranteed = guaranteed.saturating_mul(1_000);
            demand == 0
                || guaranteed <= before.saturating_sub(demand)
                || (reclaimed && before > guaranteed)
                || cover.is_from_below_of(state, &tenant.id, model)
        })
    }
}

/// The guarantees that a waiting job stays within, each of its own tenant or of one above it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cover<'a> {
    /// The first tenant that is guaranteed the amounts.
    pub amounts: Option<&'a TenantId>,
    /// Every tenant that is guaranteed as many GPUs of a model that the job cannot but sit on, and the model.
    pub models: Vec<(&'a TenantId, &'a str)>,
}

impl Cover<'_> {
    /// Whether there is any.
    pub fn is_some(&self) -> bool {
        self.amounts.is_some() || !self.models.is_empty()
    }

    /// Whether a job sits on what may be had back: outside of those who are guaranteed it, and on at least one device of
    /// the model, where only that is guaranteed.
    pub fn reclaims(&self, state: &State, victim: &Job, books: &ModelBooks) -> bool {
        let outside = |by: &TenantId| !is_below(state, &victim.spec.tenant, by);
        let on_model =
            |(by, model): &(&TenantId, &str)| outside(by) && books.held_by(state, victim, model) > 0;
        self.amounts.is_some_and(outside) || self.models.iter().any(on_model)
    }

    /// Whether one of the guarantors is this tenant or below it: the tenant has the job instead of what goes for it.
    fn is_from_below(&self, state: &State, tenant: &TenantId) -> bool {
        let models = self.models.iter().map(|(by, _)| *by);
        self.amounts.into_iter().chain(models).any(|by| is_below(state, by, tenant))
    }

    /// The same for a guarantee of one model, where the job must be within that of the same model.
    fn is_from_below_of(&self, state: &State, tenant: &TenantId, model: &str) -> bool {
        self.models.iter().any(|(by, of)| *of == model && is_below(state, by, tenant))
    }
}

fn loss(job: &Job, now: Timestamp) -> u64 {
    job.attempt().map_or(0, |attempt| lost_gpu_ms(job, attempt, now))
}

/// Whether a tenant is another one, or below it.
pub(crate) fn is_below(state: &State, tenant: &TenantId, top: &TenantId) -> bool {
    state.lineage(tenant).any(|above| above.id == *top)
}

/// The tenant, itself or one above it, whose guarantee of amounts a demand stays within.
pub(crate) fn guarantor<'a>(
    state: &'a State,
    tenant: &TenantId,
    demand: Demand,
    held: impl Fn(&TenantId) -> Demand,
) -> Option<&'a TenantId> {
    let covers = |tenant: &&Tenant| {
        let guaranteed = &tenant.config.guaranteed;
        guaranteed.speaks_of(demand) && guaranteed.excess(held(&tenant.id).plus(demand)).is_empty()
    };
    state.lineage(tenant).find(covers).map(|tenant| &tenant.id)
}

/// Whether any tenant has a guarantee.
pub(crate) fn anyone_is_guaranteed(state: &State) -> bool {
    let any =
        |tenant: &Tenant| tenant.config.guaranteed.is_set() || guaranteed_models(tenant).next().is_some();
    state.tenants.values().any(any)
}

impl Quota {
    /// Whether it says anything.
    pub fn is_set(&self) -> bool {
        self.amounts(Demand::default()).iter().any(|(quota, _)| *quota > 0)
    }

    /// Whether it says anything about what is demanded. A guarantee of GPUs is none for a job without GPUs: such a
    /// job could reclaim, and be displaced again, without the guarantee ever being touched.
    fn speaks_of(&self, demand: Demand) -> bool {
        self.amounts(demand).iter().any(|(quota, demand)| *quota > 0 && *demand > 0)
    }

    /// Whether all of it that a job of this demand could take away is left.
    fn is_kept(&self, left: Demand, demand: Demand) -> bool {
        let amounts = self.amounts(left).into_iter().zip(self.amounts(demand));
        amounts.into_iter().all(|((quota, left), (_, demand))| demand == 0 || quota <= left)
    }

    /// What is guaranteed of each resource, none being nothing, beside what is held or demanded of it.
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
