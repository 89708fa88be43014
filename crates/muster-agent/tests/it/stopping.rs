//! When an attempt is said to be over, nothing of it is left.

use std::time::{Duration, Instant};

use muster_agent::logs::Stream;
use muster_protocol::agent::{Exit, Order, Run, Stop};

use crate::bench::{Bench, is_alive, kill, now_ms, order, script, stopped, wait_until};

/// Start it and wait for its first line, so that everything it sets up is there.
fn running(run: Run) -> (Bench, Order) {
    let mut bench = Bench::real();
    let asked = order(run);
    bench.order(vec![asked.clone()]);
    bench.await_start();
    bench.first_line();
    (bench, asked)
}

/// The same stop with another grace.
fn graced(order: &Order, grace_ms: i64) -> Order {
    let stop = order.stop.clone().map(|stop| Stop { grace_ms, ..stop });
    Order { stop, ..order.clone() }
}

#[test]
fn a_stop_reaches_the_whole_group_and_those_who_left_it() {
    let (mut bench, asked) = running(script(
        "trap '' TERM\n\
         sh -c \"trap '' TERM; sleep 300; sleep 300\" &\n\
         setsid sh -c \"trap '' TERM; sleep 300; sleep 300\" &\n\
         (setsid sh -c 'sleep 300' &) &\n\
         env -i setsid sh -c 'echo $$ > bare; sleep 300; sleep 300' &\n\
         while [ ! -s bare ]; do sleep 0.05; done; echo ready; wait",
    ));
    wait_until("all have started", || bench.processes().len() >= 6);
    let bare =
        std::fs::read_to_string(bench.attempt_dir().join("work/bare")).unwrap().trim().parse().unwrap();
    bench.order(vec![stopped(&asked, 500)]);
    assert_eq!(bench.await_end(), Exit::Signal(9));
    bench.assert_nothing_left();
    assert!(!is_alive(bare), "one without our mark was overlooked");
}

#[test]
fn one_that_listens_has_its_grace() {
    let (mut bench, asked) =
        running(script("trap 'sleep 0.5; echo saved; exit 7' TERM; echo ready; sleep 300 & wait"));
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Code(7));
    assert!(bench.ends()[0].1, "it was told to stop");
    assert!(bench.log(0, Stream::Stdout).contains("saved"));
}

/// A shell dies of TERM while its child still saves a checkpoint: the child keeps the grace that was promised.
#[test]
fn the_grace_holds_for_children_of_a_shell_that_died_at_once() {
    let (mut bench, asked) = running(script(
        "sh -c \"trap 'sleep 3; echo saved; exit 0' TERM; echo ready; while true; do sleep 0.1; done\"; true",
    ));
    bench.order(vec![stopped(&asked, 20_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(15));
    assert!(bench.log(0, Stream::Stdout).contains("saved"));
}

#[test]
fn a_shorter_grace_counts_at_once() {
    let (mut bench, asked) = running(script("trap '' TERM; echo ready; while true; do sleep 0.1; done"));
    bench.order(vec![stopped(&asked, 3_600_000)]);
    bench.await_beats(5);
    assert_eq!(bench.ends(), []);
    bench.order(vec![stopped(&asked, 0)]);
    assert_eq!(bench.await_end(), Exit::Signal(9));
}

/// As when a job that is displaced says that its work is saved: the server orders the same stop with less grace.
#[test]
fn one_that_is_ending_can_be_hurried() {
    let deaf = "trap 'echo told' TERM; echo ready; while true; do sleep 0.1; done";
    let (mut bench, asked) = running(script(deaf));
    let patient = stopped(&asked, 60_000);
    bench.order(vec![patient.clone()]);
    wait_until("it was told", || bench.log(0, Stream::Stdout).contains("told"));
    bench.await_beats(5);
    assert_eq!(bench.ends(), [], "it has a minute");
    let hurried_at = Instant::now();
    let since_ms = patient.stop.as_ref().unwrap().since_ms;
    bench.order(vec![graced(&patient, now_ms() - since_ms + 1_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(9));
    assert!(hurried_at.elapsed() > Duration::from_millis(700), "it had a moment to leave by itself");
    // After six seconds the agent would do it in place of a shim that hangs.
    assert!(hurried_at.elapsed() < Duration::from_secs(5), "the shim did not hurry");
    assert!(bench.ends()[0].1, "it was told to stop");
    let told = bench.log(0, Stream::Stdout).matches("told").count();
    assert_eq!(told, 1, "it is told once, not each time the orders change");
    bench.assert_nothing_left();
}

#[test]
fn one_that_is_hurried_may_still_leave_by_itself() {
    let saves = "trap 'while [ ! -e go ]; do sleep 0.05; done; exit 7' TERM; echo ready; sleep 300 & wait";
    let (mut bench, asked) = running(script(saves));
    let patient = stopped(&asked, 60_000);
    bench.order(vec![patient.clone()]);
    bench.await_beats(3);
    bench.order(vec![graced(&patient, 20_000)]);
    bench.await_beats(3);
    std::fs::write(bench.attempt_dir().join("work/go"), "").unwrap();
    assert_eq!(bench.await_end(), Exit::Code(7));
}

#[test]
fn a_longer_grace_puts_off_nothing() {
    let (mut bench, asked) = running(script("trap '' TERM; echo ready; while true; do sleep 0.1; done"));
    bench.order(vec![stopped(&asked, 2_000)]);
    bench.await_beats(3);
    bench.order(vec![stopped(&asked, 3_600_000)]);
    assert_eq!(bench.await_end(), Exit::Signal(9));
}

#[test]
fn what_tasks_leave_behind_is_ended_with_them() {
    let mut bench = Bench::real();
    bench.order(vec![order(script("sleep 300 & setsid sleep 300 & echo ready; exit 0"))]);
    assert_eq!(bench.await_end(), Exit::Code(0));
    bench.assert_nothing_left();
    assert!(!bench.ends()[0].1, "nobody told it to stop");
}

#[test]
fn a_killed_shim_leaves_nothing_behind() {
    // The second has lost its parent and has a session of its own: only our mark tells whose it is.
    let (bench, _) = running(script("sleep 300 & (setsid sleep 300 &); echo $$; wait"));
    let pid: i32 = bench.first_line().parse().unwrap();
    wait_until("all three run", || bench.processes().len() >= 3);
    kill(bench.shim_pid(), "KILL");
    assert_eq!(bench.await_end(), Exit::Unknown("shim lost".to_string()));
    assert!(!is_alive(pid));
    bench.assert_nothing_left();
}

#[test]
fn a_hanging_shim_does_not_save_its_tasks() {
    let (mut bench, asked) = running(script("echo $$; sleep 300"));
    let shim_pid = bench.shim_pid();
    kill(shim_pid, "STOP");
    bench.order(vec![stopped(&asked, 3_600_000)]);
    bench.await_beats(3);
    bench.order(vec![stopped(&asked, 0)]);
    assert_eq!(bench.await_end(), Exit::Unknown("shim lost".to_string()));
    bench.assert_nothing_left();
    assert!(!is_alive(shim_pid));
}

#[test]
fn one_that_the_orders_drop_while_it_runs_is_ended() {
    let (mut bench, _) = running(script("echo $$; sleep 300"));
    bench.order(vec![]);
    wait_until("it is gone", || bench.processes().is_empty());
    wait_until("it is tidied up", || !bench.attempt_dir().join("intent.json").exists());
    assert_eq!(bench.ends(), [], "nobody asked how it ended");
}
