//! Port: the container runtime of this node, a program that pulls images and runs containers.
//!
//! An adapter builds command lines and reads nothing. The second stage of a task executes the command line that runs its
//! container, so the client of the runtime is the process that the shim supervises; agent and shim execute the others.

mod apptainer;
mod commands;
mod discovery;
mod docker;
mod nerdctl;
mod oci_flags;
mod podman;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::job_user::JobUser;

pub(crate) use commands::{ContainerEnd, ImageFacts, client_environment, last_line};
pub(crate) use discovery::{HostFacts, find, is_known};

/// The runtimes for which there is an adapter, in the order in which they are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RuntimeKind {
    Podman,
    Docker,
    Nerdctl,
    Apptainer,
}

impl RuntimeKind {
    pub const ALL: [RuntimeKind; 4] =
        [RuntimeKind::Podman, RuntimeKind::Docker, RuntimeKind::Nerdctl, RuntimeKind::Apptainer];

    /// Whether `--group-add` takes a number for a number. podman and docker look it up among the names in the `/etc/group` of
    /// the image first, so an image could give its container any group of the host.
    pub fn takes_group_numbers(self) -> bool {
        self == RuntimeKind::Nerdctl
    }

    /// As its program and in labels.
    pub fn name(self) -> &'static str {
        match self {
            RuntimeKind::Podman => "podman",
            RuntimeKind::Docker => "docker",
            RuntimeKind::Nerdctl => "nerdctl",
            RuntimeKind::Apptainer => "apptainer",
        }
    }

    fn adapter(self) -> &'static dyn CommandLines {
        match self {
            RuntimeKind::Podman => &podman::Podman,
            RuntimeKind::Docker => &docker::Docker,
            RuntimeKind::Nerdctl => &nerdctl::Nerdctl,
            RuntimeKind::Apptainer => &apptainer::Apptainer,
        }
    }

    /// The client is the job's program itself and runs with the rights of the job. The clients of the other runtimes need
    /// the rights of root, and give the container those of the job's user.
    pub fn runs_as_the_job(self) -> bool {
        self == RuntimeKind::Apptainer
    }

    /// Whether the name is one of an image in a registry. A client with the rights of root would read other sources, such as
    /// archives, wherever they lie.
    pub fn takes_image(self, image: &str) -> bool {
        match self.runs_as_the_job() {
            true => !image.starts_with('-'),
            false => oci_flags::is_registry_reference(image),
        }
    }

    /// The container is started by a daemon, which sees the mounts of the host and not those of the attempt.
    pub fn has_daemon(self) -> bool {
        matches!(self, RuntimeKind::Docker | RuntimeKind::Nerdctl)
    }
}

/// The runtime that was found on this node. Part of the isolation of an attempt, so that a restarted agent ends its
/// containers by the same program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerRuntime {
    pub kind: RuntimeKind,
    pub program: PathBuf,
    /// The program below podman, if it must not be the default one.
    #[serde(default)]
    pub oci_runtime: Option<String>,
    /// Containers can be put below a cgroup of ours. A docker daemon that leaves cgroups to systemd takes no path.
    pub takes_cgroup_parent: bool,
    /// The runtime finds its init program, which forwards signals to the program of the container.
    pub has_init: bool,
}

/// How the containers of an attempt are run. Part of its isolation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerSetup {
    pub runtime: ContainerRuntime,
    /// The agent that the containers are marked with.
    pub agent: String,
    pub pull: ImagePull,
    /// The job may mount what is in these directories.
    pub allowed_mounts: Vec<PathBuf>,
}

/// When the image of a job is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImagePull {
    #[default]
    Missing,
    Always,
    Never,
}

/// A directory or file of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BindMount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

/// A container to run.
#[derive(Debug, Clone)]
pub(crate) struct ContainerRun<'a> {
    pub name: String,
    /// The agent that removes the container if everything else fails.
    pub agent: &'a str,
    pub image: &'a str,
    /// Runs instead of the entrypoint of the image.
    pub entrypoint: Option<PathBuf>,
    /// Replace the command of the image.
    pub args: Vec<String>,
    pub user: Option<&'a JobUser>,
    /// Below the root of the hierarchies.
    pub cgroup_parent: Option<PathBuf>,
    /// For a runtime that does not take a cgroup parent; `None` for no limit.
    pub memory_mib: Option<u64>,
    pub pids_max: u64,
    pub env_file: PathBuf,
    pub mounts: Vec<BindMount>,
    /// `None` for the working directory of the image.
    pub directory: Option<&'a Path>,
    /// Names of the Container Device Interface, for example `nvidia.com/gpu=0`.
    pub devices: Vec<String>,
    pub open_files_max: u64,
    pub umask: u32,
}

