//! The scratch paper of a round: what would be free, held and set aside if the plan so far came true.
//!
//! Within a round free space only shrinks and held quota only grows. So a shape that found no room once finds
//! none later, and a bucket that was blocked once stays blocked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::estimate::expected_end::{Certainty, ExpectedEnd};
use crate::facts::plan::{Eviction, Plan, Repartitioning, Start};
use crate::facts::verdict::Reason;
use crate::gpu::device::GpuStatus;
use crate::ids::{JobId, NodeId, TenantId};
use crate::objects::demand::Demand;
use crate::objects::job::{JobSpec, PlacedTask};
use crate::objects::score::Score;
use crate::objects::shape::Shape;
use crate::planner::backfill::reservation::Reservations;
use crate::planner::fair_share::{FairShareTree, HypotheticalJob};
use crate::planner::order::QueueHead;
use crate::planner::place::policy_score::ClusterSummary;
use crate::planner::preempt::candidates::{Candidate, Candidates, PreemptionReach};
use crate::planner::preempt::claims;
use crate::planner::preempt::victims::EvictionOptions;
use crate::planner::request::{KindMatch, QuotaLeft, Request};
use crate::queue::Bucket;
use crate::resources::{DeviceAssignment, ResourceIndex, ResourceVec, placed_tasks};
use crate::state::State;
use crate::state::usage::guarantee;
use crate::state::usage::model_limits::ModelLimitUsage;
use crate::state::usage::policy_limits::PolicyLimitUsage;
use crate::state::usage::user_limits::UserLimitUsage;
use crate::time::Timestamp;

/// Where a gang would sit, rank by rank.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub tasks: Vec<PlacedTask>,
    /// Why there, where there was a choice.
    pub score: Option<Box<Score>>,
}

impl Placement {
    /// The whole gang on one node, with a seat for each task.
    pub fn on_one(
        ask: &Request,
        (node, found): (&NodeId, &KindMatch),
        seats: &[DeviceAssignment],
    ) -> Placement {
        Placement { tasks: placed_tasks(&ask.shape, (node, &found.kind), seats), score: None }
    }

    /// What the gang takes on each node.
    pub fn taken(&self, ask: &Request) -> BTreeMap<NodeId, ResourceVec> {
        let mut nodes: BTreeMap<NodeId, ResourceVec> = BTreeMap::new();
        for task in &self.tasks {
            let here = nodes.entry(task.node.clone()).or_default();
            let each = &ask.shape.groups[task.group as usize].1;
            let host = ResourceVec {
                cpus: u64::from(each.cpus),
                memory_mib: each.memory_mib,
                ..ResourceVec::default()
            };
            *here = here.plus(host).plus(ResourceVec::devices_of(task));
        }
        nodes
    }
}

/// Free space that others may not have, by node.
pub(crate) type EarmarkedSpace = BTreeMap<NodeId, ResourceVec>;

/// A gang that this round has started.
#[derive(Debug)]
pub(crate) struct StartedGang {
    /// When it will be over, as far as can be told.
    pub end: Timestamp,
    pub taken: BTreeMap<NodeId, ResourceVec>,
}

/// Who gives way to a job.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SrptMode {
    /// Those who lose next to nothing, and are worth less than this together.
    LossFree(u64),
    /// Those of whom more is left than this.
    NetGain(u64),
}

