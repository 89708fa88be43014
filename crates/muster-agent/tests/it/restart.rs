//! Agents come and go; attempts are adopted, reported, and never run twice.

use muster_protocol::agent::{Exit, AttemptOrder};

use crate::harness::{AgentHarness, is_alive, order, script, with_stop, wait_until};

/// A runner with one attempt that has written its pid.
fn start_script(text: &str) -> (AgentHarness, AttemptOrder) {
    let mut bench = AgentHarness::with_runner();
    let asked = order(script(text));
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_start();
    bench.wait_for_first_line();
    (bench, AttemptOrder { started: true, ..asked })
}

/// How often the script has begun: each start appends a line.
fn launch_count(bench: &AgentHarness) -> usize {
    bench.read_log(0, muster_agent::logs::Stream::Stdout).lines().count()
}

#[test]
fn a_running_attempt_is_adopted_with_the_same_pid() {
    let (mut bench, asked) = start_script("echo $$; sleep 300");
    let pid: i32 = bench.wait_for_first_line().parse().unwrap();
    bench.crash_agent();
    assert!(is_alive(pid), "it does not depend on the agent");
    bench.start_runner();
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!((bench.start_report_count(), bench.reported_exits().len(), launch_count(&bench)), (0, 0, 1));
    bench.send_orders(vec![with_stop(&asked, 20_000)]);
    assert_eq!(bench.wait_for_exit(), Exit::Signal(15));
    assert!(!is_alive(pid));
}

/// The server may have missed the start: then it is said again, without a second launch.
#[test]
fn an_adopted_attempt_repeats_an_unacknowledged_start_report() {
    let (mut bench, asked) = start_script("echo $$; sleep 300");
    bench.crash_agent();
    bench.start_runner();
    bench.send_orders(vec![AttemptOrder { started: false, ..asked }]);
    bench.wait_for_start();
    assert_eq!(launch_count(&bench), 1);
}

#[test]
fn an_exit_during_an_agent_outage_is_reported() {
    let (mut bench, asked) = start_script("echo $$; while [ ! -e done ]; do sleep 0.05; done; exit 9");
    let pid: i32 = bench.wait_for_first_line().parse().unwrap();
    bench.crash_agent();
    std::fs::write(bench.attempt_dir().join("work/done"), "").unwrap();
    wait_until("it has ended", || !is_alive(pid));
    bench.start_runner();
    bench.send_orders(vec![asked]);
    assert_eq!(bench.wait_for_exit(), Exit::Code(9));
    assert_eq!(launch_count(&bench), 1);
}

#[test]
fn the_shim_completes_a_stop_without_the_agent() {
    let deaf = "trap '' TERM; echo $$; while true; do sleep 0.1; done";
    let (mut bench, asked) = start_script(&format!("(setsid sh -c \"{}\" &); {deaf}", deaf.replace('$', "\\$")));
    bench.send_orders(vec![with_stop(&asked, 300)]);
    wait_until("the stop is on disk", || bench.attempt_dir().join("stop.json").exists());
    bench.crash_agent();
    wait_until("the shim has done it alone", || bench.live_processes().is_empty());
    wait_until("it is on disk", || bench.attempt_dir().join("exit.json").exists());
}

