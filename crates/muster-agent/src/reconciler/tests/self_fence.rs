//! Self-fence: acknowledged heartbeats extend the life of an attempt, and nothing else does.

use super::*;
use crate::records::SelfFence;

const WITHIN_MS: i64 = 60_000;

fn fenced_order() -> AttemptOrder {
    AttemptOrder { self_fence_ms: Some(WITHIN_MS), ..order() }
}

fn fence(acknowledged_at_boot_ms: i64) -> SelfFence {
    SelfFence { acknowledged_at_boot_ms, within_ms: WITHIN_MS }
}

/// A harness whose agent has registered, and the boot time of that.
fn registered() -> (ReconcilerHarness, i64) {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    let registered_at_ms = harness.boot_now_ms();
    harness.reconcile(None);
    (harness, registered_at_ms)
}

fn launched_with(harness: &mut ReconcilerHarness) -> Option<SelfFence> {
    harness.machine().launch_intent(&attempt_key()).unwrap().and_then(|intent| intent.self_fence)
}

#[test]
fn the_first_deadline_counts_from_the_registration_however_late_the_orders_arrive() {
    let (mut harness, registered_at_ms) = registered();
    harness.now_ms += 20_000;
    harness.order_attempts(&[fenced_order()]);
    assert_eq!(launched_with(&mut harness), Some(fence(registered_at_ms)));
}

#[test]
fn a_deadline_counts_from_the_sending_of_the_newest_acknowledged_heartbeat() {
    let (mut harness, registered_at_ms) = registered();
    harness.now_ms += 5_000;
    harness.reconciler.acknowledge_heartbeat(registered_at_ms + 4_000);
    harness.reconciler.acknowledge_heartbeat(registered_at_ms + 3_000); // Overtaken.
    harness.order_attempts(&[fenced_order()]);
    assert_eq!(launched_with(&mut harness), Some(fence(registered_at_ms + 4_000)));
    harness.reconcile(None);
    assert_eq!(harness.machine().renewals, [], "the shim knows it from the intent");
    for _ in 0..2 {
        harness.reconciler.acknowledge_heartbeat(registered_at_ms + 5_000);
        harness.reconcile(None);
    }
    assert_eq!(harness.machine().renewals, [fence(registered_at_ms + 5_000)], "each acknowledgement once");
}

/// The server may have given the job to another node meanwhile.
#[test]
fn an_attempt_is_not_launched_after_its_deadline_until_a_heartbeat_is_acknowledged() {
    let (mut harness, registered_at_ms) = registered();
    harness.now_ms += WITHIN_MS;
    harness.order_attempts(&[fenced_order()]);
    harness.sleep_ms(10_000);
    assert!(harness.machine().launches.is_empty() && harness.reports.is_empty(), "{:?}", harness.reports);
    let sent_at_ms = registered_at_ms + WITHIN_MS;
    harness.reconciler.acknowledge_heartbeat(sent_at_ms);
    harness.reconcile(None);
    assert_eq!(harness.machine().launches, [attempt_key()]);
    assert_eq!(launched_with(&mut harness), Some(fence(sent_at_ms)));
}

#[test]
fn a_restarted_agent_renews_with_its_first_acknowledged_heartbeat() {
    let (mut harness, _) = registered();
    harness.order_attempts(&[fenced_order()]);
    let mut harness = harness.restart_agent();
    harness.now_ms += 10_000;
    let registered_at_ms = harness.boot_now_ms();
    harness.reconcile(None);
    assert_eq!(harness.machine().renewals, []);
    harness.now_ms += 500;
    // The server no longer asks for it, but the shim still counts.
    harness.order_attempts(&[AttemptOrder { self_fence_ms: None, ..fenced_order() }]);
    assert_eq!(harness.machine().renewals, [fence(registered_at_ms)], "orders prove that it has registered");
    harness.reconciler.acknowledge_heartbeat(registered_at_ms + 400);
    harness.reconcile(None);
    assert_eq!(harness.machine().renewals[1..], [fence(registered_at_ms + 400)]);
}

#[test]
fn an_attempt_without_self_fence_is_never_renewed() {
    let (mut harness, registered_at_ms) = registered();
    harness.order_attempts(&[order()]);
    harness.reconciler.acknowledge_heartbeat(registered_at_ms + 10);
    harness.sleep_ms(600_000);
    assert_eq!((launched_with(&mut harness), harness.machine().renewals.len()), (None, 0));
    assert!(harness.machine().killed.is_empty());
}

/// A suspended shim cannot keep its deadline; a living agent can.
#[test]
fn the_agent_kills_the_tasks_of_a_shim_that_missed_the_deadline() {
    let (mut harness, _) = registered();
    harness.order_attempts(&[fenced_order()]);
    harness.sleep_ms(WITHIN_MS);
    assert!(harness.machine().killed.is_empty(), "the shim goes first");
    harness.sleep_ms(1_000);
    assert_eq!(harness.machine().killed, [attempt_key()]);
    harness.sleep_ms(300);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", harness.reports);
}
