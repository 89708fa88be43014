//! Misfortunes in an exact order, which chance meets too rarely: what was once found by a seed is told again step by step.
//! `muster sim` found them with the seeds 9105228, 9101330, 9106254 and 9107145.

use super::*;
use crate::story::{Act, Wish};

/// One job on one node, and nothing goes wrong by itself.
fn story(seed: u64) -> Story {
    let wish = Wish {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        milli: 1_000,
        limit_ms: None,
        restarts: 0,
        saves: false,
        after_last: false,
        array: None,
        patience: 5,
    };
    Story { seed, steps: 2_000, servers: 1, nodes: vec![1], acts: vec![(3_000, Act::Submit(wish))] }
}

/// How the only attempt stands, as the journal knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    Placed,
    Running,
    Over,
}

fn stage(world: &World) -> Stage {
    let state = world.laws.state();
    let attempt = state.jobs.values().next().map(|job| job.attempt());
    match attempt {
        None if state.next_job <= 1 => Stage::Waiting,
        None => Stage::Over,
        Some(None) => Stage::Waiting,
        Some(Some(attempt)) if attempt.started_at.is_none() => Stage::Placed,
        Some(Some(_)) => Stage::Running,
    }
}

/// Go on until the attempt stands so. False if it never does: some jobs are over before anyone has seen them run.
fn until(world: &mut World, wanted: Stage) -> bool {
    for _ in 0..20_000 {
        world.step().unwrap();
        if stage(world) == wanted && !world.laws.state().nodes.is_empty() {
            return true;
        }
    }
    false
}

/// What the server would tell the node now.
fn orders(world: &World) -> Orders {
    let server = world.servers[0].process.as_ref().unwrap();
    server.orders(&"n0".parse().unwrap()).unwrap()
}

fn lose_disk(world: &mut World) {
    let place = &mut world.nodes[0];
    (place.agent, place.is_on) = (None, false);
    place.host.power_cut();
    place.host.lose_disk();
    world.laws.disk_is_lost(0, "n0");
    world.start_node(0);
}

fn restart_agent(world: &mut World) {
    world.nodes[0].agent = None;
    world.start_agent(0);
}

/// Orders are sent at one stage and delayed; at a later stage the agent begins again; then they arrive.
fn late_orders(sent: Stage, arrive: Stage, misfortune: fn(&mut World)) {
    let mut told = 0;
    for seed in 0..20 {
        let story = story(seed);
        let mut world = World::new(&story);
        if !until(&mut world, sent) {
            continue;
        }
        let late = orders(&world);
        if !until(&mut world, arrive) {
            continue;
        }
        misfortune(&mut world);
        world.at(world.now(), Coming::ToNode(0, Box::new(late)));
        let end = world.run_to_the_end();
        assert!(end.is_ok(), "seed {seed}: {end:?}");
        told += 1;
    }
    assert!(told >= 10, "only {told} stories could be told");
}

/// An order that was given before the start was heard of reaches a node that has lost its disk since.
#[test]
fn a_late_order_does_not_launch_again_what_was_launched_before_the_disk_was_lost() {
    late_orders(Stage::Placed, Stage::Running, lose_disk);
}

#[test]
fn a_late_order_does_not_launch_what_is_over() {
    late_orders(Stage::Placed, Stage::Over, lose_disk);
}

/// Orders from before the placement do not name the job that runs when the next agent gets them.
#[test]
fn late_orders_do_not_stop_what_they_do_not_know() {
    late_orders(Stage::Waiting, Stage::Running, restart_agent);
}
