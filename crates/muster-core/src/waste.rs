//! How much GPU of a node is going to be left over, seen from the tasks that come.
//!
//! A task is best placed where it adds the least to this. Four things make GPU useless, and each is priced in
//! thousandths of a device:
//!
//! * **holes**: a device in part use is filled by what happens to come, and what is too small for all of it stays;
//! * **hunger**: the node's cores or memory run out before its devices do;
//! * **places**: tasks of several devices leave nothing over, so a place for them is worth what others would waste;
//! * **strangers**: tasks that want another model cannot use it at all, however many of them come.
//!
//! Nothing here knows of other nodes or of time, so what it says can be kept for as long as a node and the mix of
//! tasks stay as they are. What comes is learned from what came: there is nothing to tune but [`PATIENCE`].

use std::collections::BTreeMap;

use crate::share::WHOLE;

/// So many tasks may come before we give up on a hole; what is rarer than one in so many is not waited for. Between 30
/// and 300 it hardly matters.
const PATIENCE: f64 = 50.0;
/// What a node has of a resource is divided into so many steps: as fine as most tasks ask for.
const STEPS: usize = 128;

/// A kind of task, and how often it comes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coming {
    /// CPU cores.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Devices; none is fine.
    pub gpus: u32,
    /// Thousandths of each device.
    pub gpu_milli: u32,
    /// How often, in any unit.
    pub weight: f64,
    /// Whether nodes of this kind have what it wants.
    pub suits: bool,
}

/// What is free on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left<'a> {
    /// CPU cores.
    pub cpus: u64,
    /// Memory.
    pub memory_mib: u64,
    /// Thousandths of each device.
    pub devices: &'a [u32],
}

/// What the tasks that come make of the nodes of one kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Prospect {
    /// For each size of a hole, what is expected to stay of it.
    holes: Vec<f64>,
    cpu: Food,
    memory: Food,
    gangs: Vec<Gang>,
    /// The part of all GPU that is asked for by tasks that such nodes do not suit.
    strangers: f64,
}

/// What one resource of a node is good for.
#[derive(Debug, Clone, PartialEq, Default)]
struct Food {
    /// For each step of the resource, the thousandths of devices that so much is expected to fill.
    fed: Vec<f64>,
    /// How much of the resource one step is.
    step: f64,
    /// Of what is filled, for each thousandth of it. Grows as that of any sum of independent parts.
    variance: f64,
}

/// Tasks that ask for the same of a resource.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Eaters {
    /// What each asks for, in steps of the resource.
    steps: f64,
    /// How often one comes.
    weight: f64,
    /// Thousandths of a device that they fill, by how often they come.
    gpu_milli: f64,
}

/// Tasks of so many devices.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Gang {
    gpus: u32,
    cpus: f64,
    memory_mib: f64,
    /// Their part in all GPU that is asked for.
    share: f64,
}

impl Default for Prospect {
    fn default() -> Prospect {
        Prospect::unknown()
    }
}

// No number in it is ever undefined.
impl Eq for Prospect {}

impl Prospect {
    /// From all tasks that come, for nodes that have so much. If such nodes suit none of them, nothing is of use, and no
    /// node is better than another.
    pub fn of(coming: &[Coming], node: Left<'_>) -> Prospect {
        let asked = |coming: &[&Coming]| coming.iter().map(|one| one.weight * one.gpu_milli()).sum::<f64>();
        let all: Vec<&Coming> = coming.iter().filter(|one| one.gpu_milli() > 0.0).collect();
        let coming: Vec<&Coming> = all.iter().copied().filter(|one| one.suits).collect();
        let (all, asked) = (asked(&all), asked(&coming));
        if asked <= 0.0 {
            return Prospect::unknown();
        }
        let tasks: f64 = coming.iter().map(|one| one.weight).sum();
        Prospect {
            strangers: 1.0 - asked / all,
            holes: holes(&coming, tasks),
            cpu: Food::of(&coming, node.cpus, |one| one.cpus),
            memory: Food::of(&coming, node.memory_mib, |one| one.memory_mib),
            gangs: gangs(&coming, asked),
        }
    }

    fn unknown() -> Prospect {
        let holes = (0..=WHOLE).map(f64::from).collect();
        let (cpu, memory) = (Food::default(), Food::default());
        Prospect { holes, cpu, memory, gangs: Vec::new(), strangers: 0.0 }
    }

