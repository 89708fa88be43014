//! Start ranges agree with what is certain, and learn from whatever has ended in the cluster.

use muster_core::command::{Answer, Command, Said};
use muster_core::job::{Exit, Job};
use muster_core::plan::{Range, forecast, holders, plan};
use muster_core::tenant::TenantConfig;
use muster_core::time::{HOUR, MINUTE, SECOND};
use muster_core::window::Window;
use muster_core::{JobId, JobSpec, State, TenantId, Timestamp};

use crate::laws::{Teller, stories, tell};
use crate::story::Step;
use crate::world::{World, facts, is_below, spec, submission};

/// A range never begins before the job's begin time or before the windows on all nodes that are large enough are over;
/// it never begins after a reservation, and the reservation that is told beside it lies inside.
#[test]
fn ranges_respect_begin_times_windows_and_reservations() {
    tell(stories(300), |story| {
        let mut teller = Teller::new(story);
        for step in &story.steps {
            if let Step::Plan(_) = step {
                check_ranges(&teller.world.state, teller.world.now);
            }
            teller.step(step);
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
            let told = range.reservation(reserved);
            assert!(range.from <= told && told <= range.to && told <= reserved.max(range.from));
        }
    }
}

/// The first moment at which some node that has as many GPUs as the largest task is not in a window of others. Counting
/// devices is enough for a lower bound: whatever else is asked only makes it later.
fn opens_at(state: &State, job: &Job, begin: Timestamp) -> Option<Timestamp> {
    let largest = job.spec.tasks.iter().map(|group| group.each.gpus).max().unwrap_or(0) as usize;
    let against = |window: &&Window| {
        !window.tenant.as_ref().is_some_and(|top: &TenantId| is_below(state, &job.spec.tenant, top))
    };
    let mut moments: Vec<Timestamp> = state.windows.values().map(|window| window.until).collect();
    moments.push(begin);
    moments.retain(|at| *at >= begin);
    moments.sort_unstable();
    let is_open = |at: &Timestamp| {
        let large = state.nodes.values().filter(|node| node.facts.gpus.len() >= largest);
        let closed = |window: &Window| window.from <= *at && *at < window.until;
        large.into_iter().any(|node| {
            !state.windows.values().filter(against).any(|one| one.nodes.contains(&node.id) && closed(one))
        })
    };
    moments.into_iter().find(is_open)
}

/// One node with one GPU.
fn cluster() -> World {
    let mut world = World::new();
    let config = Box::new(TenantConfig::unlimited("blue"));
    world.ask(Command::CreateTenant { id: "blue".parse().unwrap(), config }).unwrap();
    let facts = Box::new(facts(1, "H100", 8, 1 << 16));
    world.ask(Command::RegisterNode { node: "n1".parse().unwrap(), facts }).unwrap();
    world
}

fn accept(world: &mut World, spec: JobSpec) -> JobId {
    match world.ask(Command::SubmitJob(submission(spec))) {
        Ok(Answer::Job(job)) => job,
        other => panic!("{other:?}"),
    }
}

fn say(world: &mut World, job: JobId, said: Said) {
    let attempt = world.state.jobs[&job].attempt().unwrap();
    let (node, attempt) = (attempt.tasks[0].node.clone(), attempt.number);
    world.ask(Command::ReportTask { node, job, attempt, said }).unwrap();
}

/// Run a job of the tenant `default` from its submission to its end.
fn run(world: &mut World, user: &str, ms: i64) {
    let job = accept(world, JobSpec { user: user.to_string(), ..spec("short", 1) });
    world.plan();
    say(world, job, Said::Started);
    world.tick(ms);
    say(world, job, Said::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None });
}

fn of_blue() -> JobSpec {
    JobSpec { tenant: "blue".parse().unwrap(), user: "bob".to_string(), ..spec("other", 1) }
}

fn range_of(world: &World, job: JobId) -> Range {
    forecast(&world.state, world.now, 100).of(job).unwrap()
}

#[test]
fn a_cluster_of_seconds_soon_tells_seconds() {
    let mut world = cluster();
    run(&mut world, "ada", 5 * SECOND);
    // Another user of another tenant, after one job of seconds: nobody knows anything else.
    let running = accept(&mut world, of_blue());
    let waiting = accept(&mut world, of_blue());
    world.plan();
    say(&mut world, running, Said::Started);
    let range = range_of(&world, waiting);
    assert!(range.to.since(world.now) < MINUTE, "{} s", range.to.since(world.now) / SECOND);
    let held = holders(&world.state, &world.state.jobs[&waiting], world.now);
    assert_eq!((held.len(), held[0].job, held[0].gpus), (1, running, 1));
    let end = held[0].end.map(|end| end.since(world.now));
    assert_eq!((end, held[0].is_bound), (Some(5 * SECOND), false));
}

#[test]
fn a_job_type_tells_more_than_its_user() {
    let mut world = cluster();
    for number in 0..3 {
        for (name, ms) in [("train", 2 * HOUR), ("smoke", 10 * SECOND)] {
            let job = accept(&mut world, spec(&format!("{name}-{number}"), 1));
            world.plan();
            say(&mut world, job, Said::Started);
            world.tick(ms);
            say(
                &mut world,
                job,
                Said::Ended { exit: Exit::Code { code: 0 }, stopped: false, ended_ms_ago: None },
            );
        }
    }
    assert_eq!(world.state.usual_and_longest_ms(&spec("train-9", 1)), Some((2 * HOUR, 2 * HOUR)));
    assert_eq!(world.state.usual_and_longest_ms(&spec("smoke-9", 1)), Some((10 * SECOND, 10 * SECOND)));
    assert_eq!(world.state.usual_and_longest_ms(&spec("new", 1)), Some((2 * HOUR, 2 * HOUR)), "of the user");
}

#[test]
fn a_begin_time_is_not_halved() {
    let mut world = cluster();
    let begin = world.now.plus(HOUR);
    let job = accept(&mut world, JobSpec { start_after: Some(begin), ..of_blue() });
    let range = range_of(&world, job);
    assert!(range.from >= begin, "{} min before it", begin.since(range.from) / MINUTE);
}

#[test]
fn a_window_on_every_node_is_waited_for() {
    let mut world = cluster();
    let (from, until) = (world.now, world.now.plus(2 * HOUR));
    let nodes = world.state.nodes.keys().cloned().collect();
    let (name, why, by) = ("w".to_string(), String::new(), String::new());
    let window = Box::new(Window { name, nodes, from, until, tenant: None, why, by });
    world.ask(Command::OpenWindow { window }).unwrap();
    let job = accept(&mut world, of_blue());
    let range = range_of(&world, job);
    assert!(range.from >= until, "{} min before it", until.since(range.from) / MINUTE);
}
