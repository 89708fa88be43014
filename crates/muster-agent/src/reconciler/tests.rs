//! The reconciler over a fake machine.

mod events;
mod fake_machine;
mod self_fence;
mod site_programs;

use muster_protocol::agent::{AttemptOrder, Exit, Orders, Registration, Report, StopOrder};

use super::attempt_status::{self, AttemptStatus, PossibleProcesses};
use super::{ClockReading, Reconciler};
use crate::machine::{AttemptKey, Machine};
use crate::records::{ExitRecord, LaunchIntent, LaunchLock};
use crate::{inventory, test_fixtures};
use fake_machine::FakeMachine;

const REPEAT_INTERVAL_MS: i64 = 1_000;

/// A reconciler, the time, and its reports except registrations and heartbeats.
struct ReconcilerHarness {
    reconciler: Reconciler<FakeMachine>,
    now_ms: i64,
    generation: u64,
    reports: Vec<Report>,
}

impl ReconcilerHarness {
    fn new(machine: FakeMachine) -> ReconcilerHarness {
        let reconciler = Reconciler::new(registration(), REPEAT_INTERVAL_MS, machine);
        ReconcilerHarness { reconciler, now_ms: 1_000_000, generation: 1, reports: Vec::new() }
    }

    /// The agent ends, and another starts on the same machine.
    fn restart_agent(self) -> ReconcilerHarness {
        ReconcilerHarness { now_ms: self.now_ms, ..ReconcilerHarness::new(self.reconciler.into_machine()) }
    }

    /// Returns when to be called next, in milliseconds from now.
    fn reconcile(&mut self, orders: Option<Orders>) -> i64 {
        let now = ClockReading { wall_ms: self.now_ms, monotonic_ms: self.boot_now_ms() };
        let reports = &mut self.reports;
        let next_ms = self.reconciler.reconcile(now, orders, &mut |report| match report {
            Report::Registered(_) | Report::Heartbeat { .. } => {}
            report => reports.push(report),
        });
        next_ms - self.now_ms
    }

    fn boot_now_ms(&self) -> i64 {
        self.now_ms - 999_000
    }

    fn order_attempts(&mut self, attempts: &[AttemptOrder]) {
        self.generation += 1;
        self.reconcile(Some(orders(self.generation, attempts)));
    }

    /// Lets time pass, with a call for each due time, as the agent's thread does.
    fn sleep_ms(&mut self, ms: i64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            let next_ms = self.reconcile(None).max(1);
            self.now_ms = until_ms.min(self.now_ms + next_ms);
        }
        self.reconcile(None);
    }

    /// Reconciles ten times a second.
    fn advance_ms(&mut self, ms: i64) {
        for _ in 0..ms / 100 {
            self.now_ms += 100;
            self.reconcile(None);
        }
    }

    fn machine(&mut self) -> &mut FakeMachine {
        self.reconciler.machine_mut()
    }

    fn reported_exits(&self) -> Vec<&Exit> {
        let ends = self.reports.iter().filter_map(|report| match report {
            Report::Ended { exit, .. } => Some(exit),
            _ => None,
        });
        ends.collect()
    }
}

fn registration() -> Registration {
    inventory::local_registration("n1", Vec::new()).unwrap()
}

fn orders(generation: u64, attempts: &[AttemptOrder]) -> Orders {
    Orders {
        node: "n1".to_string(),
        incarnation: String::new(),
        epoch: 1,
        generation,
        attempts: attempts.to_vec(),
        nonce: 0,
        pools: Vec::new(),
        reboot_from: None,
        secrets: Vec::new(),
    }
}

fn order() -> AttemptOrder {
    test_fixtures::order("job-1", &[])
}

fn attempt_key() -> AttemptKey {
    AttemptKey::new("job-1", 1).unwrap()
}

fn stop(since_ms: i64, grace_ms: i64) -> Option<StopOrder> {
    Some(StopOrder { since_ms, grace_ms, why: "test".to_string() })
}

