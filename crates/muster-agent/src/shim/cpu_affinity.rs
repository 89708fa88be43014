//! The cores that are near to the GPUs of a task: found in /sys, and given to it before it starts.
//!
//! Only cores are bound. Memory follows by itself: the kernel takes a page from the node of the core that first touches
//! it, as long as that node has any.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the kernel tells of its NUMA nodes.
const NUMA_NODES_PATH: &str = "/sys/devices/system/node";

/// Why a task is not bound.
#[derive(Debug, thiserror::Error)]
pub(super) enum CpuAffinityError {
    #[error("`{path}` cannot be read: {source}")]
    CpuListUnreadable { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a list of cores")]
    CpuListInvalid(String),
    #[error("our own cores are not known: {0}")]
    OwnAffinity(#[source] rustix::io::Errno),
    #[error("it asked for {wanted} cores, {near} are near to its GPUs")]
    TooFew { wanted: u32, near: u32 },
}

/// The cores of NUMA nodes that this process may use, if they are enough.
pub(super) fn cpus_of_numa_nodes(nodes: &[u32], wanted: u32) -> Result<CpuSet, CpuAffinityError> {
    let own = sched_getaffinity(None).map_err(CpuAffinityError::OwnAffinity)?;
    let mut near = CpuSet::new();
    for node in nodes {
        let cores = parse_cpu_list(&read_cpu_list(*node)?)?;
        cores.into_iter().filter(|core| own.is_set(*core)).for_each(|core| near.set(core));
    }
    match near.count() {
        count if count < wanted.max(1) => {
            Err(CpuAffinityError::TooFew { wanted: wanted.max(1), near: count })
        }
        _ => Ok(near),
    }
}

fn read_cpu_list(node: u32) -> Result<String, CpuAffinityError> {
    let path = PathBuf::from(format!("{NUMA_NODES_PATH}/node{node}/cpulist"));
    std::fs::read_to_string(&path).map_err(|source| CpuAffinityError::CpuListUnreadable { path, source })
}

/// `0-15,32-47`; a node without cores has an empty line.
fn parse_cpu_list(text: &str) -> Result<Vec<usize>, CpuAffinityError> {
    let invalid = || CpuAffinityError::CpuListInvalid(text.trim().to_string());
    let core =
        |word: &str| word.parse::<usize>().ok().filter(|core| *core < CpuSet::MAX_CPU).ok_or_else(invalid);
    let mut cores = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(core(first)?..=core(last)?);
    }
    Ok(cores)
}

/// Start a task on some cores only. A child has the cores of the thread that starts it, so this thread moves there for
/// the moment: nothing has to run between fork and exec.
pub(super) fn spawn_with_affinity(command: &mut Command, cores: Option<&CpuSet>) -> io::Result<Child> {
    let former = cores.and_then(set_thread_affinity);
    let child = command.spawn();
    if let Some(Err(error)) = former.map(|cores| sched_setaffinity(None, &cores)) {
        eprintln!("the shim stays on the cores of its task: {error}"); // A nuisance; it hardly ever runs.
    }
    child
}

/// Move this thread to other cores; returns where it was, unless it still is.
fn set_thread_affinity(cores: &CpuSet) -> Option<CpuSet> {
    let moved = sched_getaffinity(None).and_then(|own| sched_setaffinity(None, cores).map(|()| own));
    moved.inspect_err(|error| eprintln!("a task is not bound to cores: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn cpu_lists_are_parsed() {
        assert_eq!(parse_cpu_list("0-3,32-33\n").unwrap(), [0, 1, 2, 3, 32, 33]);
        assert_eq!(parse_cpu_list("7").unwrap(), [7]);
        assert_eq!(parse_cpu_list("\n").unwrap(), [0; 0], "a node that has memory only");
        for wrong in ["a-b", "1-", "0-3;5", "0-99999999"] {
            assert!(parse_cpu_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_numa_nodes_and_too_few_cpus_are_errors() {
        assert!(matches!(
            cpus_of_numa_nodes(&[4_000_000], 1),
            Err(CpuAffinityError::CpuListUnreadable { .. })
        ));
        if std::path::Path::new(NUMA_NODES_PATH).join("node0").exists() {
            let own = sched_getaffinity(None).unwrap();
            let found = cpus_of_numa_nodes(&[0], 1).unwrap();
            assert!((0..CpuSet::MAX_CPU).all(|core| own.is_set(core) || !found.is_set(core)));
            let all = found.count();
            assert_eq!(cpus_of_numa_nodes(&[0, 0], all).unwrap().count(), all);
            assert!(
                matches!(cpus_of_numa_nodes(&[0], all + 1), Err(CpuAffinityError::TooFew { near, .. }) if near == all)
            );
        }
    }

    #[test]
    fn a_child_keeps_its_affinity_and_the_shim_restores_its_own() {
        let own = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rev().find(|core| own.is_set(*core)).unwrap();
        let mut one = CpuSet::new();
        one.set(last);
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]).stdout(Stdio::piped());
        let output = spawn_with_affinity(&mut command, Some(&one)).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().trim(), format!("Cpus_allowed_list:\t{last}"));
        assert!(sched_getaffinity(None).unwrap() == own, "and we are where we were");
        let nowhere = spawn_with_affinity(&mut command, Some(&CpuSet::new())).unwrap().wait().unwrap();
        assert!(nowhere.success(), "it starts all the same");
    }
}
