//! Restarts of the agent: attempts are adopted, reported, and never run twice.

use muster_protocol::agent::{AttemptOrder, Exit};

use crate::harness::{AgentHarness, is_alive, order, script, wait_until, with_stop};

/// A runner with one running attempt that has written its pid.
fn start_script(text: &str) -> (AgentHarness, AttemptOrder) {
    let mut harness = AgentHarness::with_runner();
    let attempt_order = order(script(text));
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_start();
    harness.wait_for_first_line();
    (harness, AttemptOrder { started: true, ..attempt_order })
}

/// How often the script was started: each start appends a line.
fn launch_count(harness: &AgentHarness) -> usize {
    harness.read_log(0, muster_agent::logs::Stream::Stdout).lines().count()
}

#[test]
fn a_running_attempt_is_adopted_with_the_same_pid() {
    let (mut harness, attempt_order) = start_script("echo $$; sleep 300");
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    harness.crash_agent();
    assert!(is_alive(pid), "it does not depend on the agent");
    harness.start_runner();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!((harness.start_report_count(), harness.reported_exits().len(), launch_count(&harness)), (0, 0, 1));
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
    assert!(!is_alive(pid));
}

/// The server may have missed the start report: it is repeated, without a second launch.
#[test]
fn an_adopted_attempt_repeats_an_unacknowledged_start_report() {
    let (mut harness, attempt_order) = start_script("echo $$; sleep 300");
    harness.crash_agent();
    harness.start_runner();
    harness.send_orders(vec![AttemptOrder { started: false, ..attempt_order }]);
    harness.wait_for_start();
    assert_eq!(launch_count(&harness), 1);
}

#[test]
fn an_exit_during_an_agent_outage_is_reported() {
    let (mut harness, attempt_order) = start_script("echo $$; while [ ! -e done ]; do sleep 0.05; done; exit 9");
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    harness.crash_agent();
    std::fs::write(harness.attempt_dir().join("work/done"), "").unwrap();
    wait_until("it has ended", || !is_alive(pid));
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(9));
    assert_eq!(launch_count(&harness), 1);
}

#[test]
fn the_shim_completes_a_stop_without_the_agent() {
    let ignores_term = "trap '' TERM; echo $$; while true; do sleep 0.1; done";
    let (mut harness, attempt_order) =
        start_script(&format!("(setsid sh -c \"{}\" &); {ignores_term}", ignores_term.replace('$', "\\$")));
    harness.send_orders(vec![with_stop(&attempt_order, 300)]);
    wait_until("the stop is on disk", || harness.attempt_dir().join("stop.json").exists());
    harness.crash_agent();
    wait_until("the shim has killed the tasks alone", || harness.live_processes().is_empty());
    wait_until("the exit record is on disk", || harness.attempt_dir().join("exit.json").exists());
}

#[test]
fn a_shim_lost_during_an_agent_outage_leaves_no_processes() {
    let (mut harness, attempt_order) = start_script("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || harness.live_processes().len() >= 3);
    harness.crash_agent();
    crate::harness::kill(harness.shim_pid(), "KILL");
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
    harness.assert_no_live_processes();
    assert_eq!(launch_count(&harness), 1);
}

/// Power was lost between the launch intent and the fork. The agent cannot know whether the shim ran: no second
/// launch.
#[test]
fn an_interrupted_launch_is_not_repeated() {
    let mut harness = AgentHarness::without_agent();
    let attempt_order = order(script("echo launched"));
    std::fs::create_dir_all(harness.data_dir.join("attempts/job-1/1")).unwrap();
    let intent = format!("{{\"order\":{},\"boot_id\":\"b\"}}", muster_json::to_string(&attempt_order));
    std::fs::write(harness.attempt_dir().join("intent.json"), intent).unwrap();
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(why) if why.contains("interrupted")));
    assert_eq!(launch_count(&harness), 0);
    run_late_shim(&harness);
    assert_eq!(launch_count(&harness), 0, "a late shim finds the launch abandoned");
}

fn run_late_shim(harness: &AgentHarness) {
    let shim = std::process::Command::new(env!("CARGO_BIN_EXE_muster-shim")).arg(harness.attempt_dir()).status();
    assert!(shim.unwrap().success());
}

#[test]
fn a_started_attempt_without_records_is_not_launched() {
    let mut harness = AgentHarness::with_runner();
    harness.send_orders(vec![AttemptOrder { started: true, ..order(script("echo launched")) }]);
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(why) if why.contains("no records and no processes")));
    assert_eq!(launch_count(&harness), 0);
}

