//! Expected fragmentation: the free GPU capacity of a node that the workload mix is expected to leave unused.
//!
//! The planner places a task where it adds the least fragmentation. The model has four terms, each in thousandths of a
//! device:
//!
//! * **residual**: arriving tasks fill a device in partial use, and a remainder that is too small for every task stays;
//! * **stranded**: the node runs out of cores or memory before it runs out of devices;
//! * **gang slots**: tasks with several devices leave no remainder, so a slot for one is worth what other tasks would
//!   strand;
//! * **wrong model**: tasks that request another model cannot use the device at all, however many arrive.
//!
//! The model of a node depends neither on other nodes nor on time, so a value stays valid until the node or the
//! workload mix changes. Task sizes are learned from past submissions: the only parameter is [`PATIENCE_TASKS`].

use std::collections::BTreeMap;

use crate::gpu::gpu_share::WHOLE;

/// The expected number of task arrivals after which a remainder counts as lost: task classes rarer than one in this
/// many are not waited for. Values between 30 and 300 give nearly the same results.
const PATIENCE_TASKS: f64 = 50.0;
/// Steps into which the amount of a resource on a node is divided: about the granularity of most requests.
const RESOURCE_STEPS: usize = 128;

/// Tasks with equal requests, and how often they arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TaskClass {
    pub cpus: u64,
    pub memory_mib: u64,
    /// Number of devices; may be 0.
    pub gpus: u32,
    /// Thousandths of each device.
    pub gpu_milli: u32,
    /// Arrival frequency, in any unit.
    pub weight: f64,
    /// Whether nodes of the kind have an eligible device.
    pub suits: bool,
}

/// The free resources of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeFree<'a> {
    pub cpus: u64,
    pub memory_mib: u64,
    /// Free thousandths of each device.
    pub devices: &'a [u32],
}

/// The expected fragmentation of nodes of one kind under a workload mix.
#[derive(Debug, Clone, PartialEq)]
pub struct FragmentationModel {
    /// For each remainder of a device, the part of it that is expected to stay unused.
    residual: Vec<f64>,
    cpu: ResourceCurve,
    memory: ResourceCurve,
    gangs: Vec<GangClass>,
    /// The part of the requested GPU capacity that belongs to tasks for which such nodes have no eligible device.
    wrong_model: f64,
}

/// How much GPU capacity an amount of one host resource (cores or memory) can use.
#[derive(Debug, Clone, PartialEq, Default)]
struct ResourceCurve {
    /// For each number of free steps, the thousandths of devices that they are expected to fill.
    filled: Vec<f64>,
    /// The amount of the resource in one step.
    step: f64,
    /// Variance of the filled capacity per filled thousandth. Variances of independent tasks add up.
    variance: f64,
}

/// Tasks that request the same amount of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
struct DemandClass {
    /// The request of each task, in steps of the resource.
    steps: f64,
    /// Arrival frequency.
    weight: f64,
    /// Thousandths of devices that they fill, weighted by frequency.
    gpu_milli: f64,
}

/// Tasks with the same number of devices, more than one.
#[derive(Debug, Clone, Copy, PartialEq)]
struct GangClass {
    gpus: u32,
    /// Mean of the class.
    cpus: f64,
    /// Mean of the class.
    memory_mib: f64,
    /// Their part of the requested GPU capacity.
    share: f64,
}

impl Default for FragmentationModel {
    fn default() -> FragmentationModel {
        FragmentationModel::unknown()
    }
}

// No field is ever NaN.
impl Eq for FragmentationModel {}

impl FragmentationModel {
    /// Build the model from the workload mix for nodes with the resources `node`. If such nodes have no eligible device
    /// for any task, all free capacity is useless and no node is better than another.
    pub fn of(mix: &[TaskClass], node: NodeFree<'_>) -> FragmentationModel {
        let requested = |tasks: &[&TaskClass]| tasks.iter().map(|task| task.weight * task.gpu_milli()).sum::<f64>();
        let all: Vec<&TaskClass> = mix.iter().filter(|task| task.gpu_milli() > 0.0).collect();
        let tasks: Vec<&TaskClass> = all.iter().copied().filter(|task| task.suits).collect();
        let (all, requested) = (requested(&all), requested(&tasks));
        if requested <= 0.0 {
            return FragmentationModel::unknown();
        }
        let weight: f64 = tasks.iter().map(|task| task.weight).sum();
        FragmentationModel {
            wrong_model: 1.0 - requested / all,
            residual: residuals(&tasks, weight),
            cpu: ResourceCurve::of(&tasks, node.cpus, |task| task.cpus),
            memory: ResourceCurve::of(&tasks, node.memory_mib, |task| task.memory_mib),
            gangs: gangs(&tasks, requested),
        }
    }

