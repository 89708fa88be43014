//! The end of a charge: when the processes of an attempt were gone, however late the report arrives.

use muster_core::facts::command::TaskReport;
use muster_core::objects::charge::Charge;
use muster_core::objects::job::Exit;
use muster_core::time::{HOUR, SECOND};
use muster_core::{Command, Event, JobId, Timestamp};

use crate::builders::{job, node};
use crate::world::World;

/// A gang of tasks with one GPU each, on a node for each task, placed at 0.
fn placed(tasks: u32) -> (World, JobId) {
    let mut world = World::new();
    for index in 0..tasks {
        world.register(&format!("n{index}"), node().gpus(1));
    }
    let job = world.submit(job().tasks(tasks));
    world.plan();
    (world, job)
}

fn report(world: &mut World, node: u32, job: JobId, report: TaskReport) {
    let node = format!("n{node}").parse().unwrap();
    world.run(Command::ReportTask { node, job, attempt: 1, report }).unwrap();
}

/// A node reports at `at_ms` that its processes ended `ended_ms_ago`.
fn end(world: &mut World, node: u32, job: JobId, at_ms: i64, ended_ms_ago: Option<i64>) {
    world.now = Timestamp(at_ms);
    let exit = Exit::Code { code: 0 };
    report(world, node, job, TaskReport::Ended { exit, stopped: false, ended_ms_ago });
}

/// The charge, its end, and the release of the leases.
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
    report(&mut world, 0, job, TaskReport::Started);
    end(&mut world, 0, job, 26_500, Some(23_500));
    let (charge, until, released) = charged(&world);
    assert_eq!((charge.gpu_ms, charge.cpu_ms, until, released), (3_000, 3_000, Some(3_000), 26_500));
    let account = world.state.ledger.account(&"default".parse().unwrap());
    assert_eq!(account.used, charge);
}

#[test]
fn a_wrong_clock_of_a_node_is_clamped_to_the_attempt() {
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

/// The GPUs of a gang are released together, so those of nodes that ended first are charged until the last end.
#[test]
fn a_gang_is_charged_until_its_last_node_ended() {
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

/// The delay of a report during an outage counts neither as runtime in the estimates nor as decayed usage of the user.
#[test]
fn an_outage_changes_neither_estimates_nor_decayed_usage() {
    let tenant = "default".parse().unwrap();
    let (mut late, job) = placed(1);
    report(&mut late, 0, job, TaskReport::Started);
    end(&mut late, 0, job, 5 * HOUR, Some(5 * HOUR - 3 * SECOND));
    let (mut prompt, job) = placed(1);
    report(&mut prompt, 0, job, TaskReport::Started);
    end(&mut prompt, 0, job, 3 * SECOND, Some(0));
    let half_life_ms = late.state.settings.usage_half_life_ms;
    let member = |world: &World| world.state.tenants[&tenant].members["ada"].clone();
    let (late, prompt) = (member(&late), member(&prompt));
    assert_eq!(&late.runtimes, &prompt.runtimes);
    let recent = |member: &muster_core::accounting::tenant::Member| {
        member.decayed_usage.micro_gpus(0, Timestamp(5 * HOUR), half_life_ms)
    };
    assert!(recent(&late).abs_diff(recent(&prompt)) <= 2, "{} {}", recent(&late), recent(&prompt));
}
