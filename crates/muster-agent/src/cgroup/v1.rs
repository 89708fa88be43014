//! The files of the cgroup v1 controllers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{CgroupError, CgroupLimits, Controller, CpuLimit, count_in, read, write};

/// The shares that the kernel gives to a cgroup without a setting; here, the shares of one core.
const CPU_SHARES_PER_CORE: u64 = 1_024;
const CPU_SHARES_MAX: u64 = 262_144;
const CPU_PERIOD_US: u64 = 100_000;
/// Freezing waits until each process has reached a point where it can stop; one in an unkillable state never does.
const FREEZE_WAIT_MAX: Duration = Duration::from_millis(200);

pub(super) fn set_limits(dirs: &BTreeMap<Controller, PathBuf>, limits: &CgroupLimits) -> Result<(), CgroupError> {
    for (controller, dir) in dirs {
        match controller {
            Controller::Cpu => set_cpu(dir, limits)?,
            Controller::Cpuset => set_cpuset(dir, limits.cpu_list.as_deref())?,
            Controller::Memory => set_memory(dir, limits.memory_mib)?,
            Controller::Pids => set_pids(dir, limits.pids_max)?,
            Controller::Devices | Controller::Freezer => {}
        }
    }
    Ok(())
}

fn set_cpu(dir: &Path, limits: &CgroupLimits) -> Result<(), CgroupError> {
    let cores = u64::from(limits.cores.max(1));
    write(&dir.join("cpu.shares"), &(cores * CPU_SHARES_PER_CORE).min(CPU_SHARES_MAX).to_string())?;
    match limits.cpu_limit {
        CpuLimit::Weight => Ok(()),
        CpuLimit::Quota => {
            write(&dir.join("cpu.cfs_period_us"), &CPU_PERIOD_US.to_string())?;
            write(&dir.join("cpu.cfs_quota_us"), &(cores * CPU_PERIOD_US).to_string())
        }
    }
}

/// A new v1 cpuset is empty, and no process can enter it before it has cores and memory nodes.
pub(super) fn set_cpuset(dir: &Path, cpu_list: Option<&str>) -> Result<(), CgroupError> {
    let parent = dir.parent().unwrap_or(dir);
    let cpus = match cpu_list {
        Some(list) => list.to_string(),
        None => read(&parent.join("cpuset.cpus"))?,
    };
    write(&dir.join("cpuset.cpus"), cpus.trim())?;
    write(&dir.join("cpuset.mems"), read(&parent.join("cpuset.mems"))?.trim())
}

fn set_memory(dir: &Path, memory_mib: Option<u64>) -> Result<(), CgroupError> {
    let Some(mib) = memory_mib else { return Ok(()) };
    let bytes = (mib << 20).to_string();
    write(&dir.join("memory.limit_in_bytes"), &bytes)?;
    let with_swap = dir.join("memory.memsw.limit_in_bytes"); // Absent if the kernel does not account for swap.
    if with_swap.exists() { write(&with_swap, &bytes) } else { Ok(()) }
}

fn set_pids(dir: &Path, pids_max: Option<u64>) -> Result<(), CgroupError> {
    pids_max.map_or(Ok(()), |pids_max| write(&dir.join("pids.max"), &pids_max.to_string()))
}

/// Best effort: the kill is repeated.
pub(super) fn set_frozen(dir: &Path, frozen: bool) {
    let path = dir.join("freezer.state");
    let wanted = if frozen { "FROZEN" } else { "THAWED" };
    let since = Instant::now();
    while write(&path, wanted).is_ok() && frozen && since.elapsed() < FREEZE_WAIT_MAX {
        if read(&path).is_ok_and(|state| state.trim() == wanted) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn out_of_memory_kills(dir: &Path) -> u64 {
    count_in(&dir.join("memory.oom_control"), "oom_kill")
}
