//! The draft of a planning round: what would be free, held and waiting if the plan so far were adopted.
//!
//! Within a round (step 7) free space only shrinks and held quota only grows. So a shape without a placement stays
//! without one, and a blocked bucket stays blocked.

mod caches;
mod candidates;
pub(crate) mod claims;
mod placement;
mod preemption_options;
mod releasing;
mod reserved_space;
mod space;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::{Certainty, ExpectedEnd};
use crate::facts::plan::{Eviction, Plan, Repartitioning, Start};
use crate::facts::verdict::Reason;
use crate::ids::{JobId, NodeId};
use crate::objects::demand::Demand;
use crate::objects::job::JobSpec;
use crate::planner::fair_share::{HypotheticalJob, TenantShares};
use crate::planner::order::{QueueHead, RankContext};
use crate::planner::policy_score::ClusterSummary;
use crate::planner::request::{QuotaLeft, Request};
use crate::queue::{Bucket, QueueKey};
use crate::resources::ResourceVec;
use crate::state::State;
use crate::state::usage::Consumer;
use crate::state::usage::guarantee::PendingReleases;
use crate::time::Timestamp;

pub(crate) use caches::Caches;
pub(crate) use candidates::{Candidate, Candidates, NodeCandidates, PreemptionReach, overdrawn};
pub(crate) use placement::Placement;
pub(crate) use preemption_options::{EvictionOption, EvictionOptions};
pub(crate) use reserved_space::{NodeNeed, Reservation, ReservationOwner, Reservations};
pub(crate) use space::{Space, StartedGang};

/// The scratch state of a round: the cluster as if the plan so far were adopted.
pub(crate) struct Draft<'a> {
    pub state: &'a State,
    pub now: Timestamp,
    /// A job that is not in the state.
    pub hypothetical: Option<(JobId, &'a JobSpec)>,
    /// Values of the whole cluster that policy rules read.
    pub cluster_summary: ClusterSummary,
    /// Policies distinguish nodes of one kind with equal free space.
    pub distinguishes_nodes: bool,
    /// Policies answer for single victims, so a result for one preemptor does not hold for another.
    pub distinguishes_victims: bool,
    pub space: Space,
    pub shares: TenantShares<'a>,
    pub reservations: Reservations,
    pub caches: Caches,
    pub output: Output<'a>,
}

/// The decisions of a round.
#[derive(Default)]
pub(crate) struct Output<'a> {
    pub plan: Plan,
    /// Heads of the buckets that stay blocked.
    pub blocked: Vec<QueueHead<'a>>,
    /// Jobs with a usable claim: they start on it or wait for it, and are not part of the order.
    claimants: BTreeSet<JobId>,
    /// Repartitionings that would help, applied by the plan or not.
    pub repartitionings: Vec<Repartitioning>,
    /// Reasons of single jobs that differ from those of their bucket.
    pub reasons: BTreeMap<JobId, Vec<Reason>>,
}

