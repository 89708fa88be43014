//! What the policies in force say in a round. All of it is in the state: rules that were registered, and answers that were
//! given before.

use std::collections::BTreeMap;

use crate::capacity::{Free, InstanceKind, Kind, Seat};
use crate::ids::{NodeId, TenantId};
use crate::job::Job;
use crate::node::Node;
use crate::policy::{Admission, Answer, Hook};
use crate::queue::Bucket;
use crate::rules::{Extreme, Layout, Metric, Rule};
use crate::state::State;
use crate::tenant::Tenant;
use crate::verdict::Reason;

/// What the first rule of balance can come to, in thousandths of a device; each further one comes to half as much.
const FIRST_RULE: f64 = 1_000.0;
/// A GPU of this temperature in °C costs the full weight of a temperature rule.
const HOT_C: f64 = 100.0;
/// What a temperature rule makes of every node while no device of the cluster reports: neither cold nor hot.
const NEUTRAL: f64 = 0.5;

impl State {
    /// What policies answered of a bucket.
    pub(crate) fn answer(&self, bucket: &Bucket) -> Option<&Answer> {
        if self.policies.is_empty() { None } else { self.policies.answers.of(bucket) }
    }

    /// What policies say of a bucket.
    pub(crate) fn word(&self, bucket: &Bucket) -> Word<'_> {
        Word { answer: self.answer(bucket), class: self.class(bucket) }
    }

    /// Why policies keep the jobs of a bucket waiting, if they do.
    pub(crate) fn policy_blocker(&self, bucket: &Bucket, word: Word) -> Option<Reason> {
        if self.policies.is_empty() {
            return None;
        }
        match word.answer.map(|answer| &answer.admission) {
            Some(Admission::Wait { why }) => Some(Reason::Policy { why: why.clone() }),
            Some(Admission::Refuse { why }) => Some(Reason::PolicyRefused { why: why.clone() }),
            None if self.is_unasked(bucket) => Some(Reason::PolicyUnasked),
            Some(Admission::Yes) | None => self.limit_blocker(bucket),
        }
    }

    /// Why the limits of policies keep the jobs of a bucket waiting whatever they ask for: of its tenant, or of one above it,
    /// nothing was answered yet, or a policy failed.
    fn limit_blocker(&self, bucket: &Bucket) -> Option<Reason> {
        if !self.policies.limit_tenants() {
            return None;
        }
        let waits = self.queue.bucket(bucket).is_some();
        let blocker = |tenant: &Tenant| match self.policies.limits.get(&tenant.id) {
            Some(limited) => limited.blocked.clone().map(|why| Reason::Policy { why }),
            None => (waits && self.policies.asks(Hook::Limit, &tenant.id)).then_some(Reason::PolicyUnasked),
        };
        self.lineage(&bucket.tenant).find_map(blocker)
    }

    /// Whether it is known how much policies let a tenant, and all above it, hold.
    pub fn knows_limits(&self, tenant: &TenantId) -> bool {
        let known = |one: &Tenant| {
            self.policies.limits.contains_key(&one.id) || !self.policies.asks(Hook::Limit, &one.id)
        };
        !self.policies.limit_tenants() || self.lineage(tenant).all(known)
    }

    /// Whether policies are to be asked of those who wait in a bucket before anyone of them starts.
    fn is_unasked(&self, bucket: &Bucket) -> bool {
        let asks = |hook| self.policies.asks(hook, &bucket.tenant);
        self.queue.bucket(bucket).is_some() && Hook::OF_BUCKETS.into_iter().any(asks)
    }

    /// Where the jobs of a bucket come by the rules of priority.
    fn class(&self, bucket: &Bucket) -> u32 {
        if self.policies.is_empty() { 0 } else { self.policies.class(&self.settings, &bucket.marks) }
    }

    /// Whether policies say of single victims that they may not be displaced for single jobs.
    pub(crate) fn tells_victims_apart(&self) -> bool {
        if self.policies.is_empty() {
            return false;
        }
        let orders = |rule: &Rule| matches!(rule, Rule::Priority { .. });
        let ruleset = self.policies.ruleset(&self.settings);
        let spares =
            self.policies.in_force().into_iter().any(|version| version.bundle.hooks.contains(&Hook::Victims));
        spares || ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(orders))
    }

    /// Whether the policies let a job displace another: it is not less urgent by the rules, and nobody said no. Those of
    /// the cluster and of the job's own tenant are asked; a tenant cannot keep what it holds from those to whom it was
    /// promised. Where they were not asked yet, `unasked` is the answer.
    pub(crate) fn policies_let_displace(&self, bucket: &Bucket, victim: &Job, unasked: bool) -> bool {
        if self.policies.is_empty() {
            return true;
        }
        let class = self.policies.class(&self.settings, &self.policies.marks(&victim.spec));
        let said = self.answer(bucket).and_then(|answer| answer.victims.get(&victim.id)).copied();
        let asked = self.policies.asks(Hook::Victims, &bucket.tenant);
        self.class(bucket) <= class && (!asked || said.unwrap_or(unasked))
    }

    /// Whether policies tell nodes of one kind apart on which the same is free.
    pub(crate) fn policies_tell_nodes_apart(&self) -> bool {
        let by_node = |rule: &Rule| {
            let warm = matches!(rule, Rule::Balance { metric: Metric::Temperature, .. });
            warm || matches!(rule, Rule::Distribution { strategy: Layout::RoundRobin })
        };
        let ruleset = self.policies.ruleset(&self.settings);
        ruleset.is_some_and(|ruleset| ruleset.rules.iter().any(by_node))
    }
}

