//! The isolation of one attempt: what its tasks may use and reach. The agent decides it before the launch and writes it to
//! the attempt directory; the shim sets it up, and both use it to end the attempt.

use std::io;
use std::path::{Path, PathBuf};

use muster_protocol::agent::{AttemptOrder, TaskOrder};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, CgroupError, CgroupLimits, CpuLimit};
use crate::container_runtime::{self, ContainerSetup};
use crate::device_filter::{self, DeviceFilterError, DeviceNodes, FilterKind};
use crate::job_user::JobUser;
use crate::proc::{self, Process};
use crate::secret_files::{self, SECRETS_DIR};

/// Written before the launch intent. An attempt of an older release has none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Isolation {
    /// Why this node does not run the job; the shim reports it.
    #[serde(default)]
    pub refusal: Option<String>,
    #[serde(default)]
    pub cgroup: Option<Cgroup>,
    #[serde(default)]
    pub device_filter: Option<FilterKind>,
    /// Devices that every job may open besides those of its GPUs.
    #[serde(default)]
    pub extra_devices: Vec<PathBuf>,
    /// `None` for the user of the agent.
    #[serde(default)]
    pub user: Option<JobUser>,
    #[serde(default)]
    pub private_mounts: bool,
    pub limits: TaskLimits,
    /// For a job with an image, if this node has a container runtime.
    #[serde(default)]
    pub container: Option<ContainerSetup>,
    /// For a job with secrets.
    #[serde(default)]
    pub secrets: Option<SecretsPlace>,
}

/// Where the job finds its secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SecretsPlace {
    /// A tmpfs in the mount namespace of the attempt.
    Private,
    /// This directory, on a tmpfs of the node: another job of the same account can read it.
    Shared(PathBuf),
}

/// How long processes may survive SIGKILL before the node is drained, unless the site says otherwise.
pub(crate) const UNKILLABLE_AFTER_MS: i64 = 60_000;

/// Limits that are the same for every task of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskLimits {
    /// Processes and threads of a task.
    pub pids_max: u64,
    /// Open files of a process; the limit of the agent itself is the upper bound.
    pub open_files_max: u64,
    pub cpu_limit: CpuLimit,
    /// The permissions that new files do not get.
    pub umask: u32,
    /// The size of each output stream of a task on disk, beyond which its beginning is discarded; `None` for no limit.
    #[serde(default)]
    pub log_max_mib: Option<u64>,
    /// How long processes may survive SIGKILL before the node is drained.
    #[serde(default = "default_unkillable_after_ms")]
    pub unkillable_after_ms: i64,
}

fn default_unkillable_after_ms() -> i64 {
    UNKILLABLE_AFTER_MS
}

impl Default for TaskLimits {
    fn default() -> TaskLimits {
        TaskLimits {
            pids_max: 4_096,
            open_files_max: 65_536,
            cpu_limit: CpuLimit::Weight,
            umask: 0o027,
            log_max_mib: Some(1_024),
            unkillable_after_ms: UNKILLABLE_AFTER_MS,
        }
    }
}

/// Why the isolation of an attempt cannot be set up. Then the attempt does not start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IsolationError {
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    #[error(transparent)]
    DeviceFilter(#[from] DeviceFilterError),
}

/// Processes of a task that the kernel has killed because memory was short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryKills {
    pub rank: u32,
    pub count: u64,
    pub limit_mib: u64,
}

impl Isolation {
    /// No protection but the limits that every process can set for itself.
    pub fn none() -> Isolation {
        Isolation {
            refusal: None,
            cgroup: None,
            device_filter: None,
            extra_devices: Vec::new(),
            user: None,
            private_mounts: false,
            limits: TaskLimits::default(),
            container: None,
            secrets: None,
        }
    }

