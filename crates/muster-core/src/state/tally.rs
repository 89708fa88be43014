//! What a plan has taken while it is adopted gang by gang.

use std::collections::{BTreeMap, BTreeSet};

use crate::budget::BudgetUse;
use crate::capacity::Free;
use crate::guarantee::Leaving;
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Demand, Job, PlacedTask};
use crate::limits::LimitUse;
use crate::model_guarantee::ModelBooks;
use crate::models::ModelUse;
use crate::plan::MakeRoom;
use crate::state::State;
use crate::time::Timestamp;
use crate::users::UserUse;

/// What one plan has taken so far.
pub(super) struct Tally<'a> {
    pub jobs: BTreeSet<JobId>,
    pub used: BTreeMap<NodeId, Free>,
    /// What tenants hold with all below them, this plan included.
    pub held: BTreeMap<TenantId, Demand>,
    /// The part of it that is not only claimed.
    pub runs: BTreeMap<TenantId, Demand>,
    pub arrays: BTreeMap<u64, u32>,
    /// What tenants will hold less when all have stopped who were told to.
    pub fewer: Leaving,
    /// What claims of the state hold on each node, and for whom.
    pub claimed: BTreeMap<NodeId, Vec<(JobId, Free)>>,
    /// GPUs of limited models, this plan included.
    pub models: ModelUse<'a>,
    /// GPUs of guaranteed models, this plan included, and what is claimed for jobs that wait.
    pub guaranteed: ModelBooks,
    /// Jobs whose claim is counted there.
    claimants: BTreeSet<JobId>,
    /// What users with limits hold, this plan included.
    pub users: UserUse<'a>,
    /// Limits of policies, with what is held of limited pools, this plan included.
    pub limits: LimitUse<'a>,
    /// What budgets are checked against.
    pub budgets: BudgetUse,
}

impl<'a> Tally<'a> {
    /// Nothing taken yet.
    pub fn of(state: &'a State, now: Timestamp) -> Tally<'a> {
        let mut tally = Tally {
            jobs: BTreeSet::new(),
            used: BTreeMap::new(),
            held: BTreeMap::new(),
            runs: BTreeMap::new(),
            arrays: BTreeMap::new(),
            fewer: Leaving::of(state, now),
            claimed: state.claimed(),
            models: ModelUse::of(state),
            guaranteed: ModelBooks::of(state),
            claimants: BTreeSet::new(),
            users: UserUse::of(state),
            limits: LimitUse::of(state),
            budgets: BudgetUse::of(state, now),
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
        for (job, claim) in claims.filter(|(job, claim)| job.is_ready() && state.claim_works(job, claim, now))
        {
            self.guaranteed.take(state, &job.spec.tenant, &claim.tasks);
            self.claimants.insert(job.id);
        }
    }

    /// What is held on a node for jobs that wait, except for one. Whoever this plan has started no longer needs its
    /// claim: what it uses is in the tally.
    pub fn claimed_by_others(&self, node: &NodeId, job: JobId) -> Free {
        let here = self.claimed.get(node).into_iter().flatten();
        let others = here.filter(|(id, _)| *id != job && !self.jobs.contains(id));
        others.fold(Free::default(), |sum, (_, space)| sum.with(*space))
    }

    /// A gang starts.
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
    pub fn claim(&mut self, state: &State, job: &Job, room: &MakeRoom) {
        self.use_up(job, &room.tasks);
        self.count(state, job, &room.tasks);
    }

    fn use_up(&mut self, job: &Job, tasks: &[PlacedTask]) {
        for task in tasks {
            let used = self.used.entry(task.node.clone()).or_default();
            *used = used.with(Free::used_by(&job.spec, task));
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
