//! Attempts are looked at when something may have changed, and otherwise every few seconds.

use super::*;
use crate::reconciler::{LOOK_INTERVAL, millis};

fn other_order() -> AttemptOrder {
    test_fixtures::order("job-2", &[])
}

fn started(order: AttemptOrder) -> AttemptOrder {
    AttemptOrder { started: true, ..order }
}

/// A running attempt whose start is reported and acknowledged.
fn with_running_attempt() -> ReconcilerHarness {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.sleep_ms(1);
    harness.order_attempts(&[started(order())]);
    harness.machine().looks = 0;
    harness
}

#[test]
fn a_running_attempt_is_looked_at_only_every_few_seconds() {
    let mut harness = with_running_attempt();
    let minute_ms = 60_000;
    harness.sleep_ms(minute_ms);
    let looks_max = usize::try_from(minute_ms / millis(LOOK_INTERVAL)).unwrap();
    assert!((1..=looks_max).contains(&harness.machine().looks), "{} looks in a minute", harness.machine().looks);
}

#[test]
fn an_exit_is_reported_at_the_event_and_without_another_look_at_other_attempts() {
    let mut harness = with_running_attempt();
    harness.order_attempts(&[started(order()), other_order()]);
    harness.sleep_ms(1);
    harness.order_attempts(&[started(order()), started(other_order())]);
    harness.machine().looks = 0;
    harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    harness.reconcile(None);
    assert_eq!(harness.reported_exits(), [&Exit::Code(3)]);
    assert_eq!(harness.machine().looks, 1, "the other attempt did not change");
}

/// Correctness does not depend on events.
#[test]
fn an_exit_whose_event_is_lost_is_reported_after_the_look_interval() {
    let mut harness = with_running_attempt();
    harness.machine().finish_attempt_silently(&attempt_key(), exit_record(Exit::Code(3)));
    harness.sleep_ms(millis(LOOK_INTERVAL));
    assert_eq!(harness.reported_exits()[0], &Exit::Code(3));
}

#[test]
fn repeated_orders_cause_no_look_and_changed_ones_do() {
    let mut harness = with_running_attempt();
    for _ in 0..10 {
        harness.order_attempts(&[started(order())]);
    }
    assert_eq!(harness.machine().looks, 0);
    let stop = stop(harness.now_ms, 1_000);
    harness.order_attempts(&[AttemptOrder { stop, ..started(order()) }]);
    assert!(harness.machine().stop_record(&attempt_key()).unwrap().is_some());
}

/// The thread sleeps until the time that `reconcile` returns, so nothing that is due may be missing in it.
#[test]
fn the_next_call_is_never_later_than_what_is_due() {
    let mut harness = with_running_attempt();
    let stop = stop(harness.now_ms, 10_000);
    harness.order_attempts(&[AttemptOrder { stop, ..started(order()) }]);
    harness.sleep_ms(14_999);
    assert!(harness.machine().killed.is_empty());
    harness.sleep_ms(1);
    assert_eq!(harness.machine().killed, [attempt_key()], "a hung shim is killed when its time is over");
    harness.sleep_ms(300);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", harness.reports);
}
