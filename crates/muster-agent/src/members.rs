//! Which processes belong to an attempt.
//!
//! While the shim lives this is simple: it is the subreaper, so they are its descendants, wherever they moved.
//! When the shim is gone they have been given to init, and we look for every trace it left on them: the session,
//! the process group, and the attempt's folder in their environment.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Signal;

use crate::error::AgentError;
use crate::proc::{self, Process};
use crate::records::ShimRecord;

/// Set for every task; by it we know a process that has left session and group after its shim was lost.
pub(crate) const MARK: &str = "MUSTER_ATTEMPT_DIR";

/// Living processes below `root`, at any depth.
pub(crate) fn descendants(table: &[Process], root: i32) -> Vec<Process> {
    with_children(table, BTreeSet::from([root]), root)
}

/// Kill everything that belongs to an attempt except its shim, and say how many there were. Zero means that
/// nothing is left; a process that was just killed still counts, so the caller comes again.
pub(crate) fn kill(shim: Option<&ShimRecord>, attempt_dir: &Path) -> Result<usize, AgentError> {
    let mark = [MARK.as_bytes(), b"=", attempt_dir.as_os_str().as_bytes()].concat();
    let table = proc::processes()?;
    let members = members(&table, shim, |pid| proc::has_environment(pid, &mark));
    for process in &members {
        if let Err(error) = proc::signal(process, Signal::KILL) {
            tracing::warn!(pid = process.pid, "a process of an attempt cannot be killed: {error}");
        }
    }
    Ok(members.len())
}

fn members(table: &[Process], shim: Option<&ShimRecord>, is_marked: impl Fn(i32) -> bool) -> Vec<Process> {
    let own_pid = i32::try_from(std::process::id()).unwrap_or_default();
    let shim = shim.filter(|shim| !is_reused(table, shim));
    let traced = |process: &&Process| {
        process.pid != own_pid
            && (shim.is_some_and(|shim| bears_trace(process, shim)) || is_marked(process.pid))
    };
    let mut roots: BTreeSet<i32> = table.iter().filter(traced).map(|process| process.pid).collect();
    let shim_pid = shim.map_or(0, |shim| shim.pid);
    roots.remove(&shim_pid);
    with_children(table, roots, shim_pid)
}

fn bears_trace(process: &Process, shim: &ShimRecord) -> bool {
    let related = process.parent == shim.pid
        || process.session == shim.session
        || shim.group.is_some_and(|group| process.group == group);
    related && process.start_time >= shim.start_time
}

/// The kernel gives a number out again only when no process uses it as pid, group or session. So if someone else
/// has the shim's pid now, nobody is left who could be found by it.
fn is_reused(table: &[Process], shim: &ShimRecord) -> bool {
    table.iter().any(|process| process.pid == shim.pid && process.start_time != shim.start_time)
}

/// The living among `roots` and all their descendants, less one.
fn with_children(table: &[Process], mut family: BTreeSet<i32>, except: i32) -> Vec<Process> {
    loop {
        let known = family.len();
        let children =
            table.iter().filter(|process| family.contains(&process.parent)).map(|process| process.pid);
        let children: Vec<i32> = children.collect();
        family.extend(children);
        if family.len() == known {
            break;
        }
    }
    let counts =
        |process: &&Process| family.contains(&process.pid) && process.pid != except && !process.is_dead;
    table.iter().filter(counts).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, parent: i32, group: i32, session: i32) -> Process {
        Process { pid, parent, group, session, start_time: 1_000 + pid.unsigned_abs() as u64, is_dead: false }
    }

    fn pids(processes: &[Process]) -> Vec<i32> {
        processes.iter().map(|process| process.pid).collect()
    }

    /// Shim 10 with task 11, its child 12 in a session of its own, and a stranger.
    fn table() -> Vec<Process> {
        vec![process(10, 1, 10, 10), process(11, 10, 11, 10), process(12, 11, 12, 12), process(90, 1, 90, 90)]
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 10, start_time: 1_010, boot_id: "b".to_string(), session: 10, group: Some(11) }
    }

    #[test]
    fn descendants_are_found_wherever_they_moved() {
        assert_eq!(pids(&descendants(&table(), 10)), [11, 12]);
        assert_eq!(pids(&descendants(&table(), 90)), [] as [i32; 0]);
    }

    #[test]
    fn the_dead_do_not_count() {
        let mut table = table();
        table[1].is_dead = true;
        assert_eq!(pids(&descendants(&table, 10)), [12]);
    }

    #[test]
    fn without_its_shim_an_attempt_is_found_by_its_traces() {
        let mut orphans = table();
        orphans.remove(0);
        orphans[0].parent = 1;
        orphans[1].parent = 1;
        assert_eq!(pids(&members(&orphans, Some(&shim()), |_| false)), [11], "by session and group");
        assert_eq!(pids(&members(&orphans, Some(&shim()), |pid| pid == 12)), [11, 12], "by its mark");
        assert_eq!(pids(&members(&orphans, None, |pid| pid == 12)), [12]);
    }

    #[test]
    fn a_stranger_with_the_pid_of_the_shim_is_left_alone() {
        let mut strangers = table();
        strangers[0].start_time = 5_000;
        assert_eq!(pids(&members(&strangers, Some(&shim()), |_| false)), [] as [i32; 0]);
    }

    #[test]
    fn whoever_is_older_than_the_shim_is_a_stranger() {
        let mut table = table();
        table.push(Process { start_time: 5, ..process(13, 1, 11, 10) });
        assert_eq!(pids(&members(&table, Some(&shim()), |_| false)), [11, 12]);
    }
}
