//! Expected fragmentation, computed from its description in docs/decisions/0008 and not by the product's code: plain
//! recursion for residuals, one loop over all task classes for each amount of cores or memory, and a power series for
//! the normal distribution (the product has a rational approximation). Only the workload mix itself is read from the
//! state.

use std::collections::BTreeMap;

use muster_core::State;
use muster_core::gpu::model;
use muster_core::objects::job::Resources;
use muster_core::objects::node::Node;

use crate::naive_planner::devices::{is_shared, share_of};
use crate::naive_planner::space::Space;

/// A task class rarer than one in this many tasks is not waited for.
const PATIENCE_TASKS: f64 = 50.0;
/// The amount of cores or memory of a node is divided into this many steps.
const STEPS: usize = 128;

/// The expected fragmentation of one node under the workload mix.
pub(super) struct Fragmentation {
    /// Task classes with GPUs for which the node has an eligible device.
    tasks: Vec<TaskClass>,
    /// The part of the requested GPU capacity for which the node has no eligible device.
    wrong_model: f64,
    cpus: Curve,
    memory: Curve,
}

/// Tasks of one size in the workload mix, as a node sees them.
#[derive(Debug, Clone)]
struct TaskClass {
    count: f64,
    cpus: f64,
    memory_mib: f64,
    gpus: u32,
    /// Thousandths of each device, by compute or memory, whichever is more.
    milli: u32,
}

/// GPU capacity that an amount of cores or memory serves.
struct Curve {
    /// The amount in one step; 0 if no task requests the resource.
    step: f64,
    /// Expected thousandths of devices that each number of free steps serves.
    served: Vec<f64>,
    /// Variance of the served thousandths, per thousandth.
    variance: f64,
}

impl TaskClass {
    fn of(node: &Node, each: &Resources, count: u64) -> Option<TaskClass> {
        let eligible = |gpu: &u8| {
            let facts = &node.facts.gpus[usize::from(*gpu)];
            let models = &each.gpu_models;
            let has_model = models.is_empty() || models.iter().any(|name| model::matches(name, &facts.model));
            has_model && facts.memory_mib >= each.gpu_memory_mib
        };
        let gpu = (0..node.facts.gpus.len() as u8).find(eligible)?;
        let share = share_of(each, node, gpu);
        Some(TaskClass {
            count: count as f64,
            cpus: f64::from(each.cpus),
            memory_mib: each.memory_mib as f64,
            gpus: each.gpus,
            milli: if is_shared(each) { share.compute_milli.max(share.memory_milli).min(1_000) } else { 1_000 },
        })
    }

    /// Thousandths of devices in total.
    fn gpu_milli(&self) -> f64 {
        f64::from(self.gpus * self.milli)
    }
}

impl Fragmentation {
    pub(super) fn of(state: &State, node: &Node) -> Fragmentation {
        let mix = state.workload_mix.snapshot();
        let (mut tasks, mut elsewhere) = (Vec::new(), 0.0);
        for (each, count) in mix.iter().filter(|(each, _)| each.gpus > 0) {
            match TaskClass::of(node, each, count) {
                Some(class) => tasks.push(class),
                None => elsewhere += count as f64 * f64::from(each.gpus * each.gpu_compute_milli),
            }
        }
        let eligible: f64 = tasks.iter().map(|task| task.count * task.gpu_milli()).sum();
        Fragmentation {
            wrong_model: if tasks.is_empty() { 0.0 } else { elsewhere / (eligible + elsewhere) },
            cpus: Curve::of(&tasks, f64::from(node.facts.cpus), |task| task.cpus),
            memory: Curve::of(&tasks, node.facts.memory_mib as f64, |task| task.memory_mib),
            tasks,
        }
    }

    /// Thousandths of devices that are expected to stay unused on the node.
    pub(super) fn milli(&self, free: &Space) -> f64 {
        let devices = || free.gpus.values().map(|(compute, memory)| *compute.min(memory));
        let all: f64 = devices().map(f64::from).sum();
        let residual: f64 = devices().filter(|left| *left < 1_000).map(|left| self.residual(left)).sum();
        let useful = all - residual;
        let stranded_by_cpus = self.cpus.stranded(useful, free.cpus as f64);
        let stranded_by_memory = self.memory.stranded(useful, free.memory_mib as f64);
        residual + stranded_by_cpus.max(stranded_by_memory) + self.lost_slots(free, all) + self.wrong_model * all
    }

    /// The expected unused part of a device of which `left` is free. The next event is the arrival of a task that
    /// fits, in proportion to its frequency and number of devices, or the end of waiting, once in [`PATIENCE_TASKS`]
    /// tasks. Without eligible tasks all of it stays unused.
    fn residual(&self, left: u32) -> f64 {
        let count: f64 = self.tasks.iter().map(|task| task.count).sum();
        let mut arrivals: BTreeMap<u32, f64> = BTreeMap::new();
        for task in &self.tasks {
            *arrivals.entry(task.milli).or_default() += task.count * f64::from(task.gpus) / count;
        }
        residual(left, &arrivals)
    }

