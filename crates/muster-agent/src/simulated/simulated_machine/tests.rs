use super::*;
use crate::machine::Machine;
use crate::test_fixtures::order;

/// A machine on which an attempt runs.
fn machine_with_attempt(key: &AttemptKey) -> SimulatedMachine {
    let mut machine = SimulatedMachine::new("gpu01");
    machine.advance_to(ClockReading { wall_ms: 1_000, monotonic_ms: 7 });
    let intent = LaunchIntent { order: order("job-1", &[]), boot_id: BOOT_ID.to_string(), self_fence: None };
    machine.write_launch_intent(key, &intent).unwrap();
    machine.start_shim(key, &[]).unwrap();
    machine.advance_to(ClockReading { wall_ms: 1_050, monotonic_ms: 57 });
    assert_eq!(machine.take_changed_attempts(), std::slice::from_ref(key), "its tasks run");
    machine
}

/// A machine lives as long as the server, so it must not grow with every job.
#[test]
fn an_attempt_that_was_cleaned_up_leaves_nothing() {
    let key = AttemptKey::new("job-1", 1).unwrap();
    let mut machine = machine_with_attempt(&key);
    machine.advance_to(ClockReading { wall_ms: 60_000, monotonic_ms: 59_007 });
    assert!(machine.exit_record(&key).unwrap().is_some());
    machine.clean_up(&key).unwrap();
    assert!(machine.attempts.is_empty() && machine.live_shims.is_empty() && machine.due_shims.is_empty());
}

#[test]
fn killed_tasks_end_their_attempt() {
    let key = AttemptKey::new("job-1", 1).unwrap();
    let mut machine = machine_with_attempt(&key);
    assert_eq!((machine.kill_attempt_processes(&key, None).unwrap(), machine.next_due_ms()), (1, 57), "a change");
    assert_eq!(machine.kill_attempt_processes(&key, None).unwrap(), 0);
    let exit = machine.exit_record(&key).unwrap().unwrap();
    assert_eq!((exit.exit, exit.ended_at_ms), (muster_protocol::agent::Exit::Signal(9), Some(1_050)));
}

/// A task that nobody watches any more is found by the reconciler: the attempt has no exit record.
#[test]
fn a_killed_shim_leaves_no_exit_record() {
    let key = AttemptKey::new("job-1", 1).unwrap();
    let mut machine = machine_with_attempt(&key);
    let shim = machine.find_shim(&key).unwrap().unwrap();
    machine.kill_shim(&shim);
    assert!(!machine.is_shim_alive(&shim) && machine.exit_record(&key).unwrap().is_none());
    assert_eq!((machine.take_changed_attempts(), machine.next_due_ms()), (vec![key], i64::MAX));
}
