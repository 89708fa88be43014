//! The cost of a placement for the naive planner, written from the documented rules (docs/policies.md, decision 0008)
//! and not from the product's code: no `Glance`, no `Terms`, no `Wiring`.
//!
//! One term is borrowed: `waste`, the expected fragmentation. Its unit tests in `waste.rs` compare it with closed forms.

use std::collections::BTreeSet;

use muster_core::capacity::{Free, Kind};
use muster_core::job::{Job, PlacedTask, Topology};
use muster_core::node::{GpuFacts, GpuWord, Node, NodeFacts};
use muster_core::plan::score::Said;
use muster_core::rules::{Extreme, Layout, Metric, Pool, Rule};
use muster_core::share::ShareMode;
use muster_core::{State, model};

/// What is compared: millionths of a device, then free thousandths of GPUs and of cores.
pub type Cost = (i64, u64, u64);

/// A gang on one node.
pub struct Placement<'a> {
    pub state: &'a State,
    pub node: &'a Node,
    pub job: &'a Job,
    pub tasks: &'a [PlacedTask],
    /// What is free on the node before.
    pub before: Free,
    /// Free compute of each device that is not partitioned, and the free instances by device and start.
    pub free: FreeDevices,
    /// Nothing was taken from the node in this round.
    pub untouched: bool,
    /// What others say of the node, without the policies in force.
    pub said: Said,
    pub rules: &'a [Rule],
}

#[derive(Debug, Clone, Default)]
pub struct FreeDevices {
    pub compute: Vec<u32>,
    pub instances: BTreeSet<(u8, u8)>,
}

