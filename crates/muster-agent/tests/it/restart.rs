//! Agents come and go; attempts are adopted, reported, and never run twice.

use muster_protocol::agent::{Exit, Order};

use crate::bench::{Bench, is_alive, order, script, stopped, wait_until};

/// A runner with one attempt that has written its pid.
fn running(text: &str) -> (Bench, Order) {
    let mut bench = Bench::real();
    let asked = order(script(text));
    bench.order(vec![asked.clone()]);
    bench.await_start();
    bench.first_line();
    (bench, Order { started: true, ..asked })
}

/// How often the script has begun: each start appends a line.
fn launches(bench: &Bench) -> usize {
    bench.log(0, muster_agent::logs::Stream::Stdout).lines().count()
}

#[test]
fn a_running_attempt_is_adopted_with_the_same_pid() {
    let (mut bench, asked) = running("echo $$; sleep 300");
    let pid: i32 = bench.first_line().parse().unwrap();
    bench.crash();
    assert!(is_alive(pid), "it does not depend on the agent");
    bench.start_runner();
    bench.order(vec![asked.clone()]);
    bench.await_beats(5);
    assert!(is_alive(pid));
    assert_eq!((bench.starts(), bench.ends().len(), launches(&bench)), (0, 0, 1));
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(15));
    assert!(!is_alive(pid));
}

/// The server may have missed the start: then it is said again, without a second launch.
#[test]
fn an_adopted_attempt_says_its_start_if_nobody_heard_it() {
    let (mut bench, asked) = running("echo $$; sleep 300");
    bench.crash();
    bench.start_runner();
    bench.order(vec![Order { started: false, ..asked }]);
    bench.await_start();
    assert_eq!(launches(&bench), 1);
}

#[test]
fn an_end_while_the_agent_was_away_is_reported() {
    let (mut bench, asked) = running("echo $$; while [ ! -e done ]; do sleep 0.05; done; exit 9");
    let pid: i32 = bench.first_line().parse().unwrap();
    bench.crash();
    std::fs::write(bench.attempt_dir().join("work/done"), "").unwrap();
    wait_until("it has ended", || !is_alive(pid));
    bench.start_runner();
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Code(9));
    assert_eq!(launches(&bench), 1);
}

#[test]
fn a_stop_is_carried_out_although_the_agent_is_gone() {
    let deaf = "trap '' TERM; echo $$; while true; do sleep 0.1; done";
    let (mut bench, asked) = running(&format!("(setsid sh -c \"{}\" &); {deaf}", deaf.replace('$', "\\$")));
    bench.order(vec![stopped(&asked, 300)]);
    wait_until("the stop is on disk", || bench.attempt_dir().join("stop.json").exists());
    bench.crash();
    wait_until("the shim has done it alone", || bench.processes().is_empty());
    wait_until("it is on disk", || bench.attempt_dir().join("exit.json").exists());
}

#[test]
fn a_shim_lost_while_the_agent_was_away_leaves_nothing_behind() {
    let (mut bench, asked) = running("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || bench.processes().len() >= 3);
    bench.crash();
    crate::bench::kill(bench.shim_pid(), "KILL");
    bench.start_runner();
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Unknown("shim lost".to_string()));
    bench.assert_nothing_left();
    assert_eq!(launches(&bench), 1);
}

/// The power went between intent and fork. Nothing ran, but we cannot know what the fork became: no second launch.
#[test]
fn an_interrupted_launch_is_not_repeated() {
    let mut bench = Bench::empty();
    let asked = order(script("echo launched"));
    std::fs::create_dir_all(bench.data_dir.join("attempts/job-1/1")).unwrap();
    let intent = format!("{{\"order\":{},\"boot_id\":\"b\"}}", muster_json::to_string(&asked));
    std::fs::write(bench.attempt_dir().join("intent.json"), intent).unwrap();
    bench.start_runner();
    bench.order(vec![asked]);
    assert!(matches!(bench.await_end(), Exit::Unknown(why) if why.contains("interrupted")));
    assert_eq!(launches(&bench), 0);
    late_shim(&bench);
    assert_eq!(launches(&bench), 0, "a shim that comes late finds the attempt given up");
}

fn late_shim(bench: &Bench) {
    let shim =
        std::process::Command::new(env!("CARGO_BIN_EXE_muster-shim")).arg(bench.attempt_dir()).status();
    assert!(shim.unwrap().success());
}

#[test]
fn one_that_ran_and_left_no_trace_is_not_launched() {
    let mut bench = Bench::real();
    bench.order(vec![Order { started: true, ..order(script("echo launched")) }]);
    assert!(matches!(bench.await_end(), Exit::Unknown(why) if why.contains("no trace")));
    assert_eq!(launches(&bench), 0);
}