impl<'a> Draft<'a> {
    /// An empty draft. The owner of a hypothetical job has a fair share although the job is not in the state.
    pub fn new(state: &'a State, now: Timestamp, hypothetical: Option<&HypotheticalJob<'_>>) -> Draft<'a> {
        let plan = Plan { snapshot: state.seq, now, ..Plan::default() };
        let mut draft = Draft {
            state,
            now,
            hypothetical: None,
            cluster_summary: ClusterSummary::of(state),
            distinguishes_nodes: state.policies_distinguish_nodes(),
            distinguishes_victims: state.policies_distinguish_victims(),
            space: Space::of(state),
            shares: TenantShares::of(state, now, hypothetical),
            reservations: Reservations::of_windows(state),
            caches: Caches::default(),
            output: Output { plan, ..Output::default() },
        };
        claims::earmark_all(&mut draft);
        draft
    }

    /// The request of the jobs of a bucket, computed once per shape, without the kinds of nodes that limits of the
    /// tenant exclude.
    pub fn request(&mut self, bucket: &Bucket) -> Arc<Request> {
        let request = match self.caches.requests.get(&bucket.shape) {
            Some(request) => request.clone(),
            None => {
                let request = Arc::new(Request::new(&self.space.resources, &bucket.shape));
                self.caches.requests.insert(bucket.shape.clone(), request.clone());
                request
            }
        };
        self.within_limits(bucket, request)
    }

    /// A request without the devices on which the job would exceed a limit that depends on the device.
    pub fn within_limits(&self, bucket: &Bucket, request: Arc<Request>) -> Arc<Request> {
        let models = &self.shares.usage.models;
        let by_model = models.limits(&bucket.tenant);
        let left = if request.may_hold_instances { self.quota_left(bucket) } else { QuotaLeft::UNLIMITED };
        let request = match request.may_hold_instances && (by_model || left != QuotaLeft::UNLIMITED) {
            true => Arc::new(request.with_instances_within(left, models, &bucket.tenant)),
            false => request,
        };
        if by_model { Arc::new(request.within_model_limits(models, &bucket.tenant)) } else { request }
    }

    /// The request of the jobs of a bucket, without regard to limits. `None` before the first request of that shape.
    pub fn unlimited_request(&self, bucket: &Bucket) -> Option<Arc<Request>> {
        self.caches.requests.get(&bucket.shape).cloned()
    }

    /// GPU capacity that the quotas of a bucket's tenant and user, and policy limits, leave.
    fn quota_left(&self, bucket: &Bucket) -> QuotaLeft {
        let usage = &self.shares.usage;
        let by_policy = usage.policy_limit_left_milli(&bucket.tenant, bucket.shape.pool.as_deref());
        let mut left = QuotaLeft { gpu_milli: by_policy, ..QuotaLeft::UNLIMITED };
        for (quota, held) in usage.quotas(&bucket.tenant, &bucket.user) {
            let gpu_milli = quota.gpus.map(|gpus| (gpus * 1_000).saturating_sub(held.gpu_milli));
            let memory = quota.gpu_memory_mib.map(|mib| mib.saturating_sub(held.gpu_memory_mib));
            left.gpu_milli = left.gpu_milli.min(gpu_milli.unwrap_or(u64::MAX));
            left.gpu_memory_mib = left.gpu_memory_mib.min(memory.unwrap_or(u64::MAX));
        }
        left
    }

    /// True if a limit of the tenant or user decides which devices the jobs of a bucket may use, so that a result for
    /// them does not hold for other tenants: a limit per GPU model, or a quota where MIG instances are eligible.
    pub fn limits_devices(&self, bucket: &Bucket) -> bool {
        let request = self.caches.requests.get(&bucket.shape);
        let instances = || request.is_some_and(|request| request.may_hold_instances);
        self.shares.usage.models.limits(&bucket.tenant)
            || (instances() && self.quota_left(bucket) != QuotaLeft::UNLIMITED)
    }

    /// The expected end of a job of a bucket if it started now.
    pub fn expected_end(&self, bucket: &Bucket, job: JobId) -> ExpectedEnd {
        let runtime_ms = bucket.limit_ms.unwrap_or_else(|| self.backfill_ms(bucket));
        let at = self.now.plus(runtime_ms).plus(self.state.settings.stop_grace_ms);
        let open = (0..).zip(self.state.windows.values());
        let open = open.filter(|(_, window)| window.is_open_to(self.state, &bucket.tenant));
        let windows = open.fold(0u64, |bits, (index, _): (u32, _)| bits | 1 << index);
        let certainty = match bucket.limit_ms {
            Some(_) => Certainty::Bound,
            None if self.state.may_backfill_revocably(&bucket.tenant, job) => Certainty::Revocable,
            None => Certainty::Estimate,
        };
        let yields = self.spec(job).is_some_and(|spec| self.state.yields(spec, job, self.now));
        let needs_master_port = self.needs_master_port(job);
        ExpectedEnd { at, certainty, yields, windows, needs_master_port }
    }

    /// No expected end, so that the job stays clear of every reservation.
    pub fn never_ending(&self, job: JobId) -> ExpectedEnd {
        ExpectedEnd { needs_master_port: self.needs_master_port(job), ..ExpectedEnd::NEVER }
    }

    fn needs_master_port(&self, job: JobId) -> bool {
        self.spec(job).is_some_and(JobSpec::is_gang)
    }

    /// The runtime on which jobs of a bucket without a time limit backfill.
    fn backfill_ms(&self, bucket: &Bucket) -> i64 {
        self.state.runtime_model(&bucket.tenant, &bucket.user).backfill_ms()
    }

    /// True if a job of the same bucket is blocked already. Only a hypothetical job can follow such a job.
    pub fn is_blocked(&self, head: &QueueHead) -> bool {
        let is_hypothetical = self.hypothetical.is_some_and(|(job, _)| job == head.job);
        is_hypothetical && self.output.blocked.iter().any(|other| other.bucket == head.bucket)
    }

    /// The part of a node's free space that a job with this expected end may use without delaying a reservation.
    pub fn usable(&self, node: &NodeId, free: ResourceVec, end: ExpectedEnd) -> Option<ResourceVec> {
        self.reservations.usable(node, free, end, None)
    }

    /// True if the shape is known to have no placement with such an expected end.
    pub fn has_no_fit(&self, bucket: &Bucket, end: ExpectedEnd) -> bool {
        let no_fit = self.caches.no_fit.get(&bucket.shape);
        !self.limits_devices(bucket) && no_fit.is_some_and(|known| end.is_blocked_wherever(*known))
    }

    pub fn note_no_fit(&mut self, bucket: &Bucket, end: ExpectedEnd) {
        if !self.limits_devices(bucket) {
            let known = self.caches.no_fit.entry(bucket.shape.clone()).or_insert(end);
            if known.is_blocked_wherever(end) {
                *known = end;
            }
        }
    }

    /// The effective priority of a job with the fair shares of the draft.
    pub fn effective_priority(&self, bucket: &Bucket, key: QueueKey) -> i64 {
        RankContext { state: self.state, now: self.now }.effective_priority_of(&self.shares, bucket, key)
    }

    /// Start a gang. `effective_priority` is its effective priority in the queue order.
    pub fn start(
        &mut self,
        bucket: &Bucket,
        job: JobId,
        effective_priority: i64,
        request: &Request,
        placement: &Placement,
    ) {
        let demand = self.demand(request, placement);
        self.shares.hold(Consumer::of_bucket(bucket), demand, &placement.tasks);
        self.run(bucket, demand, placement);
        let (end, taken) = (self.expected_end(bucket, job), placement.taken(request));
        let revocable = self.is_revocable(end, &taken);
        for (node, taken) in &taken {
            self.space.take(node, *taken);
            self.reservations.take(node, *taken, end);
        }
        if let Some(first) = placement.tasks.first().filter(|_| end.needs_master_port) {
            self.reservations.take_master_port(&first.node, self.state.master_ports_left(&first.node));
        }
        self.space.started.insert(job, StartedGang { end: end.at, taken });
        self.output.plan.starts.push(Start {
            job,
            tasks: placement.tasks.clone(),
            effective_priority: Some(effective_priority),
            expected_ms: bucket.limit_ms.is_none().then(|| self.backfill_ms(bucket)),
            revocable,
            score: placement.score.clone(),
        });
    }

    fn run(&mut self, bucket: &Bucket, demand: Demand, placement: &Placement) {
        self.shares.usage.run(&bucket.tenant, demand, &placement.tasks);
        self.shares.usage.take_models(&bucket.tenant, &placement.tasks);
    }

    /// True if the gang backfills into space that is reserved for other jobs, which may preempt it if it overruns.
    fn is_revocable(&self, end: ExpectedEnd, taken: &BTreeMap<NodeId, ResourceVec>) -> bool {
        let is_free = |(node, taken): (&NodeId, &ResourceVec)| {
            let free = self.space.free_on(node);
            let usable = free.and_then(|free| self.usable(node, free, end.never_revocable()));
            usable.is_some_and(|usable| usable.covers(*taken))
        };
        end.certainty == Certainty::Revocable && !self.reservations.is_empty() && !taken.iter().all(is_free)
    }

    /// The quota that a gang takes from its tenant in a placement.
    pub fn demand(&self, request: &Request, placement: &Placement) -> Demand {
        let milliwatts = self.state.milliwatts_of(&placement.tasks);
        let groups = &request.shape.groups;
        let each = placement.tasks.iter().map(|task| groups[task.group as usize].1.demand_in(task));
        each.fold(Demand { jobs: 1, milliwatts, ..Demand::default() }, Demand::plus)
    }

    /// Add tasks to a gang that this round starts.
    pub fn extend_start(&mut self, bucket: &Bucket, job: JobId, request: &Request, more: &Placement) {
        let demand = Demand { jobs: 0, ..self.demand(request, more) };
        self.shares.hold(Consumer { array: None, ..Consumer::of_bucket(bucket) }, demand, &more.tasks);
        self.run(bucket, demand, more);
        let end = self.expected_end(bucket, job);
        for (node, taken) in more.taken(request) {
            self.space.take(&node, taken);
            self.reservations.take(&node, taken, end);
            if let Some(started) = self.space.started.get_mut(&job) {
                let sum = started.taken.entry(node).or_default();
                *sum = sum.plus(taken);
            }
        }
    }

    /// The spec of a job of the state, or of the hypothetical job.
    pub fn spec(&self, job: JobId) -> Option<&'a JobSpec> {
        let hypothetical = self.hypothetical.filter(|(id, _)| *id == job).map(|(_, spec)| spec);
        hypothetical.or_else(|| Some(&*self.state.jobs.get(&job)?.spec))
    }

    /// Propose an eviction. The demand of the preemptor counts as held from now on.
    pub fn propose_eviction(&mut self, bucket: &Bucket, request: &Request, placement: &Placement, eviction: Eviction) {
        let demand = self.demand(request, placement);
        self.shares.hold(Consumer::of_bucket(bucket), demand, &placement.tasks);
        self.shares.usage.take_models(&bucket.tenant, &placement.tasks);
        let reason = Reason::Claimed { victims: eviction.victims.clone() };
        self.output.reasons.insert(eviction.job, vec![reason]);
        self.output.plan.evictions.push(eviction);
    }

    pub fn is_claimant(&self, job: JobId) -> bool {
        self.output.claimants.contains(&job)
    }

    pub fn note_claimant(&mut self, job: JobId) {
        self.output.claimants.insert(job);
    }

    pub fn note_blocked(&mut self, head: QueueHead<'a>) {
        self.output.blocked.push(head);
    }

    /// Running jobs by node. Built once, and only when a job may preempt.
    pub fn candidates(&mut self) -> &mut Candidates {
        let (state, now) = (self.state, self.now);
        self.caches.candidates.get_or_insert_with(|| Candidates::of(state, now))
    }

    /// Usage that each tenant releases once pending stops complete.
    pub fn pending_releases(&self) -> PendingReleases {
        self.caches.candidates.as_ref().map(|candidates| candidates.pending.clone()).unwrap_or_default()
    }

    /// Eviction options of an earlier head of the same shape; `None` if limits of the tenant decide about devices.
    pub fn take_eviction_options(&mut self, bucket: &Bucket) -> Option<EvictionOptions> {
        if self.limits_devices(bucket) { None } else { self.caches.eviction_options.remove(&bucket.shape) }
    }

    /// Keep eviction options for the next head of the same shape.
    pub fn put_eviction_options(&mut self, bucket: &Bucket, options: Option<EvictionOptions>) {
        if let Some(options) = options.filter(|_| !self.limits_devices(bucket)) {
            self.caches.eviction_options.insert(bucket.shape.clone(), options);
        }
    }
}
