//! Misfortunes in an exact order, which chance meets too rarely: what was once found by a seed is told again step by step.
//! `muster sim` found them with the seeds 9105228, 9101330, 9106254 and 9107145.

use super::*;
use crate::fault_schedule::{ScheduledAction, JobRequest};

/// One job on one node, and nothing goes wrong by itself.
fn single_job_schedule(seed: u64) -> FaultSchedule {
    let wish = JobRequest {
        tenant: 0,
        user: 0,
        priority: 100,
        tasks: 1,
        gpus: 1,
        gpu_milli: 1_000,
        time_limit_ms: None,
        restarts: 0,
        has_checkpoints: false,
        depends_on_last: false,
        array_size: None,
        retries_max: 5,
    };
    FaultSchedule { seed, steps: 2_000, server_count: 1, node_gpus: vec![1], actions: vec![(3_000, ScheduledAction::Submit(wish))] }
}

/// How the only attempt stands, as the journal knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    Waiting,
    Placed,
    Running,
    Ended,
}

fn attempt_stage(world: &SimCluster) -> AttemptStage {
    let state = world.laws.expected_state();
    let attempt = state.jobs.values().next().map(|job| job.attempt());
    match attempt {
        None if state.next_job <= 1 => AttemptStage::Waiting,
        None => AttemptStage::Ended,
        Some(None) => AttemptStage::Waiting,
        Some(Some(attempt)) if attempt.started_at.is_none() => AttemptStage::Placed,
        Some(Some(_)) => AttemptStage::Running,
    }
}

/// Go on until the attempt stands so. False if it never does: some jobs are over before anyone has seen them run.
fn run_until_stage(world: &mut SimCluster, wanted: AttemptStage) -> bool {
    for _ in 0..20_000 {
        world.step().unwrap();
        if attempt_stage(world) == wanted && !world.laws.expected_state().nodes.is_empty() {
            return true;
        }
    }
    false
}

/// What the server would tell the node now.
fn current_orders(world: &SimCluster) -> Orders {
    let server = world.servers[0].process.as_ref().unwrap();
    server.orders(&"n0".parse().unwrap()).unwrap()
}

fn lose_disk(world: &mut SimCluster) {
    let place = &mut world.nodes[0];
    (place.agent, place.is_powered_on) = (None, false);
    place.host.power_cut();
    place.host.lose_disk();
    world.laws.forget_unreported_launches(0, "n0");
    world.start_node(0);
}

fn restart_agent(world: &mut SimCluster) {
    world.nodes[0].agent = None;
    world.start_agent(0);
}

/// Orders are sent at one stage and delayed; at a later stage the agent begins again; then they arrive.
fn check_late_orders(sent: AttemptStage, arrive: AttemptStage, misfortune: fn(&mut SimCluster)) {
    let mut told = 0;
    for seed in 0..20 {
        let story = single_job_schedule(seed);
        let mut world = SimCluster::new(&story);
        if !run_until_stage(&mut world, sent) {
            continue;
        }
        let late = current_orders(&world);
        if !run_until_stage(&mut world, arrive) {
            continue;
        }
        misfortune(&mut world);
        world.schedule_at(world.now(), SimEvent::ToNode(0, Box::new(late)));
        let end = world.run_catching_panics();
        assert!(end.is_ok(), "seed {seed}: {end:?}");
        told += 1;
    }
    assert!(told >= 10, "only {told} stories could be told");
}

/// An order that was given before the start was heard of reaches a node that has lost its disk since.
#[test]
fn late_orders_do_not_relaunch_an_attempt_after_a_lost_disk() {
    check_late_orders(AttemptStage::Placed, AttemptStage::Running, lose_disk);
}

#[test]
fn late_orders_do_not_launch_an_ended_attempt() {
    check_late_orders(AttemptStage::Placed, AttemptStage::Ended, lose_disk);
}

/// Orders from before the placement do not name the job that runs when the next agent gets them.
#[test]
fn late_orders_do_not_stop_an_attempt_placed_after_them() {
    check_late_orders(AttemptStage::Waiting, AttemptStage::Running, restart_agent);
}
