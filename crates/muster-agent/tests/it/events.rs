//! Agent and shim wake each other. The agents of these tests look at an attempt only once an hour without an event.

use std::time::{Duration, Instant};

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::harness::{AgentHarness, kill, order, script, wait_until, with_stop};

fn start(text: &str) -> (AgentHarness, AttemptOrder) {
    let mut harness = AgentHarness::with_runner();
    let attempt_order = order(script(text));
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    (harness, AttemptOrder { started: true, ..attempt_order })
}

fn restart_agent(harness: &mut AgentHarness, attempt_order: &AttemptOrder) {
    harness.crash_agent();
    harness.start_runner();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_heartbeats(2);
}

#[test]
fn the_exit_of_an_adopted_attempt_is_reported_at_the_event() {
    let (mut harness, attempt_order) = start("echo $$; while [ ! -e done ]; do sleep 0.05; done; exit 9");
    restart_agent(&mut harness, &attempt_order);
    std::fs::write(harness.attempt_dir().join("work/done"), "").unwrap();
    assert_eq!(harness.wait_for_exit(), Exit::Code(9));
}

/// Its exit record never appears; the end of the process is the event.
#[test]
fn the_loss_of_an_adopted_shim_is_reported_at_the_event() {
    let (mut harness, attempt_order) = start("echo $$; sleep 300");
    restart_agent(&mut harness, &attempt_order);
    kill(harness.shim_pid(), "KILL");
    assert_eq!(harness.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
    harness.assert_no_live_processes();
}

#[test]
fn a_shim_exits_when_the_last_process_that_left_its_parents_exits() {
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![order(script("(setsid sh -c 'sleep 1; echo late' &); echo $$"))]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    harness.send_orders(vec![]);
    wait_until("it is cleaned up", || !harness.attempt_dir().join("intent.json").exists());
}

/// The first look of a shim without a message is two seconds after the start of its tasks. One try of three may be slow
/// on a busy machine.
#[test]
fn a_stop_wakes_the_shim() {
    let stopped_early = (0..3).any(|_| {
        let (mut harness, attempt_order) = start("echo $$; exec sleep 300");
        let since = Instant::now();
        harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
        assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
        since.elapsed() < Duration::from_millis(1_000)
    });
    assert!(stopped_early, "the shim did not read the stop record at the message");
}

/// As with an agent of an older release, which writes the record and sends no message.
#[test]
fn a_stop_record_is_read_without_a_message() {
    let (mut harness, attempt_order) = start("echo $$; sleep 300");
    std::fs::remove_file(harness.attempt_dir().join("shim.sock")).unwrap();
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
}