    /// Thousandths of a device that are going to be left over on a node.
    pub fn waste(&self, free: Left<'_>) -> f64 {
        let all = f64::from(free.devices.iter().sum::<u32>());
        // What nobody has touched yet is no hole, so that a device is opened only where it pays.
        let touched = free.devices.iter().filter(|device| **device < WHOLE);
        let holes: f64 = touched.map(|device| self.holes[*device as usize]).sum();
        // What lies in holes asks for no cores: it is lost already.
        let useful = all - holes;
        let cpu = self.cpu.hunger(useful, free.cpus as f64);
        let memory = self.memory.hunger(useful, free.memory_mib as f64);
        holes + cpu.max(memory) + self.missing_places(free, all) + self.strangers * all
    }

    /// What it is worth that tasks of several devices cannot use all of this. They leave nothing over where others
    /// leave what is left of a whole device, so that is the price of a place.
    fn missing_places(&self, free: Left<'_>, all: f64) -> f64 {
        let whole = free.devices.iter().filter(|device| **device == WHOLE).count() as f64;
        let price = self.holes[WHOLE as usize] / f64::from(WHOLE);
        let missing = |gang: &Gang| {
            let by_cpu = free.cpus as f64 / gang.cpus.max(1.0);
            let by_memory = free.memory_mib as f64 / gang.memory_mib.max(1.0);
            let places = (whole / f64::from(gang.gpus)).min(by_cpu).min(by_memory).floor();
            gang.share * (all - places * f64::from(gang.gpus * WHOLE))
        };
        price * self.gangs.iter().map(missing).sum::<f64>()
    }
}

impl Coming {
    /// Thousandths of a device in all.
    fn gpu_milli(&self) -> f64 {
        f64::from(self.gpus * self.gpu_milli)
    }
}

/// What stays of a hole when tasks come in their mix, each that fits is taken, and we give up in between with the
/// chance of one in [`PATIENCE`]. A task of several devices comes to each of them.
fn holes(coming: &[&Coming], tasks: f64) -> Vec<f64> {
    let mut rates: BTreeMap<u32, f64> = BTreeMap::new();
    for one in coming {
        *rates.entry(one.gpu_milli).or_default() += one.weight / tasks * f64::from(one.gpus);
    }
    let rates: Vec<(u32, f64)> = rates.into_iter().collect();
    let mut holes: Vec<f64> = vec![0.0];
    for size in 1..=WHOLE {
        let (mut left, mut all) = (f64::from(size) / PATIENCE, 1.0 / PATIENCE);
        for (asked, rate) in rates.iter().take_while(|(asked, _)| *asked <= size) {
            left += rate * holes[(size - asked) as usize];
            all += rate;
        }
        holes.push(left / all);
    }
    holes
}

fn gangs(coming: &[&Coming], asked: f64) -> Vec<Gang> {
    let mut gangs: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
    for one in coming.iter().filter(|one| one.gpus > 1) {
        let (weight, cpu, memory) = gangs.entry(one.gpus).or_default();
        *weight += one.weight;
        *cpu += one.weight * one.cpus as f64;
        *memory += one.weight * one.memory_mib as f64;
    }
    let gang = |(gpus, (weight, cpu, memory)): (u32, (f64, f64, f64))| Gang {
        gpus,
        cpus: cpu / weight,
        memory_mib: memory / weight,
        share: weight * f64::from(gpus * WHOLE) / asked,
    };
    gangs.into_iter().map(gang).collect()
}

impl Food {
    /// Of a resource, from what nodes have of it and what each task asks of it. If none asks for any, it feeds all.
    fn of(coming: &[&Coming], all: u64, resource: impl Fn(&Coming) -> u64) -> Food {
        let sum =
            |value: &dyn Fn(&Coming) -> f64| coming.iter().map(|one| one.weight * value(one)).sum::<f64>();
        let asked = sum(&Coming::gpu_milli);
        let mean = sum(&|one| resource(one) as f64) / asked;
        if mean <= 0.0 {
            return Food::default();
        }
        let variance = sum(&|one| (resource(one) as f64 / mean - one.gpu_milli()).powi(2)) / asked;
        let step = all.max(1) as f64 / STEPS as f64;
        Food { fed: fed(&eaters(coming, step, resource)), step, variance }
    }

