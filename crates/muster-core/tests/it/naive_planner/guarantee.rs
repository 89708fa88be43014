//! Guarantees: which jobs they cover, and which evictions they forbid.

use muster_core::TenantId;
use muster_core::accounting::tenant::Tenant;
use muster_core::objects::demand::Demand;
use muster_core::objects::job::Job;

use crate::naive_planner::{EvictionMode, NaivePlanner};
use crate::recompute::{
    demand_of, guarantee_holds, guarantor, held_below, held_by, is_below, model_guarantee_holds, model_guarantors,
    model_milli, running_model_milli,
};

impl<'a> NaivePlanner<'a> {
    /// The usage of a tenant without claims: running jobs and starts of this plan.
    pub(super) fn running_usage(&self, top: &TenantId) -> Demand {
        let started = self.starts.iter().map(|(job, tasks)| (&self.state.jobs[job], tasks));
        let more = started.filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
        more.fold(held_below(self.state, top), |sum, (job, tasks)| sum.plus(demand_of(job, tasks)))
    }

    pub(super) fn guarantor(&self, job: &Job) -> Option<&'a Tenant> {
        guarantor(self.state, job, |tenant| self.usage(tenant))
            .filter(|_| matches!(self.mode, EvictionMode::ByPriority))
    }

    /// Tenants whose model guarantee covers the job beside their usage, each with the model.
    pub(super) fn model_guarantors(&self, job: &Job) -> Vec<(&'a TenantId, &'a str)> {
        if !matches!(self.mode, EvictionMode::ByPriority) {
            return Vec::new();
        }
        model_guarantors(self.state, job, |top, model| {
            let more = self.planned_tasks.iter().filter(|(job, _)| is_below(self.state, &job.spec.tenant, top));
            let more: u64 = more.map(|(_, tasks)| model_milli(self.state, tasks, model)).sum();
            running_model_milli(self.state, top, model) + more
        })
    }

    pub(super) fn is_guaranteed(&self, job: &Job) -> bool {
        self.guarantor(job).is_some() || !self.model_guarantors(job).is_empty()
    }

    /// True if the eviction of `victim` for `by`, after that of `with`, violates no guarantee. `reclaimed` marks
    /// borrowed capacity.
    pub(super) fn guarantees_hold(&self, (victim, reclaimed): (&Job, bool), with: &[&Job], by: &Job) -> bool {
        let stopping = |job: &Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
        let leaves = |job: &Job| {
            stopping(job)
                || self.evicted.contains(&job.id)
                || job.id == victim.id
                || with.iter().any(|other| other.id == job.id)
        };
        let released = |tenant: &Tenant| {
            let released = self.state.jobs.values().filter(|job| job.attempt().is_some() && leaves(job));
            let released = released.filter(|job| is_below(self.state, &job.spec.tenant, &tenant.id));
            released.collect::<Vec<&Job>>()
        };
        let amounts_hold = |tenant: &Tenant| {
            let released = released(tenant).iter().fold(Demand::default(), |sum, job| sum.plus(held_by(job)));
            guarantee_holds(tenant, self.running_usage(&tenant.id).less(released), (victim, reclaimed))
        };
        let of = |job: &Job, model: &str| model_milli(self.state, &job.attempt().unwrap().tasks, model);
        let model_holds = |tenant: &Tenant, model: &str, guaranteed: u64| {
            let released: u64 = released(tenant).iter().map(|job| of(job, model)).sum();
            let started = self.starts.iter().map(|(job, tasks)| (&self.state.jobs[job], tasks));
            let started = started.filter(|(job, _)| is_below(self.state, &job.spec.tenant, &tenant.id));
            let started: u64 = started.map(|(_, tasks)| model_milli(self.state, tasks, model)).sum();
            let left = running_model_milli(self.state, &tenant.id, model) + started - released;
            model_guarantee_holds(guaranteed, left, (of(victim, model), reclaimed))
        };
        let (guarantor, by_model) = (self.guarantor(by), self.model_guarantors(by));
        let is_own = |one: &Tenant| {
            guarantor.is_some_and(|by| is_below(self.state, &by.id, &one.id))
                || by_model.iter().any(|(by, _)| is_below(self.state, by, &one.id))
        };
        let is_own_model = |one: &Tenant, model: &str| {
            by_model.iter().any(|(by, of)| *of == model && is_below(self.state, by, &one.id))
        };
        self.state.lineage(&victim.spec.tenant).all(|one| {
            let mut models = one.config.guaranteed_by_model.iter();
            (is_own(one) || amounts_hold(one))
                && models.all(|(of, count)| is_own_model(one, of) || model_holds(one, of, *count))
        })
    }
}
