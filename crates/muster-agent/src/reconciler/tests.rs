//! The desk over a machine that is only remembered.

mod fake_machine;

use muster_protocol::agent::{Exit, AttemptOrder, Orders, Registration, Report, StopOrder};

use super::attempt_status::{self, PossibleProcesses, AttemptStatus};
use super::{Reconciler, ClockReading};
use crate::machine::{AttemptKey, Machine};
use crate::records::{LaunchLock, ExitRecord, LaunchIntent};
use crate::{inventory, test_fixtures};
use fake_machine::FakeMachine;

const REPEAT_INTERVAL_MS: i64 = 1_000;

/// A desk, the time, and what it said besides that it is there.
struct ReconcilerHarness {
    reconciler: Reconciler<FakeMachine>,
    now_ms: i64,
    generation: u64,
    reports: Vec<Report>,
}

impl ReconcilerHarness {
    fn new(machine: FakeMachine) -> ReconcilerHarness {
        let desk = Reconciler::new(registration(), REPEAT_INTERVAL_MS, machine);
        ReconcilerHarness { reconciler: desk, now_ms: 1_000_000, generation: 1, reports: Vec::new() }
    }

    /// The agent ends, and another begins on the same machine.
    fn restart_agent(self) -> ReconcilerHarness {
        ReconcilerHarness { now_ms: self.now_ms, ..ReconcilerHarness::new(self.reconciler.into_machine()) }
    }

    fn reconcile(&mut self, orders: Option<Orders>) {
        let now = ClockReading { wall_ms: self.now_ms, monotonic_ms: self.now_ms - 999_000 };
        let heard = &mut self.reports;
        self.reconciler.reconcile(now, orders, &mut |report| match report {
            Report::Registered(_) | Report::Heartbeat { .. } => {}
            report => heard.push(report),
        });
    }

    fn order_attempts(&mut self, attempts: &[AttemptOrder]) {
        self.generation += 1;
        self.reconcile(Some(orders(self.generation, attempts)));
    }

    /// Look ten times a second.
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
        pools: Vec::new(),
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
    ExitRecord { exit, stopped: false, placed_at_ms: order().placed_at_ms, ended_at_ms: Some(1) }
}

#[test]
fn orders_older_than_the_newest_are_ignored() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.reconcile(Some(orders(7, &[order()])));
    house.reconcile(Some(orders(6, &[])));
    assert_eq!(house.machine().stop_record(&attempt_key()).unwrap(), None);
    house.reconcile(Some(orders(8, &[])));
    assert!(house.machine().stop_record(&attempt_key()).unwrap().is_some());
}

#[test]
fn an_order_whose_job_id_escapes_the_data_dir_is_ignored() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[test_fixtures::order("../job-1", &[]), order()]);
    assert_eq!(house.machine().launches, [attempt_key()]);
}

#[test]
fn an_exit_report_repeats_until_orders_drop_the_attempt() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.advance_ms(100);
    house.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    house.advance_ms(5 * REPEAT_INTERVAL_MS);
    assert_eq!(house.reported_exits(), [&Exit::Code(3); 5]);
    house.order_attempts(&[]);
    house.advance_ms(5 * REPEAT_INTERVAL_MS);
    assert_eq!(house.reported_exits().len(), 5);
    assert!(house.machine().uncleaned_attempts().is_empty());
}

#[test]
fn an_attempt_with_any_record_is_never_launched_again() {
    let stories: [fn(&mut ReconcilerHarness); 4] = [
        |house| house.machine().lose_shim(&attempt_key()),
        |house| house.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0))),
        |house| {
            house.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0)));
            house.order_attempts(&[]); // It is tidied up; then the server asks for it once more.
        },
        |_| {},
    ];
    for story in stories {
        let mut house = ReconcilerHarness::new(FakeMachine::default());
        house.order_attempts(&[order()]);
        story(&mut house);
        for _ in 0..2 {
            house.order_attempts(&[order()]);
            house.advance_ms(3_000);
            house = house.restart_agent();
        }
        assert_eq!(house.machine().launches, [attempt_key()]);
    }
}

#[test]
fn an_interrupted_launch_is_abandoned_and_not_repeated() {
    let mut memory = FakeMachine::default();
    let intent = LaunchIntent { order: order(), boot_id: memory.boot_id().to_string() };
    memory.write_launch_intent(&attempt_key(), &intent).unwrap();
    let mut house = ReconcilerHarness::new(memory);
    house.order_attempts(&[order()]);
    house.advance_ms(200);
    assert!(matches!(house.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", house.reports);
    assert_eq!(house.machine().launch_lock(&attempt_key()).unwrap(), Some(LaunchLock::Abandoned));
    assert!(house.machine().launches.is_empty());
}

#[test]
fn an_attempt_whose_intent_cannot_be_written_is_not_started() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.machine().is_disk_full = true;
    house.order_attempts(&[order()]);
    house.machine().is_disk_full = false; // Room comes too late: it was decided, and will be said.
    house.advance_ms(100);
    assert!(matches!(house.reported_exits()[..], [Exit::NotStarted(_)]), "{:?}", house.reports);
    house.order_attempts(&[order()]);
    house.advance_ms(3_000);
    assert!(house.machine().launches.is_empty());
}

#[test]
fn a_failed_shim_start_is_recorded_before_it_is_reported() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.machine().fails_to_start_shims = true;
    house.order_attempts(&[order()]);
    assert!(house.reports.is_empty());
    let mut house = house.restart_agent();
    house.machine().fails_to_start_shims = false;
    house.order_attempts(&[order()]);
    assert!(matches!(house.reported_exits()[..], [Exit::NotStarted(_)]), "{:?}", house.reports);
    assert!(house.machine().launches.is_empty());
}

