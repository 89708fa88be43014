//! Self-fence of real processes: the shim ends its attempt when no leader has acknowledged a heartbeat in time. What
//! simulated attempts do too is in `contract.rs`.

use std::time::Duration;

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::harness::{AgentHarness, order, script, wait_until};

/// Long enough that a busy machine does not miss it between registration and launch.
const WITHIN: Duration = Duration::from_secs(3);

/// A running attempt that ignores SIGTERM, with a second process outside its group.
fn start_fenced() -> (AgentHarness, AttemptOrder) {
    let mut harness = AgentHarness::with_runner();
    let run = script("trap '' TERM; (setsid sleep 300 &); echo $$; while true; do sleep 0.1; done");
    let self_fence_ms = Some(WITHIN.as_millis() as i64);
    let attempt_order = AttemptOrder { self_fence_ms, ..order(run) };
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    (harness, AttemptOrder { started: true, ..attempt_order })
}

fn assert_self_fenced(exit: &Exit) {
    assert_eq!(*exit, Exit::Unknown("self-fenced: no leader acknowledged a heartbeat for 3 s".to_string()));
}

#[test]
fn an_attempt_without_acknowledged_heartbeats_ends_itself() {
    let (mut harness, _) = start_fenced();
    assert_self_fenced(&harness.wait_for_exit());
    assert!(!harness.reported_exits()[0].1, "nobody ordered a stop");
    harness.assert_no_live_processes();
    harness.send_orders(vec![]);
}

/// The agent dies, and with it the renewals. The shim needs nobody to end the attempt.
#[test]
fn the_shim_of_a_dead_agent_ends_the_attempt() {
    let (mut harness, _) = start_fenced();
    harness.crash_agent();
    wait_until("the shim has killed all processes", || harness.live_processes().is_empty());
    wait_until("the exit record is on disk", || harness.attempt_dir().join("exit.json").exists());
    let record = std::fs::read_to_string(harness.attempt_dir().join("exit.json")).unwrap();
    assert!(record.contains("self-fenced"), "{record}");
}

#[test]
fn a_restarted_agent_renews_what_its_predecessor_started() {
    let (mut harness, attempt_order) = start_fenced();
    harness.acknowledge_heartbeat();
    harness.crash_agent();
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    harness.acknowledge_heartbeats_for(2 * WITHIN);
    assert_eq!(harness.reported_exits(), []);
    assert!(!harness.live_processes().is_empty());
}