    fn unknown() -> FragmentationModel {
        let residual = (0..=WHOLE).map(f64::from).collect();
        let (cpu, memory) = (ResourceCurve::default(), ResourceCurve::default());
        FragmentationModel { residual, cpu, memory, gangs: Vec::new(), wrong_model: 0.0 }
    }

    /// Expected fragmentation of a node, in thousandths of a device.
    pub fn expected_milli(&self, free: NodeFree<'_>) -> f64 {
        let all = f64::from(free.devices.iter().sum::<u32>());
        // An idle device has no residual, so a task opens one only where that costs less than the alternatives.
        let in_use = free.devices.iter().filter(|device| **device < WHOLE);
        let residual: f64 = in_use.map(|device| self.residual[*device as usize]).sum();
        // Residuals are lost already and need no cores.
        let useful = all - residual;
        let cpu = self.cpu.stranded(useful, free.cpus as f64);
        let memory = self.memory.stranded(useful, free.memory_mib as f64);
        residual + cpu.max(memory) + self.lost_gang_slots(free, all) + self.wrong_model * all
    }

    /// The cost of free capacity that tasks with several devices cannot use. Such tasks leave no remainder where other
    /// tasks leave the residual of a whole device, so that residual is the price of a slot.
    fn lost_gang_slots(&self, free: NodeFree<'_>, all: f64) -> f64 {
        let whole = free.devices.iter().filter(|device| **device == WHOLE).count() as f64;
        let price = self.residual[WHOLE as usize] / f64::from(WHOLE);
        let missing = |gang: &GangClass| {
            let by_cpu = free.cpus as f64 / gang.cpus.max(1.0);
            let by_memory = free.memory_mib as f64 / gang.memory_mib.max(1.0);
            let slots = (whole / f64::from(gang.gpus)).min(by_cpu).min(by_memory).floor();
            gang.share * (all - slots * f64::from(gang.gpus * WHOLE))
        };
        price * self.gangs.iter().map(missing).sum::<f64>()
    }
}

impl TaskClass {
    /// Thousandths of devices in total.
    fn gpu_milli(&self) -> f64 {
        f64::from(self.gpus * self.gpu_milli)
    }
}

/// The expected unused part of each remainder of a device. Tasks arrive in the proportions of the mix, each that fits
/// is placed, and between arrivals the remainder is given up with probability 1 / [`PATIENCE_TASKS`]. A task with
/// several devices counts as an arrival on each of them.
fn residuals(tasks: &[&TaskClass], weight: f64) -> Vec<f64> {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    for task in tasks {
        *rates.entry(task.gpu_milli).or_default() += task.weight / weight * f64::from(task.gpus);
    }
    let rates: Vec<(u32, f64)> = rates.into_iter().collect();
    let mut residuals: Vec<f64> = vec![0.0];
    for size in 1..=WHOLE {
        let (mut left, mut all) = (f64::from(size) / PATIENCE_TASKS, 1.0 / PATIENCE_TASKS);
        for (request, rate) in rates.iter().take_while(|(request, _)| *request <= size) {
            left += rate * residuals[(size - request) as usize];
            all += rate;
        }
        residuals.push(left / all);
    }
    residuals
}

fn gangs(tasks: &[&TaskClass], requested: f64) -> Vec<GangClass> {
    let mut gangs: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
    for task in tasks.iter().filter(|task| task.gpus > 1) {
        let (weight, cpu, memory) = gangs.entry(task.gpus).or_default();
        *weight += task.weight;
        *cpu += task.weight * task.cpus as f64;
        *memory += task.weight * task.memory_mib as f64;
    }
    let gang = |(gpus, (weight, cpu, memory)): (u32, (f64, f64, f64))| GangClass {
        gpus,
        cpus: cpu / weight,
        memory_mib: memory / weight,
        share: weight * f64::from(gpus * WHOLE) / requested,
    };
    gangs.into_iter().map(gang).collect()
}

impl ResourceCurve {
    /// The curve of a resource, given its amount on a node (`all`) and the request of each task. Empty if no task
    /// requests the resource: it never strands a device.
    fn of(tasks: &[&TaskClass], all: u64, resource: impl Fn(&TaskClass) -> u64) -> ResourceCurve {
        let sum = |value: &dyn Fn(&TaskClass) -> f64| tasks.iter().map(|task| task.weight * value(task)).sum::<f64>();
        let requested = sum(&TaskClass::gpu_milli);
        let mean = sum(&|task| resource(task) as f64) / requested;
        if mean <= 0.0 {
            return ResourceCurve::default();
        }
        let variance = sum(&|task| (resource(task) as f64 / mean - task.gpu_milli()).powi(2)) / requested;
        let step = all.max(1) as f64 / RESOURCE_STEPS as f64;
        ResourceCurve { filled: filled(&demand_classes(tasks, step, resource)), step, variance }
    }

