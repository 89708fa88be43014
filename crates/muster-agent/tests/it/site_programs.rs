//! Prolog, epilog, health program and early signal with real processes; agent, shim and epilog are killed at each step.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_agent::logs::Stream;
use muster_agent::{LauncherConfig, SiteProgramsConfig};
use muster_protocol::agent::{AttemptOrder, Exit, Report};

use crate::harness::{AgentHarness, is_alive, is_root, kill, order, script, wait_until, with_stop};

/// A site whose programs append to one file.
struct Site {
    harness: AgentHarness,
    programs: SiteProgramsConfig,
}

impl Site {
    /// A prolog that writes `prolog`, and an epilog that writes `epilog`.
    fn new() -> Site {
        let harness = AgentHarness::without_agent();
        let mut site = Site { harness, programs: SiteProgramsConfig::default() };
        site.programs.prolog = Some(site.program("prolog", "note prolog"));
        site.programs.epilog = Some(site.program("epilog", "note epilog"));
        site
    }

    /// `note WORDS` appends a line to the file of the site.
    fn program(&self, name: &str, text: &str) -> PathBuf {
        let (path, notes) = (self.harness.data_dir.join(name), self.notes_path());
        let text = format!("#!/bin/sh\nnote() {{ echo \"$@\" >> {}; }}\n{text}\n", notes.display());
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn with_prolog(mut self, text: &str) -> Site {
        self.programs.prolog = Some(self.program("prolog", text));
        self
    }

    fn with_epilog(mut self, text: &str) -> Site {
        self.programs.epilog = Some(self.program("epilog", text));
        self
    }

    fn notes_path(&self) -> PathBuf {
        self.harness.data_dir.join("notes")
    }

    fn notes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.notes_path()).unwrap_or_default();
        text.lines().map(str::to_string).collect()
    }

    fn count(&self, word: &str) -> usize {
        self.notes().iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    fn wait_for_note(&self, word: &str) {
        wait_until(&format!("the note `{word}` is there"), || self.count(word) > 0);
    }

    fn start_agent(&mut self) {
        let launcher = LauncherConfig { programs: self.programs.clone(), ..LauncherConfig::default() };
        self.harness.start_runner_with(launcher);
    }

    fn start(&mut self, text: &str) -> AttemptOrder {
        self.start_agent();
        let attempt_order = order(script(text));
        self.harness.send_orders(vec![attempt_order.clone()]);
        attempt_order
    }

    /// The agent is killed, and started again with the same orders.
    fn restart_agent(&mut self, attempt_order: &AttemptOrder) {
        self.harness.crash_agent();
        self.start_agent();
        self.harness.send_orders(vec![attempt_order.clone()]);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.harness.data_dir.join(name)
    }

    fn let_go(&self, name: &str) {
        std::fs::write(self.file(name), "").unwrap();
    }

    /// The process that runs the epilog.
    fn epilog_runner(&self) -> i32 {
        let path = self.harness.attempt_dir().join("epilog.json");
        wait_until("the epilog has a record", || path.exists());
        let text = std::fs::read_to_string(path).unwrap();
        let after = text.split("\"pid\":").nth(1).unwrap();
        after.split(|letter: char| !letter.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    fn end_report(&self) -> (Exit, bool) {
        self.harness.wait_for_exit();
        let end = |report| match report {
            Report::Ended { exit, prolog_failed, .. } => Some((exit, prolog_failed)),
            _ => None,
        };
        self.harness.reports().into_iter().find_map(end).unwrap()
    }

    /// The failures that were reported, and whether all came before the end of the attempt.
    fn failures_before_the_end(&self) -> Vec<String> {
        self.harness.wait_for_exit();
        let reports = self.harness.reports();
        let until_the_end = reports.into_iter().take_while(|report| !matches!(report, Report::Ended { .. }));
        let failure = |report| match report {
            Report::EpilogFailed { why, .. } => Some(format!("epilog: {why}")),
            Report::NodeHealth { failure: Some(why), .. } => Some(format!("health: {why}")),
            _ => None,
        };
        until_the_end.filter_map(failure).collect()
    }
}

/// Waits in a script until the test writes a file.
fn wait_for(path: &Path) -> String {
    format!("while [ ! -e {} ]; do sleep 0.05; done", path.display())
}

#[test]
fn the_prolog_runs_before_the_tasks_and_the_epilog_after_the_last_process() {
    let site = Site::new().with_prolog(
        "note prolog $MUSTER_JOB_ID $MUSTER_ATTEMPT $MUSTER_USER $MUSTER_TENANT gpus $MUSTER_GPUS; \
         [ -d \"$MUSTER_ATTEMPT_DIR\" ] && note dir",
    );
    let is_gone = "kill -0 $(cat $MUSTER_ATTEMPT_DIR/work/pid) 2>/dev/null && note alive";
    let mut site = site.with_epilog(&format!("{is_gone}; note epilog $MUSTER_EXIT $MUSTER_EXIT_CODE"));
    // The background process ignores SIGTERM, in a session of its own.
    site.start(
        "setsid sh -c 'trap \"\" TERM; echo $$ > new; mv new pid; while true; do sleep 0.1; done' & \
         while [ ! -e pid ]; do sleep 0.05; done; exit 3",
    );
    assert_eq!(site.end_report(), (Exit::Code(3), false));
    assert_eq!(site.notes(), ["prolog job-1 1 ann vision gpus 1,3", "dir", "epilog code 3"]);
    assert_eq!(site.failures_before_the_end(), [""; 0]);
    site.harness.send_orders(vec![]);
    let attempt_dir = site.harness.attempt_dir();
    wait_until("it is cleaned up", || !attempt_dir.join("intent.json").exists());
    assert!(!attempt_dir.join("programs.json").exists() && !attempt_dir.join("epilog.json").exists());
    assert_eq!((site.count("prolog"), site.count("epilog")), (1, 1));
}

#[test]
fn a_failed_prolog_starts_no_task_and_says_why() {
    let mut site = Site::new().with_prolog("note prolog; echo no scratch disk; exit 3");
    site.start("echo launched");
    let why = "prolog failed: exit code 3: no scratch disk".to_string();
    assert_eq!(site.end_report(), (Exit::NotStarted(why), true));
    assert_eq!((site.count("prolog"), site.count("epilog")), (1, 1), "what the prolog began, the epilog ends");
    assert_eq!(site.harness.start_report_count(), 0);
    assert!(!site.harness.attempt_dir().join("rank-0.out").exists(), "no task was started");
}

#[test]
fn a_prolog_past_its_time_limit_is_killed_with_what_it_started() {
    let mut site = Site::new().with_prolog("note prolog; echo mounting; setsid sleep 300 & sleep 300");
    site.programs.prolog_timeout = Duration::from_millis(500);
    site.start("echo launched");
    let why = "prolog failed: it ran longer than 0.5 s: mounting".to_string();
    assert_eq!(site.end_report(), (Exit::NotStarted(why), true));
    site.harness.assert_no_live_processes();
}

#[test]
fn a_stop_ends_a_running_prolog_and_is_no_failure_of_the_node() {
    let mut site = Site::new().with_prolog("note prolog; sleep 300");
    let attempt_order = site.start("echo launched");
    site.wait_for_note("prolog");
    site.harness.send_orders(vec![with_stop(&attempt_order, 20_000)]);
    assert_eq!(site.end_report(), (Exit::NotStarted("the attempt was stopped before it started".to_string()), false));
    site.harness.assert_no_live_processes();
}

#[test]
fn a_failed_epilog_is_reported_before_the_end_and_the_result_stays() {
    let mut site = Site::new().with_epilog("note epilog; echo scratch is busy; exit 1");
    site.start("exit 0");
    assert_eq!(site.failures_before_the_end(), ["epilog: exit code 1: scratch is busy"]);
    assert_eq!(site.end_report(), (Exit::Code(0), false));
}

#[test]
fn a_killed_agent_loses_no_prolog() {
    let site = Site::new();
    let release = site.file("release");
    let mut site = site.with_prolog(&format!("note prolog; {}; note done", wait_for(&release)));
    let attempt_order = site.start("exit 5");
    site.wait_for_note("prolog");
    site.harness.crash_agent();
    site.let_go("release");
    site.wait_for_note("done");
    site.restart_agent(&attempt_order);
    assert_eq!(site.end_report(), (Exit::Code(5), false));
    assert_eq!((site.count("prolog"), site.count("epilog")), (1, 1));
}

/// The task may have started, as far as the records tell.
#[test]
fn a_shim_that_is_killed_in_the_prolog_is_lost_and_the_epilog_still_runs() {
    let mut site = Site::new().with_prolog("note prolog; sleep 300");
    site.start("echo launched");
    site.wait_for_note("prolog");
    kill(site.harness.shim_pid(), "KILL");
    assert_eq!(site.end_report(), (Exit::Unknown("shim lost".to_string()), false));
    assert_eq!((site.count("prolog"), site.count("epilog")), (1, 1));
    site.harness.assert_no_live_processes();
}

#[test]
fn a_lost_shim_does_not_lose_the_epilog() {
    let mut site = Site::new().with_epilog("note epilog $MUSTER_EXIT $MUSTER_EXIT_WHY");
    site.start("echo $$; sleep 300");
    let pid: i32 = site.harness.wait_for_first_line().parse().unwrap();
    kill(site.harness.shim_pid(), "KILL");
    assert_eq!(site.end_report().0, Exit::Unknown("shim lost".to_string()));
    assert!(!is_alive(pid));
    assert_eq!(site.notes(), ["prolog", "epilog unknown shim lost"]);
}

#[test]
fn an_epilog_is_run_by_the_next_agent() {
    let mut site = Site::new();
    // A job reaches its own files only.
    let attempt_order = site.start("echo $$; while [ ! -e done ]; do sleep 0.05; done; exit 4");
    let pid: i32 = site.harness.wait_for_first_line().parse().unwrap();
    site.harness.crash_agent();
    std::fs::write(site.harness.attempt_dir().join("work/done"), "").unwrap();
    wait_until("it has ended", || !is_alive(pid));
    site.restart_agent(&AttemptOrder { started: true, ..attempt_order });
    assert_eq!(site.end_report(), (Exit::Code(4), false));
    assert_eq!((site.count("prolog"), site.count("epilog")), (1, 1));
}

#[test]
fn a_running_epilog_survives_the_agent_and_runs_once() {
    let site = Site::new();
    let release = site.file("release");
    let mut site = site.with_epilog(&format!("note epilog; {}; note done", wait_for(&release)));
    let attempt_order = site.start("exit 0");
    site.wait_for_note("epilog");
    assert_eq!(site.harness.reported_exits(), [], "the attempt keeps its resources until the epilog has ended");
    site.restart_agent(&attempt_order);
    site.harness.wait_for_heartbeats(3);
    assert_eq!(site.harness.reported_exits(), [], "the next agent waits for the epilog of its predecessor");
    site.let_go("release");
    assert_eq!(site.end_report(), (Exit::Code(0), false));
    assert_eq!((site.count("epilog"), site.count("done")), (1, 1));
}

/// An agent that started just before this one may have started the process, too.
#[test]
fn a_second_epilog_process_of_an_attempt_does_nothing() {
    let site = Site::new();
    let release = site.file("release");
    let mut site = site.with_epilog(&format!("note epilog; {}", wait_for(&release)));
    site.start("exit 0");
    site.wait_for_note("epilog");
    let mut second = std::process::Command::new(env!("CARGO_BIN_EXE_muster-shim"));
    let status = second.arg("--after-attempt").arg(site.harness.attempt_dir()).status().unwrap();
    assert!(status.success());
    site.let_go("release");
    assert_eq!(site.end_report(), (Exit::Code(0), false));
    assert_eq!(site.count("epilog"), 1);
}

/// Its result is unknown, so it runs again: at least once, after what it left is killed.
#[test]
fn a_killed_epilog_runs_again() {
    let site = Site::new();
    let release = site.file("release");
    let mut site = site.with_epilog(&format!("note epilog; {}; note done", wait_for(&release)));
    site.start("exit 0");
    site.wait_for_note("epilog");
    let runner = site.epilog_runner();
    kill(runner, "KILL");
    wait_until("it runs again", || site.count("epilog") == 2);
    site.let_go("release");
    assert_eq!(site.end_report(), (Exit::Code(0), false));
    assert_eq!((site.count("epilog"), site.count("done")), (2, 1), "the first run did not go on beside the second");
}

/// The server no longer orders the attempt, for example because an operator fenced the node.
#[test]
fn an_attempt_that_left_the_orders_gets_its_epilog_too() {
    let mut site = Site::new();
    site.start("echo $$; sleep 300");
    site.harness.wait_for_first_line();
    site.harness.send_orders(vec![]);
    site.wait_for_note("epilog");
    let attempt_dir = site.harness.attempt_dir();
    wait_until("it is cleaned up", || !attempt_dir.join("intent.json").exists());
    assert_eq!(site.count("epilog"), 1);
}

/// The power was cut while the attempt ran: nothing of it is left but its records.
#[test]
fn a_reboot_leaves_the_epilog_owed() {
    let mut site = Site::new();
    let attempt_order = order(script("echo launched"));
    let attempt_dir = site.harness.attempt_dir();
    std::fs::create_dir_all(&attempt_dir).unwrap();
    let intent = format!("{{\"order\":{},\"boot_id\":\"b\"}}", muster_json::to_string(&attempt_order));
    std::fs::write(attempt_dir.join("intent.json"), intent).unwrap();
    let epilog = site.programs.epilog.clone().unwrap();
    let programs = format!("{{\"epilog\":{{\"path\":\"{}\",\"timeout_ms\":60000}}}}", epilog.display());
    std::fs::write(attempt_dir.join("programs.json"), programs).unwrap();
    site.start_agent();
    site.harness.send_orders(vec![attempt_order]);
    assert!(matches!(site.end_report().0, Exit::Unknown(why) if why.contains("interrupted")));
    assert_eq!(site.notes(), ["epilog"]);
}

#[test]
fn programs_run_as_the_account_of_the_job_if_the_site_says_so() {
    if !is_root() {
        return;
    }
    let mut site = Site::new().with_prolog("id -u").with_epilog("true");
    site.programs.prolog = Some(site.program("prolog", "echo user $(id -u) groups $(id -G); exit 1"));
    site.programs.as_job_user = true;
    site.start_agent();
    // The account is `nobody` where the site has not made `muster-job`.
    site.harness.send_orders(vec![order(script("true"))]);
    let Exit::NotStarted(why) = site.harness.wait_for_exit() else { panic!("the prolog did not fail") };
    assert!(why.contains("user ") && !why.contains("user 0 ") && !why.contains("groups 0"), "{why}");
}

#[test]
fn the_health_program_is_reported_from_time_to_time() {
    let site = Site::new();
    let broken = site.file("broken");
    let mut site = site;
    site.programs.health =
        Some(site.program(
            "health",
            &format!("note health; [ ! -e {} ] || {{ echo ECC errors; exit 1; }}", broken.display()),
        ));
    site.programs.health_interval = Duration::from_millis(200);
    site.start_agent();
    let newest = |site: &Site| {
        let outcome = |report: &Report| match report {
            Report::NodeHealth { failure, .. } => Some(failure.clone()),
            _ => None,
        };
        site.harness.reports().iter().rev().find_map(outcome)
    };
    wait_until("the node is healthy", || newest(&site) == Some(None));
    site.let_go("broken");
    wait_until("the failure is reported", || newest(&site) == Some(Some("exit code 1: ECC errors".to_string())));
    std::fs::remove_file(site.file("broken")).unwrap();
    wait_until("the node is healthy again", || newest(&site) == Some(None));
}

#[test]
fn a_hanging_health_program_is_killed_and_reported() {
    let mut site = Site::new();
    site.programs.health = Some(site.program("health", "echo probing; note $$; sleep 300"));
    site.programs.health_timeout = Duration::from_millis(300);
    site.start_agent();
    let has_report = || {
        let is_late = |report: &Report| matches!(report, Report::NodeHealth { failure: Some(why), .. } if why == "it ran longer than 0.3 s: probing");
        site.harness.reports().iter().any(is_late)
    };
    wait_until("the hanging program is reported", has_report);
    let pid: i32 = site.notes()[0].parse().unwrap();
    assert!(!is_alive(pid));
}

#[test]
fn the_health_program_runs_between_jobs_before_the_resources_are_free() {
    let mut site = Site::new();
    let first_run = site.file("first-run");
    let text = format!("note health; [ -e {0} ] && {{ echo GPU 3 is gone; exit 1; }}; : > {0}", first_run.display());
    site.programs.health = Some(site.program("health", &text));
    site.programs.health_after_job = true;
    site.start_agent();
    site.wait_for_note("health");
    wait_until("the first run is over", || first_run.exists());
    site.harness.send_orders(vec![order(script("exit 0"))]);
    assert_eq!(site.failures_before_the_end(), ["health: exit code 1: GPU 3 is gone"]);
    assert_eq!(site.notes(), ["health", "prolog", "epilog", "health"]);
}

#[test]
fn the_early_signal_reaches_the_tasks_once_also_across_an_agent_restart() {
    let mut site = Site::new();
    let attempt_order = site.start("trap 'echo signalled' USR1; echo ready; while true; do sleep 0.1; done");
    site.harness.wait_for_first_line();
    let signalled = AttemptOrder { signal: Some(10), started: true, ..attempt_order };
    site.harness.send_orders(vec![signalled.clone()]);
    let count = |site: &Site| site.harness.read_log(0, Stream::Stdout).matches("signalled").count();
    wait_until("the script has handled it", || count(&site) == 1);
    site.restart_agent(&signalled);
    site.harness.wait_for_heartbeats(5);
    assert_eq!((count(&site), site.harness.reported_exits().len()), (1, 0));
    site.harness.send_orders(vec![with_stop(&signalled, 20_000)]);
    site.harness.wait_for_exit();
    assert_eq!(count(&site), 1);
}
