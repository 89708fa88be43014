//! What every agent promises, simulated or real. Each promise is one function that runs over both.

use muster_protocol::agent::{Exit, AttemptOrder, Report};

use crate::harness::{AgentHarness, NODE, now_ms, order, script, with_stop, wait_until};

/// An attempt that ends by itself with code 3 soon, in both worlds.
fn attempt_that_exits_soon() -> AttemptOrder {
    let mut order = order(script("exit 3"));
    order.annotations.insert("muster.sim/runtime".to_string(), "100ms".to_string());
    order.annotations.insert("muster.sim/exit-code".to_string(), "3".to_string());
    order
}

/// An attempt that does not end by itself in the time of a test.
fn attempt_that_runs_on() -> AttemptOrder {
    let mut order = order(script("sleep 300"));
    order.annotations.insert("muster.sim/runtime".to_string(), "5m".to_string());
    order
}

/// One that does not listen when it is told to stop.
fn attempt_that_ignores_term() -> AttemptOrder {
    let mut order = AttemptOrder { run: script("trap '' TERM; while true; do sleep 0.1; done"), ..attempt_that_runs_on() };
    order.annotations.insert("muster.sim/ignore-stop".to_string(), "true".to_string());
    order
}

fn registers_and_sends_heartbeats(bench: AgentHarness) {
    wait_until("it beats", || bench.heartbeat_count() >= 2);
    let heard = bench.reports();
    let Report::Registered(registration) = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(registration.node, NODE);
    assert_eq!(bench.agent.as_ref().unwrap().nodes()[0], NODE);
}

fn reports_start_then_exit(mut bench: AgentHarness) {
    bench.send_orders(vec![attempt_that_exits_soon()]);
    assert_eq!(bench.wait_for_exit(), Exit::Code(3));
    let story = bench.reports();
    let started = story.iter().position(|report| matches!(report, Report::Started { .. }));
    let ended = story.iter().position(|report| matches!(report, Report::Ended { .. }));
    assert!(started.is_some() && started < ended, "{story:?}");
    assert!(!bench.reported_exits()[0].1, "nobody told it to stop");
}

fn stops_on_order(mut bench: AgentHarness) {
    let asked = attempt_that_runs_on();
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_start();
    bench.send_orders(vec![with_stop(&asked, 20_000)]);
    assert_eq!(bench.wait_for_exit(), Exit::Signal(15));
    assert!(bench.reported_exits()[0].1, "it was told to stop");
}

/// A stop whose grace was long is ordered again with hardly any.
fn honours_a_shortened_grace(mut bench: AgentHarness) {
    let mut asked = attempt_that_ignores_term();
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_start();
    asked = with_stop(&asked, 600_000);
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_heartbeats(5);
    assert_eq!(bench.reported_exits(), [], "it has ten minutes");
    let stop = asked.stop.as_mut().unwrap();
    stop.grace_ms = now_ms() - stop.since_ms + 500;
    bench.send_orders(vec![asked]);
    assert_eq!(bench.wait_for_exit(), Exit::Signal(9));
    assert!(bench.reported_exits()[0].1, "it was told to stop");
}

fn repeats_the_exit_report_until_dropped(mut bench: AgentHarness) {
    bench.send_orders(vec![attempt_that_exits_soon()]);
    wait_until("the end was said three times", || bench.reported_exits().len() >= 3);
    assert!(bench.reported_exits().windows(2).all(|pair| pair[0] == pair[1]));
    bench.send_orders(vec![]);
    bench.wait_for_heartbeats(2);
    let said = bench.reported_exits().len();
    bench.wait_for_heartbeats(3);
    assert_eq!(bench.reported_exits().len(), said, "it goes on about an attempt that was dropped");
}

fn ignores_older_orders(mut bench: AgentHarness) {
    let asked = attempt_that_runs_on();
    bench.send_orders_with_generation(7, vec![asked.clone()]);
    bench.wait_for_start();
    let heard = AttemptOrder { started: true, ..asked.clone() };
    for old in [vec![with_stop(&asked, 0)], vec![]] {
        bench.send_orders_with_generation(6, old);
        bench.wait_for_heartbeats(3);
        bench.send_orders_with_generation(8, vec![heard.clone()]);
        bench.wait_for_heartbeats(3);
        assert_eq!(bench.reported_exits(), []);
    }
    bench.send_orders_with_generation(9, vec![with_stop(&asked, 20_000)]);
    bench.wait_for_exit();
}

fn ignores_orders_for_other_nodes(mut bench: AgentHarness) {
    let attempts = vec![attempt_that_exits_soon()];
    let stranger = muster_protocol::agent::Orders {
        node: "moon".to_string(),
        incarnation: String::new(),
        epoch: 1,
        generation: 1,
        attempts,
        pools: Vec::new(),
    };
    bench.agent.as_mut().unwrap().deliver_orders(stranger);
    bench.wait_for_heartbeats(3);
    assert_eq!((bench.start_report_count(), bench.reported_exits().len()), (0, 0));
}

fn ignores_a_second_shutdown(mut bench: AgentHarness) {
    bench.wait_for_heartbeats(1);
    let agent = bench.agent.as_mut().unwrap();
    agent.shutdown();
    agent.shutdown();
    bench.send_orders(vec![attempt_that_exits_soon()]);
    assert_eq!(bench.start_report_count(), 0);
}

macro_rules! promises {
    ($($promise:ident),* $(,)?) => {
        mod simulated {
            $(#[test] fn $promise() { super::$promise(super::Bench::simulated()); })*
        }
        mod real {
            $(#[test] fn $promise() { super::$promise(super::Bench::real()); })*
        }
    };
}

promises!(
    registers_and_sends_heartbeats,
    reports_start_then_exit,
    stops_on_order,
    honours_a_shortened_grace,
    repeats_the_exit_report_until_dropped,
    ignores_older_orders,
    ignores_orders_for_other_nodes,
    ignores_a_second_shutdown,
);