    /// The directory with the secrets of the job, if it has any.
    pub fn secrets_dir(&self, attempt_dir: &Path) -> Option<PathBuf> {
        self.secrets.as_ref().map(|place| match place {
            SecretsPlace::Private => attempt_dir.join(SECRETS_DIR),
            SecretsPlace::Shared(dir) => dir.clone(),
        })
    }

    /// Removes the secrets of an attempt without processes. A private tmpfs is gone with its namespace, and its mount point
    /// is left.
    pub fn remove_secrets(&self, attempt_dir: &Path) {
        match &self.secrets {
            None => {}
            Some(SecretsPlace::Private) => drop(std::fs::remove_dir(attempt_dir.join(SECRETS_DIR))),
            Some(SecretsPlace::Shared(dir)) => drop(secret_files::remove_shared(dir)),
        }
    }

    /// The containers of the tasks on this node; empty for a job without an image.
    pub fn container_names(&self, order: &AttemptOrder) -> Vec<String> {
        let name = |setup: &ContainerSetup, task: &TaskOrder| {
            container_runtime::container_name(&setup.agent, &order.job, order.attempt, task.rank)
        };
        let setup = self.container.iter();
        setup.flat_map(|setup| order.tasks.iter().map(move |task| name(setup, task))).collect()
    }

    /// The processes in the containers of this attempt; `None` if its containers are outside of its cgroup.
    pub fn container_processes(&self) -> Option<Vec<i32>> {
        let is_inside = self.container.as_ref().is_some_and(|setup| setup.runtime.takes_cgroup_parent);
        let cgroup = self.cgroup.as_ref().filter(|cgroup| is_inside && cgroup.path_in_hierarchies().is_some());
        cgroup.map(Cgroup::container_processes)
    }

    /// Kills and removes the containers of the tasks.
    pub fn remove_containers(&self, order: &AttemptOrder) -> io::Result<()> {
        let Some(setup) = &self.container else { return Ok(()) };
        setup.runtime.remove(&self.container_names(order))
    }

    /// Makes the cgroups of the tasks, with limits and device filters. `cpu_list` gives the cores of a task, if bound.
    pub fn create_cgroups(
        &self,
        order: &AttemptOrder,
        cpu_list: impl Fn(&TaskOrder) -> Option<String>,
    ) -> Result<(), IsolationError> {
        if let Some(why) = &self.refusal {
            return Err(IsolationError::Refused(why.clone()));
        }
        let Some(cgroup) = &self.cgroup else { return Ok(()) };
        cgroup.kill(); // Of a launch that crashed; its processes would use up the limits.
        if order.tasks.len() > 1 {
            cgroup.create(&self.sum_of_limits(order))?;
            cgroup.enable_children()?;
        }
        for task in &order.tasks {
            let Some(leaf) = self.task_cgroup(order, task) else { continue };
            leaf.create(&CgroupLimits { cpu_list: cpu_list(task), ..self.task_limits(task) })?;
            if let Some(kind) = self.device_filter {
                // Before a process is in the cgroup: without a filter the kernel allows every device.
                let rules = device_filter::task_devices(task, &self.extra_devices);
                let makes_nodes = self.container.as_ref().is_some_and(|setup| !setup.runtime.kind.runs_as_the_job());
                let nodes = if makes_nodes { DeviceNodes::Made } else { DeviceNodes::Denied };
                device_filter::attach(kind, &leaf, &rules, nodes)?;
            }
        }
        Ok(())
    }

    /// The cgroup of a task: that of the attempt if it has one task only, else a child, because limits and GPUs differ.
    pub fn task_cgroup(&self, order: &AttemptOrder, task: &TaskOrder) -> Option<Cgroup> {
        let cgroup = self.cgroup.as_ref()?;
        match order.tasks.len() {
            1 => Some(cgroup.clone()),
            _ => Some(cgroup.child(&format!("rank-{}", task.rank))),
        }
    }

    /// The size of the `/dev/shm` that the tasks share: it uses up their memory. `None` without a limit.
    pub fn shm_mib(&self, order: &AttemptOrder) -> Option<u64> {
        self.sum_of_limits(order).memory_mib
    }