    /// Thousandths of a device that are expected to starve: the mean of what `gpu_milli` are beyond what is going to be
    /// filled, if the sum of many tasks varies as sums do (normally).
    fn hunger(&self, gpu_milli: f64, free: f64) -> f64 {
        if gpu_milli <= 0.0 || self.fed.is_empty() {
            return 0.0;
        }
        let spare = between(&self.fed, free / self.step) - gpu_milli;
        let deviation = (self.variance * gpu_milli).sqrt();
        match deviation > 0.0 {
            true => deviation * mean_excess(spare / deviation),
            false => (-spare).max(0.0),
        }
    }
}

/// Tasks by what they ask of a resource, the least first.
fn eaters(coming: &[&Coming], step: f64, resource: impl Fn(&Coming) -> u64) -> Vec<Eaters> {
    let mut eaters: BTreeMap<u64, Eaters> = BTreeMap::new();
    for one in coming {
        let steps = resource(one) as f64 / step;
        let same = eaters.entry(resource(one)).or_insert(Eaters { steps, weight: 0.0, gpu_milli: 0.0 });
        same.weight += one.weight;
        same.gpu_milli += one.weight * one.gpu_milli();
    }
    eaters.into_values().collect()
}

/// What is filled with each number of steps when tasks come in their mix and each that fits is taken. The last steps are
/// worth the most, because only who asks for little can have them.
fn fed(eaters: &[Eaters]) -> Vec<f64> {
    let mut fed: Vec<f64> = Vec::with_capacity(STEPS + 1);
    for free in 0..=STEPS {
        // More is never worse: what is too much could be left alone.
        let with_less = fed.last().copied().unwrap_or(0.0);
        fed.push(with_less.max(fed_next(eaters, free as f64, &fed)));
    }
    fed
}

/// The same with so many steps, from what is filled with fewer. At each task that does not fit, we give up with the
/// chance of one in [`PATIENCE`]; those that do are many on a node, and are not waited for.
fn fed_next(eaters: &[Eaters], free: f64, with_less: &[f64]) -> f64 {
    let (mut filled, mut chances) = (0.0, 0.0);
    for one in eaters {
        if one.steps > free {
            chances += one.weight / PATIENCE;
            continue;
        }
        filled += one.gpu_milli;
        if one.steps > 0.0 {
            // Who takes less than a step comes as often as it takes to make one.
            let chance = one.weight * one.steps.min(1.0);
            filled += chance * between(with_less, free - one.steps.max(1.0));
            chances += chance;
        }
    }
    filled / chances
}

/// The value at a place between two steps.
fn between(steps: &[f64], place: f64) -> f64 {
    let last = steps.len() - 1;
    let below = (place as usize).min(last);
    let above = (below + 1).min(last);
    steps[below] + (steps[above] - steps[below]) * (place - below as f64)
}

/// The mean of what a standard normal variable exceeds `level` by.
fn mean_excess(level: f64) -> f64 {
    let density = (-0.5 * level * level).exp() / (2.0 * std::f64::consts::PI).sqrt();
    density - level * tail(level, density)
}

