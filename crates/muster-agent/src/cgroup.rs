//! The cgroup of an attempt: its limits, the list of its processes, and killing them all.
//!
//! A cgroup of ours is one directory in each hierarchy of the host: one on a pure v2 host; on a hybrid host, one for each
//! v1 controller and one in the v2 hierarchy without controllers, which has `cgroup.kill` and takes device filters. The
//! directories are called `muster/<agent>/<job>.<attempt>`; an attempt with several tasks has a child for each rank.
//!
//! Reading and writing are plain file operations below a root that tests replace by a temporary directory.

mod detect;
mod v1;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

pub(crate) use detect::{CgroupBase, attempt_name};

/// The file that lists the processes of a cgroup, and takes new ones.
const PROCS_FILE: &str = "cgroup.procs";
/// How the name of a child begins in which a program that a person runs inside a container is.
const EXEC_CGROUP_PREFIX: &str = "muster-exec-";
/// The child that podman makes for the process that watches over a container.
const CONTAINER_MONITOR_CGROUP: &str = "conmon";
/// The kernel charges memory in batches, so a cgroup may be killed with less than this free.
const MEMORY_CHARGE_BYTES: u64 = 1 << 20;
/// How often a kill without `cgroup.kill` is repeated within one call. New processes cannot appear in a frozen cgroup,
/// so one round is enough where the freezer works.
const KILL_ROUNDS_MAX: usize = 8;

/// A part of the kernel that limits or controls the processes of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Controller {
    Cpu,
    Cpuset,
    Devices,
    Freezer,
    Memory,
    Pids,
}

impl Controller {
    const ALL: [Controller; 6] = [
        Controller::Cpu,
        Controller::Cpuset,
        Controller::Devices,
        Controller::Freezer,
        Controller::Memory,
        Controller::Pids,
    ];

    fn name(self) -> &'static str {
        match self {
            Controller::Cpu => "cpu",
            Controller::Cpuset => "cpuset",
            Controller::Devices => "devices",
            Controller::Freezer => "freezer",
            Controller::Memory => "memory",
            Controller::Pids => "pids",
        }
    }
}

/// A cgroup could not be made, changed or read.
#[derive(Debug, thiserror::Error)]
#[error("the cgroup file `{path}` cannot be {action}: {source}")]
pub(crate) struct CgroupError {
    pub path: PathBuf,
    pub action: &'static str,
    pub source: io::Error,
}

/// How the cores of a task are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpuLimit {
    /// In proportion to the cores, and only while others want to run: idle cores are not wasted.
    #[default]
    Weight,
    /// Never more than the cores, also while others are idle.
    Quota,
}

/// The limits of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CgroupLimits {
    /// `None` for no limit.
    pub memory_mib: Option<u64>,
    /// Processes and threads.
    pub pids_max: Option<u64>,
    pub cores: u32,
    pub cpu_limit: CpuLimit,
    /// The cores that may be used, as a list such as `0-15,32-47`; `None` for all.
    pub cpu_list: Option<String>,
}

/// The directories of one cgroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cgroup {
    /// In the v2 hierarchy.
    pub unified: Option<PathBuf>,
    /// In the hierarchies of v1, by controller.
    #[serde(default)]
    pub v1: BTreeMap<Controller, PathBuf>,
}

impl Cgroup {
    /// The cgroup below this one with the given name.
    pub fn child(&self, name: &str) -> Cgroup {
        Cgroup {
            unified: self.unified.as_ref().map(|dir| dir.join(name)),
            v1: self.v1.iter().map(|(controller, dir)| (*controller, dir.join(name))).collect(),
        }
    }

    /// Creates the directories, or takes over those of an attempt that crashed, and sets the limits.
    pub fn create(&self, limits: &CgroupLimits) -> Result<(), CgroupError> {
        self.make_dirs()?;
        if let Some(dir) = &self.unified {
            v2::set_limits(dir, limits)?;
        }
        v1::set_limits(&self.v1, limits)
    }

    /// Lets the children have limits of their own. Needed in v2 only, before the first child is made.
    pub fn enable_children(&self) -> Result<(), CgroupError> {
        self.unified.as_deref().map_or(Ok(()), v2::enable_controllers)
    }

    /// The parents exist, but for a cgroup at one path.
    fn make_dirs(&self) -> Result<(), CgroupError> {
        for (controller, dir) in &self.v1 {
            let mut missing: Vec<&Path> = dir.ancestors().skip(1).take_while(|parent| !parent.exists()).collect();
            missing.reverse();
            for parent in missing {
                make_dir(parent)?;
                if *controller == Controller::Cpuset {
                    v1::set_cpuset(parent, None)?;
                }
            }
        }
        for dir in self.dirs() {
            make_dir(dir)?;
        }
        Ok(())
    }