/// What policies say of a bucket. To find it takes longer than to use it, so a round looks it up once.
#[derive(Debug, Clone, Copy, Default)]
pub struct Word<'a> {
    answer: Option<&'a Answer>,
    /// Where its jobs come by the rules of priority.
    pub(super) class: u32,
}

impl Word<'_> {
    /// The priority that jobs of the bucket are ordered by: what they asked for, or what policies say.
    pub(super) fn ordered_priority(self, bucket: &Bucket) -> u32 {
        self.answer.and_then(|answer| answer.priority).unwrap_or(bucket.priority)
    }

    /// The priority by which they displace others: policies can only take from it.
    pub(super) fn displacing_priority(self, bucket: &Bucket) -> u32 {
        self.ordered_priority(bucket).min(bucket.priority)
    }

    /// What was answered of nodes of a kind, in thousandths of a device.
    pub(super) fn cost_milli(self, kind: &Kind) -> i64 {
        self.answer.and_then(|answer| answer.costs.get(kind)).copied().unwrap_or(0)
    }
}

impl Glance {
    /// What policies add to the cost of a placement, in thousandths of a device: what a `score` hook answered for the
    /// bucket on such a node, and the terms of the balance and distribution rules.
    pub(super) fn cost(
        &self,
        state: &State,
        answered_milli: i64,
        (node, kind, free): (&NodeId, &Kind, Free),
    ) -> f64 {
        let site = Site { state, glance: self, node, kind, free };
        let mut weight = FIRST_RULE;
        let mut sum = answered_milli as f64;
        for share in self.rules.iter().filter_map(|rule| site.share(rule)) {
            sum += weight * share;
            weight /= 2.0;
        }
        sum
    }
}

/// A node as the rules look at it.
struct Site<'a> {
    state: &'a State,
    glance: &'a Glance,
    node: &'a NodeId,
    kind: &'a Kind,
    free: Free,
}

impl Site<'_> {
    /// How unwelcome it is by a rule, from 0 to 1; nothing where the rule is about something else.
    fn share(&self, rule: &Rule) -> Option<f64> {
        match rule {
            Rule::Balance { metric, strategy: Extreme::Least } => Some(self.measure(*metric)),
            Rule::Balance { metric, strategy: Extreme::Most } => Some(1.0 - self.measure(*metric)),
            Rule::Distribution { strategy: Layout::Spread } => Some(self.in_use()),
            Rule::Distribution { strategy: Layout::Pack } => Some(1.0 - self.in_use()),
            Rule::Distribution { strategy: Layout::RoundRobin } => Some(self.recency()),
            Rule::Priority { .. } | Rule::Preemption { .. } => None,
        }
    }

    fn measure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Temperature => self.warmth(),
            // A device draws and holds memory as far as it is in use; nothing finer is known before it runs.
            Metric::Power | Metric::Utilization => self.in_use(),
            Metric::Memory => 1.0 - self.in_use(),
            Metric::PoolUtilization => self.pool_in_use(),
        }
    }

    /// The share of its devices that is in use. Of a partitioned device only its instances can be.
    fn in_use(&self) -> f64 {
        let whole = free_milli(self.kind, self.kind.empty()) as f64;
        if whole == 0.0 { 0.0 } else { 1.0 - free_milli(self.kind, self.free) as f64 / whole }
    }

    /// The mean temperature of its devices, as a share of [`HOT_C`]. A device that does not report is neutral: it
    /// counts as the median of those that do, so that it is neither sought nor avoided.
    fn warmth(&self) -> f64 {
        let Some(neutral_c) = self.glance.median_c else { return NEUTRAL };
        let health = self.state.nodes.get(self.node).map(|node| &node.gpu_health[..]).unwrap_or_default();
        let celsius = health.iter().map(|health| health.temperature_c.map_or(neutral_c, f64::from));
        let mean_c = if health.is_empty() { neutral_c } else { celsius.sum::<f64>() / health.len() as f64 };
        mean_c / HOT_C
    }

    /// How much is in use of the pools that its devices belong to; of the emptiest of them.
    fn pool_in_use(&self) -> f64 {
        let pools = self.kind.gpus.iter().flat_map(|gpu| gpu.pools.keys());
        let in_use = pools.filter_map(|pool| self.glance.pools.get(pool).copied());
        in_use.min_by(f64::total_cmp).unwrap_or_else(|| self.in_use())
    }

    /// How lately something was placed on it: 1 for the last of all nodes, and for those that this round has used.
    fn recency(&self) -> f64 {
        let unchanged = self.state.capacity.filed(self.node).is_some_and(|filed| filed.free == self.free);
        let known = self.glance.recency.get(self.node).filter(|_| unchanged);
        known.copied().unwrap_or(1.0)
    }
}