#[test]
fn an_attempt_that_was_tidied_up_is_not_launched_again() {
    let mut bench = Bench::real();
    let asked = order(script("echo launched"));
    bench.order(vec![asked.clone()]);
    bench.await_end();
    bench.order(vec![]);
    wait_until("it is tidied up", || !bench.attempt_dir().join("intent.json").exists());
    bench.crash();
    bench.start_runner();
    bench.order(vec![asked]);
    assert_eq!(bench.await_end(), Exit::Code(0));
    assert_eq!(launches(&bench), 1);
}

#[test]
fn former_attempts_nobody_names_are_ended_after_the_first_orders_only() {
    let (mut bench, _) = running("echo $$; sleep 300");
    let pid: i32 = bench.first_line().parse().unwrap();
    bench.crash();
    bench.start_runner();
    bench.await_beats(3);
    assert!(is_alive(pid), "without orders nobody knows what is wanted");
    bench.order(vec![]);
    wait_until("it is gone", || bench.processes().is_empty());
    wait_until("it is tidied up", || !bench.attempt_dir().join("intent.json").exists());
    assert_eq!(bench.ends(), []);
}

/// A server that lost its journal counts jobs from one again. The old attempt must not answer for the new one.
#[test]
fn an_attempt_of_another_life_is_set_aside() {
    let (mut bench, asked) = running("echo $$; sleep 300");
    let old_pid: i32 = bench.first_line().parse().unwrap();
    bench.crash();
    bench.start_runner();
    let anew = Order { placed_at_ms: asked.placed_at_ms + 5, ..order(script("echo anew; exit 4")) };
    bench.order(vec![anew]);
    assert_eq!(bench.await_end(), Exit::Code(4));
    assert!(!is_alive(old_pid));
    assert_eq!(bench.first_line(), "anew");
    let aside = bench.attempt_dir().with_extension(format!("placed-{}", asked.placed_at_ms));
    assert_eq!(std::fs::read_to_string(aside.join("rank-0.out")).unwrap().trim(), old_pid.to_string());
}

/// Somebody deletes `attempts/` under a running job. Its process lives, so it is not over and not launched again.
#[test]
fn an_attempt_whose_folder_was_deleted_runs_on_and_is_adopted() {
    let (mut bench, asked) = running("echo $$; sleep 300");
    let pid: i32 = bench.first_line().parse().unwrap();
    std::fs::remove_dir_all(bench.data_dir.join("attempts")).unwrap();
    bench.await_beats(5);
    bench.crash();
    bench.start_runner();
    bench.order(vec![asked.clone()]);
    bench.await_beats(5);
    assert!(is_alive(pid));
    assert_eq!((bench.starts(), bench.ends()), (0, vec![]), "its process lives");
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(15), "its shim is told to stop, and writes down how it ended");
    assert!(!is_alive(pid));
}

#[test]
fn an_attempt_whose_folder_and_shim_are_gone_leaves_nothing_behind() {
    let (mut bench, asked) = running("setsid sleep 300 & echo $$; sleep 300");
    wait_until("all run", || bench.processes().len() >= 3);
    bench.crash();
    crate::bench::kill(bench.shim_pid(), "KILL");
    std::fs::remove_dir_all(bench.data_dir.join("attempts")).unwrap();
    bench.start_runner();
    bench.order(vec![asked]);
    assert!(matches!(bench.await_end(), Exit::Unknown(why) if why.contains("no trace")));
    bench.assert_nothing_left();
}

/// One record is enough to lose a process by, if nobody looks for it.
#[test]
fn an_attempt_that_lost_its_claim_alone_runs_on() {
    let (mut bench, asked) = running("echo $$; sleep 300");
    let pid: i32 = bench.first_line().parse().unwrap();
    bench.crash();
    std::fs::remove_file(bench.attempt_dir().join("pid.json")).unwrap();
    bench.start_runner();
    bench.order(vec![asked.clone()]);
    bench.await_beats(5);
    assert!(is_alive(pid));
    assert_eq!(bench.ends(), []);
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(15));
}

#[test]
fn an_end_while_the_agent_was_away_is_told_with_its_time() {
    let mut bench = Bench::real();
    let asked = order(script("exit 0"));
    bench.order(vec![asked.clone()]);
    bench.await_end();
    bench.crash();
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    bench.start_runner();
    bench.order(vec![asked]);
    bench.await_end();
    let ago = bench.heard().into_iter().find_map(|report| match report {
        muster_protocol::agent::Report::Ended { ended_ms_ago, .. } => ended_ms_ago,
        _ => None,
    });
    assert!(ago.is_some_and(|ago| ago >= 1_500), "{ago:?}");
}
