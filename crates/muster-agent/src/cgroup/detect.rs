//! Finds the place for our cgroups: which hierarchies this host has, and where in them the agent may write.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{Cgroup, CgroupError, Controller, PROCS_FILE, children, make_dir, remove_with_children, v1, v2, write};

/// Where Linux distributions mount the hierarchies.
pub(super) const CGROUP_ROOT: &str = "/sys/fs/cgroup";
const OWN_CGROUPS_PATH: &str = "/proc/self/cgroup";
/// All agents of a machine share this directory.
const SHARED_DIR: &str = "muster";
/// The leaf of a delegated cgroup in which the agent itself runs: a v2 cgroup whose children have limits must not hold
/// processes itself. The unit of the agent may put it there from the start (`DelegateSubgroup=agent`).
const AGENT_LEAF: &str = "agent";
/// systemd marks cgroups in which it leaves the management to us.
const DELEGATION_MARKS: [&str; 2] = ["trusted.delegate", "user.delegate"];
const HIERARCHY_ROOT: &str = "/";

/// The directories of this agent's cgroups, `muster/<agent>` in each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CgroupBase {
    agent: Cgroup,
    /// The v2 hierarchy has controllers: the host is a pure v2 host.
    pub is_pure_v2: bool,
}

impl CgroupBase {
    /// Creates the directories of this agent on this host. The error says why there is no place.
    pub fn open(agent_id: &str) -> Result<CgroupBase, String> {
        let own = fs::read_to_string(OWN_CGROUPS_PATH).map_err(|error| format!("{OWN_CGROUPS_PATH}: {error}"))?;
        CgroupBase::open_at(Path::new(CGROUP_ROOT), &own, agent_id)
    }

    /// The same with another root, and the text of `/proc/self/cgroup`.
    pub fn open_at(root: &Path, own_cgroups: &str, agent_id: &str) -> Result<CgroupBase, String> {
        let opened = match root.join("cgroup.controllers").exists() {
            true => open_pure_v2(root, own_cgroups, agent_id),
            false => open_v1(root, own_cgroups, agent_id),
        };
        opened.map_err(|error| format!("{error}; start the agent as root, or from a unit with `Delegate=yes`"))
    }

    /// The cgroup of one attempt.
    pub fn attempt(&self, job: &str, attempt: u32) -> Cgroup {
        self.agent.child(&attempt_name(job, attempt))
    }

    /// A cgroup for trying something out.
    pub fn probe(&self) -> Cgroup {
        self.agent.child(&format!("probe.{}", std::process::id()))
    }

    /// Removes the directories of this agent itself, if they are empty; other agents keep theirs.
    pub fn remove(&self) {
        self.agent.remove();
    }

    /// Removes the empty cgroups that crashed shims left, except those of attempts that may still start.
    pub fn remove_leftovers(&self, keep: impl Fn(&str) -> bool) {
        for parent in self.agent.dirs() {
            let found = children(parent);
            let name = |dir: &PathBuf| dir.file_name().and_then(|name| name.to_str()).map(str::to_string);
            found.iter().filter(|dir| !name(dir).is_some_and(|name| keep(&name))).for_each(|dir| {
                remove_with_children(dir);
            });
        }
    }
}

/// The name of the cgroup of an attempt.
pub(crate) fn attempt_name(job: &str, attempt: u32) -> String {
    format!("{job}.{attempt}")
}

fn open_pure_v2(root: &Path, own_cgroups: &str, agent_id: &str) -> Result<CgroupBase, String> {
    let own = own_path(own_cgroups, "").unwrap_or(HIERARCHY_ROOT);
    let parent = v2_parent(root, own)?;
    let shared = parent.join(SHARED_DIR);
    let agent = shared.join(agent_id);
    let opened = (|| -> Result<(), CgroupError> {
        v2::enable_controllers(&parent)?;
        make_dir(&shared)?;
        v2::enable_controllers(&shared)?;
        make_dir(&agent)?;
        v2::enable_controllers(&agent)
    })();
    opened.map_err(|error| error.to_string())?;
    let controllers = v2::controllers(&agent).map_err(|error| error.to_string())?;
    if let Some(missing) = ["memory", "pids"].into_iter().find(|name| !controllers.contains(name)) {
        return Err(format!("the cgroup `{}` has no controller `{missing}`", agent.display()));
    }
    Ok(CgroupBase { agent: Cgroup { unified: Some(agent), v1: BTreeMap::new() }, is_pure_v2: true })
}