/// What the rules need to know of the whole cluster, looked up once a round. O(nodes × GPUs).
#[derive(Debug, Default)]
pub struct Glance {
    /// The rules themselves.
    rules: Vec<Rule>,
    /// How much of each pool is in use.
    pools: BTreeMap<String, f64>,
    /// How lately something was placed on each node: which part of all nodes was used before it.
    recency: BTreeMap<NodeId, f64>,
    /// The median temperature of the devices that report; nothing if none does.
    median_c: Option<f64>,
}

impl Glance {
    /// As far as some rule looks at it.
    pub fn of(state: &State) -> Glance {
        let Some(ruleset) = state.policies.ruleset(&state.settings) else { return Glance::default() };
        let has = |wanted: fn(&Rule) -> bool| ruleset.rules.iter().any(wanted);
        let pools = has(|rule| matches!(rule, Rule::Balance { metric: Metric::PoolUtilization, .. }));
        let warm = has(|rule| matches!(rule, Rule::Balance { metric: Metric::Temperature, .. }));
        let turns = has(|rule| matches!(rule, Rule::Distribution { strategy: Layout::RoundRobin }));
        Glance {
            rules: ruleset.rules.clone(),
            pools: if pools { pools_in_use(state) } else { BTreeMap::new() },
            recency: if turns { recency(state) } else { BTreeMap::new() },
            median_c: if warm { median_c(state) } else { None },
        }
    }
}

/// Thousandths of devices in some space of a node: of devices that are not partitioned, and of instances.
fn free_milli(kind: &Kind, free: Free) -> u64 {
    let instances = (0u8..).zip(&kind.gpus).flat_map(|(device, gpu)| {
        let is_free =
            move |one: &&InstanceKind| free.holds(Seat::Instance { device, start: one.start }.space());
        gpu.instances.iter().filter(is_free).map(|one| u64::from(one.compute_milli))
    });
    kind.emptiness(free).0 + instances.sum::<u64>()
}

fn median_c(state: &State) -> Option<f64> {
    let health = state.nodes.values().flat_map(|node| &node.gpu_health);
    let mut known: Vec<i32> = health.filter_map(|health| health.temperature_c).collect();
    known.sort_unstable();
    let (low, high) = (known.get((known.len().max(1) - 1) / 2)?, known.get(known.len() / 2)?);
    Some((f64::from(*low) + f64::from(*high)) / 2.0)
}

fn pools_in_use(state: &State) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<&String, (u32, u32)> = BTreeMap::new();
    for node in state.nodes.values() {
        for (gpu, pools) in node.pools.iter().enumerate() {
            for pool in pools.keys() {
                let (held, all) = sums.entry(pool).or_default();
                *held += u32::from(node.is_held(gpu));
                *all += 1;
            }
        }
    }
    sums.into_iter().map(|(pool, (held, all))| (pool.clone(), f64::from(held) / f64::from(all))).collect()
}

fn recency(state: &State) -> BTreeMap<NodeId, f64> {
    let mut placed: Vec<i64> = state.nodes.values().map(|node| node.placed_at.0).collect();
    placed.sort_unstable();
    let before = |node: &Node| placed.partition_point(|other| *other < node.placed_at.0);
    let share = |node: &Node| before(node) as f64 / placed.len() as f64;
    state.nodes.iter().map(|(id, node)| (id.clone(), share(node))).collect()
}