/// What would be true if the plan so far were adopted.
pub(crate) struct Draft<'a> {
    pub state: &'a State,
    pub now: Timestamp,
    /// A job that is not in the state.
    pub hypothetical: Option<(JobId, &'a JobSpec)>,
    /// What the rules of policies need to know of the whole cluster.
    pub cluster_summary: ClusterSummary,
    /// Whether nodes of one kind on which the same is free are told apart by what is said of them.
    pub distinguishes_nodes: bool,
    /// Whether policies say who may be displaced for whom, so that nothing known of one job holds for another.
    pub distinguishes_victims: bool,
    pub shares: FairShareTree,
    /// What is free for everyone: less what is set aside. What of it is reserved for later is told by `usable`.
    pub resources: ResourceIndex,
    pub models: ModelLimitUsage<'a>,
    pub users: UserLimitUsage<'a>,
    pub limits: PolicyLimitUsage<'a>,
    /// Tasks of limited arrays that would run beside those that do.
    arrays: BTreeMap<u64, u32>,
    /// GPUs that are given out only if nothing better is free.
    pub degraded_gpus: BTreeMap<NodeId, u64>,
    /// GPUs that are warm or have had an error.
    pub warning_gpus: BTreeMap<NodeId, u64>,
    pub earmarked: BTreeMap<JobId, EarmarkedSpace>,
    /// What will come free and is somebody's already.
    pub promised: BTreeMap<NodeId, ResourceVec>,
    pub started: BTreeMap<JobId, StartedGang>,
    pub reservations: Reservations,
    /// Jobs with a claim that works: they start on it or wait for it, and take no part in the order.
    claimants: BTreeSet<JobId>,
    requests: BTreeMap<Arc<Shape>, Arc<Request>>,
    /// Shapes that found no room, with the earliest end for which that was so.
    no_fit_cache: BTreeMap<Arc<Shape>, ExpectedEnd>,
    /// Who runs where; looked up when someone may displace others.
    pub candidates: Option<Candidates>,
    eviction_options: BTreeMap<Arc<Shape>, EvictionOptions>,
    /// Shapes for which no room could be made on several nodes, with whom the last could reach.
    pub no_eviction_cache: BTreeMap<Arc<Shape>, PreemptionReach>,
    /// How often every node was asked who could go.
    pub eviction_searches: usize,
    /// While others are looked for who give way to a job.
    pub srpt_mode: Option<SrptMode>,
    /// Nodes on which something has changed, in order.
    pub dirty_nodes: Vec<NodeId>,
    pub blocked: Vec<QueueHead<'a>>,
    /// Idle devices that should be partitioned otherwise.
    pub repartitionings: Vec<Repartitioning>,
    /// Why single jobs wait, where it is not the reason of their bucket.
    pub reasons: BTreeMap<JobId, Vec<Reason>>,
    pub plan: Plan,
}

