//! The cores that are near to the GPUs of a task: found in /sys, and given to it before it starts.
//!
//! Only cores are bound. Memory follows by itself: the kernel takes a page from the node of the core that first touches
//! it, as long as that node has any.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the kernel tells of its NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

/// Why a task is not bound.
#[derive(Debug, thiserror::Error)]
pub(super) enum CoresError {
    #[error("`{path}` cannot be read: {source}")]
    Unread { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a list of cores")]
    Unclear(String),
    #[error("our own cores are not known: {0}")]
    Own(#[source] rustix::io::Errno),
    #[error("it asked for {wanted} cores, {near} are near to its GPUs")]
    TooFew { wanted: u32, near: u32 },
}

/// The cores of NUMA nodes that this process may use, if they are enough.
pub(super) fn near(nodes: &[u32], wanted: u32) -> Result<CpuSet, CoresError> {
    let own = sched_getaffinity(None).map_err(CoresError::Own)?;
    let mut near = CpuSet::new();
    for node in nodes {
        let cores = parse(&read(*node)?)?;
        cores.into_iter().filter(|core| own.is_set(*core)).for_each(|core| near.set(core));
    }
    match near.count() {
        count if count < wanted.max(1) => Err(CoresError::TooFew { wanted: wanted.max(1), near: count }),
        _ => Ok(near),
    }
}

fn read(node: u32) -> Result<String, CoresError> {
    let path = PathBuf::from(format!("{NODES}/node{node}/cpulist"));
    std::fs::read_to_string(&path).map_err(|source| CoresError::Unread { path, source })
}

/// `0-15,32-47`; a node without cores has an empty line.
fn parse(text: &str) -> Result<Vec<usize>, CoresError> {
    let unclear = || CoresError::Unclear(text.trim().to_string());
    let core =
        |word: &str| word.parse::<usize>().ok().filter(|core| *core < CpuSet::MAX_CPU).ok_or_else(unclear);
    let mut cores = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(core(first)?..=core(last)?);
    }
    Ok(cores)
}

/// Start a task on some cores only. A child has the cores of the thread that starts it, so this thread moves there for
/// the moment: nothing has to run between fork and exec.
pub(super) fn spawn(command: &mut Command, cores: Option<&CpuSet>) -> io::Result<Child> {
    let former = cores.and_then(move_to);
    let child = command.spawn();
    if let Some(Err(error)) = former.map(|cores| sched_setaffinity(None, &cores)) {
        eprintln!("the shim stays on the cores of its task: {error}"); // A nuisance; it hardly ever runs.
    }
    child
}

/// Move this thread to other cores; returns where it was, unless it still is.
fn move_to(cores: &CpuSet) -> Option<CpuSet> {
    let moved = sched_getaffinity(None).and_then(|own| sched_setaffinity(None, cores).map(|()| own));
    moved.inspect_err(|error| eprintln!("a task is not bound to cores: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn lists_of_cores_are_read() {
        assert_eq!(parse("0-3,32-33\n").unwrap(), [0, 1, 2, 3, 32, 33]);
        assert_eq!(parse("7").unwrap(), [7]);
        assert_eq!(parse("\n").unwrap(), [0; 0], "a node that has memory only");
        for wrong in ["a-b", "1-", "0-3;5", "0-99999999"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn cores_of_nodes_that_are_not_there_or_too_few_are_not_taken() {
        assert!(matches!(near(&[4_000_000], 1), Err(CoresError::Unread { .. })));
        if std::path::Path::new(NODES).join("node0").exists() {
            let own = sched_getaffinity(None).unwrap();
            let found = near(&[0], 1).unwrap();
            assert!((0..CpuSet::MAX_CPU).all(|core| own.is_set(core) || !found.is_set(core)));
            let all = found.count();
            assert_eq!(near(&[0, 0], all).unwrap().count(), all);
            assert!(matches!(near(&[0], all + 1), Err(CoresError::TooFew { near, .. }) if near == all));
        }
    }

    #[test]
    fn a_child_stays_on_its_cores_and_we_do_not() {
        let own = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rev().find(|core| own.is_set(*core)).unwrap();
        let mut one = CpuSet::new();
        one.set(last);
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let said = spawn(&mut command, Some(&one)).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().trim(), format!("Cpus_allowed_list:\t{last}"));
        assert!(sched_getaffinity(None).unwrap() == own, "and we are where we were");
        let nowhere = spawn(&mut command, Some(&CpuSet::new())).unwrap().wait().unwrap();
        assert!(nowhere.success(), "it starts all the same");
    }
}