    fn task_limits(&self, task: &TaskOrder) -> CgroupLimits {
        CgroupLimits {
            memory_mib: Some(task.memory_mib).filter(|mib| *mib > 0),
            pids_max: Some(self.limits.pids_max),
            cores: task.cpus,
            cpu_limit: self.limits.cpu_limit,
            cpu_list: None,
        }
    }

    /// A task without a memory limit leaves the attempt without one.
    fn sum_of_limits(&self, order: &AttemptOrder) -> CgroupLimits {
        let tasks = || order.tasks.iter().map(|task| self.task_limits(task));
        CgroupLimits {
            memory_mib: tasks().map(|limits| limits.memory_mib).sum(),
            pids_max: tasks().map(|limits| limits.pids_max).sum(),
            cores: tasks().map(|limits| limits.cores).sum(),
            cpu_limit: self.limits.cpu_limit,
            cpu_list: None,
        }
    }

    /// Kills all processes of the attempt, wherever they went, and returns how many there were; 0 without a cgroup.
    pub fn kill(&self) -> usize {
        self.cgroup.as_ref().map_or(0, Cgroup::kill)
    }

    /// The processes in the cgroup of the attempt; none without a cgroup.
    pub fn processes(&self) -> Vec<Process> {
        let pids = self.cgroup.as_ref().map(Cgroup::processes).unwrap_or_default();
        pids.into_iter().filter_map(proc::process).collect()
    }

    /// Removes the cgroups of an attempt without processes.
    pub fn remove_cgroups(&self) {
        self.cgroup.iter().for_each(Cgroup::remove);
        if self.container.is_some() {
            self.cgroup.iter().for_each(Cgroup::remove_in_other_hierarchies);
        }
    }

    /// The tasks that the kernel ended because of their memory limit.
    pub fn memory_kills(&self, order: &AttemptOrder) -> Vec<MemoryKills> {
        let kills = |task: &TaskOrder| {
            let count = self.task_cgroup(order, task).map_or(0, |cgroup| match &self.container {
                Some(_) => cgroup.out_of_memory_kills().max(u64::from(cgroup.has_reached_memory_limit())),
                None => cgroup.out_of_memory_kills(),
            });
            (count > 0).then_some(MemoryKills { rank: task.rank, count, limit_mib: task.memory_mib })
        };
        order.tasks.iter().filter_map(kills).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures;

    fn gang(memory_mib: [u64; 2]) -> AttemptOrder {
        let mut order = test_fixtures::order("job-1", &[]);
        let task = order.tasks[0].clone();
        order.tasks =
            (0..2).map(|rank| TaskOrder { rank, memory_mib: memory_mib[rank as usize], ..task.clone() }).collect();
        order
    }

    #[test]
    fn the_attempt_may_use_what_its_tasks_may_use_together() {
        let isolation = Isolation::none();
        let sum = isolation.sum_of_limits(&gang([100, 50]));
        assert_eq!((sum.memory_mib, sum.pids_max), (Some(150), Some(8_192)));
        assert_eq!(isolation.sum_of_limits(&gang([100, 0])).memory_mib, None, "a task without a limit");
    }

    #[test]
    fn only_the_tasks_of_a_gang_have_cgroups_of_their_own() {
        let path = PathBuf::from("/cgroup/job-1.1");
        let cgroup = Cgroup { unified: Some(path.clone()), v1: Default::default() };
        let isolation = Isolation { cgroup: Some(cgroup), ..Isolation::none() };
        let paths = |order: &AttemptOrder| -> Vec<PathBuf> {
            order.tasks.iter().map(|task| isolation.task_cgroup(order, task).unwrap().unified.unwrap()).collect()
        };
        assert_eq!(paths(&gang([1, 1])), [path.join("rank-0"), path.join("rank-1")]);
        assert_eq!(paths(&test_fixtures::order("job-1", &[])), [path]);
    }
}