fn exit_record(exit: Exit) -> ExitRecord {
    let (placed_at_ms, ended_at_ms) = (order().placed_at_ms, Some(1));
    ExitRecord { exit, stopped: false, placed_at_ms, ended_at_ms, prolog_failed: false }
}

#[test]
fn orders_older_than_the_newest_are_ignored() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.reconcile(Some(orders(7, &[order()])));
    harness.reconcile(Some(orders(6, &[])));
    assert_eq!(harness.machine().stop_record(&attempt_key()).unwrap(), None);
    harness.reconcile(Some(orders(8, &[])));
    assert!(harness.machine().stop_record(&attempt_key()).unwrap().is_some());
}

#[test]
fn an_order_whose_job_id_escapes_the_data_dir_is_ignored() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[test_fixtures::order("../job-1", &[]), order()]);
    assert_eq!(harness.machine().launches, [attempt_key()]);
}

#[test]
fn an_exit_report_repeats_until_orders_drop_the_attempt() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.advance_ms(100);
    harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    harness.advance_ms(5 * REPEAT_INTERVAL_MS);
    assert_eq!(harness.reported_exits(), [&Exit::Code(3); 5]);
    harness.order_attempts(&[]);
    harness.advance_ms(5 * REPEAT_INTERVAL_MS);
    assert_eq!(harness.reported_exits().len(), 5);
    assert!(harness.machine().uncleaned_attempts().is_empty());
}

#[test]
fn an_attempt_with_any_record_is_never_launched_again() {
    let interruptions: [fn(&mut ReconcilerHarness); 4] = [
        |harness| harness.machine().lose_shim(&attempt_key()),
        |harness| harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0))),
        |harness| {
            harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0)));
            harness.order_attempts(&[]); // The attempt is cleaned up; then the server orders it again.
        },
        |_| {},
    ];
    for interruption in interruptions {
        let mut harness = ReconcilerHarness::new(FakeMachine::default());
        harness.order_attempts(&[order()]);
        interruption(&mut harness);
        for _ in 0..2 {
            harness.order_attempts(&[order()]);
            harness.advance_ms(3_000);
            harness = harness.restart_agent();
        }
        assert_eq!(harness.machine().launches, [attempt_key()]);
    }
}

/// The server may launch a new attempt if nothing ran. After a reboot nobody knows.
#[test]
fn an_interrupted_launch_is_abandoned_and_not_repeated() {
    for (boot_id, is_known_not_to_have_run) in
        [(FakeMachine::default().boot_id().to_string(), true), ("former".to_string(), false)]
    {
        let mut machine = FakeMachine::default();
        let intent = LaunchIntent { order: order(), boot_id, self_fence: None };
        machine.write_launch_intent(&attempt_key(), &intent).unwrap();
        let mut harness = ReconcilerHarness::new(machine);
        harness.order_attempts(&[order()]);
        harness.advance_ms(200);
        match harness.reported_exits()[..] {
            [Exit::NotStarted(_)] if is_known_not_to_have_run => {}
            [Exit::Unknown(_)] if !is_known_not_to_have_run => {}
            _ => panic!("{:?}", harness.reports),
        }
        assert_eq!(harness.machine().launch_lock(&attempt_key()).unwrap(), Some(LaunchLock::Abandoned));
        assert!(harness.machine().launches.is_empty());
    }
}

#[test]
fn an_attempt_whose_intent_cannot_be_written_is_not_started() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.machine().is_disk_full = true;
    harness.order_attempts(&[order()]);
    harness.machine().is_disk_full = false; // Too late: the failed launch is decided and will be reported.
    harness.advance_ms(100);
    assert!(matches!(harness.reported_exits()[..], [Exit::NotStarted(_)]), "{:?}", harness.reports);
    harness.order_attempts(&[order()]);
    harness.advance_ms(3_000);
    assert!(harness.machine().launches.is_empty());
}

#[test]
fn a_failed_shim_start_is_recorded_before_it_is_reported() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.machine().fails_to_start_shims = true;
    harness.order_attempts(&[order()]);
    assert!(harness.reports.is_empty());
    let mut harness = harness.restart_agent();
    harness.machine().fails_to_start_shims = false;
    harness.order_attempts(&[order()]);
    assert!(matches!(harness.reported_exits()[..], [Exit::NotStarted(_)]), "{:?}", harness.reports);
    assert!(harness.machine().launches.is_empty());
}