    /// Thousandths of devices expected to be stranded: the mean excess of `gpu_milli` over the capacity that the free
    /// resource fills, with that capacity normally distributed as a sum over many tasks.
    fn stranded(&self, gpu_milli: f64, free: f64) -> f64 {
        if gpu_milli <= 0.0 || self.filled.is_empty() {
            return 0.0;
        }
        let spare = interpolated(&self.filled, free / self.step) - gpu_milli;
        let deviation = (self.variance * gpu_milli).sqrt();
        match deviation > 0.0 {
            true => deviation * mean_excess(spare / deviation),
            false => (-spare).max(0.0),
        }
    }
}

/// Tasks grouped by their request of a resource, the smallest first.
fn demand_classes(tasks: &[&TaskClass], step: f64, resource: impl Fn(&TaskClass) -> u64) -> Vec<DemandClass> {
    let mut classes: BTreeMap<u64, DemandClass> = BTreeMap::new();
    for task in tasks {
        let steps = resource(task) as f64 / step;
        let empty = DemandClass { steps, weight: 0.0, gpu_milli: 0.0 };
        let class = classes.entry(resource(task)).or_insert(empty);
        class.weight += task.weight;
        class.gpu_milli += task.weight * task.gpu_milli();
    }
    classes.into_values().collect()
}

/// The capacity that each number of free steps is expected to fill, if tasks arrive in the proportions of the mix and
/// each that fits is placed. The last steps are worth the most, because only tasks with small requests can use them.
fn filled(classes: &[DemandClass]) -> Vec<f64> {
    let mut filled: Vec<f64> = Vec::with_capacity(RESOURCE_STEPS + 1);
    for free in 0..=RESOURCE_STEPS {
        // More of a resource is never worse: the surplus could stay unused.
        let with_less = filled.last().copied().unwrap_or(0.0);
        filled.push(with_less.max(filled_next(classes, free as f64, &filled)));
    }
    filled
}

/// The capacity that `free` steps fill, from the values for fewer steps. At each task that does not fit, the rest is
/// given up with probability 1 / [`PATIENCE_TASKS`]. Nothing is given up at tasks that fit, because many of them fit on
/// a node.
fn filled_next(classes: &[DemandClass], free: f64, with_less: &[f64]) -> f64 {
    let (mut filled, mut chances) = (0.0, 0.0);
    for class in classes {
        if class.steps > free {
            chances += class.weight / PATIENCE_TASKS;
            continue;
        }
        filled += class.gpu_milli;
        if class.steps > 0.0 {
            // A task that needs less than a step counts as often as it takes to fill one step.
            let chance = class.weight * class.steps.min(1.0);
            filled += chance * interpolated(with_less, free - class.steps.max(1.0));
            chances += chance;
        }
    }
    filled / chances
}

/// The value at a position between two steps, interpolated linearly.
fn interpolated(steps: &[f64], position: f64) -> f64 {
    let last = steps.len() - 1;
    let below = (position as usize).min(last);
    let above = (below + 1).min(last);
    steps[below] + (steps[above] - steps[below]) * (position - below as f64)
}

/// The mean excess of a standard normal variable over `level`: E[max(X - level, 0)].
fn mean_excess(level: f64) -> f64 {
    let density = (-0.5 * level * level).exp() / (2.0 * std::f64::consts::PI).sqrt();
    density - level * tail(level, density)
}

