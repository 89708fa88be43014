//! Stopping: when the exit of an attempt is reported, no process of it is left.

use std::time::{Duration, Instant};

use muster_agent::logs::Stream;
use muster_protocol::agent::{AttemptOrder, Exit, RunSpec, StopOrder};

use crate::harness::{AgentHarness, is_alive, kill, now_ms, order, script, wait_until, with_stop};

/// Starts an attempt and waits for its first line, so that its traps and children are set up.
fn start_and_wait_for_output(run: RunSpec) -> (AgentHarness, AttemptOrder) {
    let mut harness = AgentHarness::with_runner();
    let attempt_order = order(run);
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    (harness, attempt_order)
}

/// The same stop order with another grace.
fn with_grace(order: &AttemptOrder, grace_ms: i64) -> AttemptOrder {
    let stop = order.stop.clone().map(|stop| StopOrder { grace_ms, ..stop });
    AttemptOrder { stop, ..order.clone() }
}

#[test]
fn a_stop_kills_the_process_group_and_processes_that_left_it() {
    let (mut harness, attempt_order) = start_and_wait_for_output(script(
        "trap '' TERM\n\
         sh -c \"trap '' TERM; sleep 300; sleep 300\" &\n\
         setsid sh -c \"trap '' TERM; sleep 300; sleep 300\" &\n\
         (setsid sh -c 'sleep 300' &) &\n\
         env -i setsid sh -c 'echo $$ > bare; sleep 300; sleep 300' &\n\
         while [ ! -s bare ]; do sleep 0.05; done; echo ready; wait",
    ));
    wait_until("all have started", || harness.live_processes().len() >= 6);
    let bare = std::fs::read_to_string(harness.attempt_dir().join("work/bare")).unwrap().trim().parse().unwrap();
    harness.send_orders(vec![with_stop(&attempt_order, 500)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
    harness.assert_no_live_processes();
    assert!(!is_alive(bare), "a process with an empty environment was overlooked");
}

#[test]
fn a_task_that_handles_term_gets_its_grace() {
    let (mut harness, attempt_order) =
        start_and_wait_for_output(script("trap 'sleep 0.5; echo saved; exit 7' TERM; echo ready; sleep 300 & wait"));
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(7));
    assert!(harness.reported_exits()[0].1, "a stop was ordered");
    assert!(harness.read_log(0, Stream::Stdout).contains("saved"));
}

/// A shell dies of SIGTERM while its child saves a checkpoint: the child keeps its grace.
#[test]
fn children_keep_their_grace_after_their_shell_dies() {
    let (mut harness, attempt_order) = start_and_wait_for_output(script(
        "sh -c \"trap 'sleep 3; echo saved; exit 0' TERM; echo ready; while true; do sleep 0.1; done\"; true",
    ));
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
    assert!(harness.read_log(0, Stream::Stdout).contains("saved"));
}

#[test]
fn a_shorter_grace_takes_effect_at_once() {
    let (mut harness, attempt_order) =
        start_and_wait_for_output(script("trap '' TERM; echo ready; while true; do sleep 0.1; done"));
    harness.send_orders(vec![with_stop(&attempt_order, 3_600_000)]);
    harness.wait_for_heartbeats(5);
    assert_eq!(harness.reported_exits(), []);
    harness.send_orders(vec![with_stop(&attempt_order, 0)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
}

/// When a preempted job reports its checkpoint, the server orders the same stop with a shorter grace.
#[test]
fn a_stopping_attempt_can_get_a_shorter_grace() {
    let ignores_term = "trap 'echo terminated' TERM; echo ready; while true; do sleep 0.1; done";
    let (mut harness, attempt_order) = start_and_wait_for_output(script(ignores_term));
    let long_stop = with_stop(&attempt_order, 60_000);
    harness.send_orders(vec![long_stop.clone()]);
    wait_until("it got SIGTERM", || harness.read_log(0, Stream::Stdout).contains("terminated"));
    harness.wait_for_heartbeats(5);
    assert_eq!(harness.reported_exits(), [], "it has a minute");
    let shortened_at = Instant::now();
    let since_ms = long_stop.stop.as_ref().unwrap().since_ms;
    harness.send_orders(vec![with_grace(&long_stop, now_ms() - since_ms + 1_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
    assert!(shortened_at.elapsed() > Duration::from_millis(700), "it had time to exit by itself");
    // After six seconds the agent would take the shim for hung and kill the tasks itself.
    assert!(shortened_at.elapsed() < Duration::from_secs(5), "the shim did not use the shorter grace");
    assert!(harness.reported_exits()[0].1, "a stop was ordered");
    let term_count = harness.read_log(0, Stream::Stdout).matches("terminated").count();
    assert_eq!(term_count, 1, "SIGTERM is sent once, not each time the orders change");
    harness.assert_no_live_processes();
}

#[test]
fn an_attempt_with_a_shortened_grace_may_still_exit_by_itself() {
    let saves_on_term = "trap 'while [ ! -e go ]; do sleep 0.05; done; exit 7' TERM; echo ready; sleep 300 & wait";
    let (mut harness, attempt_order) = start_and_wait_for_output(script(saves_on_term));
    let long_stop = with_stop(&attempt_order, 60_000);
    harness.send_orders(vec![long_stop.clone()]);
    harness.wait_for_heartbeats(3);
    harness.send_orders(vec![with_grace(&long_stop, 20_000)]);
    harness.wait_for_heartbeats(3);
    std::fs::write(harness.attempt_dir().join("work/go"), "").unwrap();
    assert_eq!(harness.wait_for_exit(), Exit::Code(7));
}

#[test]
fn a_longer_grace_does_not_delay_the_kill() {
    let (mut harness, attempt_order) =
        start_and_wait_for_output(script("trap '' TERM; echo ready; while true; do sleep 0.1; done"));
    harness.send_orders(vec![with_stop(&attempt_order, 2_000)]);
    harness.wait_for_heartbeats(3);
    harness.send_orders(vec![with_stop(&attempt_order, 3_600_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
}

#[test]
fn background_processes_are_killed_when_their_task_exits() {
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(script("sleep 300 & setsid sleep 300 & echo ready; exit 0"))]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    harness.assert_no_live_processes();
    assert!(!harness.reported_exits()[0].1, "no stop was ordered");
}

#[test]
fn a_killed_shim_leaves_no_processes() {
    // The second process has lost its parent and has its own session: only its environment identifies it.
    let (harness, _) = start_and_wait_for_output(script("sleep 300 & (setsid sleep 300 &); echo $$; wait"));
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    wait_until("all three run", || harness.live_processes().len() >= 3);
    kill(harness.shim_pid(), "KILL");
    assert_eq!(harness.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
    assert!(!is_alive(pid));
    harness.assert_no_live_processes();
}

#[test]
fn tasks_of_a_hung_shim_are_killed_after_the_grace() {
    let (mut harness, attempt_order) = start_and_wait_for_output(script("echo $$; sleep 300"));
    let shim_pid = harness.shim_pid();
    kill(shim_pid, "STOP");
    harness.send_orders(vec![with_stop(&attempt_order, 3_600_000)]);
    harness.wait_for_heartbeats(3);
    harness.send_orders(vec![with_stop(&attempt_order, 0)]);
    assert_eq!(harness.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
    harness.assert_no_live_processes();
    assert!(!is_alive(shim_pid));
}

#[test]
fn a_running_attempt_dropped_from_orders_is_stopped() {
    let (mut harness, _) = start_and_wait_for_output(script("echo $$; sleep 300"));
    harness.send_orders(vec![]);
    wait_until("it is gone", || harness.live_processes().is_empty());
    wait_until("it is cleaned up", || !harness.attempt_dir().join("intent.json").exists());
    assert_eq!(harness.reported_exits(), [], "the orders no longer contain the attempt");
}
