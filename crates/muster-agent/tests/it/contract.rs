//! What every agent promises, simulated or real. Each promise is one function that runs over both.

use muster_protocol::agent::{Exit, Order, Report};

use crate::bench::{Bench, NODE, now_ms, order, script, stopped, wait_until};

/// An attempt that ends by itself with code 3 soon, in both worlds.
fn short() -> Order {
    let mut order = order(script("exit 3"));
    order.annotations.insert("muster.sim/runtime".to_string(), "100ms".to_string());
    order.annotations.insert("muster.sim/exit-code".to_string(), "3".to_string());
    order
}

/// An attempt that does not end by itself in the time of a test.
fn long() -> Order {
    let mut order = order(script("sleep 300"));
    order.annotations.insert("muster.sim/runtime".to_string(), "5m".to_string());
    order
}

/// One that does not listen when it is told to stop.
fn deaf() -> Order {
    let mut order = Order { run: script("trap '' TERM; while true; do sleep 0.1; done"), ..long() };
    order.annotations.insert("muster.sim/ignore-stop".to_string(), "true".to_string());
    order
}

fn registers_and_beats(bench: Bench) {
    wait_until("it beats", || bench.beats() >= 2);
    let heard = bench.heard();
    let Report::Registered(registration) = &heard[0] else { panic!("{heard:?}") };
    assert_eq!(registration.node, NODE);
    assert_eq!(bench.agent.as_ref().unwrap().nodes()[0], NODE);
}

fn starts_and_then_ends(mut bench: Bench) {
    bench.order(vec![short()]);
    assert_eq!(bench.await_end(), Exit::Code(3));
    let story = bench.heard();
    let started = story.iter().position(|report| matches!(report, Report::Started { .. }));
    let ended = story.iter().position(|report| matches!(report, Report::Ended { .. }));
    assert!(started.is_some() && started < ended, "{story:?}");
    assert!(!bench.ends()[0].1, "nobody told it to stop");
}

fn stops_when_told(mut bench: Bench) {
    let asked = long();
    bench.order(vec![asked.clone()]);
    bench.await_start();
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(15));
    assert!(bench.ends()[0].1, "it was told to stop");
}

/// A stop whose grace was long is ordered again with hardly any.
fn is_hurried_by_a_shorter_grace(mut bench: Bench) {
    let mut asked = deaf();
    bench.order(vec![asked.clone()]);
    bench.await_start();
    asked = stopped(&asked, 600_000);
    bench.order(vec![asked.clone()]);
    bench.await_beats(5);
    assert_eq!(bench.ends(), [], "it has ten minutes");
    let stop = asked.stop.as_mut().unwrap();
    stop.grace_ms = now_ms() - stop.since_ms + 500;
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Signal(9));
    assert!(bench.ends()[0].1, "it was told to stop");
}

fn repeats_its_end_until_dropped(mut bench: Bench) {
    bench.order(vec![short()]);
    wait_until("the end was said three times", || bench.ends().len() >= 3);
    assert!(bench.ends().windows(2).all(|pair| pair[0] == pair[1]));
    bench.order(vec![]);
    bench.await_beats(2);
    let said = bench.ends().len();
    bench.await_beats(3);
    assert_eq!(bench.ends().len(), said, "it goes on about an attempt that was dropped");
}

fn ignores_older_orders(mut bench: Bench) {
    let asked = long();
    bench.order_as(7, vec![asked.clone()]);
    bench.await_start();
    let heard = Order { started: true, ..asked.clone() };
    for old in [vec![stopped(&asked, 0)], vec![]] {
        bench.order_as(6, old);
        bench.await_beats(3);
        bench.order_as(8, vec![heard.clone()]);
        bench.await_beats(3);
        assert_eq!(bench.ends(), []);
    }
    bench.order_as(9, vec![stopped(&asked, 20_000)]);
    bench.await_end();
}

fn ignores_orders_for_others(mut bench: Bench) {
    let attempts = vec![short()];
    let stranger = muster_protocol::agent::Orders {
        node: "moon".to_string(),
        incarnation: String::new(),
        epoch: 1,
        generation: 1,
        attempts,
        pools: Vec::new(),
    };
    bench.agent.as_mut().unwrap().obey(stranger);
    bench.await_beats(3);
    assert_eq!((bench.starts(), bench.ends().len()), (0, 0));
}

fn shuts_down_twice_without_harm(mut bench: Bench) {
    bench.await_beats(1);
    let agent = bench.agent.as_mut().unwrap();
    agent.shutdown();
    agent.shutdown();
    bench.order(vec![short()]);
    assert_eq!(bench.starts(), 0);
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
    registers_and_beats,
    starts_and_then_ends,
    stops_when_told,
    is_hurried_by_a_shorter_grace,
    repeats_its_end_until_dropped,
    ignores_older_orders,
    ignores_orders_for_others,
    shuts_down_twice_without_harm,
);