    /// Moves the calling process, which must have one thread only, into the cgroup. `0` stands for the writer.
    pub fn join(&self) -> Result<(), CgroupError> {
        self.dirs().try_for_each(|dir| write(&dir.join(PROCS_FILE), "0"))
    }

    /// Kills all processes of the cgroup and its children; returns how many there were. A killed process may still count
    /// in the next call.
    pub fn kill(&self) -> usize {
        let found = self.processes();
        if found.is_empty() {
            return 0;
        }
        match self.unified.as_deref().filter(|dir| v2::kill(dir)) {
            // A container runtime puts processes of its own into some hierarchies only.
            Some(dir) => {
                let killed = processes_below(dir);
                kill_all(found.iter().filter(|pid| !killed.contains(pid)));
            }
            None => self.freeze_and_kill(),
        }
        found.len()
    }

    /// Frozen processes cannot fork, so the list of processes is complete. A killed process leaves a v2 freezer at once
    /// and a v1 freezer when it is thawed.
    fn freeze_and_kill(&self) {
        self.set_frozen(true);
        for _ in 0..KILL_ROUNDS_MAX {
            let processes = self.processes();
            if processes.is_empty() {
                break;
            }
            kill_all(&processes);
            self.set_frozen(false);
        }
        self.set_frozen(false);
    }

    fn set_frozen(&self, frozen: bool) {
        if let Some(dir) = self.v1.get(&Controller::Freezer) {
            v1::set_frozen(dir, frozen);
        } else if let Some(dir) = &self.unified {
            v2::set_frozen(dir, frozen);
        }
    }

    /// The live processes of the cgroup and its children, in any hierarchy.
    pub fn processes(&self) -> BTreeSet<i32> {
        self.dirs().flat_map(processes_below).collect()
    }

    /// How many processes of this cgroup the kernel has killed because memory was short.
    pub fn out_of_memory_kills(&self) -> u64 {
        match (self.v1.get(&Controller::Memory), &self.unified) {
            (Some(dir), _) => v1::out_of_memory_kills(dir),
            (None, Some(dir)) => v2::out_of_memory_kills(dir),
            (None, None) => 0,
        }
    }

    /// The same cgroup with one path in all hierarchies, because a container runtime takes one path for all of them. On a v1
    /// host the agent may be in another cgroup of each hierarchy; the shortest of the paths is taken, so that a limit of
    /// the agent itself does not hold for its containers in every hierarchy.
    pub fn at_one_path(&self) -> Option<Cgroup> {
        let paths: Option<Vec<PathBuf>> = self.dirs().map(|dir| self.path_in_hierarchy(dir)).collect();
        let path = paths?.into_iter().min_by_key(|path| path.components().count())?;
        let below = path.strip_prefix("/").unwrap_or(&path);
        let at_path = |dir: &PathBuf| Some(self.hierarchy_of(dir)?.join(below));
        let v1 = self.v1.iter().map(|(controller, dir)| Some((*controller, at_path(dir)?)));
        Some(Cgroup { unified: self.unified.as_ref().and_then(at_path), v1: v1.collect::<Option<_>>()? })
    }

    /// The path of this cgroup below the root of its hierarchies; `None` if the paths differ.
    pub fn path_in_hierarchies(&self) -> Option<PathBuf> {
        let mut paths = self.dirs().map(|dir| self.path_in_hierarchy(dir));
        let first = paths.next()??;
        paths.all(|path| path.as_ref() == Some(&first)).then_some(first)
    }

    fn path_in_hierarchy(&self, dir: &Path) -> Option<PathBuf> {
        Some(Path::new("/").join(dir.strip_prefix(self.hierarchy_of(dir)?).ok()?))
    }

    /// The root of the hierarchy of a directory. Beside a v1 controller each hierarchy is mounted in a directory of its own.
    fn hierarchy_of(&self, dir: &Path) -> Option<PathBuf> {
        let root = Path::new(detect::CGROUP_ROOT);
        let below = dir.strip_prefix(root).ok()?;
        Some(root.join(below.components().take(usize::from(!self.v1.is_empty())).collect::<PathBuf>()))
    }

    /// Removes what a container runtime has made at the path of this cgroup in the hierarchies that we do not use.
    pub fn remove_in_other_hierarchies(&self) {
        let Some(path) = self.path_in_hierarchies().filter(|_| !self.v1.is_empty()) else { return };
        let path = path.strip_prefix("/").unwrap_or(&path);
        let is_ours = |hierarchy: &Path| self.dirs().any(|dir| dir.starts_with(hierarchy));
        for hierarchy in children(Path::new(detect::CGROUP_ROOT)).into_iter().filter(|hierarchy| !is_ours(hierarchy)) {
            let dir = hierarchy.join(path);
            remove_with_children(&dir);
            // Those of the agent and of all agents, if this was the last.
            dir.ancestors().skip(1).take(2).for_each(|parent| drop(fs::remove_dir(parent)));
        }
    }