#[test]
fn a_cleaned_up_attempt_is_not_launched_again() {
    let mut harness = AgentHarness::with_runner();
    let attempt_order = order(script("echo launched"));
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_exit();
    harness.send_orders(vec![]);
    wait_until("it is cleaned up", || !harness.attempt_dir().join("intent.json").exists());
    harness.crash_agent();
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(0));
    assert_eq!(launch_count(&harness), 1);
}

#[test]
fn leftover_attempts_are_stopped_only_after_the_first_orders() {
    let (mut harness, _) = start_script("echo $$; sleep 300");
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    harness.crash_agent();
    harness.start_runner();
    harness.wait_for_heartbeats(3);
    assert!(is_alive(pid), "without orders the agent stops nothing");
    harness.send_orders(vec![]);
    wait_until("it is gone", || harness.live_processes().is_empty());
    wait_until("it is cleaned up", || !harness.attempt_dir().join("intent.json").exists());
    assert_eq!(harness.reported_exits(), []);
}

/// A server that lost its journal counts jobs from one again. The exit of the old attempt must not count for the
/// new one.
#[test]
fn an_attempt_of_another_placement_is_archived() {
    let (mut harness, attempt_order) = start_script("echo $$; sleep 300");
    let old_pid: i32 = harness.wait_for_first_line().parse().unwrap();
    harness.crash_agent();
    harness.start_runner();
    let new_placement =
        AttemptOrder { placed_at_ms: attempt_order.placed_at_ms + 5, ..order(script("echo second; exit 4")) };
    harness.send_orders(vec![new_placement]);
    assert_eq!(harness.wait_for_exit(), Exit::Code(4));
    assert!(!is_alive(old_pid));
    assert_eq!(harness.wait_for_first_line(), "second");
    let aside = harness.attempt_dir().with_extension(format!("placed-{}", attempt_order.placed_at_ms));
    assert_eq!(std::fs::read_to_string(aside.join("rank-0.out")).unwrap().trim(), old_pid.to_string());
}

/// `attempts/` is deleted under a running job. The shim is alive, so the attempt is not over and not launched again.
#[test]
fn an_attempt_whose_directory_was_deleted_keeps_running_and_is_adopted() {
    let (mut harness, attempt_order) = start_script("echo $$; sleep 300");
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    std::fs::remove_dir_all(harness.data_dir.join("attempts")).unwrap();
    harness.wait_for_heartbeats(5);
    harness.crash_agent();
    harness.start_runner();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!((harness.start_report_count(), harness.reported_exits()), (0, vec![]), "the shim is alive");
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15), "the shim reads the stop record and writes the exit record");
    assert!(!is_alive(pid));
}

#[test]
fn an_attempt_without_directory_and_shim_leaves_no_processes() {
    let (mut harness, attempt_order) = start_script("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || harness.live_processes().len() >= 3);
    harness.crash_agent();
    crate::harness::kill(harness.shim_pid(), "KILL");
    std::fs::remove_dir_all(harness.data_dir.join("attempts")).unwrap();
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    assert!(matches!(harness.wait_for_exit(), Exit::Unknown(why) if why.contains("no records and no processes")));
    harness.assert_no_live_processes();
}

/// Without the launch lock the shim must be found among the processes.
#[test]
fn an_attempt_that_lost_only_its_launch_lock_keeps_running() {
    let (mut harness, attempt_order) = start_script("echo $$; sleep 300");
    let pid: i32 = harness.wait_for_first_line().parse().unwrap();
    harness.crash_agent();
    std::fs::remove_file(harness.attempt_dir().join("pid.json")).unwrap();
    harness.start_runner();
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!(harness.reported_exits(), []);
    harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(harness.wait_for_exit(), Exit::Signal(15));
}

#[test]
fn an_exit_during_an_agent_outage_is_reported_with_its_age() {
    let mut harness = AgentHarness::with_runner();
    let attempt_order = order(script("exit 0"));
    harness.send_orders(vec![attempt_order.clone()]);
    harness.wait_for_exit();
    harness.crash_agent();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    harness.start_runner();
    harness.send_orders(vec![attempt_order]);
    harness.wait_for_exit();
    let ago = harness.reports().into_iter().find_map(|report| match report {
        muster_protocol::agent::Report::Ended { ended_ms_ago, .. } => ended_ms_ago,
        _ => None,
    });
    assert!(ago.is_some_and(|ago| ago >= 1_500), "{ago:?}");
}
