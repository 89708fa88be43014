//! Laws about time, which random stories are too short for: every wait is bounded, and nobody is started only
//! to be killed.

use muster_core::command::{Answer, Command, Said};
use muster_core::job::{Attempt, Exit, Job};
use muster_core::time::{HOUR, MINUTE};
use muster_core::{Event, JobId, Settings};

use crate::world::{World, facts, spec, submission};

/// Jobs run this long.
const RUNTIME: i64 = 10 * MINUTE;

#[test]
fn a_stream_of_small_urgent_jobs_starves_no_gang() {
    for (gang, small) in [(4, 1), (4, 2), (3, 2), (2, 1)] {
        let rules =
            Settings { preemption: false, max_wait_ms: HOUR, aging_per_minute: 0, ..Settings::default() };
        let mut world = cluster(rules);
        fill(&mut world, small, 500);
        let gang = submit(&mut world, gang, 100);
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
fn who_starts_by_age_is_not_killed_by_those_it_went_before() {
    let settings =
        Settings { aging_after_ms: 0, aging_per_minute: 10, aging_max: 500, ..Settings::default() };
    let mut world = cluster(settings);
    let old: Vec<JobId> = (0..12).map(|_| submit(&mut world, 4, 100)).collect();
    for _ in 0..20 {
        submit(&mut world, 4, 300);
    }
    for _ in 0..300 {
        minute(&mut world);
    }
    let stops = world.events.iter().filter(|event| matches!(event, Event::AttemptStopping { .. })).count();
    // Whoever was running when the strong ones came may be displaced once; after that the order decides.
    assert!(stops <= 4, "{stops} attempts were displaced");
    assert!(old.iter().all(|job| world.state.ended.contains_key(job)), "an old job never ran to its end");
}

/// Four nodes of four GPUs.
fn cluster(settings: Settings) -> World {
    let mut world = World::new();
    world.ask(Command::Configure { settings: Box::new(settings) }).unwrap();
    for index in 0..4 {
        let node = format!("n{index}").parse().unwrap();
        world.ask(Command::RegisterNode { node, facts: Box::new(facts(4, "H100", 64, 1 << 20)) }).unwrap();
    }
    world
}

fn submit(world: &mut World, gpus: u32, priority: u32) -> JobId {
    let mut spec = spec("waiting", gpus);
    spec.priority = priority;
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

/// Keep at least twenty small jobs waiting.
fn fill(world: &mut World, gpus: u32, priority: u32) {
    while world.state.queue.len() < 20 {
        submit(world, gpus, priority);
    }
}

/// Plan, let a minute pass, and end what has run long enough or was told to stop.
fn minute(world: &mut World) {
    world.plan();
    world.tick(MINUTE);
    let over = |job: &&Job| {
        let long = |attempt: &Attempt| world.now.since(attempt.placed_at) >= RUNTIME;
        job.attempt().is_some_and(|attempt| attempt.stopping.is_some() || long(attempt))
    };
    let over: Vec<Command> = world.state.jobs.values().filter(over).flat_map(ends).collect();
    for command in over {
        world.ask(command).unwrap();
    }
}

/// What every agent says at the end of a job.
fn ends(job: &Job) -> Vec<Command> {
    let Some(attempt) = job.attempt() else { return Vec::new() };
    let stopped = attempt.stopping.is_some();
    let exit = if stopped { Exit::Signal { signal: 15 } } else { Exit::Code { code: 0 } };
    let said = Said::Ended { exit, stopped };
    let report =
        |node| Command::ReportTask { node, job: job.id, attempt: attempt.number, said: said.clone() };
    attempt.nodes().into_iter().map(report).collect()
}