#[test]
fn a_hung_shim_is_killed_only_after_a_grace_that_it_could_read() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.order_attempts(&[AttemptOrder { stop: stop(harness.now_ms, 10_000), ..order() }]);
    harness.now_ms += 20_000; // Writing the stop record took long.
    harness.reconcile(None);
    harness.advance_ms(14_900);
    assert!(harness.machine().killed.is_empty());
    harness.advance_ms(100);
    assert_eq!(harness.machine().killed, [attempt_key()]);
    harness.advance_ms(300);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", harness.reports);
}

#[test]
fn a_later_stop_can_shorten_the_grace_and_never_lengthen_it() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    let stopped_at_ms = harness.now_ms;
    for grace_ms in [60_000, 2_000, 60_000] {
        harness.order_attempts(&[AttemptOrder { stop: stop(stopped_at_ms, grace_ms), ..order() }]);
        harness.advance_ms(100);
    }
    harness.advance_ms(6_700);
    assert!(harness.machine().killed.is_empty());
    harness.advance_ms(300);
    assert_eq!(harness.machine().killed, [attempt_key()]);
}

#[test]
fn an_expired_grace_is_not_extended_before_the_shim_reads_it() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    let now_ms = harness.now_ms;
    harness.order_attempts(&[AttemptOrder { stop: stop(now_ms - 8_000, 2_000), ..order() }]);
    harness.order_attempts(&[AttemptOrder { stop: stop(now_ms, 2_000), ..order() }]);
    assert_eq!(harness.machine().stop_record(&attempt_key()).unwrap().map(|stop| stop.grace_ms), Some(0));
}

#[test]
fn an_attempt_of_another_placement_is_archived_and_the_ordered_one_launched() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0)));
    harness.order_attempts(&[]); // Only the exit record is left.
    let new_placement = AttemptOrder { placed_at_ms: order().placed_at_ms + 1, ..order() };
    let mut harness = harness.restart_agent();
    harness.order_attempts(&[new_placement]);
    harness.advance_ms(100);
    assert_eq!(harness.machine().launches, [attempt_key(), attempt_key()]);
}

#[test]
fn attempt_status_follows_the_records_from_intent_to_exit() {
    let mut machine = FakeMachine::default();
    let boot_id = machine.boot_id().to_string();
    assert_eq!(
        attempt_status::read_attempt_status(&mut machine, &attempt_key(), &boot_id, PossibleProcesses::NotExpected)
            .unwrap(),
        AttemptStatus::NoRecords
    );
    let intent = LaunchIntent { order: order(), boot_id: boot_id.clone(), self_fence: None };
    machine.write_launch_intent(&attempt_key(), &intent).unwrap();
    assert_eq!(
        attempt_status::read_attempt_status(&mut machine, &attempt_key(), &boot_id, PossibleProcesses::NotExpected)
            .unwrap(),
        AttemptStatus::LaunchPending
    );
    machine.start_shim(&attempt_key(), &[]).unwrap();
    let shim = machine.shim(&attempt_key()).unwrap();
    assert_eq!(
        attempt_status::read_attempt_status(&mut machine, &attempt_key(), &boot_id, PossibleProcesses::NotExpected)
            .unwrap(),
        AttemptStatus::ShimAlive(shim)
    );
    machine.finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    let ended = AttemptStatus::Exited(exit_record(Exit::Code(3)));
    assert_eq!(
        attempt_status::read_attempt_status(&mut machine, &attempt_key(), &boot_id, PossibleProcesses::NotExpected)
            .unwrap(),
        ended
    );
}

#[test]
fn a_shim_of_another_boot_is_lost_even_if_its_pid_is_alive() {
    let mut machine = FakeMachine::default();
    machine.start_shim(&attempt_key(), &[]).unwrap();
    let why = "the node was rebooted".to_string();
    let lost = AttemptStatus::ShimLost { why, shim: None };
    assert_eq!(
        attempt_status::read_attempt_status(
            &mut machine,
            &attempt_key(),
            "another boot",
            PossibleProcesses::NotExpected
        )
        .unwrap(),
        lost
    );
}

