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
    cpu: Need,
    memory: Need,
    gangs: Vec<Gang>,
    /// The part of all GPU that is asked for by tasks that such nodes do not suit.
    strangers: f64,
}

/// What it takes of one resource to fill devices, for each thousandth of a device.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Need {
    mean: f64,
    /// Grows with what is filled, as that of any sum of independent parts.
    variance: f64,
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
        Prospect::of(&[])
    }
}

// No number in it is ever undefined.
impl Eq for Prospect {}

impl Prospect {
    /// From all tasks that come. If such nodes suit none of them, nothing is of use, and no node is better than another.
    pub fn of(coming: &[Coming]) -> Prospect {
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
            cpu: Need::of(&coming, asked, |one| one.cpus as f64),
            memory: Need::of(&coming, asked, |one| one.memory_mib as f64),
            gangs: gangs(&coming, asked),
        }
    }

    fn unknown() -> Prospect {
        let holes = (0..=WHOLE).map(f64::from).collect();
        let (cpu, memory) = (Need::default(), Need::default());
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

impl Need {
    /// Of a resource, from what each task asks of it.
    fn of(coming: &[&Coming], asked: f64, resource: impl Fn(&Coming) -> f64) -> Need {
        let mean = coming.iter().map(|one| one.weight * resource(one)).sum::<f64>() / asked;
        let off = |one: &&Coming| resource(one) - mean * one.gpu_milli();
        let variance = coming.iter().map(|one| one.weight * off(one).powi(2)).sum::<f64>() / asked;
        Need { mean, variance }
    }

    /// Thousandths of a device that are expected to starve: the mean of what filling `gpu_milli` takes beyond what is
    /// free, if the sum of many tasks varies as sums do (normally).
    fn hunger(&self, gpu_milli: f64, free: f64) -> f64 {
        if gpu_milli <= 0.0 || self.mean <= 0.0 {
            return 0.0;
        }
        let spare = free - self.mean * gpu_milli;
        let deviation = (self.variance * gpu_milli).sqrt();
        let short = match deviation > 0.0 {
            true => deviation * mean_excess(spare / deviation),
            false => (-spare).max(0.0),
        };
        short / self.mean
    }
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

    #[test]
    fn a_hole_stays_unless_something_that_fits_comes_in_time() {
        let prospect = Prospect::of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        // One in ten fits 200, and one in fifty we give up: 200 × 0.02 / 0.12.
        assert!((prospect.holes[200] - 200.0 * 0.02 / 0.12).abs() < 1e-9);
        // Nothing fits 199.
        assert!((prospect.holes[199] - 199.0).abs() < 1e-9);
    }

    #[test]
    fn a_small_task_goes_into_the_hole_that_a_large_one_left() {
        let prospect = Prospect::of(&[demand(1, 800, 1, 0.9), demand(1, 200, 1, 0.1)]);
        let before = prospect.waste(free(32, &[200, 1_000]));
        let into_the_hole = prospect.waste(free(31, &[0, 1_000])) - before;
        let into_a_whole_one = prospect.waste(free(31, &[200, 800])) - before;
        assert!(into_the_hole < into_a_whole_one, "{into_the_hole} {into_a_whole_one}");
    }

    #[test]
    fn without_cores_devices_are_wasted() {
        let prospect = Prospect::of(&[demand(1, 1_000, 4, 0.5), demand(1, 1_000, 12, 0.5)]);
        let waste = |cores| prospect.waste(free(cores, &[1_000; 8]));
        assert!(waste(0) > 7_800.0 && waste(32) > 3_800.0 && waste(64) < 1_000.0 && waste(128) < 200.0);
        // A core is worth more where cores are scarce.
        assert!(waste(40) - waste(44) > 10.0 * (waste(96) - waste(100)));
    }

    #[test]
    fn a_place_for_a_large_task_is_worth_something() {
        let prospect = Prospect::of(&[demand(1, 700, 1, 0.9), demand(8, 1_000, 8, 0.1)]);
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
        let for_all = Prospect::of(&[demand(1, 1_000, 1, 0.5), demand(1, 1_000, 1, 0.5)]);
        let for_half = Prospect::of(&[demand(1, 1_000, 1, 0.5), other]);
        let cost = |prospect: &Prospect| {
            prospect.waste(free(31, &[0, 1_000])) - prospect.waste(free(32, &[1_000, 1_000]))
        };
        assert!((cost(&for_half) - cost(&for_all) + 500.0).abs() < 20.0);
    }

    #[test]
    fn where_nothing_is_known_all_nodes_are_alike() {
        let prospect = Prospect::of(&[demand(0, 0, 4, 1.0)]);
        assert_eq!(prospect.waste(free(0, &[1_000, 300])), 300.0);
    }

    #[test]
    fn the_normal_excess_is_that_of_the_tables() {
        for (level, excess) in [(-2.0, 2.008_49), (0.0, 0.398_94), (1.0, 0.083_32), (3.0, 0.000_38)] {
            assert!((mean_excess(level) - excess).abs() < 1e-5, "{level}");
        }
    }
}
