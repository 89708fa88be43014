//! CPU affinity: binds a task to the cores of the NUMA nodes of its GPUs, which are read from `/sys`.
//!
//! Only cores are bound. Memory follows: the kernel takes a page from the NUMA node of the core that first touches
//! it, as long as that node has free memory.

use std::io;
use std::path::PathBuf;
use std::process::{Child, Command};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The directory of the NUMA nodes in sysfs.
const NUMA_NODES_PATH: &str = "/sys/devices/system/node";

/// Why a task is not bound.
#[derive(Debug, thiserror::Error)]
pub(super) enum CpuAffinityError {
    #[error("`{path}` cannot be read: {source}")]
    CpuListUnreadable { path: PathBuf, source: io::Error },
    #[error("`{0}` is not a list of cores")]
    CpuListInvalid(String),
    #[error("cannot read the CPU affinity of the shim: {0}")]
    OwnAffinity(#[source] rustix::io::Errno),
    #[error("the task asks for {wanted} cores; the NUMA nodes of its GPUs have {near} usable cores")]
    TooFew { wanted: u32, near: u32 },
}

/// The cores of the NUMA nodes that this process may use; an error if they are fewer than `wanted`.
pub(super) fn cpus_of_numa_nodes(nodes: &[u32], wanted: u32) -> Result<CpuSet, CpuAffinityError> {
    let own = sched_getaffinity(None).map_err(CpuAffinityError::OwnAffinity)?;
    let mut near = CpuSet::new();
    for node in nodes {
        let cores = parse_cpu_list(&read_cpu_list(*node)?)?;
        cores.into_iter().filter(|core| own.is_set(*core)).for_each(|core| near.set(core));
    }
    match near.count() {
        count if count < wanted.max(1) => Err(CpuAffinityError::TooFew { wanted: wanted.max(1), near: count }),
        _ => Ok(near),
    }
}

/// The cores as the kernel writes them in a cpuset, for example `0,1,2`.
pub(super) fn cpu_list(cores: &CpuSet) -> String {
    let numbers = (0..CpuSet::MAX_CPU).filter(|core| cores.is_set(*core)).map(|core| core.to_string());
    numbers.collect::<Vec<_>>().join(",")
}

fn read_cpu_list(node: u32) -> Result<String, CpuAffinityError> {
    let path = PathBuf::from(format!("{NUMA_NODES_PATH}/node{node}/cpulist"));
    std::fs::read_to_string(&path).map_err(|source| CpuAffinityError::CpuListUnreadable { path, source })
}

/// Parses a list such as `0-15,32-47`. A NUMA node without cores has an empty line.
fn parse_cpu_list(text: &str) -> Result<Vec<usize>, CpuAffinityError> {
    let invalid = || CpuAffinityError::CpuListInvalid(text.trim().to_string());
    let core = |word: &str| word.parse::<usize>().ok().filter(|core| *core < CpuSet::MAX_CPU).ok_or_else(invalid);
    let mut cores = Vec::new();
    for range in text.trim().split(',').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cores.extend(core(first)?..=core(last)?);
    }
    Ok(cores)
}

/// Starts a task bound to `cores`. A child inherits the affinity of the thread that starts it, so this thread is
/// bound meanwhile: no code has to run between fork and exec.
pub(super) fn spawn_with_affinity(command: &mut Command, cores: Option<&CpuSet>) -> io::Result<Child> {
    let former = cores.and_then(set_thread_affinity);
    let child = command.spawn();
    if let Some(Err(error)) = former.map(|cores| sched_setaffinity(None, &cores)) {
        // Harmless: the shim is idle most of the time.
        eprintln!("cannot restore the CPU affinity of the shim: {error}");
    }
    child
}

/// Binds this thread to `cores` and returns its former affinity; `None` if binding failed.
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
        assert_eq!(parse_cpu_list("\n").unwrap(), [0; 0], "a NUMA node with memory only");
        for wrong in ["a-b", "1-", "0-3;5", "0-99999999"] {
            assert!(parse_cpu_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_numa_nodes_and_too_few_cpus_are_errors() {
        assert!(matches!(cpus_of_numa_nodes(&[4_000_000], 1), Err(CpuAffinityError::CpuListUnreadable { .. })));
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
        assert!(sched_getaffinity(None).unwrap() == own, "the affinity is restored");
        let nowhere = spawn_with_affinity(&mut command, Some(&CpuSet::new())).unwrap().wait().unwrap();
        assert!(nowhere.success(), "a task that cannot be bound starts anyway");
    }
}