#[test]
fn a_hung_shim_is_killed_only_after_a_grace_that_it_could_read() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.order_attempts(&[AttemptOrder { stop: stop(house.now_ms, 10_000), ..order() }]);
    house.now_ms += 20_000; // The disk took its time.
    house.reconcile(None);
    house.advance_ms(14_900);
    assert!(house.machine().killed.is_empty());
    house.advance_ms(100);
    assert_eq!(house.machine().killed, [attempt_key()]);
    house.advance_ms(300);
    assert!(matches!(house.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", house.reports);
}

#[test]
fn a_later_stop_can_shorten_the_grace_and_never_lengthen_it() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    let told_at_ms = house.now_ms;
    for grace_ms in [60_000, 2_000, 60_000] {
        house.order_attempts(&[AttemptOrder { stop: stop(told_at_ms, grace_ms), ..order() }]);
        house.advance_ms(100);
    }
    house.advance_ms(6_700);
    assert!(house.machine().killed.is_empty());
    house.advance_ms(300);
    assert_eq!(house.machine().killed, [attempt_key()]);
}

#[test]
fn an_expired_grace_is_not_extended_before_the_shim_reads_it() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    let now_ms = house.now_ms;
    house.order_attempts(&[AttemptOrder { stop: stop(now_ms - 8_000, 2_000), ..order() }]);
    house.order_attempts(&[AttemptOrder { stop: stop(now_ms, 2_000), ..order() }]);
    assert_eq!(house.machine().stop_record(&attempt_key()).unwrap().map(|stop| stop.grace_ms), Some(0));
}

#[test]
fn an_attempt_of_another_placement_is_archived_and_the_ordered_one_launched() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(0)));
    house.order_attempts(&[]); // Of what it was, only the exit record tells.
    let anew = AttemptOrder { placed_at_ms: order().placed_at_ms + 1, ..order() };
    let mut house = house.restart_agent();
    house.order_attempts(&[anew]);
    house.advance_ms(100);
    assert_eq!(house.machine().launches, [attempt_key(), attempt_key()]);
}

#[test]
fn attempt_status_follows_the_records_from_intent_to_exit() {
    let mut memory = FakeMachine::default();
    let boot_id = memory.boot_id().to_string();
    assert_eq!(attempt_status::read_attempt_status(&mut memory, &attempt_key(), &boot_id, PossibleProcesses::NotExpected).unwrap(), AttemptStatus::NoRecords);
    let intent = LaunchIntent { order: order(), boot_id: boot_id.clone() };
    memory.write_launch_intent(&attempt_key(), &intent).unwrap();
    assert_eq!(attempt_status::read_attempt_status(&mut memory, &attempt_key(), &boot_id, PossibleProcesses::NotExpected).unwrap(), AttemptStatus::LaunchPending);
    memory.start_shim(&attempt_key()).unwrap();
    let shim = memory.shim(&attempt_key()).unwrap();
    assert_eq!(attempt_status::read_attempt_status(&mut memory, &attempt_key(), &boot_id, PossibleProcesses::NotExpected).unwrap(), AttemptStatus::ShimAlive(shim));
    memory.finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    let ended = AttemptStatus::Exited(exit_record(Exit::Code(3)));
    assert_eq!(attempt_status::read_attempt_status(&mut memory, &attempt_key(), &boot_id, PossibleProcesses::NotExpected).unwrap(), ended);
}

#[test]
fn a_shim_of_another_boot_is_lost_even_if_its_pid_is_alive() {
    let mut memory = FakeMachine::default();
    memory.start_shim(&attempt_key()).unwrap();
    let why = "the machine was restarted".to_string();
    let lost = AttemptStatus::ShimLost { why, shim: None };
    assert_eq!(attempt_status::read_attempt_status(&mut memory, &attempt_key(), "another boot", PossibleProcesses::NotExpected).unwrap(), lost);
}

#[test]
fn a_corrupt_record_counts_as_a_lost_shim() {
    let mut memory = FakeMachine::default();
    memory.start_shim(&attempt_key()).unwrap();
    memory.corrupt_records.insert("claim");
    let boot_id = memory.boot_id().to_string();
    let found = attempt_status::read_attempt_status(&mut memory, &attempt_key(), &boot_id, PossibleProcesses::NotExpected).unwrap();
    assert!(matches!(found, AttemptStatus::ShimLost { shim: None, .. }));
}

