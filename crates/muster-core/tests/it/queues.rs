//! Laws about time, for which random stories are too short: busy queues over hours, on four nodes of four GPUs.

mod backfill;
mod forecasts;
mod objective_fast;
mod starvation;

use std::collections::BTreeMap;

use muster_core::facts::command::TaskReport;
use muster_core::objects::job::Job;
use muster_core::time::MINUTE;
use muster_core::{Command, JobId, Settings};

use crate::builders::{job, node};
use crate::world::{World, end_reports};

/// The runtime of each job.
type Runtimes = BTreeMap<JobId, i64>;

fn cluster(settings: Settings) -> World {
    let mut world = World::new();
    world.run(Command::Configure { settings: Box::new(settings) }).unwrap();
    for index in 0..4 {
        world.register(&format!("n{index}"), node().memory_mib(1 << 20));
    }
    world
}

/// A gang of any size with a time limit, and its runtime.
fn random_job(world: &mut World, random: &mut Random) -> (JobId, i64) {
    let (tasks, gpus) = [(1, 1), (1, 1), (1, 2), (1, 4), (2, 2), (2, 4), (4, 4), (3, 3)][random.below(8) as usize];
    let cpus = 1 + 6 * random.below(4) as u32;
    let limit = 1 + random.below(40) as i64;
    let job = world.submit(job().tasks(tasks).gpus(gpus).cpus(cpus).limit_ms(limit * MINUTE));
    (job, (1 + random.below(limit as u64) as i64) * MINUTE)
}

/// All placed jobs report their start.
fn start_all(world: &mut World) {
    let new = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.started_at.is_none());
    let reports = |job: &Job| {
        let attempt = job.attempt().unwrap();
        let report =
            |node| Command::ReportTask { node, job: job.id, attempt: attempt.number, report: TaskReport::Started };
        attempt.nodes().into_iter().map(report).collect::<Vec<_>>()
    };
    let started: Vec<Command> = world.state.jobs.values().filter(new).flat_map(reports).collect();
    run_all(world, started);
}

/// All jobs end that have run for their runtime.
fn end_all(world: &mut World, runtimes: &Runtimes) {
    let over =
        |job: &&Job| job.attempt().is_some_and(|attempt| world.now.since(attempt.placed_at) >= runtimes[&job.id]);
    let ended: Vec<Command> = world.state.jobs.values().filter(over).flat_map(end_reports).collect();
    run_all(world, ended);
}

/// All stopping jobs end.
fn end_stopped(world: &mut World) -> Vec<JobId> {
    let stopped = |job: &&Job| job.attempt().is_some_and(|attempt| attempt.stopping.is_some());
    let stopped: Vec<&Job> = world.state.jobs.values().filter(stopped).collect();
    let ids = stopped.iter().map(|job| job.id).collect();
    let commands: Vec<Command> = stopped.into_iter().flat_map(end_reports).collect();
    run_all(world, commands);
    ids
}

fn run_all(world: &mut World, commands: Vec<Command>) {
    for command in commands {
        world.run(command).unwrap();
    }
}

/// Random numbers from a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}
