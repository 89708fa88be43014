//! Start ranges of forecasts: consistent with begin times, windows and reservations, and learned from ended jobs.

use muster_core::facts::command::{Command, TaskReport};
use muster_core::objects::job::Job;
use muster_core::objects::start_range::StartRange;
use muster_core::objects::window::Window;
use muster_core::planner::{forecast, holders, plan};
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::{JobId, State, TenantId, Timestamp};

use crate::builders::{JobBuilder, job, node, tenant, window};
use crate::recompute::is_below;
use crate::story::Step;
use crate::story_runner::{StoryRunner, run_stories, story_count};
use crate::world::{World, exited};

/// A range never begins before the begin time of the job, nor while windows close all nodes that are large enough. It
/// never begins after the reservation, and the reported reservation lies inside.
#[test]
fn ranges_respect_begin_times_windows_and_reservations() {
    run_stories(story_count(300), |story| {
        let mut runner = StoryRunner::new(story);
        for step in &story.steps {
            if let Step::Plan(_) = step {
                check_ranges(&runner.world.state, runner.world.now);
            }
            runner.step(step);
        }
    });
}

fn check_ranges(state: &State, now: Timestamp) {
    let reservations = plan(state, now).verdicts;
    for (id, range) in forecast(state, now, 12).ranges() {
        let job = &state.jobs[&id];
        assert!(range.from <= range.to, "{id}: {range:?}");
        assert!(range.from >= now, "{id}: {range:?} begins in the past");
        let begin = job.spec.start_after.unwrap_or(now).max(now);
        assert!(range.from >= begin, "{id}: {range:?} begins before its begin time {begin:?}");
        if let Some(opens) = opens_at(state, job, begin) {
            assert!(range.from >= opens, "{id}: {range:?} begins inside windows that end at {opens:?}");
        }
        if let Some(reserved) = reservations.reserved_at(id) {
            assert!(range.from <= reserved.max(begin), "{id}: {range:?} begins after {reserved:?}");
            let reported = range.reservation(reserved);
            assert!(range.from <= reported && reported <= range.to && reported <= reserved.max(range.from));
        }
    }
}

/// The first time at which some node with as many GPUs as the largest task is not in a window of others. Counting
/// devices gives a lower bound: other requests only make it later.
fn opens_at(state: &State, job: &Job, begin: Timestamp) -> Option<Timestamp> {
    let largest = job.spec.tasks.iter().map(|group| group.each.gpus).max().unwrap_or(0) as usize;
    let is_closed =
        |window: &&Window| !window.tenant.as_ref().is_some_and(|top: &TenantId| is_below(state, &job.spec.tenant, top));
    let mut moments: Vec<Timestamp> = state.windows.values().map(|window| window.until).collect();
    moments.push(begin);
    moments.retain(|at| *at >= begin);
    moments.sort_unstable();
    let is_open = |at: &Timestamp| {
        let large = state.nodes.values().filter(|node| node.facts.gpus.len() >= largest);
        let closed = |window: &Window| window.from <= *at && *at < window.until;
        large.into_iter().any(|node| {
            !state.windows.values().filter(is_closed).any(|one| one.nodes.contains(&node.id) && closed(one))
        })
    };
    moments.into_iter().find(is_open)
}

/// One node with one GPU.
fn cluster() -> World {
    let mut world = World::new();
    world.create_tenant("blue", tenant());
    world.register("n1", node().gpus(1));
    world
}

/// Run a job from its submission to its end.
fn run(world: &mut World, spec: JobBuilder, ms: i64) {
    let job = world.submit(spec);
    world.plan();
    world.report(job, TaskReport::Started);
    world.tick(ms);
    world.report(job, exited(0));
}

/// A job of another user and tenant.
fn of_blue() -> JobBuilder {
    job().name("other").tenant("blue").user("bob")
}

fn range_of(world: &World, job: JobId) -> StartRange {
    forecast(&world.state, world.now, 100).of(job).unwrap()
}

#[test]
fn a_forecast_learns_short_runtimes_from_other_users() {
    let mut world = cluster();
    run(&mut world, job().name("short"), 5 * SECOND);
    // Another user of another tenant: the ended job is the only known runtime.
    let running = world.submit(of_blue());
    let waiting = world.submit(of_blue());
    world.plan();
    world.report(running, TaskReport::Started);
    let range = range_of(&world, waiting);
    assert!(range.to.since(world.now) < MINUTE, "{} s", range.to.since(world.now) / SECOND);
    let held = holders(&world.state, &world.state.jobs[&waiting], world.now);
    assert_eq!((held.len(), held[0].job, held[0].gpus), (1, running, 1));
    let end = held[0].end.map(|end| end.since(world.now));
    assert_eq!((end, held[0].is_bound), (Some(5 * SECOND), false));
}

#[test]
fn runtimes_of_a_job_type_precede_those_of_its_user() {
    let mut world = cluster();
    for number in 0..3 {
        for (name, ms) in [("train", 2 * HOUR), ("smoke", 10 * SECOND)] {
            run(&mut world, job().name(&format!("{name}-{number}")), ms);
        }
    }
    let known = |name: &str| world.state.median_and_longest_ms(&job().name(name).build());
    assert_eq!(known("train-9"), Some((2 * HOUR, 2 * HOUR)));
    assert_eq!(known("smoke-9"), Some((10 * SECOND, 10 * SECOND)));
    assert_eq!(known("new"), Some((2 * HOUR, 2 * HOUR)), "of the user");
}

#[test]
fn a_range_does_not_begin_before_the_begin_time() {
    let mut world = cluster();
    let begin = world.now.plus(HOUR);
    let job = world.submit(of_blue().start_after(begin));
    let range = range_of(&world, job);
    assert!(range.from >= begin, "{} min before it", begin.since(range.from) / MINUTE);
}

#[test]
fn a_range_begins_after_a_window_on_every_node() {
    let mut world = cluster();
    let (from, until) = (world.now, world.now.plus(2 * HOUR));
    let window = Box::new(window("w", &["n1"], from, until));
    world.run(Command::OpenWindow { window }).unwrap();
    let job = world.submit(of_blue());
    let range = range_of(&world, job);
    assert!(range.from >= until, "{} min before it", until.since(range.from) / MINUTE);
}
