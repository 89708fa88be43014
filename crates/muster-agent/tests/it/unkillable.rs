//! Processes that SIGKILL does not end: the attempt keeps its resources and is reported; it ends when they do.

use std::path::{Path, PathBuf};

use muster_agent::LauncherConfig;
use muster_agent::launcher::TaskLimits;
use muster_protocol::agent::{AttemptOrder, Exit, Report};

use crate::harness::{AgentHarness, is_alive, is_root, kill, order, script, wait_until, with_stop};

/// A freezer of cgroup v1: a frozen process does not handle SIGKILL. The processes are thawed at the end of the test.
struct Freezer(PathBuf);

impl Freezer {
    /// `None` where the kernel has no such freezer.
    fn new(name: &str) -> Option<Freezer> {
        let root = Path::new("/sys/fs/cgroup/freezer");
        if !root.join("cgroup.procs").exists() {
            eprintln!("skipped: this machine has no v1 freezer");
            return None;
        }
        let path = root.join(format!("muster-test-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Some(Freezer(path))
    }

    fn freeze(&self, pid: i32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
        wait_until("it is frozen", || {
            std::fs::read_to_string(self.0.join("freezer.state")).unwrap().trim() == "FROZEN"
        });
    }

    fn thaw(&self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        std::thread::sleep(std::time::Duration::from_millis(300));
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// An attempt with one process that cannot be killed, and its pid.
fn with_frozen_process(freezer: &Freezer) -> (AgentHarness, AttemptOrder, i32) {
    let limits = TaskLimits { unkillable_after_ms: 500, ..TaskLimits::default() };
    // The launcher's own cgroup would thaw the process.
    let launcher = LauncherConfig { use_cgroups: false, limits, ..LauncherConfig::default() };
    let mut harness = AgentHarness::with_launcher(launcher);
    let attempt_order = order(script("echo $$; while true; do sleep 0.1; done"));
    harness.send_orders(vec![attempt_order.clone()]);
    let pid = harness.wait_for_first_line().parse().unwrap();
    freezer.freeze(pid);
    (harness, attempt_order, pid)
}

fn reported_processes(harness: &AgentHarness) -> Option<String> {
    harness.reports().into_iter().find_map(|report| match report {
        Report::Unkillable { processes, .. } => Some(processes),
        _ => None,
    })
}

#[test]
fn an_unkillable_process_keeps_the_attempt_and_is_reported_until_it_is_gone() {
    if !is_root() {
        return;
    }
    let Some(freezer) = Freezer::new("stopped") else { return };
    let (mut harness, attempt_order, pid) = with_frozen_process(&freezer);
    harness.send_orders(vec![with_stop(&attempt_order, 0)]);
    wait_until("it is reported", || reported_processes(&harness).is_some());
    let processes = reported_processes(&harness).unwrap();
    assert!(
        processes.contains(&format!("pid {pid} (script) in state D"))
            || processes.contains(&format!("pid {pid} (sh) in state D")),
        "{processes}"
    );
    assert!(is_alive(pid));
    assert_eq!(harness.reported_exits(), [], "the attempt keeps its resources");
    freezer.thaw();
    assert_eq!(harness.wait_for_exit(), Exit::Signal(9));
}

#[test]
fn the_leftovers_of_a_lost_shim_are_reported_as_unkillable() {
    if !is_root() {
        return;
    }
    let Some(freezer) = Freezer::new("lost") else { return };
    let (harness, _, pid) = with_frozen_process(&freezer);
    kill(harness.shim_pid(), "KILL");
    wait_until("it is reported", || reported_processes(&harness).is_some());
    assert!(is_alive(pid));
    assert_eq!(harness.reported_exits(), []);
    freezer.thaw();
    assert_eq!(harness.wait_for_exit(), Exit::Unknown("shim lost".to_string()));
}