/// The chance that a standard normal variable exceeds `level`, to seven decimals (Abramowitz and Stegun, 26.2.17).
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

    fn demand(gpus: u32, gpu_milli: u32, cores: u64, weight: f64) -> Coming {
        Coming { cpus: cores, memory_mib: 1_024, gpus, gpu_milli, weight, suits: true }
    }

    fn free(cores: u64, devices: &[u32]) -> Left<'_> {
        Left { cpus: cores, memory_mib: 1 << 20, devices }
    }

    /// For nodes of 128 cores.
    fn of(coming: &[Coming]) -> Prospect {
        Prospect::of(coming, free(128, &[]))
    }

    #[test]
    fn a_hole_stays_unless_something_that_fits_comes_in_time() {
        let prospect = of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        // One in ten fits 200, and one in fifty we give up: 200 × 0.02 / 0.12.
        assert!((prospect.holes[200] - 200.0 * 0.02 / 0.12).abs() < 1e-9);
        // Nothing fits 199.
        assert!((prospect.holes[199] - 199.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_task_goes_into_the_hole_that_a_large_one_left() {
        let prospect = of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        let before = prospect.waste(free(32, &[200, 1_000]));
        let into_the_hole = prospect.waste(free(31, &[0, 1_000])) - before;
        let into_a_whole_one = prospect.waste(free(31, &[200, 800])) - before;
        assert!(into_the_hole < into_a_whole_one, "{into_the_hole} {into_a_whole_one}");
    }

    #[test]
    fn without_cores_devices_are_wasted() {
        let prospect = of(&[demand(1, 1_000, 4, 0.5), demand(1, 1_000, 12, 0.5)]);
        let waste = |cores| prospect.waste(free(cores, &[1_000; 8]));
        assert!(waste(0) > 7_800.0 && waste(32) > 3_300.0 && waste(64) < 1_000.0 && waste(128) < 200.0);
        // A core is worth more where cores are scarce.
        assert!(waste(40) - waste(44) > 10.0 * (waste(96) - waste(100)));
    }

    #[test]
    fn the_last_cores_are_worth_more_than_the_first() {
        // Half of the tasks want 2 cores, half 16: of what is left below 16 only the small ones have something.
        let prospect = of(&[demand(1, 1_000, 2, 0.5), demand(1, 1_000, 16, 0.5)]);
        let cost =
            |cores| prospect.waste(free(cores - 2, &[1_000; 64])) - prospect.waste(free(cores, &[1_000; 64]));
        assert!(cost(8) > 4.0 * cost(128) && cost(128) > 0.0, "{} {}", cost(8), cost(128));
    }

    #[test]
    fn more_of_a_resource_never_feeds_less() {
        let prospect = of(&[demand(1, 1_000, 2, 0.5), demand(1, 100, 16, 0.5)]);
        assert!(prospect.cpu.fed.is_sorted(), "{:?}", prospect.cpu.fed);
    }

    #[test]
    fn what_asks_for_less_than_a_step_is_counted_for_what_it_is() {
        // 128 steps of 8 GiB each; tasks of 1 GiB and half a device.
        let coming = [demand(1, 500, 1, 1.0)];
        let prospect = Prospect::of(&coming, Left { cpus: 4_096, memory_mib: 1 << 20, devices: &[] });
        for (step, fed) in prospect.memory.fed.iter().enumerate() {
            assert!((fed - 8.0 * 500.0 * step as f64).abs() < 1e-6, "{step} {fed}");
        }
    }

    #[test]
    fn tasks_that_ask_for_none_of_it_do_not_starve() {
        let prospect = of(&[demand(1, 1_000, 0, 1.0)]);
        assert_eq!(prospect.cpu.hunger(8_000.0, 0.0), 0.0);
        let prospect = of(&[demand(1, 1_000, 0, 0.9), demand(1, 1_000, 8, 0.1)]);
        assert!(prospect.waste(free(0, &[1_000])) < 200.0, "{}", prospect.waste(free(0, &[1_000])));
    }

    #[test]
    fn a_place_for_a_large_task_is_worth_something() {
        let prospect = of(&[demand(1, 700, 1, 0.9), demand(8, 1_000, 8, 0.1)]);
        let taken_from = |devices: &[u32], left: &[u32]| {
            prospect.waste(free(63, left)) - prospect.waste(free(64, devices))
        };
        let of_an_empty_node =
            taken_from(&[1_000; 8], &[300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000]);
        let of_one_in_use = taken_from(
            &[300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000],
            &[300, 300, 1_000, 1_000, 1_000, 1_000, 1_000, 1_000],
        );
        assert!(of_one_in_use < of_an_empty_node, "{of_one_in_use} {of_an_empty_node}");
    }

    #[test]
    fn a_model_that_few_can_use_is_taken_first() {
        let other = Coming { suits: false, ..demand(1, 1_000, 1, 0.5) };
        let for_all = of(&[demand(1, 1_000, 1, 0.5), demand(1, 1_000, 1, 0.5)]);
        let for_half = of(&[demand(1, 1_000, 1, 0.5), other]);
        let cost = |prospect: &Prospect| {
            prospect.waste(free(31, &[0, 1_000])) - prospect.waste(free(32, &[1_000, 1_000]))
        };
        assert!((cost(&for_half) - cost(&for_all) + 500.0).abs() < 20.0);
    }

    #[test]
    fn where_nothing_is_known_all_nodes_are_alike() {
        let prospect = of(&[demand(0, 0, 4, 1.0)]);
        assert_eq!(prospect.waste(free(0, &[1_000, 300])), 300.0);
    }

    #[test]
    fn the_normal_excess_is_that_of_the_tables() {
        for (level, excess) in [(-2.0, 2.008_49), (0.0, 0.398_94), (1.0, 0.083_32), (3.0, 0.000_38)] {
            assert!((mean_excess(level) - excess).abs() < 1e-5, "{level}");
        }
    }
}
