//! The scratch paper of a round: what would be free, held and set aside if the plan so far came true.
//!
//! Within a round free space only shrinks and held quota only grows. So a shape that found no room once finds
//! none later, and a bucket that was blocked once stays blocked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::capacity::{Capacity, Free, Seat, placed_tasks};
use crate::guarantee;
use crate::ids::{JobId, NodeId, TenantId};
use crate::job::{Demand, JobSpec, PlacedTask};
use crate::lasting::{Ending, Word};
use crate::limits::LimitUse;
use crate::models::ModelUse;
use crate::node::GpuWord;
use crate::plan::advice::{Advice, Silent};
use crate::plan::ask::{Ask, Match, QuotaLeft};
use crate::plan::offers::Offers;
use crate::plan::order::Turn;
use crate::plan::policy::Glance;
use crate::plan::reserve::Reservations;
use crate::plan::running::{Candidate, Reach, Running};
use crate::plan::score::Score;
use crate::plan::shares::{Guest, Shares};
use crate::plan::{Cut, MakeRoom, Plan, Start, claims};
use crate::queue::{Bucket, Shape};
use crate::state::State;
use crate::time::Timestamp;
use crate::users::UserUse;
use crate::verdict::Reason;

/// Where a gang would sit, rank by rank.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub tasks: Vec<PlacedTask>,
    /// Why there, where there was a choice.
    pub score: Option<Box<Score>>,
}

impl Spot {
    /// The whole gang on one node, with a seat for each task.
    pub fn on_one(ask: &Ask, (node, found): (&NodeId, &Match), seats: &[Seat]) -> Spot {
        Spot { tasks: placed_tasks(&ask.shape, (node, &found.kind), seats), score: None }
    }

    /// What the gang takes on each node.
    pub fn taken(&self, ask: &Ask) -> BTreeMap<NodeId, Free> {
        let mut nodes: BTreeMap<NodeId, Free> = BTreeMap::new();
        for task in &self.tasks {
            let here = nodes.entry(task.node.clone()).or_default();
            let each = &ask.shape.groups[task.group as usize].1;
            let host = Free { cpus: u64::from(each.cpus), memory_mib: each.memory_mib, ..Free::default() };
            *here = here.with(host).with(Free::held_by(task));
        }
        nodes
    }
}

/// Free space that others may not have, by node.
pub(super) type Aside = BTreeMap<NodeId, Free>;

/// A gang that this round has started.
#[derive(Debug)]
pub(super) struct Started {
    /// When it will be over, as far as can be told.
    pub end: Timestamp,
    pub taken: BTreeMap<NodeId, Free>,
}

/// Who gives way to a job.
#[derive(Debug, Clone, Copy)]
pub(super) enum Haste {
    /// Those who lose next to nothing, and are worth less than this together.
    Gently(u64),
    /// Those of whom more is left than this.
    AtACost(u64),
}

