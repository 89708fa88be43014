//! Regression tests of fault sequences in an exact order, which random schedules rarely produce.
//! `muster sim` found them with the seeds 9105228, 9101330, 9106254 and 9107145 of earlier schedules.

use muster_protocol::agent::Orders;

use super::agent_link::AgentInput;
use super::*;
use crate::fault_schedule::{JobRequest, ScheduledAction};

/// One job on one node, without faults.
fn single_job_schedule(seed: u64) -> FaultSchedule {
    let job = JobRequest {
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
    FaultSchedule {
        seed,
        steps: 2_000,
        server_count: 1,
        node_gpus: vec![1],
        self_fence_ms: None,
        actions: vec![(3_000, ScheduledAction::Submit(job))],
    }
}

/// The stage of the only attempt, by the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttemptStage {
    Waiting,
    Placed,
    Running,
    Ended,
}

fn attempt_stage(cluster: &SimCluster) -> AttemptStage {
    let state = cluster.laws.expected_state();
    let attempt = state.jobs.values().next().map(|job| job.attempt());
    match attempt {
        None if state.next_job <= 1 => AttemptStage::Waiting,
        None => AttemptStage::Ended,
        Some(None) => AttemptStage::Waiting,
        Some(Some(attempt)) if attempt.started_at.is_none() => AttemptStage::Placed,
        Some(Some(_)) => AttemptStage::Running,
    }
}

/// Runs until the attempt reaches a stage. False if it never does: some jobs end before a server sees them run.
fn run_until_stage(cluster: &mut SimCluster, wanted: AttemptStage) -> bool {
    for _ in 0..20_000 {
        cluster.step().unwrap();
        if attempt_stage(cluster) == wanted && !cluster.laws.expected_state().nodes.is_empty() {
            return true;
        }
    }
    false
}

/// The orders that the server would send to the node now.
fn current_orders(cluster: &SimCluster) -> Orders {
    let server = cluster.servers[0].process.as_ref().unwrap();
    server.orders(&"n0".parse().unwrap()).unwrap()
}

fn lose_disk(cluster: &mut SimCluster) {
    cluster.lose_disk(0);
    cluster.start_node(0);
}

fn restart_agent(cluster: &mut SimCluster) {
    cluster.end_agent(0);
    cluster.start_agent(0);
}

/// Orders are sent at one stage and delayed. At a later stage a fault restarts the agent; then the orders arrive.
fn check_late_orders(sent: AttemptStage, arrive: AttemptStage, fault: fn(&mut SimCluster)) {
    let mut run_count = 0;
    for seed in 0..20 {
        let schedule = single_job_schedule(seed);
        let mut cluster = SimCluster::new(&schedule);
        if !run_until_stage(&mut cluster, sent) {
            continue;
        }
        let late_orders = current_orders(&cluster);
        if !run_until_stage(&mut cluster, arrive) {
            continue;
        }
        fault(&mut cluster);
        while cluster.nodes[0].agent.is_none() {
            cluster.step().unwrap(); // It joins again after the loss of its disk.
        }
        cluster.tell_agent(0, AgentInput::Orders(Box::new(late_orders)));
        let result = cluster.run_catching_panics();
        assert!(result.is_ok(), "seed {seed}: {result:?}");
        run_count += 1;
    }
    assert!(run_count >= 10, "only {run_count} schedules reached both stages");
}

/// Orders from before the start report reach a node that has lost its disk since.
#[test]
fn late_orders_do_not_relaunch_an_attempt_after_a_lost_disk() {
    check_late_orders(AttemptStage::Placed, AttemptStage::Running, lose_disk);
}

#[test]
fn late_orders_do_not_launch_an_ended_attempt() {
    check_late_orders(AttemptStage::Placed, AttemptStage::Ended, lose_disk);
}

/// Orders from before the placement do not contain the job that runs when the next agent receives them.
#[test]
fn late_orders_do_not_stop_an_attempt_placed_after_them() {
    check_late_orders(AttemptStage::Waiting, AttemptStage::Running, restart_agent);
}