#[test]
fn a_shim_lost_during_an_agent_outage_leaves_no_processes() {
    let (mut bench, asked) = start_script("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || bench.live_processes().len() >= 3);
    bench.crash_agent();
    crate::harness::kill(bench.shim_pid(), "KILL");
    bench.start_runner();
    bench.send_orders(vec![asked]);
    assert_eq!(bench.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
    bench.assert_no_live_processes();
    assert_eq!(launch_count(&bench), 1);
}

/// The power went between intent and fork. Nothing ran, but we cannot know what the fork became: no second launch.
#[test]
fn an_interrupted_launch_is_not_repeated() {
    let mut bench = AgentHarness::without_agent();
    let asked = order(script("echo launched"));
    std::fs::create_dir_all(bench.data_dir.join("attempts/job-1/1")).unwrap();
    let intent = format!("{{\"order\":{},\"boot_id\":\"b\"}}", muster_json::to_string(&asked));
    std::fs::write(bench.attempt_dir().join("intent.json"), intent).unwrap();
    bench.start_runner();
    bench.send_orders(vec![asked]);
    assert!(matches!(bench.wait_for_exit(), Exit::Unknown(why) if why.contains("interrupted")));
    assert_eq!(launch_count(&bench), 0);
    run_late_shim(&bench);
    assert_eq!(launch_count(&bench), 0, "a shim that comes late finds the attempt given up");
}

fn run_late_shim(bench: &AgentHarness) {
    let shim =
        std::process::Command::new(env!("CARGO_BIN_EXE_muster-shim")).arg(bench.attempt_dir()).status();
    assert!(shim.unwrap().success());
}

#[test]
fn a_started_attempt_without_records_is_not_launched() {
    let mut bench = AgentHarness::with_runner();
    bench.send_orders(vec![AttemptOrder { started: true, ..order(script("echo launched")) }]);
    assert!(matches!(bench.wait_for_exit(), Exit::Unknown(why) if why.contains("no trace")));
    assert_eq!(launch_count(&bench), 0);
}

#[test]
fn a_cleaned_up_attempt_is_not_launched_again() {
    let mut bench = AgentHarness::with_runner();
    let asked = order(script("echo launched"));
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_exit();
    bench.send_orders(vec![]);
    wait_until("it is tidied up", || !bench.attempt_dir().join("intent.json").exists());
    bench.crash_agent();
    bench.start_runner();
    bench.send_orders(vec![asked]);
    assert_eq!(bench.wait_for_exit(), Exit::Code(0));
    assert_eq!(launch_count(&bench), 1);
}

#[test]
fn leftover_attempts_are_stopped_only_after_the_first_orders() {
    let (mut bench, _) = start_script("echo $$; sleep 300");
    let pid: i32 = bench.wait_for_first_line().parse().unwrap();
    bench.crash_agent();
    bench.start_runner();
    bench.wait_for_heartbeats(3);
    assert!(is_alive(pid), "without orders nobody knows what is wanted");
    bench.send_orders(vec![]);
    wait_until("it is gone", || bench.live_processes().is_empty());
    wait_until("it is tidied up", || !bench.attempt_dir().join("intent.json").exists());
    assert_eq!(bench.reported_exits(), []);
}

/// A server that lost its journal counts jobs from one again. The old attempt must not answer for the new one.
#[test]
fn an_attempt_of_another_placement_is_archived() {
    let (mut bench, asked) = start_script("echo $$; sleep 300");
    let old_pid: i32 = bench.wait_for_first_line().parse().unwrap();
    bench.crash_agent();
    bench.start_runner();
    let anew = AttemptOrder { placed_at_ms: asked.placed_at_ms + 5, ..order(script("echo anew; exit 4")) };
    bench.send_orders(vec![anew]);
    assert_eq!(bench.wait_for_exit(), Exit::Code(4));
    assert!(!is_alive(old_pid));
    assert_eq!(bench.wait_for_first_line(), "anew");
    let aside = bench.attempt_dir().with_extension(format!("placed-{}", asked.placed_at_ms));
    assert_eq!(std::fs::read_to_string(aside.join("rank-0.out")).unwrap().trim(), old_pid.to_string());
}

/// Somebody deletes `attempts/` under a running job. Its process lives, so it is not over and not launched again.
#[test]
fn an_attempt_whose_directory_was_deleted_keeps_running_and_is_adopted() {
    let (mut bench, asked) = start_script("echo $$; sleep 300");
    let pid: i32 = bench.wait_for_first_line().parse().unwrap();
    std::fs::remove_dir_all(bench.data_dir.join("attempts")).unwrap();
    bench.wait_for_heartbeats(5);
    bench.crash_agent();
    bench.start_runner();
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!((bench.start_report_count(), bench.reported_exits()), (0, vec![]), "its process lives");
    bench.send_orders(vec![with_stop(&asked, 20_000)]);
    assert_eq!(bench.wait_for_exit(), Exit::Signal(15), "its shim is told to stop, and writes down how it ended");
    assert!(!is_alive(pid));
}

#[test]
fn an_attempt_without_directory_and_shim_leaves_no_processes() {
    let (mut bench, asked) = start_script("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || bench.live_processes().len() >= 3);
    bench.crash_agent();
    crate::harness::kill(bench.shim_pid(), "KILL");
    std::fs::remove_dir_all(bench.data_dir.join("attempts")).unwrap();
    bench.start_runner();
    bench.send_orders(vec![asked]);
    assert!(matches!(bench.wait_for_exit(), Exit::Unknown(why) if why.contains("no trace")));
    bench.assert_no_live_processes();
}

/// One record is enough to lose a process by, if nobody looks for it.
#[test]
fn an_attempt_that_lost_only_its_launch_lock_keeps_running() {
    let (mut bench, asked) = start_script("echo $$; sleep 300");
    let pid: i32 = bench.wait_for_first_line().parse().unwrap();
    bench.crash_agent();
    std::fs::remove_file(bench.attempt_dir().join("pid.json")).unwrap();
    bench.start_runner();
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_heartbeats(5);
    assert!(is_alive(pid));
    assert_eq!(bench.reported_exits(), []);
    bench.send_orders(vec![with_stop(&asked, 20_000)]);
    assert_eq!(bench.wait_for_exit(), Exit::Signal(15));
}

#[test]
fn an_exit_during_an_agent_outage_is_reported_with_its_age() {
    let mut bench = AgentHarness::with_runner();
    let asked = order(script("exit 0"));
    bench.send_orders(vec![asked.clone()]);
    bench.wait_for_exit();
    bench.crash_agent();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    bench.start_runner();
    bench.send_orders(vec![asked]);
    bench.wait_for_exit();
    let ago = bench.reports().into_iter().find_map(|report| match report {
        muster_protocol::agent::Report::Ended { ended_ms_ago, .. } => ended_ms_ago,
        _ => None,
    });
    assert!(ago.is_some_and(|ago| ago >= 1_500), "{ago:?}");
}
