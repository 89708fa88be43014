//! Step 7, phase place: the policy term of the placement score, from registered rules and recorded answers.
//!
//! Both are in the state, so that the planner never runs a policy.

use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::objects::node::Node;
use crate::objects::policy::rules::{BalanceStrategy, DistributionStrategy, Metric, Rule};
use crate::resources::{DeviceAssignment, InstanceKind, Kind, ResourceVec};
use crate::state::State;

/// Most that the first balance or distribution rule adds, in thousandths of a device; each further rule adds at most
/// half as much as the one before.
const FIRST_RULE: f64 = 1_000.0;
/// A GPU of this temperature in °C costs the full weight of a temperature rule.
const HOT_C: f64 = 100.0;
/// The temperature share of every node while no device of the cluster reports a temperature: neither cold nor hot.
const NEUTRAL: f64 = 0.5;

impl ClusterSummary {
    /// The cost that policies add to a placement, in thousandths of a device: the answer of a `score` hook for the
    /// bucket on such a node (`answered_milli`), and the terms of the balance and distribution rules.
    pub(crate) fn cost(
        &self,
        state: &State,
        answered_milli: i64,
        node: &NodeId,
        kind: &Kind,
        free: ResourceVec,
    ) -> f64 {
        let target = RuleTarget { state, summary: self, node, kind, free };
        let mut weight = FIRST_RULE;
        let mut sum = answered_milli as f64;
        for share in self.rules.iter().filter_map(|rule| target.rule_cost(rule)) {
            sum += weight * share;
            weight /= 2.0;
        }
        sum
    }
}

/// A node, with what rules read of it.
struct RuleTarget<'a> {
    state: &'a State,
    summary: &'a ClusterSummary,
    node: &'a NodeId,
    kind: &'a Kind,
    free: ResourceVec,
}

impl RuleTarget<'_> {
    /// The cost of the node by a rule, from 0 to 1; `None` for a rule that is not about placement.
    fn rule_cost(&self, rule: &Rule) -> Option<f64> {
        match rule {
            Rule::Balance { metric, strategy: BalanceStrategy::Least } => Some(self.measure(*metric)),
            Rule::Balance { metric, strategy: BalanceStrategy::Most } => Some(1.0 - self.measure(*metric)),
            Rule::Distribution { strategy: DistributionStrategy::Spread } => Some(self.in_use()),
            Rule::Distribution { strategy: DistributionStrategy::Pack } => Some(1.0 - self.in_use()),
            Rule::Distribution { strategy: DistributionStrategy::RoundRobin } => Some(self.recency()),
            Rule::Priority { .. } | Rule::Preemption { .. } => None,
        }
    }

    fn measure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Temperature => self.temperature_share(),
            // Power and memory are taken as proportional to use: nothing finer is known before the job runs.
            Metric::Power | Metric::Utilization => self.in_use(),
            Metric::Memory => 1.0 - self.in_use(),
            Metric::PoolUtilization => self.pool_in_use(),
        }
    }

    /// The share of its devices that is in use. Of a partitioned device only the instances count.
    fn in_use(&self) -> f64 {
        let whole = free_milli(self.kind, self.kind.empty()) as f64;
        if whole == 0.0 { 0.0 } else { 1.0 - free_milli(self.kind, self.free) as f64 / whole }
    }

    /// The mean temperature of its devices, as a share of [`HOT_C`]. A device that reports none is neutral: it counts
    /// as the median of the reporting devices, so that it is neither preferred nor avoided.
    fn temperature_share(&self) -> f64 {
        let Some(neutral_c) = self.summary.median_c else { return NEUTRAL };
        let health = self.state.nodes.get(self.node).map(|node| &node.gpu_health[..]).unwrap_or_default();
        let celsius = health.iter().map(|health| health.temperature_c.map_or(neutral_c, f64::from));
        let mean_c = if health.is_empty() { neutral_c } else { celsius.sum::<f64>() / health.len() as f64 };
        mean_c / HOT_C
    }

    /// The share in use of the emptiest pool that its devices belong to; its own share in use without a pool.
    fn pool_in_use(&self) -> f64 {
        let pools = self.kind.gpus.iter().flat_map(|gpu| gpu.pools.keys());
        let in_use = pools.filter_map(|pool| self.summary.pools.get(pool).copied());
        in_use.min_by(f64::total_cmp).unwrap_or_else(|| self.in_use())
    }

    /// How recently a gang was placed on the node, from 0 to 1; 1 for nodes that this round has used.
    fn recency(&self) -> f64 {
        let unchanged = self.state.resources.entry(self.node).is_some_and(|entry| entry.free == self.free);
        let known = self.summary.recency.get(self.node).filter(|_| unchanged);
        known.copied().unwrap_or(1.0)
    }
}

/// Values of the whole cluster that policy rules read, computed once a round. O(nodes × GPUs).
#[derive(Debug, Default)]
pub struct ClusterSummary {
    rules: Vec<Rule>,
    /// The share in use of each pool.
    pools: BTreeMap<String, f64>,
    /// How recently a gang was placed on each node: the share of nodes whose last placement is older.
    recency: BTreeMap<NodeId, f64>,
    /// The median temperature of the reporting devices; `None` if no device reports one.
    median_c: Option<f64>,
}

impl ClusterSummary {
    /// Only values that some rule reads are computed.
    pub fn of(state: &State) -> ClusterSummary {
        let Some(ruleset) = state.policies.ruleset(&state.settings) else { return ClusterSummary::default() };
        let has = |wanted: fn(&Rule) -> bool| ruleset.rules.iter().any(wanted);
        let reads_pools = has(|rule| matches!(rule, Rule::Balance { metric: Metric::PoolUtilization, .. }));
        let reads_temperature = has(|rule| matches!(rule, Rule::Balance { metric: Metric::Temperature, .. }));
        let reads_recency =
            has(|rule| matches!(rule, Rule::Distribution { strategy: DistributionStrategy::RoundRobin }));
        ClusterSummary {
            rules: ruleset.rules.clone(),
            pools: if reads_pools { pools_in_use(state) } else { BTreeMap::new() },
            recency: if reads_recency { recency(state) } else { BTreeMap::new() },
            median_c: if reads_temperature { median_c(state) } else { None },
        }
    }
}

/// Free thousandths of devices of a node: of devices that are not partitioned, and of instances.
fn free_milli(kind: &Kind, free: ResourceVec) -> u64 {
    let instances = (0u8..).zip(&kind.gpus).flat_map(|(device, gpu)| {
        let is_free =
            move |one: &&InstanceKind| free.covers(DeviceAssignment::Instance { device, start: one.start }.taken());
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