/// The probability that a standard normal variable exceeds `level`, to seven decimals (Abramowitz and Stegun, 26.2.17).
fn tail(level: f64, density: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * level.abs());
    let series = [1.330_274_429, -1.821_255_978, 1.781_477_937, -0.356_563_782, 0.319_381_530]
        .iter()
        .fold(0.0, |sum, term| (sum + term) * t);
    let beyond = density * series;
    if level >= 0.0 { beyond } else { 1.0 - beyond }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(gpus: u32, gpu_milli: u32, cores: u64, weight: f64) -> TaskClass {
        TaskClass { cpus: cores, memory_mib: 1_024, gpus, gpu_milli, weight, suits: true }
    }

    fn free(cores: u64, devices: &[u32]) -> NodeFree<'_> {
        NodeFree { cpus: cores, memory_mib: 1 << 20, devices }
    }

    /// For nodes of 128 cores.
    fn of(mix: &[TaskClass]) -> FragmentationModel {
        FragmentationModel::of(mix, free(128, &[]))
    }

    #[test]
    fn residual_is_lost_unless_a_fitting_task_arrives() {
        let model = of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        // One arrival in ten fits 200, and the remainder is given up at one in fifty: 200 × 0.02 / 0.12.
        assert!((model.residual[200] - 200.0 * 0.02 / 0.12).abs() < 1e-9);
        // Nothing fits 199.
        assert!((model.residual[199] - 199.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_task_prefers_the_residual_of_a_used_device() {
        let model = of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        let before = model.expected_milli(free(32, &[200, 1_000]));
        let on_used_device = model.expected_milli(free(31, &[0, 1_000])) - before;
        let on_idle_device = model.expected_milli(free(31, &[200, 800])) - before;
        assert!(on_used_device < on_idle_device, "{on_used_device} {on_idle_device}");
    }

    #[test]
    fn devices_are_stranded_without_cores() {
        let model = of(&[demand(1, 1_000, 4, 0.5), demand(1, 1_000, 12, 0.5)]);
        let expected = |cores| model.expected_milli(free(cores, &[1_000; 8]));
        assert!(expected(0) > 7_800.0 && expected(32) > 3_300.0 && expected(64) < 1_000.0 && expected(128) < 200.0);
        // A core is worth more where cores are scarce.
        assert!(expected(40) - expected(44) > 10.0 * (expected(96) - expected(100)));
    }

    #[test]
    fn the_last_cores_are_worth_more_than_the_first() {
        // Half of the tasks request 2 cores, half 16: with fewer than 16 cores left, only the small tasks fit.
        let model = of(&[demand(1, 1_000, 2, 0.5), demand(1, 1_000, 16, 0.5)]);
        let cost = |cores| {
            model.expected_milli(free(cores - 2, &[1_000; 64])) - model.expected_milli(free(cores, &[1_000; 64]))
        };
        assert!(cost(8) > 4.0 * cost(128) && cost(128) > 0.0, "{} {}", cost(8), cost(128));
    }

    #[test]
    fn filled_capacity_never_decreases_with_more_of_a_resource() {
        let model = of(&[demand(1, 1_000, 2, 0.5), demand(1, 100, 16, 0.5)]);
        assert!(model.cpu.filled.is_sorted(), "{:?}", model.cpu.filled);
    }

    #[test]
    fn requests_smaller_than_a_step_are_counted_exactly() {
        // 128 steps of 8 GiB each; tasks of 1 GiB and half a device.
        let mix = [demand(1, 500, 1, 1.0)];
        let model = FragmentationModel::of(&mix, NodeFree { cpus: 4_096, memory_mib: 1 << 20, devices: &[] });
        for (step, filled) in model.memory.filled.iter().enumerate() {
            assert!((filled - 8.0 * 500.0 * step as f64).abs() < 1e-6, "{step} {filled}");
        }
    }

    #[test]
    fn devices_are_not_stranded_for_tasks_that_request_no_cores() {
        let model = of(&[demand(1, 1_000, 0, 1.0)]);
        assert_eq!(model.cpu.stranded(8_000.0, 0.0), 0.0);
        let model = of(&[demand(1, 1_000, 0, 0.9), demand(1, 1_000, 8, 0.1)]);
        assert!(model.expected_milli(free(0, &[1_000])) < 200.0, "{}", model.expected_milli(free(0, &[1_000])));
    }

    #[test]
    fn a_task_costs_more_where_it_breaks_a_gang_slot() {
        let model = of(&[demand(1, 700, 1, 0.9), demand(8, 1_000, 8, 0.1)]);
        let cost = |before: &[u32], after: &[u32]| {
            model.expected_milli(free(63, after)) - model.expected_milli(free(64, before))
        };
        let on_idle_node = cost(&[1_000; 8], &[300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]);
        let on_used_node = cost(
            &[300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000],
            &[300, 300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000],
        );
        assert!(on_used_node < on_idle_node, "{on_used_node} {on_idle_node}");
    }

    #[test]
    fn a_device_that_fewer_tasks_can_use_costs_less() {
        let other = TaskClass { suits: false, ..demand(1, 1_000, 1, 0.5) };
        let for_all = of(&[demand(1, 1_000, 1, 0.5), demand(1, 1_000, 1, 0.5)]);
        let for_half = of(&[demand(1, 1_000, 1, 0.5), other]);
        let cost = |model: &FragmentationModel| {
            model.expected_milli(free(31, &[0, 1_000])) - model.expected_milli(free(32, &[1_000, 1_000]))
        };
        assert!((cost(&for_half) - cost(&for_all) + 500.0).abs() < 20.0);
    }

    #[test]
    fn without_gpu_tasks_only_residuals_count() {
        let model = of(&[demand(0, 0, 4, 1.0)]);
        assert_eq!(model.expected_milli(free(0, &[1_000, 300])), 300.0);
    }

    #[test]
    fn mean_excess_matches_published_values() {
        for (level, excess) in [(-2.0, 2.008_49), (0.0, 0.398_94), (1.0, 0.083_32), (3.0, 0.000_38)] {
            assert!((mean_excess(level) - excess).abs() < 1e-5, "{level}");
        }
    }
}