#[test]
fn a_corrupt_record_counts_as_a_lost_shim() {
    let mut machine = FakeMachine::default();
    machine.start_shim(&attempt_key(), &[]).unwrap();
    machine.corrupt_records.insert("launch_lock");
    let boot_id = machine.boot_id().to_string();
    let found =
        attempt_status::read_attempt_status(&mut machine, &attempt_key(), &boot_id, PossibleProcesses::NotExpected)
            .unwrap();
    assert!(matches!(found, AttemptStatus::ShimLost { shim: None, .. }));
}

#[test]
fn an_attempt_with_a_corrupt_record_is_reported_with_unknown_exit() {
    for corrupt in ["launch_lock", "intent", "stop"] {
        let mut harness = ReconcilerHarness::new(FakeMachine::default());
        harness.order_attempts(&[order()]);
        harness.machine().corrupt_records.insert(corrupt);
        let mut harness = harness.restart_agent();
        harness.machine().lose_shim(&attempt_key());
        harness.order_attempts(&[order()]);
        harness.advance_ms(300);
        assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_)]), "{corrupt}: {:?}", harness.reports);
    }
}

#[test]
fn orders_for_a_former_incarnation_are_refused_and_trigger_registration() {
    let registration = Registration { incarnation: "b".to_string(), ..registration() };
    let mut reconciler = Reconciler::new(registration, REPEAT_INTERVAL_MS, FakeMachine::default());
    let mut reports = Vec::new();
    let mut reconcile_at = |ms: i64, incarnation: &str, generation: u64| {
        let orders = Orders { incarnation: incarnation.to_string(), ..orders(generation, &[order()]) };
        let now = ClockReading { wall_ms: ms, monotonic_ms: ms };
        reconciler.reconcile(now, Some(orders), &mut |report| reports.push(report));
        reconciler.machine().launches.len()
    };
    assert_eq!(reconcile_at(1, "a", 900), 0, "orders for the previous agent");
    assert_eq!(reconcile_at(2, "b", 7), 1, "orders for another incarnation do not raise the fence");
    assert_eq!(reconcile_at(REPEAT_INTERVAL_MS + 2, "a", 900), 1);
    reconcile_at(2 * REPEAT_INTERVAL_MS + 2, "b", 7);
    let registered = reports.iter().filter(|report| matches!(report, Report::Registered(_))).count();
    assert_eq!(registered, 2, "at its start, and after orders for another incarnation: {reports:?}");
}

/// The database has lost the term of the orders that the agent follows, and gives its epoch again.
#[test]
fn an_agent_registers_again_before_it_follows_orders_of_another_history() {
    let registration = Registration { incarnation: "b".to_string(), ..registration() };
    let mut reconciler = Reconciler::new(registration, REPEAT_INTERVAL_MS, FakeMachine::default());
    let mut registered = Vec::new();
    let mut follow = |ms: i64, incarnation: &str, nonce: u64, attempts: &[AttemptOrder]| {
        let orders = Orders { incarnation: incarnation.to_string(), nonce, ..orders(900 - nonce, attempts) };
        let now = ClockReading { wall_ms: ms, monotonic_ms: ms };
        let mut note = |report| {
            if let Report::Registered(registration) = report {
                registered.push(registration.incarnation);
            }
        };
        reconciler.reconcile(now, Some(orders), &mut note);
        let next = reconciler.reconcile(now, None, &mut note);
        let is_stopped = reconciler.machine_mut().stop_record(&attempt_key()).unwrap().is_some();
        (is_stopped, reconciler.machine().launches.len(), next)
    };
    assert_eq!(follow(10, "b", 1, &[order()]).1, 1);
    let after = follow(20, "b", 2, &[]);
    assert_eq!((after.0, after.1), (false, 1), "nothing of the other history is followed");
    assert!(!follow(30, "b", 2, &[]).0, "these are for the former incarnation");
    let other = test_fixtures::order("job-2", &[]);
    let adopted = follow(40, "b~1", 2, &[order(), other]);
    assert_eq!((adopted.0, adopted.1), (false, 2), "the attempt that both histories know is adopted");
    assert!(follow(50, "b~1", 3, &[]).1 == 2, "and again");
    assert!(follow(60, "b~2", 3, &[]).0, "this history does not know the attempt");
    assert_eq!(registered, ["b", "b~1", "b~2"]);
}

