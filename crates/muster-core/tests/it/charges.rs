//! Until when an attempt is charged: until its processes were gone, however late the server hears of it.

use muster_core::command::{Answer, Said};
use muster_core::job::Exit;
use muster_core::ledger::Charge;
use muster_core::time::{HOUR, SECOND};
use muster_core::{Command, Event, JobId, Timestamp};

use crate::world::{World, facts, spec, submission};

/// A gang of so many tasks with one GPU each, a node for each of them, placed at 0.
fn placed(tasks: u32) -> (World, JobId) {
    let mut world = World::new();
    for node in 0..tasks {
        let facts = Box::new(facts(1, "NVIDIA H100 80GB HBM3", 64, 64 * 1_024));
        world.ask(Command::RegisterNode { node: format!("n{node}").parse().unwrap(), facts }).unwrap();
    }
    let mut spec = spec("job", 1);
    spec.tasks[0].count = tasks;
    let Ok(Answer::Job(job)) = world.ask(Command::SubmitJob(submission(spec))) else { panic!() };
    world.plan();
    (world, job)
}

fn say(world: &mut World, node: u32, job: JobId, said: Said) {
    let node = format!("n{node}").parse().unwrap();
    world.ask(Command::ReportTask { node, job, attempt: 1, said }).unwrap();
}

/// A node says at a moment that its processes have been gone for so long.
fn end(world: &mut World, node: u32, job: JobId, at_ms: i64, ended_ms_ago: Option<i64>) {
    world.now = Timestamp(at_ms);
    let exit = Exit::Code { code: 0 };
    say(world, node, job, Said::Ended { exit, stopped: false, ended_ms_ago });
}

/// What was charged, until when, and when the leases were released.
fn charged(world: &World) -> (Charge, Option<i64>, i64) {
    let end = world.events.iter().find_map(|event| match event {
        Event::AttemptEnded { charge, charged_until, at, .. } => {
            Some((*charge, charged_until.map(|until| until.0), at.0))
        }
        _ => None,
    });
    end.unwrap()
}

#[test]
fn an_outage_of_the_server_is_not_charged() {
    let (mut world, job) = placed(1);
    say(&mut world, 0, job, Said::Started);
    end(&mut world, 0, job, 26_500, Some(23_500));
    let (charge, until, released) = charged(&world);
    assert_eq!((charge.gpu_ms, charge.cpu_ms, until, released), (3_000, 3_000, Some(3_000), 26_500));
    let account = world.state.ledger.account(&"default".parse().unwrap());
    assert_eq!(account.used, charge);
}

#[test]
fn a_wrong_clock_of_a_node_counts_only_between_placement_and_now() {
    for (ended_ms_ago, gpu_ms) in [
        (None, 26_500),
        (Some(0), 26_500),
        (Some(-9_000), 26_500),
        (Some(HOUR), 0),
        (Some(i64::MAX), 0),
        (Some(i64::MIN), 26_500),
    ] {
        let (mut world, job) = placed(1);
        end(&mut world, 0, job, 26_500, ended_ms_ago);
        let (charge, until, released) = charged(&world);
        assert_eq!((charge.gpu_ms, released), (gpu_ms, 26_500), "{ended_ms_ago:?}");
        assert!(until.is_none_or(|until| (0..=26_500).contains(&until)), "{until:?}");
    }
}

/// GPUs of a gang are given back together, so those of the parts that ended first are charged until the last did.
#[test]
fn a_gang_is_charged_until_its_last_part_was_gone() {
    for (first_ago, last_ago, gpu_ms) in [
        (Some(SECOND), Some(2 * SECOND), 2 * 28_000),
        (Some(SECOND), Some(25 * SECOND), 2 * 9_000),
        (None, Some(SECOND), 2 * 30_000),
    ] {
        let (mut world, job) = placed(2);
        end(&mut world, 1, job, 10 * SECOND, first_ago);
        end(&mut world, 0, job, 30 * SECOND, last_ago);
        assert_eq!(charged(&world).0.gpu_ms, gpu_ms, "{first_ago:?}, {last_ago:?}");
    }
}

/// What an outage adds to the time until an end is heard of is no runtime that is expected of the next job, and no usage
/// for which its user waits longer.
#[test]
fn an_outage_is_neither_learned_nor_held_against_anyone() {
    let tenant = "default".parse().unwrap();
    let (mut late, job) = placed(1);
    say(&mut late, 0, job, Said::Started);
    end(&mut late, 0, job, 5 * HOUR, Some(5 * HOUR - 3 * SECOND));
    let (mut prompt, job) = placed(1);
    say(&mut prompt, 0, job, Said::Started);
    end(&mut prompt, 0, job, 3 * SECOND, Some(0));
    let half_life_ms = late.state.settings.usage_half_life_ms;
    let member = |world: &World| world.state.tenants[&tenant].members["ada"].clone();
    let (late, prompt) = (member(&late), member(&prompt));
    assert_eq!((late.lasted, late.used, &late.kin), (prompt.lasted, prompt.used, &prompt.kin));
    let recent =
        |member: &muster_core::tenant::Member| member.recent.micro_gpus(0, Timestamp(5 * HOUR), half_life_ms);
    assert!(recent(&late).abs_diff(recent(&prompt)) <= 2, "{} {}", recent(&late), recent(&prompt));
}
