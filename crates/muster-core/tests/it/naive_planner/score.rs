//! The cost of a placement, computed from the documented rules (docs/policies.md, docs/decisions/0008) and not by the
//! product's code.

use std::collections::BTreeSet;

use muster_core::State;
use muster_core::gpu::device::{GpuFacts, GpuStatus};
use muster_core::gpu::gpu_share::ShareMode;
use muster_core::gpu::model;
use muster_core::gpu::partition::check;
use muster_core::objects::job::{Job, PlacedTask};
use muster_core::objects::node::Node;
use muster_core::objects::policy::rules::{BalanceStrategy, DistributionStrategy, Metric, Pool, Rule};
use muster_core::resources::Kind;

use crate::naive_planner::fragmentation::Fragmentation;
use crate::naive_planner::locality;
use crate::naive_planner::space::{Space, space_of_task};

/// The cost of a device with a warning, in thousandths.
const WARNING_GPU_MILLI: f64 = 50.0;

/// The sort key of placements: the cost, then the emptiness of the node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cost {
    /// Millionths of a device.
    pub(super) micro: f64,
    /// Free thousandths of GPUs and of cores.
    emptiness: (u64, u64),
}

impl Cost {
    /// Two costs that differ by less than a billionth of a device are equal: the difference is the rounding of sums in
    /// another order.
    pub(super) fn key(&self) -> (i64, (u64, u64)) {
        ((self.micro * 1_000.0).round() as i64, self.emptiness)
    }

    /// True if the product may rank the two costs in either order: they differ, by at most a millionth of a device. The
    /// product compares rounded costs and approximates the normal distribution to seven decimals.
    pub(super) fn is_close_to(&self, other: &Cost) -> bool {
        self.key().0 != other.key().0 && (self.micro - other.micro).abs() <= 1.0
    }
}

/// A placement of a gang on one node.
pub(super) struct Placement<'a> {
    pub(super) state: &'a State,
    pub(super) node: &'a Node,
    pub(super) job: &'a Job,
    pub(super) tasks: &'a [PlacedTask],
    /// Free space of the node before the placement.
    pub(super) free: &'a Space,
    pub(super) fragmentation: &'a Fragmentation,
    /// True if this round has taken nothing from the node.
    pub(super) untouched: bool,
    pub(super) rules: &'a [Rule],
}