impl<'a> Draft<'a> {
    /// A clean sheet. A guest has a share although nothing of theirs is in the state.
    pub fn new(state: &'a State, now: Timestamp, guest: Option<&HypotheticalJob<'_>>) -> Draft<'a> {
        let mut draft = Draft {
            state,
            now,
            hypothetical: None,
            cluster_summary: ClusterSummary::of(state),
            distinguishes_nodes: state.policies_distinguish_nodes(),
            distinguishes_victims: state.policies_distinguish_victims(),
            shares: FairShareTree::of(state, now, guest).with_models(state),
            resources: state.resources.clone(),
            models: ModelLimitUsage::of(state),
            users: UserLimitUsage::of(state),
            limits: PolicyLimitUsage::of(state),
            arrays: BTreeMap::new(),
            degraded_gpus: gpus_of(state, GpuStatus::Degraded),
            warning_gpus: gpus_of(state, GpuStatus::Warning),
            earmarked: BTreeMap::new(),
            promised: BTreeMap::new(),
            started: BTreeMap::new(),
            reservations: Reservations::of_windows(state),
            claimants: BTreeSet::new(),
            requests: BTreeMap::new(),
            no_fit_cache: BTreeMap::new(),
            candidates: None,
            eviction_options: BTreeMap::new(),
            no_eviction_cache: BTreeMap::new(),
            eviction_searches: 0,
            srpt_mode: None,
            dirty_nodes: Vec::new(),
            blocked: Vec::new(),
            repartitionings: Vec::new(),
            reasons: BTreeMap::new(),
            plan: Plan {
                snapshot: state.seq,
                now,
                starts: Vec::new(),
                evictions: Vec::new(),
                repartitionings: Vec::new(),
            },
        };
        claims::earmark_all(&mut draft);
        draft
    }

    /// What the jobs of a bucket ask for, worked out once per shape. Kinds of nodes that the tenant's limits
    /// per model rule out are left out.
    pub fn request(&mut self, bucket: &Bucket) -> Arc<Request> {
        let ask = match self.requests.get(&bucket.shape) {
            Some(ask) => ask.clone(),
            None => {
                let ask = Arc::new(Request::new(&self.resources, &bucket.shape));
                self.requests.insert(bucket.shape.clone(), ask.clone());
                ask
            }
        };
        self.within_limits(bucket, ask)
    }

    /// The same without the devices on which it would pass a limit that depends on the device.
    pub fn within_limits(&self, bucket: &Bucket, ask: Arc<Request>) -> Arc<Request> {
        let by_model = self.models.limits(&bucket.tenant);
        let left = if ask.may_hold_instances { self.quota_left(bucket) } else { QuotaLeft::UNLIMITED };
        let ask = match ask.may_hold_instances && (by_model || left != QuotaLeft::UNLIMITED) {
            true => Arc::new(ask.with_instances_within(left, &self.models, &bucket.tenant)),
            false => ask,
        };
        if by_model { Arc::new(ask.within_model_limits(&self.models, &bucket.tenant)) } else { ask }
    }

    /// What the jobs of a bucket ask for, wherever limits would let them go; nothing before anyone asked for it.
    pub fn unlimited_request(&self, bucket: &Bucket) -> Option<Arc<Request>> {
        self.requests.get(&bucket.shape).cloned()
    }

    /// What the quotas of a bucket's tenant and user, and limits of policies, leave.
    fn quota_left(&self, bucket: &Bucket) -> QuotaLeft {
        let tenants = self.state.lineage(&bucket.tenant);
        let tenants = tenants.map(|tenant| (&tenant.config.maximum, self.shares.held(&tenant.id)));
        let all = tenants.chain(self.users.limits(&bucket.tenant, &bucket.user));
        let whose = (&bucket.tenant, bucket.shape.pool.as_deref());
        let by_policy = self.limits.left_milli(whose, |tenant| self.shares.held(tenant));
        let mut left = QuotaLeft { gpu_milli: by_policy, ..QuotaLeft::UNLIMITED };
        for (quota, held) in all {
            let gpu_milli = quota.gpus.map(|gpus| (gpus * 1_000).saturating_sub(held.gpu_milli));
            let memory = quota.gpu_memory_mib.map(|mib| mib.saturating_sub(held.gpu_memory_mib));
            left.gpu_milli = left.gpu_milli.min(gpu_milli.unwrap_or(u64::MAX));
            left.gpu_memory_mib = left.gpu_memory_mib.min(memory.unwrap_or(u64::MAX));
        }
        left
    }

    /// Whether a limit of the tenant or user decides which devices the jobs of a bucket may have, so that what is found for
    /// them says nothing about other tenants: a limit per model, or a quota where MIG instances would do.
    pub fn limits_devices(&self, bucket: &Bucket) -> bool {
        let instances = || self.requests.get(&bucket.shape).is_some_and(|ask| ask.may_hold_instances);
        self.models.limits(&bucket.tenant) || (instances() && self.quota_left(bucket) != QuotaLeft::UNLIMITED)
    }

    /// When a job of a bucket would be over if it started now.
    pub fn expected_end(&self, bucket: &Bucket, job: JobId) -> ExpectedEnd {
        let lasts_ms = bucket.limit_ms.unwrap_or_else(|| self.expected_ms(&bucket.tenant, &bucket.user));
        let at = self.now.plus(lasts_ms).plus(self.state.settings.stop_grace_ms);
        let open = (0..).zip(self.state.windows.values());
        let open = open.filter(|(_, window)| window.is_open_to(self.state, &bucket.tenant));
        let windows = open.fold(0u64, |bits, (index, _): (u32, _)| bits | 1 << index);
        let word = match bucket.limit_ms {
            Some(_) => Certainty::Bound,
            None if self.state.may_backfill_revocably(&bucket.tenant, job) => Certainty::Revocable,
            None => Certainty::Estimate,
        };
        let yields = self.spec(job).is_some_and(|spec| self.state.yields(spec, job, self.now));
        ExpectedEnd { at, certainty: word, yields, windows }
    }

    /// How long a job without a limit is expected to run: as long as the longest of its owner's last ones.
    fn expected_ms(&self, tenant: &TenantId, user: &str) -> i64 {
        let member = self.state.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let longest = member
            .and_then(|member| member.recent_runtimes.median_and_longest_ms())
            .map(|(_, longest)| longest);
        longest.unwrap_or(self.state.settings.default_runtime_ms)
    }

    /// Whether someone who asks for the same is blocked already. Only a guest comes after such a one.
    pub fn is_blocked(&self, turn: &QueueHead) -> bool {
        let is_guest = self.hypothetical.is_some_and(|(guest, _)| guest == turn.job);
        is_guest && self.blocked.iter().any(|other| other.bucket == turn.bucket)
    }

    /// Until when a job would stay for which others go.
    pub fn preemptor_end(&self, turn: &QueueHead) -> ExpectedEnd {
        match self.srpt_mode {
            Some(SrptMode::LossFree(_)) => self.expected_end(turn.bucket, turn.job),
            _ => ExpectedEnd::NEVER,
        }
    }

    /// What it costs that a job goes: the work it loses; where those are looked for who lose next to nothing, what they
    /// are worth.
    pub fn eviction_cost(&self, victim: &Candidate) -> u64 {
        match self.srpt_mode {
            Some(SrptMode::LossFree(_)) => victim.srpt_index.unwrap_or(u64::MAX),
            _ => victim.lost_gpu_ms,
        }
    }

    /// What of the free space of a node someone may use who will be gone by `ending`.
    pub fn usable(&self, node: &NodeId, free: ResourceVec, ending: ExpectedEnd) -> Option<ResourceVec> {
        self.reservations.usable(node, free, ending, None)
    }

    /// Whether a shape is known to find no room until such an end. Limits per model make the answer the tenant's own.
    pub fn has_no_fit(&self, bucket: &Bucket, ending: ExpectedEnd) -> bool {
        let full = self.no_fit_cache.get(&bucket.shape);
        !self.limits_devices(bucket) && full.is_some_and(|full| ending.is_blocked_wherever(*full))
    }

    pub fn note_no_fit(&mut self, bucket: &Bucket, ending: ExpectedEnd) {
        if !self.limits_devices(bucket) {
            let full = self.no_fit_cache.entry(bucket.shape.clone()).or_insert(ending);
            if full.is_blocked_wherever(ending) {
                *full = ending;
            }
        }
    }

    /// Tasks of an array that would run.
    pub fn running_of_array(&self, array: u64) -> u32 {
        let now = self.state.arrays.get(&array).map_or(0, |array| array.active);
        now + self.arrays.get(&array).copied().unwrap_or_default()
    }

    /// Count a job and its devices against its tenant, its user and its array.
    pub fn count(&mut self, bucket: &Bucket, demand: Demand, tasks: &[PlacedTask]) {
        self.shares.take(&bucket.tenant, &bucket.user, demand);
        self.shares.models.take(self.state, &bucket.tenant, tasks);
        self.users.take(&bucket.tenant, &bucket.user, demand);
        self.limits.take(&bucket.tenant, bucket.shape.pool.as_deref(), demand.gpu_milli);
        if let Some(array) = bucket.array {
            *self.arrays.entry(array).or_default() += 1;
        }
    }

    /// Start a gang that was ordered by `effective`.
    pub fn start(
        &mut self,
        bucket: &Bucket,
        (job, effective): (JobId, i64),
        ask: &Request,
        spot: &Placement,
    ) {
        let demand = self.demand(ask, spot);
        self.count(bucket, demand, &spot.tasks);
        self.shares.start(&bucket.tenant, demand);
        self.shares.models.start(self.state, &bucket.tenant, &spot.tasks);
        self.take_models(bucket, spot);
        let (ending, taken) = (self.expected_end(bucket, job), spot.taken(ask));
        let lent = self.is_revocable(ending, &taken);
        for (node, taken) in &taken {
            self.take_free(node, *taken);
            self.reservations.take(node, *taken, ending);
        }
        self.started.insert(job, StartedGang { end: ending.at, taken });
        let expected_ms = match bucket.limit_ms {
            Some(_) => None,
            None => Some(self.expected_ms(&bucket.tenant, &bucket.user)),
        };
        let (tasks, effective) = (spot.tasks.clone(), Some(effective));
        let score = spot.score.clone();
        self.plan.starts.push(Start {
            job,
            tasks,
            effective_priority: effective,
            expected_ms,
            revocable: lent,
            score,
        });
    }

    /// Whether some of what is taken is kept for others and may be had only because they can have it back.
    fn is_revocable(&self, ending: ExpectedEnd, taken: &BTreeMap<NodeId, ResourceVec>) -> bool {
        let is_free = |(node, taken): (&NodeId, &ResourceVec)| {
            let usable =
                self.free_on(node).and_then(|free| self.usable(node, free, ending.never_revocable()));
            usable.is_some_and(|usable| usable.covers(*taken))
        };
        ending.certainty == Certainty::Revocable
            && !self.reservations.is_empty()
            && !taken.iter().all(is_free)
    }

    /// What a gang takes from its tenant's quota in a spot.
    pub fn demand(&self, ask: &Request, spot: &Placement) -> Demand {
        let milliwatts = self.state.milliwatts_of(&spot.tasks);
        let each = spot.tasks.iter().map(|task| ask.shape.groups[task.group as usize].1.demand_in(task));
        each.fold(Demand { jobs: 1, milliwatts, ..Demand::default() }, Demand::plus)
    }

    /// A gang that starts takes more tasks than it needs.
    pub fn extend_start(&mut self, bucket: &Bucket, job: JobId, ask: &Request, spot: &Placement) {
        let demand = Demand { jobs: 0, ..self.demand(ask, spot) };
        self.shares.take(&bucket.tenant, &bucket.user, demand);
        self.users.take(&bucket.tenant, &bucket.user, demand);
        self.limits.take(&bucket.tenant, bucket.shape.pool.as_deref(), demand.gpu_milli);
        self.shares.start(&bucket.tenant, demand);
        self.shares.models.take(self.state, &bucket.tenant, &spot.tasks);
        self.shares.models.start(self.state, &bucket.tenant, &spot.tasks);
        self.take_models(bucket, spot);
        let ending = self.expected_end(bucket, job);
        for (node, taken) in spot.taken(ask) {
            self.take_free(&node, taken);
            self.reservations.take(&node, taken, ending);
            if let Some(started) = self.started.get_mut(&job) {
                let here = started.taken.entry(node).or_default();
                *here = here.plus(taken);
            }
        }
    }

    /// What was asked for a job that takes part.
    pub fn spec(&self, job: JobId) -> Option<&'a JobSpec> {
        let guest = self.hypothetical.filter(|(id, _)| *id == job).map(|(_, spec)| spec);
        guest.or_else(|| Some(&*self.state.jobs.get(&job)?.spec))
    }

    /// Propose to make room for a gang. What it will need counts as held from now on.
    pub fn propose_eviction(&mut self, bucket: &Bucket, ask: &Request, spot: &Placement, room: Eviction) {
        self.count(bucket, self.demand(ask, spot), &spot.tasks);
        self.take_models(bucket, spot);
        self.reasons.insert(room.job, vec![Reason::Claimed { victims: room.victims.clone() }]);
        self.plan.evictions.push(room);
    }

    fn take_models(&mut self, bucket: &Bucket, spot: &Placement) {
        for task in &spot.tasks {
            self.models.take(&bucket.tenant, task);
        }
    }

    /// Keep as much of `wanted` as is free for one job.
    pub fn earmark(&mut self, job: JobId, node: &NodeId, wanted: ResourceVec) {
        let Some(free) = self.free_on(node) else { return };
        let space = free.intersection(wanted);
        self.take_free(node, space);
        self.earmarked.entry(job).or_default().insert(node.clone(), space);
    }

    /// Let a job have what was set aside for it.
    pub fn release_earmarked(&mut self, job: JobId) {
        for (node, space) in self.earmarked.remove(&job).into_iter().flatten() {
            if let Some(free) = self.free_on(&node) {
                self.set_free(&node, free.plus(space));
            }
        }
    }

    /// Of what will come free on a node, this much is somebody's already.
    pub fn promise(&mut self, node: &NodeId, space: ResourceVec) {
        let owed = self.promised.entry(node.clone()).or_default();
        *owed = owed.plus(space);
    }

    /// What is free on a node for everyone.
    pub fn free_on(&self, node: &NodeId) -> Option<ResourceVec> {
        self.resources.entry(node).map(|filed| filed.free)
    }

    fn take_free(&mut self, node: &NodeId, taken: ResourceVec) {
        if let Some(free) = self.free_on(node) {
            self.set_free(node, free.minus(taken));
        }
    }

    fn set_free(&mut self, node: &NodeId, free: ResourceVec) {
        self.resources.set_free(node, free);
        self.dirty_nodes.push(node.clone());
    }

    pub fn is_claimant(&self, job: JobId) -> bool {
        self.claimants.contains(&job)
    }

    pub fn note_claimant(&mut self, job: JobId) {
        self.claimants.insert(job);
    }

    pub fn note_blocked(&mut self, turn: QueueHead<'a>) {
        self.blocked.push(turn);
    }

    /// Who runs where. Looked up once, and only when someone may displace others.
    pub fn candidates(&mut self) -> &mut Candidates {
        let (state, now) = (self.state, self.now);
        self.candidates.get_or_insert_with(|| Candidates::of(state, now))
    }

    /// What tenants will hold less when all have gone who go already.
    pub fn pending_releases(&self) -> guarantee::PendingReleases {
        self.candidates.as_ref().map(|running| running.pending.clone()).unwrap_or_default()
    }

    /// What it would cost to make room, as known from an earlier turn. Limits per model make it the tenant's
    /// own, and then nothing is known.
    pub fn take_eviction_options(&mut self, bucket: &Bucket) -> Option<EvictionOptions> {
        if self.limits_devices(bucket) { None } else { self.eviction_options.remove(&bucket.shape) }
    }

    /// Keep it for the next turn.
    pub fn put_eviction_options(&mut self, bucket: &Bucket, offers: Option<EvictionOptions>) {
        if let Some(offers) = offers.filter(|_| !self.limits_devices(bucket)) {
            self.eviction_options.insert(bucket.shape.clone(), offers);
        }
    }
}

fn gpus_of(state: &State, word: GpuStatus) -> BTreeMap<NodeId, u64> {
    let mut found = BTreeMap::new();
    for node in state.nodes.values() {
        let hot = (0..).zip(&node.gpu_health).filter(|(_, health)| health.status == word);
        let mask = hot.fold(0u64, |mask, (index, _): (u32, _)| mask | 1 << index);
        if mask != 0 {
            found.insert(node.id.clone(), mask);
        }
    }
    found
}
