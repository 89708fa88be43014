//! Finds and kills the processes of an attempt.
//!
//! While the shim is alive, the processes are its descendants, in any session or process group, because the shim is
//! their subreaper. After the shim is gone, init has adopted them, and they are found by the session of the shim,
//! by the process group of the tasks, and by the attempt directory in their environment.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Signal;

use crate::error::AgentError;
use crate::proc::{self, Process};
use crate::records::ShimRecord;

/// Set for every task. Identifies a process that left the session and the process group when its shim is lost.
pub(crate) const ATTEMPT_DIR_VARIABLE: &str = "MUSTER_ATTEMPT_DIR";

/// The live processes below `root`, at any depth.
pub(crate) fn descendants(table: &[Process], root: i32) -> Vec<Process> {
    with_descendants(table, BTreeSet::from([root]), root)
}

/// Kills all processes of an attempt except its shim and returns how many it found. Zero means that none is left. A
/// process that was just killed still counts, so the caller repeats the call.
pub(crate) fn kill_attempt_processes(shim: Option<&ShimRecord>, attempt_dir: &Path) -> Result<usize, AgentError> {
    let found = find(shim, attempt_dir)?;
    for process in &found {
        if let Err(error) = proc::send_signal(process, Signal::KILL) {
            tracing::warn!(pid = process.pid, "cannot kill a process of the attempt: {error}");
        }
    }
    Ok(found.len())
}

/// The live processes of an attempt except its shim.
pub(crate) fn find(shim: Option<&ShimRecord>, attempt_dir: &Path) -> Result<Vec<Process>, AgentError> {
    let environment_entry = [ATTEMPT_DIR_VARIABLE.as_bytes(), b"=", attempt_dir.as_os_str().as_bytes()].concat();
    let table = proc::processes()?;
    Ok(processes_of_attempt(&table, shim, |pid| proc::has_environment_entry(pid, &environment_entry)))
}

fn processes_of_attempt(
    table: &[Process],
    shim: Option<&ShimRecord>,
    has_environment_entry: impl Fn(i32) -> bool,
) -> Vec<Process> {
    let own_pid = i32::try_from(std::process::id()).unwrap_or_default();
    let shim = shim.filter(|shim| !is_pid_reused(table, shim));
    let is_root = |process: &&Process| {
        process.pid != own_pid
            && (shim.is_some_and(|shim| belongs_to_shim(process, shim)) || has_environment_entry(process.pid))
    };
    let mut roots: BTreeSet<i32> = table.iter().filter(is_root).map(|process| process.pid).collect();
    let shim_pid = shim.map_or(0, |shim| shim.pid);
    roots.remove(&shim_pid);
    with_descendants(table, roots, shim_pid)
}

fn belongs_to_shim(process: &Process, shim: &ShimRecord) -> bool {
    let related = process.parent == shim.pid
        || process.session == shim.session
        || shim.process_group.is_some_and(|group| process.group == group);
    related && process.start_time >= shim.start_time
}

/// The kernel reuses a pid only when no process has it as pid, process group or session. If another process has the
/// pid of the shim now, no process of the attempt can be found by it.
fn is_pid_reused(table: &[Process], shim: &ShimRecord) -> bool {
    table.iter().any(|process| process.pid == shim.pid && process.start_time != shim.start_time)
}

/// The live processes of `family` and all their descendants, without `except`.
fn with_descendants(table: &[Process], mut family: BTreeSet<i32>, except: i32) -> Vec<Process> {
    loop {
        let known = family.len();
        let children = table.iter().filter(|process| family.contains(&process.parent)).map(|process| process.pid);
        let children: Vec<i32> = children.collect();
        family.extend(children);
        if family.len() == known {
            break;
        }
    }
    let is_member = |process: &&Process| family.contains(&process.pid) && process.pid != except && !process.is_zombie;
    table.iter().filter(is_member).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, session: i32) -> Process {
        Process { pid, parent, group, session, start_time: 1_000 + pid.unsigned_abs() as u64, is_zombie: false }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.pid).collect()
    }

    /// Shim 10 with task 11, the task's child 12 in its own session, and the unrelated process 90.
    fn table() -> Vec<Process> {
        vec![process(10, 1, 10, 10), process(11, 10, 11, 10), process(12, 11, 12, 12), process(90, 1, 90, 90)]
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 10, start_time: 1_010, boot_id: "b".to_string(), session: 10, process_group: Some(11) }
    }

    #[test]
    fn descendants_are_found_across_sessions_and_process_groups() {
        assert_eq!(pids(&descendants(&table(), 10)), [11, 12]);
        assert_eq!(pids(&descendants(&table(), 90)), [] as [i32; 0]);
    }

    #[test]
    fn zombies_do_not_count_as_descendants() {
        let mut table = table();
        table[1].is_zombie = true;
        assert_eq!(pids(&descendants(&table, 10)), [12]);
    }

    #[test]
    fn orphaned_tasks_are_found_by_session_group_and_environment() {
        let mut orphans = table();
        orphans.remove(0);
        orphans[0].parent = 1;
        orphans[1].parent = 1;
        assert_eq!(pids(&processes_of_attempt(&orphans, Some(&shim()), |_| false)), [11], "by session and group");
        assert_eq!(
            pids(&processes_of_attempt(&orphans, Some(&shim()), |pid| pid == 12)),
            [11, 12],
            "by the environment"
        );
        assert_eq!(pids(&processes_of_attempt(&orphans, None, |pid| pid == 12)), [12]);
    }

    #[test]
    fn a_process_that_reuses_the_pid_of_the_shim_is_not_killed() {
        let mut reused = table();
        reused[0].start_time = 5_000;
        assert_eq!(pids(&processes_of_attempt(&reused, Some(&shim()), |_| false)), [] as [i32; 0]);
    }

    #[test]
    fn a_process_older_than_the_shim_is_not_part_of_the_attempt() {
        let mut table = table();
        table.push(Process { start_time: 5, ..process(13, 1, 11, 10) });
        assert_eq!(pids(&processes_of_attempt(&table, Some(&shim()), |_| false)), [11, 12]);
    }
}