impl Placement<'_> {
    pub(super) fn cost(&self) -> Cost {
        let weights = &self.state.settings.weights;
        let weighted = |value: f64, weight: u32| value * f64::from(weight) / 1_000.0;
        let policy = self.policy_answer() + self.by_rules();
        let milli = weighted(self.added_fragmentation(), weights.fragmentation)
            + weighted(self.locality(), weights.locality)
            + weighted(self.health(), weights.health)
            + weighted(policy, weights.policy);
        let gpus = self.free.gpus.values().map(|(compute, _)| u64::from(*compute)).sum();
        let cpus = u64::from(self.node.facts.cpus);
        let cores = (self.free.cpus * 1_000).checked_div(cpus).unwrap_or(0);
        Cost { micro: milli * 1_000.0, emptiness: (gpus, cores) }
    }

    /// Expected fragmentation after the placement less before, and the compute of instances that no task requested.
    fn added_fragmentation(&self) -> f64 {
        let mut after = self.free.clone();
        self.tasks.iter().for_each(|task| after.take(&space_of_task(self.job, task)));
        let unused: u32 = self.tasks.iter().map(|task| self.unused_of_instance(task)).sum();
        self.fragmentation.milli(&after) - self.fragmentation.milli(self.free) + f64::from(unused)
    }

    fn unused_of_instance(&self, task: &PlacedTask) -> u32 {
        let Some(ShareMode::Mig { start, .. }) = task.share.as_ref().map(|share| &share.mode) else {
            return 0;
        };
        let requested = self.job.spec.tasks[task.group as usize].each.gpu_compute_milli;
        instance_milli(self.node, task.gpus[0], *start).saturating_sub(requested)
    }

    fn locality(&self) -> f64 {
        let whole = self.tasks.iter().filter(|task| task.share.is_none() && task.gpus.len() > 1);
        let cost = |gpus: &[u8]| locality::cost_milli(self.job, &self.node.facts, gpus) * gpus.len() as u32;
        whole.map(|task| f64::from(cost(&task.gpus))).sum()
    }

    fn health(&self) -> f64 {
        let used: BTreeSet<u8> = self.tasks.iter().flat_map(|task| task.gpus.iter().copied()).collect();
        let warning = |gpu: &&u8| self.node.gpu_health[usize::from(**gpu)].status == GpuStatus::Warning;
        WARNING_GPU_MILLI * used.iter().filter(warning).count() as f64
    }

    /// The cost that policies answered for the kind of the node.
    fn policy_answer(&self) -> f64 {
        let answer = self.state.policies.answers.of(&self.state.bucket(self.job));
        let milli = answer.and_then(|answer| answer.costs.get(&Kind::of(self.node)).copied());
        milli.unwrap_or(0) as f64
    }

    /// The first balance or distribution rule costs at most one GPU, each further one half of the previous.
    fn by_rules(&self) -> f64 {
        let (mut sum, mut most) = (0.0, 1_000.0);
        for rule in self.rules {
            let share = match rule {
                Rule::Balance { metric, strategy: BalanceStrategy::Least } => self.measure(*metric),
                Rule::Balance { metric, strategy: BalanceStrategy::Most } => 1.0 - self.measure(*metric),
                Rule::Distribution { strategy: DistributionStrategy::Spread } => self.in_use(),
                Rule::Distribution { strategy: DistributionStrategy::Pack } => 1.0 - self.in_use(),
                Rule::Distribution { strategy: DistributionStrategy::RoundRobin } => self.recency(),
                Rule::Priority { .. } | Rule::Preemption { .. } => continue,
            };
            sum += most * share;
            most /= 2.0;
        }
        sum
    }

    fn measure(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Temperature => self.mean_celsius().map_or(0.5, |celsius| celsius / 100.0),
            Metric::Power | Metric::Utilization => self.in_use(),
            Metric::Memory => 1.0 - self.in_use(),
            Metric::PoolUtilization => self.emptiest_pool().unwrap_or_else(|| self.in_use()),
        }
    }

    /// The mean temperature of the node. A device without a reading counts as the median of all readings. `None`
    /// without any reading.
    fn mean_celsius(&self) -> Option<f64> {
        let all = self.state.nodes.values().flat_map(|node| &node.gpu_health);
        let mut known: Vec<i32> = all.filter_map(|health| health.temperature_c).collect();
        known.sort_unstable();
        let count = known.len();
        let median = match count {
            0 => return None,
            _ if count % 2 == 1 => f64::from(known[count / 2]),
            _ => f64::from(known[count / 2 - 1] + known[count / 2]) / 2.0,
        };
        let own = &self.node.gpu_health;
        let sum: f64 = own.iter().map(|health| health.temperature_c.map_or(median, f64::from)).sum();
        Some(if own.is_empty() { median } else { sum / own.len() as f64 })
    }

    /// The used part of the capacity that can be used: of a partitioned device its instances, of others all.
    fn in_use(&self) -> f64 {
        let (mut all, mut free) = (0u32, 0u32);
        for gpu in 0..self.node.facts.gpus.len() as u8 {
            let instances = self.node.instances(gpu);
            if instances.is_empty() {
                all += 1_000;
                free += self.free.of(gpu).0;
            } else if check(&self.node.facts.gpus[usize::from(gpu)], gpu, instances).is_ok() {
                let milli = |start: u8| instance_milli(self.node, gpu, start);
                all += instances.iter().map(|one| milli(one.start)).sum::<u32>();
                let is_free = |start: u8| self.free.instances.contains(&(gpu, start));
                free += instances.iter().filter(|one| is_free(one.start)).map(|one| milli(one.start)).sum::<u32>();
            }
        }
        if all == 0 { 0.0 } else { 1.0 - f64::from(free) / f64::from(all) }
    }

    /// The share of nodes whose last placement is older; 1 if this round has used the node.
    fn recency(&self) -> f64 {
        let before = self.state.nodes.values().filter(|node| node.placed_at < self.node.placed_at).count();
        if self.untouched { before as f64 / self.state.nodes.len() as f64 } else { 1.0 }
    }

    /// The lowest utilisation among the pools of the node's devices.
    fn emptiest_pool(&self) -> Option<f64> {
        let rules = self.state.policies.rules()?;
        let has = |pool: &Pool, node: &Node, gpu: usize| is_of_pool(pool, &node.facts.gpus[gpu]);
        let is_there = |pool: &&Pool| (0..self.node.facts.gpus.len()).any(|gpu| has(pool, self.node, gpu));
        let in_use = |pool: &Pool| {
            let devices = self.state.nodes.values().flat_map(|node| {
                (0..node.facts.gpus.len()).filter(|gpu| has(pool, node, *gpu)).map(|gpu| !node.holders[gpu].is_empty())
            });
            let devices: Vec<bool> = devices.collect();
            devices.iter().filter(|held| **held).count() as f64 / devices.len() as f64
        };
        rules.pools.values().filter(is_there).map(in_use).min_by(f64::total_cmp)
    }
}

fn is_of_pool(pool: &Pool, gpu: &GpuFacts) -> bool {
    let large = gpu.memory_mib as i64 * 1_000 / 1_024 >= pool.min_memory_milli_gb;
    let has_model = pool.gpu_types.iter().any(|name| model::matches(name, &gpu.model));
    large && (pool.gpu_types.is_empty() || has_model)
}

/// Compute of an instance, in thousandths of the device.
fn instance_milli(node: &Node, gpu: u8, start: u8) -> u32 {
    let facts = &node.facts.gpus[usize::from(gpu)];
    let one = node.instances(gpu).iter().find(|one| one.start == start).unwrap();
    let table = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap();
    table.compute_milli(table.profile(&one.profile).unwrap())
}