    /// Whether this cgroup and its children have used as much memory as its limit. In v1 the kernel counts kills in the cgroup
    /// of the killed process only, which for a container is gone when the container has ended.
    pub fn has_reached_memory_limit(&self) -> bool {
        let Some(dir) = self.v1.get(&Controller::Memory) else { return false };
        let read = |name: &str| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
        let reached = |limit: u64, most: u64| most.saturating_add(MEMORY_CHARGE_BYTES) >= limit;
        read("memory.limit_in_bytes")
            .zip(read("memory.max_usage_in_bytes"))
            .is_some_and(|(limit, most)| reached(limit, most))
    }

    /// The cgroup of a process of a container: below this one, or where a daemon has put it.
    pub fn of_container(&self, pid: i32) -> Result<Cgroup, CgroupError> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        let text = read(&path)?;
        let place = |dir: &PathBuf, controller: &str| {
            let elsewhere = || detect::dir_of(&self.hierarchy_of(dir)?, &text, controller);
            dir_with(dir, pid).or_else(elsewhere).ok_or_else(|| CgroupError {
                path: dir.clone(),
                action: "searched for the container",
                source: io::ErrorKind::NotFound.into(),
            })
        };
        let v1 = self.v1.iter().map(|(controller, dir)| Ok((*controller, place(dir, controller.name())?)));
        let unified = self.unified.as_ref().map(|dir| place(dir, "")).transpose()?;
        Ok(Cgroup { unified, v1: v1.collect::<Result<_, CgroupError>>()? })
    }

    /// The child for a program that a person runs inside this container, with a name of its own. It has no limits of its own.
    pub fn exec_child(&self, number: u32) -> Cgroup {
        self.child(&format!("{EXEC_CGROUP_PREFIX}{number}"))
    }

    /// The processes of the containers in this cgroup: without those that watch over a container, and without programs that
    /// people run inside it.
    pub fn container_processes(&self) -> Vec<i32> {
        self.dirs().next().map(container_processes_below).unwrap_or_default()
    }

    /// Removes the directories. Those that still hold a process stay, for the next start of the agent.
    pub fn remove(&self) {
        self.dirs().for_each(remove_with_children);
    }

    /// The directories, the v2 hierarchy first. Of co-mounted v1 controllers (`cpu,cpuacct`) each has its own path.
    fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.unified.iter().chain(self.v1.values()).map(PathBuf::as_path)
    }
}

fn processes_below(dir: &Path) -> Vec<i32> {
    let text = fs::read_to_string(dir.join(PROCS_FILE)).unwrap_or_default();
    let mut found: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    children(dir).iter().for_each(|child| found.extend(processes_below(child)));
    found
}

fn kill_all<'a>(pids: impl IntoIterator<Item = &'a i32>) {
    for pid in pids.into_iter().filter_map(|pid| Pid::from_raw(*pid)) {
        // A process that is gone is what this is for.
        let _ = rustix::process::kill_process(pid, Signal::KILL);
    }
}

/// The directory of this cgroup or of one below that holds the process.
fn dir_with(dir: &Path, pid: i32) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(PROCS_FILE)).unwrap_or_default();
    if text.lines().any(|line| line.parse() == Ok(pid)) {
        return Some(dir.to_path_buf());
    }
    children(dir).iter().find_map(|child| dir_with(child, pid))
}

fn container_processes_below(dir: &Path) -> Vec<i32> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    if name == CONTAINER_MONITOR_CGROUP || name.starts_with(EXEC_CGROUP_PREFIX) {
        return Vec::new();
    }
    let text = fs::read_to_string(dir.join(PROCS_FILE)).unwrap_or_default();
    let mut found: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    children(dir).iter().for_each(|child| found.extend(container_processes_below(child)));
    found
}

/// The kernel removes a cgroup together with its files, and refuses while it has processes or children.
fn remove_with_children(dir: &Path) {
    children(dir).iter().for_each(|child| remove_with_children(child));
    let _ = fs::remove_dir(dir);
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

fn make_dir(path: &Path) -> Result<(), CgroupError> {
    match fs::create_dir(path) {
        Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
            Err(CgroupError { path: path.to_path_buf(), action: "created", source })
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, value: &str) -> Result<(), CgroupError> {
    fs::write(path, value).map_err(|source| CgroupError { path: path.to_path_buf(), action: "written", source })
}

fn read(path: &Path) -> Result<String, CgroupError> {
    let text = fs::read_to_string(path);
    text.map_err(|source| CgroupError { path: path.to_path_buf(), action: "read", source })
}

/// The number after a key such as `oom_kill` in a file of lines `key number`.
fn count_in(path: &Path, key: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