/// The arguments of a runtime's program for everything that muster wants of it.
trait CommandLines {
    fn run(&self, runtime: &ContainerRuntime, run: &ContainerRun<'_>) -> Vec<OsString>;

    /// Succeeds if the image is on this node. `None` if the runtime pulls images by itself when it runs them.
    fn find_image(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>>;

    /// Prints one line with the id of an image and its size in bytes. `None` for a runtime that keeps images in files of the
    /// job's user.
    fn image_facts(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>>;

    /// Removes an image that no container uses. `None` as for `image_facts`.
    fn remove_image(&self, runtime: &ContainerRuntime, image: &str) -> Option<Vec<OsString>>;

    fn pull(&self, runtime: &ContainerRuntime, image: &str) -> Vec<OsString>;

    /// Prints one line with the status of a container and its first process. `None` for a runtime whose containers are plain processes.
    fn status(&self, runtime: &ContainerRuntime, name: &str) -> Option<Vec<OsString>>;

    /// Kills containers and removes them; containers that do not exist are no error. `None` as for `status`.
    fn remove(&self, runtime: &ContainerRuntime, names: &[String]) -> Option<Vec<OsString>>;

    /// Prints the names of the containers of an agent, one on each line. `None` as for `status`.
    fn list(&self, runtime: &ContainerRuntime, agent: &str) -> Option<Vec<OsString>>;
}

impl ContainerRuntime {
    pub fn run_arguments(&self, run: &ContainerRun<'_>) -> Vec<OsString> {
        self.kind.adapter().run(self, run)
    }

    pub fn pull_arguments(&self, image: &str) -> Vec<OsString> {
        self.kind.adapter().pull(self, image)
    }
}

/// The label of a container that names the agent it belongs to.
const AGENT_LABEL: &str = "muster.agent";

/// How the names of the containers of an attempt begin.
pub(crate) fn attempt_prefix(agent: &str, job: &str, attempt: u32) -> String {
    format!("muster-{agent}-{job}-{attempt}-")
}

/// The name of the container of a task.
pub(crate) fn container_name(agent: &str, job: &str, attempt: u32, rank: u32) -> String {
    format!("{}{rank}", attempt_prefix(agent, job, attempt))
}

/// A container command line out of words.
fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<OsString> {
    words.into_iter().map(OsString::from).collect()
}

#[cfg(test)]
mod fixtures {
    use super::*;

    pub fn runtime(kind: RuntimeKind) -> ContainerRuntime {
        ContainerRuntime {
            kind,
            program: PathBuf::from("/usr/bin").join(kind.name()),
            oci_runtime: None,
            takes_cgroup_parent: true,
            has_init: true,
        }
    }

    pub fn user() -> JobUser {
        JobUser { name: "ann".to_string(), uid: 700, gid: 701, groups: vec![44], home: None }
    }

    /// A container with everything that a job can ask for.
    pub fn full(user: &JobUser) -> ContainerRun<'_> {
        let mount = |source: &str, target: &str, read_only| BindMount {
            source: PathBuf::from(source),
            target: PathBuf::from(target),
            read_only,
        };
        ContainerRun {
            name: container_name("gpu01-0a", "job-7.3", 2, 1),
            agent: "gpu01-0a",
            image: "example.org/train:1",
            entrypoint: None,
            args: vec!["train".to_string(), "--fast".to_string()],
            user: Some(user),
            cgroup_parent: Some(PathBuf::from("/muster/gpu01-0a/job-7.3.2/rank-1")),
            memory_mib: Some(512),
            pids_max: 4_096,
            env_file: PathBuf::from("/a/env"),
            mounts: vec![mount("/a/work", "/a/work", false), mount("/data", "/in", true)],
            directory: Some(Path::new("/src")),
            devices: vec!["nvidia.com/gpu=0".to_string()],
            open_files_max: 1_024,
            umask: 0o027,
        }
    }

    pub fn line(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }
}
