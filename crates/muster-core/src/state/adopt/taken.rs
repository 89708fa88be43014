//! Space and usage that a plan has taken so far, while adoption checks it part by part (step 8).

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::plan::Eviction;
use crate::ids::{JobId, NodeId};
use crate::objects::job::{Job, PlacedTask};
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::gang::HeldPorts;
use crate::state::usage::guarantee::PendingReleases;
use crate::state::usage::{Consumer, Usage};
use crate::time::Timestamp;

/// Space, usage and jobs that one plan has taken so far.
pub(super) struct Taken<'a> {
    /// Jobs that the plan starts, claims for or evicts.
    pub jobs: BTreeSet<JobId>,
    space: BTreeMap<NodeId, ResourceVec>,
    pub usage: Usage<'a>,
    /// Ports that the plan gives to gangs.
    pub master_ports: HeldPorts,
    /// What tenants release once every pending stop completes.
    pub pending: PendingReleases,
    /// What claims of the state hold on each node, and for which job.
    claimed: BTreeMap<NodeId, Vec<(JobId, ResourceVec)>>,
    /// Jobs whose claim is counted against the guarantees per model.
    claimants: BTreeSet<JobId>,
}

impl<'a> Taken<'a> {
    pub fn of(state: &'a State, now: Timestamp) -> Taken<'a> {
        let mut taken = Taken {
            jobs: BTreeSet::new(),
            space: BTreeMap::new(),
            usage: Usage::of(state, now),
            master_ports: HeldPorts::new(),
            pending: PendingReleases::of(state, now),
            claimed: state.claimed_space(),
            claimants: BTreeSet::new(),
        };
        if !taken.usage.guaranteed.is_empty() {
            taken.count_claims(state, now);
        }
        taken
    }

    /// The devices of usable claims count against guarantees per model, as they do for the planner.
    fn count_claims(&mut self, state: &State, now: Timestamp) {
        let claims = state.claims.iter().filter_map(|(id, claim)| Some((state.jobs.get(id)?, claim)));
        let usable = claims.filter(|(job, claim)| job.is_ready() && state.is_claim_usable(job, claim, now));
        for (job, claim) in usable {
            self.usage.guaranteed.take(state, &job.spec.tenant, &claim.tasks);
            self.claimants.insert(job.id);
        }
    }

    /// What the plan has used on a node.
    pub fn space_on(&self, node: &NodeId) -> ResourceVec {
        self.space.get(node).copied().unwrap_or_default()
    }

    /// What claims hold on a node for jobs other than `job`. The claim of a job that this plan starts does not count:
    /// what the job uses is in `space`.
    pub fn claimed_by_others(&self, node: &NodeId, job: JobId) -> ResourceVec {
        let claims = self.claimed.get(node).into_iter().flatten();
        let others = claims.filter(|(id, _)| *id != job && !self.jobs.contains(id));
        others.fold(ResourceVec::default(), |sum, (_, space)| sum.plus(*space))
    }

    /// Count a gang that starts.
    pub fn start(&mut self, state: &State, job: &Job, tasks: &[PlacedTask]) {
        self.hold(job, tasks);
        self.usage.run(&job.spec.tenant, job.spec.demand_of(tasks), tasks);
        if let Some(claim) = state.claims.get(&job.id).filter(|_| self.claimants.remove(&job.id)) {
            self.usage.guaranteed.give_back(state, &job.spec.tenant, &claim.tasks);
        }
    }

    /// Count a gang that gets a claim on the space that its victims release.
    pub fn claim(&mut self, state: &State, job: &Job, eviction: &Eviction, victims: &[&Job]) {
        self.jobs.extend(eviction.victims.iter().copied());
        victims.iter().for_each(|victim| self.pending.add(state, victim));
        self.hold(job, &eviction.tasks);
    }

    fn hold(&mut self, job: &Job, tasks: &[PlacedTask]) {
        for task in tasks {
            let space = self.space.entry(task.node.clone()).or_default();
            *space = space.plus(ResourceVec::used_by(&job.spec, task));
        }
        self.jobs.insert(job.id);
        self.usage.take_models(&job.spec.tenant, tasks);
        self.usage.hold(Consumer::of_job(job), job.spec.demand_of(tasks), tasks);
    }
}
