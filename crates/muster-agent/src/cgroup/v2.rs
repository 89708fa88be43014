//! The files of cgroup v2. A file is there only if its controller is enabled for the cgroup, so each is optional.

use std::path::Path;

use super::{CgroupError, CgroupLimits, CpuLimit, count_in, read, write};

const SUBTREE_CONTROL_FILE: &str = "cgroup.subtree_control";
const CONTROLLERS_FILE: &str = "cgroup.controllers";
const KILL_FILE: &str = "cgroup.kill";
/// The controllers that limits need.
const WANTED_CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];
/// The weight that the kernel gives to a cgroup without a setting; here, the weight of one core.
const CPU_WEIGHT_PER_CORE: u64 = 100;
const CPU_WEIGHT_MAX: u64 = 10_000;
const CPU_PERIOD_US: u64 = 100_000;

pub(super) fn set_limits(dir: &Path, limits: &CgroupLimits) -> Result<(), CgroupError> {
    if let Some(mib) = limits.memory_mib {
        write_if_present(&dir.join("memory.max"), &(mib << 20).to_string())?;
        // Swapping out a job slows its neighbours, so the limit is one of memory and swap together.
        write_if_present(&dir.join("memory.swap.max"), "0")?;
        // A task that has lost one of its processes can only hang or fail later.
        write_if_present(&dir.join("memory.oom.group"), "1")?;
    }
    if let Some(pids_max) = limits.pids_max {
        write_if_present(&dir.join("pids.max"), &pids_max.to_string())?;
    }
    if let Some(list) = &limits.cpu_list {
        write_if_present(&dir.join("cpuset.cpus"), list)?;
    }
    set_cpu(dir, limits)
}

fn set_cpu(dir: &Path, limits: &CgroupLimits) -> Result<(), CgroupError> {
    let cores = u64::from(limits.cores.max(1));
    let weight = (cores * CPU_WEIGHT_PER_CORE).min(CPU_WEIGHT_MAX);
    write_if_present(&dir.join("cpu.weight"), &weight.to_string())?;
    match limits.cpu_limit {
        CpuLimit::Weight => Ok(()),
        CpuLimit::Quota => {
            write_if_present(&dir.join("cpu.max"), &format!("{} {CPU_PERIOD_US}", cores * CPU_PERIOD_US))
        }
    }
}

/// Enables for the children of `dir` every wanted controller that `dir` itself has.
pub(super) fn enable_controllers(dir: &Path) -> Result<(), CgroupError> {
    for name in controllers(dir)? {
        write(&dir.join(SUBTREE_CONTROL_FILE), &format!("+{name}"))?;
    }
    Ok(())
}

/// The wanted controllers that `dir` has.
pub(super) fn controllers(dir: &Path) -> Result<Vec<&'static str>, CgroupError> {
    let text = read(&dir.join(CONTROLLERS_FILE))?;
    let has = |name: &&str| text.split_ascii_whitespace().any(|word| word == *name);
    Ok(WANTED_CONTROLLERS.into_iter().filter(has).collect())
}

/// Kills every process of the cgroup and its children at once; false if the kernel is older than 5.14.
pub(super) fn kill(dir: &Path) -> bool {
    let path = dir.join(KILL_FILE);
    path.exists() && write(&path, "1").is_ok()
}

/// Best effort: the kill is repeated.
pub(super) fn set_frozen(dir: &Path, frozen: bool) {
    let _ = write_if_present(&dir.join("cgroup.freeze"), if frozen { "1" } else { "0" });
}

pub(super) fn out_of_memory_kills(dir: &Path) -> u64 {
    count_in(&dir.join("memory.events"), "oom_kill")
}

fn write_if_present(path: &Path, value: &str) -> Result<(), CgroupError> {
    if path.exists() { write(path, value) } else { Ok(()) }
}