impl Placement<'_> {
    pub fn cost(&self) -> Cost {
        let weights = &self.state.settings.weights;
        let weighed = |value: f64, weight: u32| value * f64::from(weight) / 1_000.0;
        let policy = self.said.policy + self.answered() + self.by_rules();
        let milli = weighed(self.waste(), weights.waste)
            + weighed(self.locality(), weights.locality)
            + weighed(self.health(), weights.health)
            + weighed(self.said.learned, weights.learned)
            + weighed(policy, weights.policy)
            + weighed(self.said.power, weights.power);
        let gpus = self.free.compute.iter().map(|compute| u64::from(*compute)).sum();
        let cpus = u64::from(self.node.facts.cpus);
        let cores = (self.before.cpus * 1_000).checked_div(cpus).unwrap_or(0);
        ((milli * 1_000.0).round() as i64, gpus, cores)
    }

    /// The product's expected fragmentation, after less before, and what of an instance the task does not use.
    fn waste(&self) -> f64 {
        let kind = Kind::of(self.node);
        let prospect = self.state.capacity.prospect(&kind);
        let used = self.tasks.iter().map(|task| Free::used_by(&self.job.spec, task));
        let after = used.fold(self.before, Free::without);
        let unused: u32 = self.tasks.iter().map(|task| self.unused_of(task)).sum();
        kind.waste(&prospect, after) - kind.waste(&prospect, self.before) + f64::from(unused)
    }

    fn unused_of(&self, task: &PlacedTask) -> u32 {
        let Some(ShareMode::Mig { start, .. }) = task.share.as_ref().map(|share| &share.mode) else {
            return 0;
        };
        let asked = self.job.spec.tasks[task.group as usize].each.gpu_compute_milli;
        instance_milli(self.node, task.gpus[0], *start).saturating_sub(asked)
    }

    /// What slow links cost: of each device of a task so many thousandths.
    fn locality(&self) -> f64 {
        let whole = self.tasks.iter().filter(|task| task.share.is_none() && task.gpus.len() > 1);
        whole.map(|task| f64::from(self.apart(&task.gpus) * task.gpus.len() as u32)).sum()
    }

    fn apart(&self, gpus: &[u8]) -> u32 {
        let facts = &self.node.facts;
        let gpu = |index: &u8| &facts.gpus[usize::from(*index)];
        let same_numa = gpus.iter().all(|one| gpu(one).numa_node == gpu(&gpus[0]).numa_node);
        let same_socket = gpus.iter().all(|one| socket(gpu(one), facts) == socket(gpu(&gpus[0]), facts));
        let joined = are_joined(facts, gpus);
        let near = match (same_numa, same_socket, joined) {
            (true, _, true) => 0,
            (true, _, false) | (false, true, true) => 20,
            (false, true, false) | (false, false, true) => 60,
            (false, false, false) => 150,
        };
        let wants_nvlink = self.job.spec.topology == Topology::Nvlink || self.job.spec.prefer_nvlink;
        near + if wants_nvlink && !joined { 100 } else { 0 }
    }

    /// A twentieth of each device that has a warning.
    fn health(&self) -> f64 {
        let used: BTreeSet<u8> = self.tasks.iter().flat_map(|task| task.gpus.iter().copied()).collect();
        let doubtful = |gpu: &&u8| self.node.gpu_health[usize::from(**gpu)].word == GpuWord::Warning;
        50.0 * used.iter().filter(doubtful).count() as f64
    }

    fn answered(&self) -> f64 {
        let answer = self.state.policies.answers.of(&self.state.bucket(self.job));
        let milli = answer.and_then(|answer| answer.costs.get(&Kind::of(self.node)).copied());
        milli.unwrap_or(0) as f64
    }

    /// The first rule of balance or distribution comes to one GPU at most, each further one to half as much.
    fn by_rules(&self) -> f64 {
        let (mut sum, mut most) = (0.0, 1_000.0);
        for rule in self.rules {
            let share = match rule {
                Rule::Balance { metric, strategy: Extreme::Least } => self.measure(*metric),
                Rule::Balance { metric, strategy: Extreme::Most } => 1.0 - self.measure(*metric),
                Rule::Distribution { strategy: Layout::Spread } => self.in_use(),
                Rule::Distribution { strategy: Layout::Pack } => 1.0 - self.in_use(),
                Rule::Distribution { strategy: Layout::RoundRobin } => self.recency(),
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

    /// Unknown readings are neutral: the median of the devices that report. Nothing where none reports.
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

    /// What is in use of what can be: of a partitioned device its instances, of others all.
    fn in_use(&self) -> f64 {
        let (mut all, mut free) = (0u32, 0u32);
        for gpu in 0..self.node.facts.gpus.len() as u8 {
            let instances = self.node.instances(gpu);
            if instances.is_empty() {
                all += 1_000;
                free += self.free.compute[usize::from(gpu)];
            } else if muster_core::partition::check(&self.node.facts.gpus[usize::from(gpu)], gpu, instances)
                .is_ok()
            {
                let milli = |start: u8| instance_milli(self.node, gpu, start);
                all += instances.iter().map(|one| milli(one.start)).sum::<u32>();
                let is_free = |start: u8| self.free.instances.contains(&(gpu, start));
                free += instances
                    .iter()
                    .filter(|one| is_free(one.start))
                    .map(|one| milli(one.start))
                    .sum::<u32>();
            }
        }
        if all == 0 { 0.0 } else { 1.0 - f64::from(free) / f64::from(all) }
    }

    /// The share of nodes that were last used before this one; 1 where this round used it.
    fn recency(&self) -> f64 {
        let before = self.state.nodes.values().filter(|node| node.placed_at < self.node.placed_at).count();
        if self.untouched { before as f64 / self.state.nodes.len() as f64 } else { 1.0 }
    }

    /// The least share of held devices among the pools that the node has devices of.
    fn emptiest_pool(&self) -> Option<f64> {
        let rules = self.state.policies.rules()?;
        let has = |pool: &Pool, node: &Node, gpu: usize| is_of_pool(pool, &node.facts.gpus[gpu]);
        let here = |pool: &&Pool| (0..self.node.facts.gpus.len()).any(|gpu| has(pool, self.node, gpu));
        let in_use = |pool: &Pool| {
            let devices = self.state.nodes.values().flat_map(|node| {
                (0..node.facts.gpus.len())
                    .filter(|gpu| has(pool, node, *gpu))
                    .map(|gpu| !node.holders[gpu].is_empty())
            });
            let devices: Vec<bool> = devices.collect();
            devices.iter().filter(|held| **held).count() as f64 / devices.len() as f64
        };
        rules.pools.values().filter(here).map(in_use).min_by(f64::total_cmp)
    }
}

fn is_of_pool(pool: &Pool, gpu: &GpuFacts) -> bool {
    let large = gpu.memory_mib as i64 * 1_000 / 1_024 >= pool.min_memory_milli_gb;
    let wished = pool.gpu_types.iter().any(|wish| model::matches(wish, &gpu.model));
    large && (pool.gpu_types.is_empty() || wished)
}

fn instance_milli(node: &Node, gpu: u8, start: u8) -> u32 {
    let facts = &node.facts.gpus[usize::from(gpu)];
    let one = node.instances(gpu).iter().find(|one| one.start == start).unwrap();
    let table = model::of_device(&facts.model, facts.memory_mib).unwrap().mig.unwrap();
    table.compute_milli(table.profile(&one.profile).unwrap())
}

/// The socket of a device; where none is known each NUMA node counts as one.
fn socket(gpu: &GpuFacts, facts: &NodeFacts) -> (Option<u32>, Option<u32>) {
    let of_numa = gpu.numa_node.and_then(|numa| facts.numa.get(numa as usize)).map(|numa| numa.socket);
    match gpu.socket.or(of_numa) {
        Some(socket) => (Some(socket), None),
        None => (None, gpu.numa_node),
    }
}

/// Whether one can go from each device to each other over NVLinks among them. A link of one side is a link.
fn are_joined(facts: &NodeFacts, gpus: &[u8]) -> bool {
    let linked = |a: u8, b: u8| {
        facts.gpus[usize::from(a)].nvlink.contains(&b) || facts.gpus[usize::from(b)].nvlink.contains(&a)
    };
    let mut reached = vec![gpus[0]];
    while let Some(next) =
        gpus.iter().find(|gpu| !reached.contains(gpu) && reached.iter().any(|one| linked(*one, **gpu)))
    {
        reached.push(*next);
    }
    reached.len() == gpus.len()
}