#[test]
fn an_exit_report_carries_the_time_since_the_exit() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.advance_ms(100);
    let ended_at_ms = Some(harness.now_ms - 40);
    harness.machine().finish_attempt(&attempt_key(), ExitRecord { ended_at_ms, ..exit_record(Exit::Code(0)) });
    harness.now_ms += 25_000; // The agent or the server was down.
    harness.reports.clear();
    harness.reconcile(None);
    let reported = harness.reports.iter().find_map(|report| match report {
        Report::Ended { ended_ms_ago, .. } => Some(*ended_ms_ago),
        _ => None,
    });
    assert_eq!(reported, Some(Some(25_040)));
}

/// The attempt directories are deleted under a running job.
#[test]
fn an_attempt_whose_records_are_gone_is_found_by_its_processes() {
    for started in [false, true] {
        let mut harness = ReconcilerHarness::new(FakeMachine::default());
        harness.order_attempts(&[order()]);
        harness.machine().lose_records();
        harness.advance_ms(300);
        let mut harness = harness.restart_agent();
        harness.order_attempts(&[AttemptOrder { started, ..order() }]);
        harness.advance_ms(3_000);
        assert_eq!(harness.machine().launches, [attempt_key()], "it is not launched again");
        assert!(
            harness.reported_exits().is_empty() && harness.machine().killed.is_empty(),
            "it runs on: {:?}",
            harness.reports
        );
        harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(5)));
        harness.advance_ms(300);
        assert_eq!(harness.reported_exits()[0], &Exit::Code(5));
    }
}

/// The node joined again, and its former agent ran the attempt without a report that arrived.
#[test]
fn an_adopted_attempt_reports_its_start_until_that_is_acknowledged() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    let mut harness = harness.restart_agent();
    let adopted = AttemptOrder { started: true, adopt_only: true, ..order() };
    harness.order_attempts(std::slice::from_ref(&adopted));
    let count = |harness: &ReconcilerHarness| {
        harness.reports.iter().filter(|report| matches!(report, Report::Started { .. })).count()
    };
    assert_eq!(count(&harness), 1, "{:?}", harness.reports);
    harness.advance_ms(3_000);
    assert!(count(&harness) > 1, "repeated");
    harness.order_attempts(&[AttemptOrder { adopt_only: false, ..adopted }]);
    harness.reports.clear();
    harness.advance_ms(3_000);
    assert_eq!((count(&harness), &harness.machine().launches[..]), (0, &[attempt_key()][..]));
}

#[test]
fn an_attempt_without_records_and_shim_is_reported_after_its_processes_are_killed() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().lose_shim(&attempt_key());
    harness.machine().lose_records();
    let mut harness = harness.restart_agent();
    harness.order_attempts(&[AttemptOrder { started: true, ..order() }]);
    assert_eq!((harness.reported_exits().len(), &harness.machine().killed[..]), (0, &[attempt_key()][..]));
    harness.advance_ms(300);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_), ..]), "{:?}", harness.reports);
}

/// The agent is not restarted, so it remembers its launch.
#[test]
fn records_deleted_under_a_running_agent_cause_no_second_launch() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().lose_shim(&attempt_key());
    harness.machine().lose_records();
    harness.advance_ms(3_000);
    assert_eq!(harness.machine().launches, [attempt_key()]);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_), ..]), "{:?}", harness.reports);
}

#[test]
fn unordered_processes_are_stopped_even_without_records() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().lose_records();
    let mut harness = harness.restart_agent();
    harness.order_attempts(&[]);
    assert!(harness.machine().stop_record(&attempt_key()).unwrap().is_some());
}