/// The v2 cgroup in which the directory of the agents is made: the delegated one of this process, or the root.
fn v2_parent(root: &Path, own: &str) -> Result<PathBuf, String> {
    let dir = join_absolute(root, own);
    if own == HIERARCHY_ROOT {
        return Ok(dir);
    }
    if own.ends_with(&format!("/{AGENT_LEAF}")) {
        return Ok(dir.parent().unwrap_or(&dir).to_path_buf());
    }
    if is_delegated(&dir) {
        let leaf = dir.join(AGENT_LEAF);
        make_dir(&leaf).and_then(|()| write(&leaf.join(PROCS_FILE), "0")).map_err(|error| error.to_string())?;
        return Ok(dir);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(root.to_path_buf());
    }
    Err(format!("the cgroup `{}` is not delegated to this user", dir.display()))
}

fn is_delegated(dir: &Path) -> bool {
    let marked = |mark: &&str| {
        let mut value = [0_u8; 8];
        rustix::fs::getxattr(dir, *mark, &mut value[..]).is_ok_and(|length| value.starts_with(b"1") && length == 1)
    };
    DELEGATION_MARKS.iter().any(marked)
}

/// A hybrid or pure v1 host. Memory and processes must be limited; the other controllers are used if they are there.
fn open_v1(root: &Path, own_cgroups: &str, agent_id: &str) -> Result<CgroupBase, String> {
    let mut v1 = BTreeMap::new();
    for controller in Controller::ALL {
        let mount = root.join(controller.name());
        if !mount.join(PROCS_FILE).exists() {
            continue;
        }
        match open_v1_controller(&mount, own_path(own_cgroups, controller.name()), controller, agent_id) {
            Ok(dir) => drop(v1.insert(controller, dir)),
            Err(error) if matches!(controller, Controller::Memory | Controller::Pids) => return Err(error.to_string()),
            Err(error) => tracing::warn!("the cgroup controller `{}` is not used: {error}", controller.name()),
        }
    }
    if let Some(missing) = [Controller::Memory, Controller::Pids].into_iter().find(|one| !v1.contains_key(one)) {
        return Err(format!("`{}` has no controller `{}`", root.display(), missing.name()));
    }
    let unified = root.join("unified");
    let own = own_path(own_cgroups, "").unwrap_or(HIERARCHY_ROOT);
    let unified = Some(unified).filter(|mount| mount.join(PROCS_FILE).exists());
    let unified = unified.and_then(|mount| make_agent_dir(&join_absolute(&mount, own), agent_id, |_| Ok(())).ok());
    Ok(CgroupBase { agent: Cgroup { unified, v1 }, is_pure_v2: false })
}

/// Below the own cgroup, so that limits of the agent's service hold for its jobs too. A container may show the host's
/// path of a cgroup that is its root; then the directory is made in the root.
fn open_v1_controller(
    mount: &Path,
    own: Option<&str>,
    controller: Controller,
    agent_id: &str,
) -> Result<PathBuf, CgroupError> {
    let own_dir = own.map(|own| join_absolute(mount, own)).filter(|dir| dir.join(PROCS_FILE).exists());
    let prepare = |dir: &Path| match controller {
        Controller::Cpuset => v1::set_cpuset(dir, None),
        _ => Ok(()),
    };
    make_agent_dir(&own_dir.unwrap_or_else(|| mount.to_path_buf()), agent_id, prepare)
}

fn make_agent_dir(
    parent: &Path,
    agent_id: &str,
    prepare: impl Fn(&Path) -> Result<(), CgroupError>,
) -> Result<PathBuf, CgroupError> {
    let shared = parent.join(SHARED_DIR);
    make_dir(&shared)?;
    prepare(&shared)?;
    let agent = shared.join(agent_id);
    make_dir(&agent)?;
    prepare(&agent)?;
    Ok(agent)
}

/// The directory of a process in a hierarchy, by the text of its `/proc/PID/cgroup`.
pub(super) fn dir_of(hierarchy: &Path, cgroups: &str, controller: &str) -> Option<PathBuf> {
    let dir = join_absolute(hierarchy, own_path(cgroups, controller)?);
    dir.join(PROCS_FILE).exists().then_some(dir)
}

/// The path of this process in the hierarchy of a controller; `""` stands for the v2 hierarchy. A line is
/// `5:cpu,cpuacct:/path`.
fn own_path<'a>(own_cgroups: &'a str, controller: &str) -> Option<&'a str> {
    own_cgroups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}

