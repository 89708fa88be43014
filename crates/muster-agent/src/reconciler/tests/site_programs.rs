//! Programs of the site after an attempt, and processes that cannot be killed.

use super::*;
use crate::machine::EpilogStatus;
use crate::records::EpilogResult;

fn unkillable_reports(harness: &ReconcilerHarness) -> usize {
    harness.reports.iter().filter(|report| matches!(report, Report::Unkillable { .. })).count()
}

fn with_ended_attempt(epilog: EpilogStatus) -> ReconcilerHarness {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().epilog = Some(epilog);
    harness.machine().finish_attempt(&attempt_key(), exit_record(Exit::Code(3)));
    harness.advance_ms(500);
    harness
}

#[test]
fn the_end_is_reported_after_the_epilog() {
    let mut harness = with_ended_attempt(EpilogStatus::Owed);
    assert_eq!((harness.machine().epilogs.len(), harness.reported_exits().len()), (1, 0));
    let epilog_failure = Some("exit code 1".to_string());
    let result = EpilogResult { epilog_failure, health_failure: Some("ECC errors".to_string()) };
    harness.machine().epilog = Some(EpilogStatus::Ended(result));
    harness.machine().changed.push(attempt_key());
    harness.reports.clear();
    harness.advance_ms(100);
    let kinds: Vec<&str> = harness.reports.iter().map(kind).collect();
    let kinds: Vec<&str> = kinds.into_iter().filter(|kind| *kind != "started").collect();
    assert_eq!(kinds, ["epilog failed", "unhealthy", "ended"]);
    assert_eq!(harness.machine().epilogs.len(), 1);
}

fn kind(report: &Report) -> &'static str {
    match report {
        Report::EpilogFailed { .. } => "epilog failed",
        Report::NodeHealth { failure: Some(_), .. } => "unhealthy",
        Report::Started { .. } => "started",
        Report::Ended { .. } => "ended",
        _ => "other",
    }
}

/// The process that ran it is gone without a result.
#[test]
fn an_epilog_without_a_result_runs_again_after_a_while() {
    let mut harness = with_ended_attempt(EpilogStatus::Owed);
    harness.machine().epilog = Some(EpilogStatus::Owed);
    harness.machine().changed.push(attempt_key());
    harness.sleep_ms(5_000);
    assert_eq!(harness.machine().epilogs.len(), 1, "not in a tight loop");
    harness.sleep_ms(10_000);
    assert_eq!(harness.machine().epilogs.len(), 2);
}

#[test]
fn an_attempt_is_cleaned_up_after_its_epilog() {
    let mut harness = with_ended_attempt(EpilogStatus::Running);
    harness.order_attempts(&[]);
    harness.sleep_ms(20_000);
    assert!(harness.machine().launch_intent(&attempt_key()).unwrap().is_some(), "the epilog still needs the records");
    harness.machine().epilog = Some(EpilogStatus::Ended(EpilogResult::default()));
    harness.sleep_ms(20_000);
    assert_eq!(harness.machine().launch_intent(&attempt_key()).unwrap(), None);
}

/// 60 s after the first SIGKILL, and then from time to time; the exit is not recorded meanwhile.
#[test]
fn processes_that_survive_sigkill_are_reported_and_keep_the_attempt() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().is_unkillable = true;
    harness.machine().lose_shim(&attempt_key());
    harness.advance_ms(59_000);
    assert_eq!((unkillable_reports(&harness), harness.reported_exits().len()), (0, 0));
    harness.advance_ms(3_000);
    assert_eq!((unkillable_reports(&harness), harness.reported_exits().len()), (1, 0));
    harness.advance_ms(60_000);
    assert_eq!((unkillable_reports(&harness), harness.reported_exits().len()), (3, 0));
    harness.machine().is_unkillable = false;
    harness.advance_ms(500);
    assert!(matches!(harness.reported_exits()[..], [Exit::Unknown(_)]), "{:?}", harness.reports);
}

#[test]
fn what_a_shim_could_not_kill_is_reported() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    harness.machine().unkillable_by_shim = Some("pid 7 (cp) in state D".to_string());
    harness.machine().changed.push(attempt_key());
    harness.advance_ms(100);
    assert_eq!((unkillable_reports(&harness), harness.reported_exits().len()), (1, 0));
}

#[test]
fn the_early_signal_is_handed_to_the_shim_once_per_agent() {
    let mut harness = ReconcilerHarness::new(FakeMachine::default());
    harness.order_attempts(&[order()]);
    let signalled = AttemptOrder { signal: Some(10), started: true, ..order() };
    harness.order_attempts(std::slice::from_ref(&signalled));
    harness.sleep_ms(30_000);
    assert_eq!(harness.machine().signals, [10]);
    // The record on disk tells the shim once.
    let mut harness = harness.restart_agent();
    harness.order_attempts(&[signalled]);
    harness.sleep_ms(30_000);
    assert_eq!(harness.machine().signals, [10, 10]);
}
