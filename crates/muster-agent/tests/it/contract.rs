//! The contract of the port `Agent`: each test runs over the simulated agents and over the runner.

use std::time::Duration;

use muster_protocol::agent::{AttemptOrder, Exit, Report};

use crate::harness::{AgentHarness, NODE, now_ms, order, script, wait_until, with_stop};

/// An attempt that soon exits with code 3, simulated or real.
fn attempt_that_exits_soon() -> AttemptOrder {
    let mut order = order(script("exit 3"));
    order.annotations.insert("muster.sim/runtime".to_string(), "100ms".to_string());
    order.annotations.insert("muster.sim/exit-code".to_string(), "3".to_string());
    order
}

/// An attempt that does not end by itself during a test.
fn attempt_that_runs_on() -> AttemptOrder {
    let mut order = order(script("sleep 300"));
    order.annotations.insert("muster.sim/runtime".to_string(), "5m".to_string());
    order
}

/// An attempt that ignores SIGTERM.
fn attempt_that_ignores_term() -> AttemptOrder {
    let mut order =
        AttemptOrder { run: script("trap '' TERM; while true; do sleep 0.1; done"), ..attempt_that_runs_on() };
    order.annotations.insert("muster.sim/ignore-stop".to_string(), "true".to_string());
    order
}

fn registers_and_sends_heartbeats(harness: AgentHarness) {
    wait_until("it sends heartbeats", || harness.heartbeat_count() >= 2);
    let reports = harness.reports();
    let Report::Registered(registration) = &reports[0] else { panic!("{reports:?}") };
    assert_eq!(registration.node, NODE);
    assert_eq!(harness.agent.as_ref().unwrap().nodes()[0], NODE);
}

fn reports_start_then_exit(mut harness: AgentHarness) {
    harness.send_orders(vec![attempt_that_exits_soon()]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(3));
    let reports = harness.reports();
    let started = reports.iter().position(|report| matches!(report, Report::Started { .. }));
    let ended = reports.iter().position(|report| matches!(report, Report::Ended { .. }));
    assert!(started.is_some() && started < ended, "{reports:?}");
    assert!(!harness.reported_exits()[0].1, "no stop was ordered");
}

fn stops_on_order(mut harness: AgentHarness) {
    let attempt_order = attempt_that_runs_on();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
    assert!(harness.reported_exits()[0].1, "a stop was ordered");
}

/// A stop with a long grace is ordered again with a short one.
fn honours_a_shortened_grace(mut harness: AgentHarness) {
    let mut attempt_order = attempt_that_ignores_term();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    attempt_order = with_stop(&attempt_order, 600_000);
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_heartbeats(5);
    assert_eq!(harness.reported_exits(), [], "it has ten minutes");
    let stop = attempt_order.stop.as_mut().unwrap();
    stop.grace_ms = now_ms() - stop.since_ms + 500;
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
    assert!(harness.reported_exits()[0].1, "a stop was ordered");
}

fn repeats_the_exit_report_until_dropped(mut harness: AgentHarness) {
    harness.send_orders(vec![attempt_that_exits_soon()]);
    wait_until("the exit is reported three times", || harness.reported_exits().len() >= 3);
    assert!(harness.reported_exits().windows(2).all(|pair| pair[0] == pair[1]));
    harness.send_orders(vec![]);
    harness.wait_for_heartbeats(2);
    let count = harness.reported_exits().len();
    harness.wait_for_heartbeats(3);
    assert_eq!(harness.reported_exits().len(), count, "it reports an attempt that was dropped");
}

fn ignores_older_orders(mut harness: AgentHarness) {
    let attempt_order = attempt_that_runs_on();
    harness.send_orders_with_generation(7, vec![attempt_order.clone()]);
    harness.wait_for_start();
    let acknowledged = AttemptOrder { started: true, ..attempt_order.clone() };
    for old in [vec![with_stop(&attempt_order, 0)], vec![]] {
        harness.send_orders_with_generation(6, old);
        harness.wait_for_heartbeats(3);
        harness.send_orders_with_generation(8, vec![acknowledged.clone()]);
        harness.wait_for_heartbeats(3);
        assert_eq!(harness.reported_exits(), []);
    }
    harness.send_orders_with_generation(9, vec![with_stop(&attempt_order, 20_000)]);
    harness.wait_for_exit();
}

fn ignores_orders_for_other_nodes(mut harness: AgentHarness) {
    let attempts = vec![attempt_that_exits_soon()];
    let other_node_orders = muster_protocol::agent::Orders {
        node: "another-node".to_string(),
        incarnation: String::new(),
        epoch: 1,
        generation: 1,
        attempts,
        nonce: 0,
        pools: Vec::new(),
        reboot_from: None,
        secrets: Vec::new(),
    };
    harness.agent.as_mut().unwrap().deliver_orders(other_node_orders);
    harness.wait_for_heartbeats(3);
    assert_eq!((harness.start_report_count(), harness.reported_exits().len()), (0, 0));
}

fn ignores_a_second_shutdown(mut harness: AgentHarness) {
    harness.wait_for_heartbeats(1);
    let agent = harness.agent.as_mut().unwrap();
    agent.shutdown();
    agent.shutdown();
    harness.send_orders(vec![attempt_that_exits_soon()]);
    assert_eq!(harness.start_report_count(), 0);
}

fn renewals_keep_an_attempt_from_fencing_itself(mut harness: AgentHarness) {
    let within = Duration::from_secs(3);
    let fenced = AttemptOrder { self_fence_ms: Some(within.as_millis() as i64), ..attempt_that_runs_on() };
    harness.send_orders(vec![fenced]);
    harness.wait_for_start();
    harness.acknowledge_heartbeats_for(2 * within);
    assert_eq!(harness.reported_exits(), []);
    let why = "self-fenced: no leader acknowledged a heartbeat for 3 s".to_string();
    assert_eq!(harness.wait_for_exit(), Exit::Unknown(why));
    assert!(!harness.reported_exits()[0].1, "nobody ordered a stop");
}

macro_rules! contract_tests {
    ($($test:ident),* $(,)?) => {
        mod simulated {
            $(#[test] fn $test() { super::$test(super::AgentHarness::with_simulated_agents()); })*
        }
        mod real {
            $(#[test] fn $test() { super::$test(super::AgentHarness::with_runner()); })*
        }
    };
}

contract_tests!(
    registers_and_sends_heartbeats,
    reports_start_then_exit,
    stops_on_order,
    honours_a_shortened_grace,
    repeats_the_exit_report_until_dropped,
    ignores_older_orders,
    ignores_orders_for_other_nodes,
    ignores_a_second_shutdown,
    renewals_keep_an_attempt_from_fencing_itself,
);