    /// The price of lost slots for tasks with several devices. Such tasks leave no residual, so a slot is worth the
    /// residual that other tasks leave of a whole device.
    fn lost_slots(&self, free: &Space, all: f64) -> f64 {
        let requested: f64 = self.tasks.iter().map(|task| task.count * task.gpu_milli()).sum();
        let sizes: BTreeMap<u32, ()> = self.tasks.iter().map(|task| (task.gpus, ())).collect();
        let mut lost = 0.0;
        for gpus in sizes.into_keys().filter(|gpus| *gpus > 1) {
            let gangs = || self.tasks.iter().filter(move |task| task.gpus == gpus);
            let count: f64 = gangs().map(|task| task.count).sum();
            let mean = |sum: f64| (sum / count).max(1.0);
            let cpus = mean(gangs().map(|task| task.count * task.cpus).sum());
            let memory_mib = mean(gangs().map(|task| task.count * task.memory_mib).sum());
            let by_host = (free.cpus as f64 / cpus).min(free.memory_mib as f64 / memory_mib);
            let slots = (free.whole() as f64 / f64::from(gpus)).min(by_host).floor();
            let slot_milli = f64::from(gpus) * 1_000.0;
            lost += count * slot_milli / requested * (all - slots * slot_milli);
        }
        if lost == 0.0 { 0.0 } else { lost * self.residual(1_000) / 1_000.0 }
    }
}

/// The expected unused part of `left` under these arrival rates by size: a plain recursion.
fn residual(left: u32, arrivals: &BTreeMap<u32, f64>) -> f64 {
    if left == 0 {
        return 0.0;
    }
    let give_up = 1.0 / PATIENCE_TASKS;
    let (mut unused, mut events) = (give_up * f64::from(left), give_up);
    for (size, rate) in arrivals.range(..=left) {
        unused += rate * residual(left - size, arrivals);
        events += rate;
    }
    unused / events
}

impl Curve {
    fn of(tasks: &[TaskClass], all: f64, resource: impl Fn(&TaskClass) -> f64) -> Curve {
        let sum = |value: &dyn Fn(&TaskClass) -> f64| tasks.iter().map(value).sum::<f64>();
        let gpu_milli = sum(&|task| task.count * task.gpu_milli());
        let per_milli = sum(&|task| task.count * resource(task)) / gpu_milli;
        if tasks.is_empty() || per_milli == 0.0 {
            return Curve { step: 0.0, served: Vec::new(), variance: 0.0 };
        }
        let deviation = |task: &TaskClass| resource(task) / per_milli - task.gpu_milli();
        let step = all.max(1.0) / STEPS as f64;
        Curve {
            step,
            served: served(tasks, |task| resource(task) / step),
            variance: sum(&|task| task.count * deviation(task) * deviation(task)) / gpu_milli,
        }
    }

    /// Thousandths of devices, out of `useful`, for which `free` is not expected to suffice: the mean shortfall of a
    /// normally distributed served capacity.
    fn stranded(&self, useful: f64, free: f64) -> f64 {
        if useful <= 0.0 || self.served.is_empty() {
            return 0.0;
        }
        let spare = at(&self.served, free / self.step) - useful;
        let deviation = (self.variance * useful).sqrt();
        if deviation == 0.0 { (-spare).max(0.0) } else { deviation * normal_loss(spare / deviation) }
    }
}

/// The capacity that each number of free steps serves. The next task is drawn by frequency. If it fits, it is served,
/// and the rest of the steps serves further tasks; a task of less than a step takes a whole step with that
/// probability. If it does not fit, the rest is given up once in [`PATIENCE_TASKS`]. This gives `served = served_now
/// + again * served`.
fn served(tasks: &[TaskClass], steps_of: impl Fn(&TaskClass) -> f64) -> Vec<f64> {
    let count: f64 = tasks.iter().map(|task| task.count).sum();
    let mut served: Vec<f64> = Vec::new();
    for free in 0..=STEPS {
        let (mut now, mut again) = (0.0, 0.0);
        for task in tasks {
            let (probability, steps) = (task.count / count, steps_of(task));
            if steps > free as f64 {
                again += probability * (1.0 - 1.0 / PATIENCE_TASKS);
                continue;
            }
            let takes_a_step = steps.min(1.0);
            let rest = if steps > 0.0 { at(&served, free as f64 - steps.max(1.0)) } else { 0.0 };
            now += probability * (task.gpu_milli() + takes_a_step * rest);
            again += probability * (1.0 - takes_a_step);
        }
        // Free steps may stay unused, so more of them never serve less.
        let with_less = served.last().copied().unwrap_or(0.0);
        served.push(with_less.max(now / (1.0 - again)));
    }
    served
}

/// Linear interpolation between steps; the last value beyond them.
fn at(values: &[f64], position: f64) -> f64 {
    let below = position.floor() as usize;
    match (values.get(below), values.get(below + 1)) {
        (Some(low), Some(high)) => low + (high - low) * (position - below as f64),
        _ => values[values.len() - 1],
    }
}

/// The mean of `max(X - level, 0)` for a standard normal `X`. The distribution function is the series of Marsaglia
/// (2004), `1/2 + density * (x + x^3/3 + x^5/(3*5) + ...)`. Beyond 8 deviations the rest is below `f64` precision here.
fn normal_loss(level: f64) -> f64 {
    if level.abs() > 8.0 {
        return (-level).max(0.0);
    }
    let density = (-level * level / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let (mut term, mut sum, mut odd) = (level, level, 1.0);
    while term.abs() > 1e-17 {
        odd += 2.0;
        term *= level * level / odd;
        sum += term;
    }
    density - level * (0.5 - density * sum)
}

#[test]
fn the_normal_loss_is_that_of_the_tables() {
    for (level, loss) in [(-2.0, 2.008_490_7), (0.0, 0.398_942_3), (1.0, 0.083_315_5), (3.0, 0.000_382_2)] {
        assert!((normal_loss(level) - loss).abs() < 1e-7, "{level}: {}", normal_loss(level));
    }
}
