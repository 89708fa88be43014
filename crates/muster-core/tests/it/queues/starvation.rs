//! Every wait is bounded, and no job starts only to be preempted.

use muster_core::objects::job::{Attempt, Job};
use muster_core::objects::settings::Objective;
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Command, Event, JobId, Settings};

use super::{Runtimes, cluster, end_all, end_stopped, run_all, start_all};
use crate::builders::job;
use crate::world::{World, end_reports};

/// The runtime of all short jobs.
const RUNTIME: i64 = 10 * MINUTE;

fn submit(world: &mut World, gpus: u32, priority: u32) -> JobId {
    world.submit(job().gpus(gpus).priority(priority))
}

/// Keep at least twenty small jobs queued.
fn fill(world: &mut World, gpus: u32, priority: u32) {
    while world.state.queue.len() < 20 {
        submit(world, gpus, priority);
    }
}

/// Plan, let a minute pass, and end jobs that have run long enough or are stopping.
fn minute(world: &mut World) {
    world.plan();
    world.tick(MINUTE);
    let over = |job: &&Job| {
        let long = |attempt: &Attempt| world.now.since(attempt.placed_at) >= RUNTIME;
        job.attempt().is_some_and(|attempt| attempt.stopping.is_some() || long(attempt))
    };
    let over: Vec<Command> = world.state.jobs.values().filter(over).flat_map(end_reports).collect();
    run_all(world, over);
}

#[test]
fn a_stream_of_small_urgent_jobs_starves_no_gang() {
    let gangs = [((1, 4), 1), ((1, 4), 2), ((1, 3), 2), ((1, 2), 1), ((4, 4), 1), ((3, 3), 2), ((4, 4), 4)];
    let both = |gang| [(Objective::Fair, gang), (Objective::Fast, gang)];
    for (objective, ((tasks, gpus), small)) in gangs.into_iter().flat_map(both) {
        let mut world = cluster(Settings {
            objective,
            preemption: false,
            max_wait_ms: HOUR,
            aging_per_minute: 0,
            ..Settings::default()
        });
        fill(&mut world, small, 500);
        let gang = world.submit(job().tasks(tasks).gpus(gpus));
        let bound = HOUR + 2 * RUNTIME;
        while world.state.jobs.get(&gang).is_some_and(|job| job.is_queued()) {
            assert!(world.now.0 <= bound, "{gang} has waited for {} minutes", world.now.0 / MINUTE);
            fill(&mut world, small, 500);
            minute(&mut world);
        }
        assert!(world.now.0 > HOUR, "the stream never filled the cluster");
    }
}

#[test]
fn a_job_that_starts_by_aging_is_not_preempted_by_the_jobs_it_passed() {
    let settings = Settings { aging_after_ms: 0, aging_per_minute: 10, aging_max: 500, ..Settings::default() };
    let mut world = cluster(settings);
    let old: Vec<JobId> = (0..12).map(|_| submit(&mut world, 4, 100)).collect();
    for _ in 0..20 {
        submit(&mut world, 4, 300);
    }
    for _ in 0..300 {
        minute(&mut world);
    }
    let stops = world.events.iter().filter(|event| matches!(event, Event::AttemptStopping { .. })).count();
    // The first four jobs may be preempted once by the new ones; after that the order decides.
    assert!(stops <= 4, "{stops} attempts were preempted");
    assert!(old.iter().all(|job| world.state.ended.contains_key(job)), "an old job never ran to its end");
}

/// Under the objective `fast` a long job waits for at most `max_wait`, and yields at most once.
#[test]
fn a_stream_of_short_jobs_starves_no_long_job() {
    for long_gpus in [1, 4] {
        let settings = Settings { objective: Objective::Fast, max_wait_ms: HOUR, ..Settings::default() };
        let mut world = cluster(settings);
        let mut runtimes = Runtimes::new();
        let long = world.submit(job().gpus(long_gpus).limit_ms(3 * HOUR));
        runtimes.insert(long, 2 * HOUR);
        let mut preemptions = 0;
        while !world.state.ended.contains_key(&long) {
            while world.state.queue.len() < 20 {
                runtimes.insert(world.submit(job().gpus(2).limit_ms(RUNTIME)), RUNTIME);
            }
            world.plan();
            start_all(&mut world);
            world.tick(MINUTE);
            preemptions += end_stopped(&mut world).iter().filter(|job| **job == long).count();
            end_all(&mut world, &runtimes);
            let bound = 2 * (HOUR + 2 * RUNTIME) + 4 * HOUR;
            assert!(world.now.0 <= bound, "{long} has not ended after {} minutes", world.now.0 / MINUTE);
        }
        assert!(preemptions <= 1, "{long} was preempted {preemptions} times");
    }
}
