//! What a plan has taken while it is adopted gang by gang.

pub(crate) mod budgets;
pub(crate) mod guarantee;
pub(crate) mod model_guarantee;
pub(crate) mod model_limits;
pub(crate) mod policy_limits;
pub(crate) mod user_limits;

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::plan::Eviction;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::demand::Demand;
use crate::objects::job::{Job, PlacedTask};
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::budgets::BudgetUsage;
use crate::state::usage::guarantee::PendingReleases;
use crate::state::usage::model_guarantee::ModelGuaranteeUsage;
use crate::state::usage::model_limits::ModelLimitUsage;
use crate::state::usage::policy_limits::PolicyLimitUsage;
use crate::state::usage::user_limits::UserLimitUsage;
use crate::time::Timestamp;

/// What one plan has taken so far.
pub(super) struct AdoptionUsage<'a> {
    pub jobs: BTreeSet<JobId>,
    pub used: BTreeMap<NodeId, ResourceVec>,
    /// What tenants hold with all below them, this plan included.
    pub held: BTreeMap<TenantId, Demand>,
    /// The part of it that is not only claimed.
    pub runs: BTreeMap<TenantId, Demand>,
    pub arrays: BTreeMap<u64, u32>,
    /// What tenants will hold less when all have stopped who were told to.
    pub pending: PendingReleases,
    /// What claims of the state hold on each node, and for whom.
    pub claimed: BTreeMap<NodeId, Vec<(JobId, ResourceVec)>>,
    /// GPUs of limited models, this plan included.
    pub models: ModelLimitUsage<'a>,
    /// GPUs of guaranteed models, this plan included, and what is claimed for jobs that wait.
    pub guaranteed: ModelGuaranteeUsage,
    /// Jobs whose claim is counted there.
    claimants: BTreeSet<JobId>,
    /// What users with limits hold, this plan included.
    pub users: UserLimitUsage<'a>,
    /// Limits of policies, with what is held of limited pools, this plan included.
    pub limits: PolicyLimitUsage<'a>,
    /// What budgets are checked against.
    pub budgets: BudgetUsage,
}

impl<'a> AdoptionUsage<'a> {
    pub fn of(state: &'a State, now: Timestamp) -> AdoptionUsage<'a> {
        let mut tally = AdoptionUsage {
            jobs: BTreeSet::new(),
            used: BTreeMap::new(),
            held: BTreeMap::new(),
            runs: BTreeMap::new(),
            arrays: BTreeMap::new(),
            pending: PendingReleases::of(state, now),
            claimed: state.claimed_space(),
            models: ModelLimitUsage::of(state),
            guaranteed: ModelGuaranteeUsage::of(state),
            claimants: BTreeSet::new(),
            users: UserLimitUsage::of(state),
            limits: PolicyLimitUsage::of(state),
            budgets: BudgetUsage::of(state, now),
        };
        for tenant in state.tenants.values() {
            add(&mut tally.held, state, &tenant.id, tenant.held);
            add(&mut tally.runs, state, &tenant.id, tenant.held);
        }
        if !tally.guaranteed.is_empty() {
            tally.count_claims(state, now);
        }
        tally
    }

    /// The devices of claims that work count for guarantees per model, as they do for the planner.
    fn count_claims(&mut self, state: &State, now: Timestamp) {
        let claims = state.claims.iter().filter_map(|(id, claim)| Some((state.jobs.get(id)?, claim)));
        for (job, claim) in
            claims.filter(|(job, claim)| job.is_ready() && state.is_claim_usable(job, claim, now))
        {
            self.guaranteed.take(state, &job.spec.tenant, &claim.tasks);
            self.claimants.insert(job.id);
        }
    }

    /// What is held on a node for jobs that wait, except for one. Whoever this plan has started no longer needs its
    /// claim: what it uses is in the tally.
    pub fn claimed_by_others(&self, node: &NodeId, job: JobId) -> ResourceVec {
        let here = self.claimed.get(node).into_iter().flatten();
        let others = here.filter(|(id, _)| *id != job && !self.jobs.contains(id));
        others.fold(ResourceVec::default(), |sum, (_, space)| sum.plus(*space))
    }

    pub fn take(&mut self, state: &State, job: &Job, tasks: &[PlacedTask]) {
        self.use_up(job, tasks);
        add(&mut self.runs, state, &job.spec.tenant, job.spec.demand_of(tasks));
        self.guaranteed.start(state, &job.spec.tenant, tasks);
        if let Some(claim) = state.claims.get(&job.id).filter(|_| self.claimants.remove(&job.id)) {
            self.guaranteed.give_back(state, &job.spec.tenant, &claim.tasks);
        }
        self.count(state, job, tasks);
    }

    /// Count a job against its tenant, all above it, its user and its array; a claim holds them as a start does.
    fn count(&mut self, state: &State, job: &Job, tasks: &[PlacedTask]) {
        let demand = job.spec.demand_of(tasks);
        self.jobs.insert(job.id);
        add(&mut self.held, state, &job.spec.tenant, demand);
        self.guaranteed.take(state, &job.spec.tenant, tasks);
        self.users.take(&job.spec.tenant, &job.spec.user, demand);
        self.limits.take(&job.spec.tenant, job.spec.pool.as_deref(), demand.gpu_milli);
        if job.id.index.is_some() {
            *self.arrays.entry(job.id.number).or_default() += 1;
        }
    }

    /// Room is made for a gang.
    pub fn claim(&mut self, state: &State, job: &Job, room: &Eviction) {
        self.use_up(job, &room.tasks);
        self.count(state, job, &room.tasks);
    }

    fn use_up(&mut self, job: &Job, tasks: &[PlacedTask]) {
        for task in tasks {
            let used = self.used.entry(task.node.clone()).or_default();
            *used = used.plus(ResourceVec::used_by(&job.spec, task));
            self.models.take(&job.spec.tenant, task);
        }
    }
}

/// Add to what a tenant and all above it hold.
fn add(sums: &mut BTreeMap<TenantId, Demand>, state: &State, tenant: &TenantId, more: Demand) {
    for above in state.lineage(tenant) {
        let sum = sums.entry(above.id.clone()).or_default();
        *sum = sum.plus(more);
    }
}