#[test]
fn an_attempt_with_a_corrupt_record_is_reported_with_unknown_exit() {
    for damaged in ["claim", "intent", "stop"] {
        let mut house = ReconcilerHarness::new(FakeMachine::default());
        house.order_attempts(&[order()]);
        house.machine().corrupt_records.insert(damaged);
        let mut house = house.restart_agent();
        house.machine().lose_shim(&attempt_key());
        house.order_attempts(&[order()]);
        house.advance_ms(300);
        assert!(matches!(house.reported_exits()[..], [Exit::Unknown(_)]), "{damaged}: {:?}", house.reports);
    }
}

#[test]
fn orders_for_a_former_incarnation_are_refused_and_trigger_registration() {
    let registration = Registration { incarnation: "b".to_string(), ..registration() };
    let mut desk = Reconciler::new(registration, REPEAT_INTERVAL_MS, FakeMachine::default());
    let mut heard = Vec::new();
    let mut turn = |ms: i64, incarnation: &str, generation: u64| {
        let orders = Orders { incarnation: incarnation.to_string(), ..orders(generation, &[order()]) };
        let now = ClockReading { wall_ms: ms, monotonic_ms: ms };
        desk.reconcile(now, Some(orders), &mut |report| heard.push(report));
        desk.machine().launches.len()
    };
    assert_eq!(turn(1, "a", 900), 0, "it was meant for the agent before this one");
    assert_eq!(turn(2, "b", 7), 1, "an order for others is not the newest");
    assert_eq!(turn(REPEAT_INTERVAL_MS + 2, "a", 900), 1);
    turn(2 * REPEAT_INTERVAL_MS + 2, "b", 7);
    let registered = heard.iter().filter(|report| matches!(report, Report::Registered(_))).count();
    assert_eq!(registered, 2, "at its start, and when the server spoke to another: {heard:?}");
}

#[test]
fn an_exit_report_carries_the_time_since_the_exit() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.advance_ms(100);
    let ended_at_ms = Some(house.now_ms - 40);
    house.machine().finish_attempt(&attempt_key(), ExitRecord { ended_at_ms, ..exit_record(Exit::Code(0)) });
    house.now_ms += 25_000; // The agent, or its server, was away.
    house.reports.clear();
    house.reconcile(None);
    let said = house.reports.iter().find_map(|report| match report {
        Report::Ended { ended_ms_ago, .. } => Some(*ended_ms_ago),
        _ => None,
    });
    assert_eq!(said, Some(Some(25_040)));
}

/// Somebody deletes the folders of the attempts under a running job.
#[test]
fn an_attempt_whose_records_are_gone_is_found_by_its_processes() {
    for started in [false, true] {
        let mut house = ReconcilerHarness::new(FakeMachine::default());
        house.order_attempts(&[order()]);
        house.machine().lose_records();
        house.advance_ms(300);
        let mut house = house.restart_agent();
        house.order_attempts(&[AttemptOrder { started, ..order() }]);
        house.advance_ms(3_000);
        assert_eq!(house.machine().launches, [attempt_key()], "it is not launched again");
        assert!(house.reported_exits().is_empty() && house.machine().killed.is_empty(), "it runs on: {:?}", house.reports);
        house.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(5)));
        house.advance_ms(300);
        assert_eq!(house.reported_exits()[0], &Exit::Code(5));
    }
}

/// What is left of it is killed before it is said to be over.
#[test]
fn an_attempt_without_records_and_shim_is_reported_after_its_processes_are_killed() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.machine().lose_shim(&attempt_key());
    house.machine().lose_records();
    let mut house = house.restart_agent();
    house.order_attempts(&[AttemptOrder { started: true, ..order() }]);
    assert_eq!((house.reported_exits().len(), &house.machine().killed[..]), (0, &[attempt_key()][..]));
    house.advance_ms(300);
    assert!(matches!(house.reported_exits()[..], [Exit::Unknown(_), ..]), "{:?}", house.reports);
}

/// Its agent goes on: it remembers what it has launched.
#[test]
fn records_deleted_under_a_running_agent_cause_no_second_launch() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.machine().lose_shim(&attempt_key());
    house.machine().lose_records();
    house.advance_ms(3_000);
    assert_eq!(house.machine().launches, [attempt_key()]);
    assert!(matches!(house.reported_exits()[..], [Exit::Unknown(_), ..]), "{:?}", house.reports);
}

#[test]
fn unordered_processes_are_stopped_even_without_records() {
    let mut house = ReconcilerHarness::new(FakeMachine::default());
    house.order_attempts(&[order()]);
    house.machine().lose_records();
    let mut house = house.restart_agent();
    house.order_attempts(&[]);
    assert!(house.machine().stop_record(&attempt_key()).unwrap().is_some());
}