/// What would be true if the plan so far were adopted.
pub(super) struct Draft<'a> {
    pub state: &'a State,
    pub now: Timestamp,
    /// A job that is not in the state.
    pub guest: Option<(JobId, &'a JobSpec)>,
    /// Who is asked where jobs should go.
    pub advice: &'a dyn Advice,
    /// What the rules of policies need to know of the whole cluster.
    pub glance: Glance,
    /// Whether nodes of one kind on which the same is free are told apart by what is said of them.
    pub tells_nodes_apart: bool,
    /// Whether policies say who may be displaced for whom, so that nothing known of one job holds for another.
    pub tells_victims_apart: bool,
    pub shares: Shares,
    /// What is free for everyone: less what is set aside. What of it is reserved for later is told by `usable`.
    pub capacity: Capacity,
    pub models: ModelUse<'a>,
    pub users: UserUse<'a>,
    pub limits: LimitUse<'a>,
    /// Tasks of limited arrays that would run beside those that do.
    arrays: BTreeMap<u64, u32>,
    /// GPUs that are given out only if nothing better is free.
    pub degraded: BTreeMap<NodeId, u64>,
    /// GPUs that are warm or have had an error.
    pub doubtful: BTreeMap<NodeId, u64>,
    pub asides: BTreeMap<JobId, Aside>,
    /// What will come free and is somebody's already.
    pub owed: BTreeMap<NodeId, Free>,
    pub started: BTreeMap<JobId, Started>,
    pub reservations: Reservations,
    /// Jobs with a claim that works: they start on it or wait for it, and take no part in the order.
    claimants: BTreeSet<JobId>,
    asks: BTreeMap<Arc<Shape>, Arc<Ask>>,
    /// Shapes that found no room, with the earliest end for which that was so.
    full: BTreeMap<Arc<Shape>, Ending>,
    /// Who runs where; looked up when someone may displace others.
    pub running: Option<Running>,
    offers: BTreeMap<Arc<Shape>, Offers>,
    /// Shapes for which no room could be made on several nodes, with whom the last could reach.
    pub hopeless: BTreeMap<Arc<Shape>, Reach>,
    /// How often every node was asked who could go.
    pub searches: usize,
    /// While others are looked for who give way to a job.
    pub hastens: Option<Haste>,
    /// Nodes on which something has changed, in order.
    pub changed: Vec<NodeId>,
    pub blocked: Vec<Turn<'a>>,
    /// Idle devices that should be partitioned otherwise.
    pub cuts: Vec<Cut>,
    /// Why single jobs wait, where it is not the reason of their bucket.
    pub reasons: BTreeMap<JobId, Vec<Reason>>,
    pub plan: Plan,
}