fn join_absolute(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    /// A directory like a cgroup: the files that the kernel would make.
    fn make_cgroup(dir: &Path, files: &[(&str, &str)]) {
        fs::create_dir_all(dir).unwrap();
        files.iter().for_each(|(name, text)| fs::write(dir.join(name), text).unwrap());
    }

    const V2_FILES: [(&str, &str); 3] =
        [("cgroup.controllers", "cpuset cpu io memory pids"), ("cgroup.procs", ""), ("cgroup.subtree_control", "")];

    /// The kernel makes the files of a new cgroup; here they are there before.
    fn make_v2_tree(root: &Path, parent: &str) {
        for dir in ["", parent, &format!("{parent}/muster"), &format!("{parent}/muster/n1")] {
            make_cgroup(&join_absolute(root, dir), &V2_FILES);
        }
    }

    #[test]
    fn the_own_path_is_found_by_controller() {
        let text = "12:cpu,cpuacct:/a\n4:memory:/b:c\n0::/unified\n";
        assert_eq!(own_path(text, "cpuacct"), Some("/a"));
        assert_eq!(own_path(text, "memory"), Some("/b:c"));
        assert_eq!(own_path(text, ""), Some("/unified"));
        assert_eq!(own_path(text, "pids"), None);
    }

    #[test]
    fn a_pure_v2_host_gives_a_cgroup_at_the_root_with_controllers_enabled() {
        let dir = TempDir::new();
        make_v2_tree(&dir, "");
        let base = CgroupBase::open_at(&dir, "0::/\n", "n1").unwrap();
        assert!(base.is_pure_v2);
        assert_eq!(base.attempt("job-7", 2).unified.unwrap(), dir.join("muster/n1/job-7.2"));
        // A plain file keeps the last write only; the kernel adds them up.
        assert_eq!(fs::read_to_string(dir.join("muster/n1/cgroup.subtree_control")).unwrap(), "+pids");
    }

    #[test]
    fn an_agent_in_its_delegated_leaf_uses_the_cgroup_above() {
        let dir = TempDir::new();
        make_v2_tree(&dir, "system.slice/muster.service");
        let base = CgroupBase::open_at(&dir, "0::/system.slice/muster.service/agent\n", "n1").unwrap();
        let expected = dir.join("system.slice/muster.service/muster/n1/job-1.1");
        assert_eq!(base.attempt("job-1", 1).unified.unwrap(), expected);
    }

    #[test]
    fn a_missing_controller_is_named() {
        let dir = TempDir::new();
        make_v2_tree(&dir, "");
        fs::write(dir.join("muster/n1/cgroup.controllers"), "cpu pids").unwrap();
        let error = CgroupBase::open_at(&dir, "0::/\n", "n1").unwrap_err();
        assert!(error.contains("no controller `memory`") && error.contains("Delegate=yes"), "{error}");
    }

    #[test]
    fn a_hybrid_host_gives_one_directory_for_each_v1_controller() {
        let dir = TempDir::new();
        for name in ["memory", "pids", "memory/service", "unified"] {
            make_cgroup(&dir.join(name), &[("cgroup.procs", "")]);
        }
        let base = CgroupBase::open_at(&dir, "2:pids:/\n4:memory:/service\n0::/\n", "n1").unwrap();
        let cgroup = base.attempt("job-1", 1);
        assert!(!base.is_pure_v2);
        assert_eq!(cgroup.v1[&Controller::Memory], dir.join("memory/service/muster/n1/job-1.1"));
        assert_eq!(cgroup.v1[&Controller::Pids], dir.join("pids/muster/n1/job-1.1"));
        assert_eq!(cgroup.unified.unwrap(), dir.join("unified/muster/n1/job-1.1"));
        fs::remove_dir_all(dir.join("memory")).unwrap();
        let error = CgroupBase::open_at(&dir, "0::/\n", "n1").unwrap_err();
        assert!(error.contains("no controller `memory`"), "{error}");
    }

    #[test]
    fn empty_leftovers_are_removed_and_attempts_that_may_start_are_kept() {
        let dir = TempDir::new();
        for name in ["memory", "pids"] {
            make_cgroup(&dir.join(name), &[("cgroup.procs", "")]);
        }
        let base = CgroupBase::open_at(&dir, "", "n1").unwrap();
        for job in ["job-1", "job-2"] {
            let cgroup = base.attempt(job, 1);
            cgroup.make_dirs().unwrap();
            cgroup.child("rank-0").make_dirs().unwrap();
        }
        base.remove_leftovers(|name| name == "job-2.1");
        assert!(!dir.join("pids/muster/n1/job-1.1").exists());
        assert!(dir.join("pids/muster/n1/job-2.1/rank-0").exists());
    }
}