impl<'a> Draft<'a> {
    /// A clean sheet. A guest has a share although nothing of theirs is in the state.
    pub fn new(state: &'a State, now: Timestamp, guest: Option<&Guest<'_>>) -> Draft<'a> {
        let mut draft = Draft {
            state,
            now,
            guest: None,
            advice: &Silent,
            glance: Glance::of(state),
            tells_nodes_apart: state.policies_tell_nodes_apart(),
            tells_victims_apart: state.tells_victims_apart(),
            shares: Shares::of(state, now, guest).with_models(state),
            capacity: state.capacity.clone(),
            models: ModelUse::of(state),
            users: UserUse::of(state),
            limits: LimitUse::of(state),
            arrays: BTreeMap::new(),
            degraded: gpus_of(state, GpuWord::Degraded),
            doubtful: gpus_of(state, GpuWord::Warning),
            asides: BTreeMap::new(),
            owed: BTreeMap::new(),
            started: BTreeMap::new(),
            reservations: Reservations::of_windows(state),
            claimants: BTreeSet::new(),
            asks: BTreeMap::new(),
            full: BTreeMap::new(),
            running: None,
            offers: BTreeMap::new(),
            hopeless: BTreeMap::new(),
            searches: 0,
            hastens: None,
            changed: Vec::new(),
            blocked: Vec::new(),
            cuts: Vec::new(),
            reasons: BTreeMap::new(),
            plan: Plan { snapshot: state.seq, now, starts: Vec::new(), claims: Vec::new(), cuts: Vec::new() },
        };
        claims::set_all_aside(&mut draft);
        draft
    }

    /// What the jobs of a bucket ask for, worked out once per shape. Kinds of nodes that the tenant's limits
    /// per model rule out are left out.
    pub fn ask(&mut self, bucket: &Bucket) -> Arc<Ask> {
        let ask = match self.asks.get(&bucket.shape) {
            Some(ask) => ask.clone(),
            None => {
                let ask = Arc::new(Ask::new(&self.capacity, &bucket.shape));
                self.asks.insert(bucket.shape.clone(), ask.clone());
                ask
            }
        };
        self.within_limits(bucket, ask)
    }

    /// The same without the devices on which it would pass a limit that depends on the device.
    pub fn within_limits(&self, bucket: &Bucket, ask: Arc<Ask>) -> Arc<Ask> {
        let by_model = self.models.limits(&bucket.tenant);
        let left = if ask.may_hold_instances { self.left(bucket) } else { QuotaLeft::UNLIMITED };
        let ask = match ask.may_hold_instances && (by_model || left != QuotaLeft::UNLIMITED) {
            true => Arc::new(ask.with_instances_within(left, &self.models, &bucket.tenant)),
            false => ask,
        };
        if by_model { Arc::new(ask.within(&self.models, &bucket.tenant)) } else { ask }
    }

    /// What the jobs of a bucket ask for, wherever limits would let them go; nothing before anyone asked for it.
    pub fn unlimited_ask(&self, bucket: &Bucket) -> Option<Arc<Ask>> {
        self.asks.get(&bucket.shape).cloned()
    }

    /// What the quotas of a bucket's tenant and user, and limits of policies, leave.
    fn left(&self, bucket: &Bucket) -> QuotaLeft {
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
        let instances = || self.asks.get(&bucket.shape).is_some_and(|ask| ask.may_hold_instances);
        self.models.limits(&bucket.tenant) || (instances() && self.left(bucket) != QuotaLeft::UNLIMITED)
    }

    /// When a job of a bucket would be over if it started now.
    pub fn ending(&self, bucket: &Bucket, job: JobId) -> Ending {
        let lasts_ms = bucket.limit_ms.unwrap_or_else(|| self.expected_ms(&bucket.tenant, &bucket.user));
        let at = self.now.plus(lasts_ms).plus(self.state.settings.stop_grace_ms);
        let open = (0..).zip(self.state.windows.values());
        let open = open.filter(|(_, window)| window.is_open_to(self.state, &bucket.tenant));
        let windows = open.fold(0u64, |bits, (index, _): (u32, _)| bits | 1 << index);
        let word = match bucket.limit_ms {
            Some(_) => Word::Bound,
            None if self.state.may_borrow(&bucket.tenant, job) => Word::Loan,
            None => Word::Estimate,
        };
        let yields = self.spec(job).is_some_and(|spec| self.state.yields(spec, job, self.now));
        Ending { at, word, yields, windows }
    }

    /// How long a job without a limit is expected to run: as long as the longest of its owner's last ones.
    fn expected_ms(&self, tenant: &TenantId, user: &str) -> i64 {
        let member = self.state.tenants.get(tenant).and_then(|tenant| tenant.members.get(user));
        let longest = member.and_then(|member| member.lasted.usual_and_longest()).map(|(_, longest)| longest);
        longest.unwrap_or(self.state.settings.default_runtime_ms)
    }

    /// Whether someone who asks for the same is blocked already. Only a guest comes after such a one.
    pub fn is_blocked(&self, turn: &Turn) -> bool {
        let is_guest = self.guest.is_some_and(|(guest, _)| guest == turn.job);
        is_guest && self.blocked.iter().any(|other| other.bucket == turn.bucket)
    }

    /// Until when a job would stay for which others go.
    pub fn stays(&self, turn: &Turn) -> Ending {
        match self.hastens {
            Some(Haste::Gently(_)) => self.ending(turn.bucket, turn.job),
            _ => Ending::NEVER,
        }
    }

    /// What it costs that a job goes: the work it loses; where those are looked for who lose next to nothing, what they
    /// are worth.
    pub fn price_of(&self, victim: &Candidate) -> u64 {
        match self.hastens {
            Some(Haste::Gently(_)) => victim.worth.unwrap_or(u64::MAX),
            _ => victim.lost_gpu_ms,
        }
    }

    /// What of the free space of a node someone may use who will be gone by `ending`.
    pub fn usable(&self, node: &NodeId, free: Free, ending: Ending) -> Option<Free> {
        self.reservations.usable(node, free, ending, None)
    }

    /// Whether a shape is known to find no room until such an end. Limits per model make the answer the tenant's own.
    pub fn is_full_for(&self, bucket: &Bucket, ending: Ending) -> bool {
        let full = self.full.get(&bucket.shape);
        !self.limits_devices(bucket) && full.is_some_and(|full| ending.is_no_easier_than(*full))
    }

    pub fn note_full_for(&mut self, bucket: &Bucket, ending: Ending) {
        if !self.limits_devices(bucket) {
            let full = self.full.entry(bucket.shape.clone()).or_insert(ending);
            if full.is_no_easier_than(ending) {
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
    pub fn start(&mut self, bucket: &Bucket, (job, effective): (JobId, i64), ask: &Ask, spot: &Spot) {
        let demand = self.demand(ask, spot);
        self.count(bucket, demand, &spot.tasks);
        self.shares.start(&bucket.tenant, demand);
        self.shares.models.start(self.state, &bucket.tenant, &spot.tasks);
        self.take_models(bucket, spot);
        let (ending, taken) = (self.ending(bucket, job), spot.taken(ask));
        let lent = self.is_loan(ending, &taken);
        for (node, taken) in &taken {
            self.take_free(node, *taken);
            self.reservations.take(node, *taken, ending);
        }
        self.started.insert(job, Started { end: ending.at, taken });
        let expected_ms = match bucket.limit_ms {
            Some(_) => None,
            None => Some(self.expected_ms(&bucket.tenant, &bucket.user)),
        };
        let (tasks, effective) = (spot.tasks.clone(), Some(effective));
        let score = spot.score.clone();
        self.plan.starts.push(Start { job, tasks, effective, expected_ms, lent, score });
    }

    /// Whether some of what is taken is kept for others and may be had only because they can have it back.
    fn is_loan(&self, ending: Ending, taken: &BTreeMap<NodeId, Free>) -> bool {
        let is_free = |(node, taken): (&NodeId, &Free)| {
            let usable = self.free_on(node).and_then(|free| self.usable(node, free, ending.outright()));
            usable.is_some_and(|usable| usable.holds(*taken))
        };
        ending.word == Word::Loan && !self.reservations.is_empty() && !taken.iter().all(is_free)
    }

    /// What a gang takes from its tenant's quota in a spot.
    pub fn demand(&self, ask: &Ask, spot: &Spot) -> Demand {
        let milliwatts = self.state.milliwatts_of(&spot.tasks);
        let each = spot.tasks.iter().map(|task| ask.shape.groups[task.group as usize].1.demand_in(task));
        each.fold(Demand { jobs: 1, milliwatts, ..Demand::default() }, Demand::plus)
    }

    /// A gang that starts takes more tasks than it needs.
    pub fn add_to_start(&mut self, bucket: &Bucket, job: JobId, ask: &Ask, spot: &Spot) {
        let demand = Demand { jobs: 0, ..self.demand(ask, spot) };
        self.shares.take(&bucket.tenant, &bucket.user, demand);
        self.users.take(&bucket.tenant, &bucket.user, demand);
        self.limits.take(&bucket.tenant, bucket.shape.pool.as_deref(), demand.gpu_milli);
        self.shares.start(&bucket.tenant, demand);
        self.shares.models.take(self.state, &bucket.tenant, &spot.tasks);
        self.shares.models.start(self.state, &bucket.tenant, &spot.tasks);
        self.take_models(bucket, spot);
        let ending = self.ending(bucket, job);
        for (node, taken) in spot.taken(ask) {
            self.take_free(&node, taken);
            self.reservations.take(&node, taken, ending);
            if let Some(started) = self.started.get_mut(&job) {
                let here = started.taken.entry(node).or_default();
                *here = here.with(taken);
            }
        }
    }

    /// What was asked for a job that takes part.
    pub fn spec(&self, job: JobId) -> Option<&'a JobSpec> {
        let guest = self.guest.filter(|(id, _)| *id == job).map(|(_, spec)| spec);
        guest.or_else(|| Some(&*self.state.jobs.get(&job)?.spec))
    }

    /// Propose to make room for a gang. What it will need counts as held from now on.
    pub fn make_room(&mut self, bucket: &Bucket, ask: &Ask, spot: &Spot, room: MakeRoom) {
        self.count(bucket, self.demand(ask, spot), &spot.tasks);
        self.take_models(bucket, spot);
        self.reasons.insert(room.job, vec![Reason::Claimed { victims: room.victims.clone() }]);
        self.plan.claims.push(room);
    }

    fn take_models(&mut self, bucket: &Bucket, spot: &Spot) {
        for task in &spot.tasks {
            self.models.take(&bucket.tenant, task);
        }
    }

    /// Keep as much of `wanted` as is free for one job.
    pub fn set_aside(&mut self, job: JobId, node: &NodeId, wanted: Free) {
        let Some(free) = self.free_on(node) else { return };
        let space = free.shared_with(wanted);
        self.take_free(node, space);
        self.asides.entry(job).or_default().insert(node.clone(), space);
    }

    /// Let a job have what was set aside for it.
    pub fn put_back(&mut self, job: JobId) {
        for (node, space) in self.asides.remove(&job).into_iter().flatten() {
            if let Some(free) = self.free_on(&node) {
                self.set_free(&node, free.with(space));
            }
        }
    }

    /// Of what will come free on a node, this much is somebody's already.
    pub fn owe(&mut self, node: &NodeId, space: Free) {
        let owed = self.owed.entry(node.clone()).or_default();
        *owed = owed.with(space);
    }

    /// What is free on a node for everyone.
    pub fn free_on(&self, node: &NodeId) -> Option<Free> {
        self.capacity.filed(node).map(|filed| filed.free)
    }

    fn take_free(&mut self, node: &NodeId, taken: Free) {
        if let Some(free) = self.free_on(node) {
            self.set_free(node, free.without(taken));
        }
    }

    fn set_free(&mut self, node: &NodeId, free: Free) {
        self.capacity.set_free(node, free);
        self.changed.push(node.clone());
    }

    pub fn is_claimant(&self, job: JobId) -> bool {
        self.claimants.contains(&job)
    }

    pub fn note_claimant(&mut self, job: JobId) {
        self.claimants.insert(job);
    }

    pub fn note_blocked(&mut self, turn: Turn<'a>) {
        self.blocked.push(turn);
    }

    /// Who runs where. Looked up once, and only when someone may displace others.
    pub fn running(&mut self) -> &mut Running {
        let (state, now) = (self.state, self.now);
        self.running.get_or_insert_with(|| Running::of(state, now))
    }

    /// What tenants will hold less when all have gone who go already.
    pub fn fewer(&self) -> guarantee::Leaving {
        self.running.as_ref().map(|running| running.fewer.clone()).unwrap_or_default()
    }

    /// What it would cost to make room, as known from an earlier turn. Limits per model make it the tenant's
    /// own, and then nothing is known.
    pub fn take_offers(&mut self, bucket: &Bucket) -> Option<Offers> {
        if self.limits_devices(bucket) { None } else { self.offers.remove(&bucket.shape) }
    }

    /// Keep it for the next turn.
    pub fn put_offers(&mut self, bucket: &Bucket, offers: Option<Offers>) {
        if let Some(offers) = offers.filter(|_| !self.limits_devices(bucket)) {
            self.offers.insert(bucket.shape.clone(), offers);
        }
    }
}

fn gpus_of(state: &State, word: GpuWord) -> BTreeMap<NodeId, u64> {
    let mut found = BTreeMap::new();
    for node in state.nodes.values() {
        let hot = (0..).zip(&node.gpu_health).filter(|(_, health)| health.word == word);
        let mask = hot.fold(0u64, |mask, (index, _): (u32, _)| mask | 1 << index);
        if mask != 0 {
            found.insert(node.id.clone(), mask);
        }
    }
    found
}
