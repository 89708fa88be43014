//! The namespaces of a running container, for a program that a person runs inside it.
//!
//! The program joins them itself instead of asking the runtime: so it starts, ends and copies files as inside a task without
//! a container, whatever the runtime is. A process cannot change its own PID namespace, only that of its children; the
//! keeper of the program (`exec_keeper.rs`) does that, and the second stage (`shim_exec.rs`) joins the others.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::proc;

/// The namespaces that runtimes make besides those of users, processes and mounts.
const OTHER_NAMESPACES: [(&str, LinkNameSpaceType); 4] = [
    ("cgroup", LinkNameSpaceType::ControlGroup),
    ("ipc", LinkNameSpaceType::InterProcessCommunication),
    ("net", LinkNameSpaceType::Network),
    ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
];

/// The first process of a container: pid and start time, as the host counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerProcess {
    pub pid: i32,
    pub start_time: u64,
}

impl ContainerProcess {
    /// `None` if the process is gone.
    pub fn find(pid: i32) -> Option<ContainerProcess> {
        let found = proc::process(pid).filter(|process| !process.is_zombie)?;
        Some(ContainerProcess { pid, start_time: found.start_time })
    }

    fn is_alive(self) -> bool {
        ContainerProcess::find(self.pid) == Some(self)
    }

    /// The variables with which the container was started: those of the image, the job and muster.
    pub fn environment(self) -> io::Result<Vec<(OsString, OsString)>> {
        fs::read(self.file("environ")).map(|bytes| parse_environment(&bytes))
    }

    /// The working directory, as a path in the container.
    pub fn directory(self) -> PathBuf {
        fs::read_link(self.file("cwd")).unwrap_or_else(|_| PathBuf::from("/"))
    }

    /// The outer end of a new terminal whose inner end has a name in the container, as `tty` and `tmux` need it.
    pub fn open_terminal(self, flags: OFlags) -> io::Result<OwnedFd> {
        let root = self.open_root()?;
        let terminal = rustix::fs::openat2(&root, "dev/pts/ptmx", flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
        if self.is_alive() { Ok(terminal) } else { Err(ended()) }
    }

    fn open_root(self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.file("root"), flags, Mode::empty())?)
    }

    fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    /// A namespace that is not also that of the calling process.
    fn open_namespace(self, name: &str) -> io::Result<Option<OwnedFd>> {
        let own = match fs::metadata(format!("/proc/self/ns/{name}")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None), // Not in this kernel.
            own => own?,
        };
        let theirs = File::open(self.file(&format!("ns/{name}")))?;
        let found = theirs.metadata()?;
        Ok(((found.dev(), found.ino()) != (own.dev(), own.ino())).then(|| theirs.into()))
    }
}

fn ended() -> io::Error {
    io::Error::other("the container has ended")
}

/// A program may have overwritten the memory from which the kernel reads these: what is no variable is left out.
fn parse_environment(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let variable = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        let text = |bytes: &[u8]| OsStr::from_bytes(bytes).to_os_string();
        Some((text(&entry[..at]), text(&entry[at + 1..])))
    };
    bytes.split(|byte| *byte == 0).filter_map(variable).collect()
}

/// Makes the children of this process start in the PID namespace of the container.
pub(crate) fn enter_pid_namespace_with_children(container: ContainerProcess) -> io::Result<()> {
    let namespace = container.open_namespace("pid")?;
    if !container.is_alive() {
        return Err(ended());
    }
    namespace.map_or(Ok(()), |pid| Ok(move_into_link_name_space(pid.as_fd(), Some(LinkNameSpaceType::ProcessID))?))
}

/// The namespaces of a container but for that of its processes, opened with the rights of the agent.
#[derive(Debug)]
pub(crate) struct ContainerNamespaces {
    root: OwnedFd,
    user: Option<OwnedFd>,
    mounts: Option<OwnedFd>,
    others: Vec<(LinkNameSpaceType, OwnedFd)>,
}

impl ContainerNamespaces {
    pub fn open(container: ContainerProcess) -> io::Result<ContainerNamespaces> {
        let root = container.open_root()?;
        let (user, mounts) = (container.open_namespace("user")?, container.open_namespace("mnt")?);
        let mut others = Vec::new();
        for (name, kind) in OTHER_NAMESPACES {
            others.extend(container.open_namespace(name)?.map(|namespace| (kind, namespace)));
        }
        // Otherwise another process with this pid may have been opened.
        if container.is_alive() { Ok(ContainerNamespaces { root, user, mounts, others }) } else { Err(ended()) }
    }

    /// The container belongs to the job's user, who alone has rights in it.
    pub fn has_user_namespace(&self) -> bool {
        self.user.is_some()
    }

    /// Moves this process, which must have one thread, into the container.
    pub fn join(self) -> io::Result<()> {
        let user = self.user.map(|namespace| (LinkNameSpaceType::User, namespace));
        let mounts = self.mounts.map(|namespace| (LinkNameSpaceType::Mount, namespace));
        for (kind, namespace) in user.into_iter().chain(self.others).chain(mounts) {
            move_into_link_name_space(namespace.as_fd(), Some(kind))?;
        }
        // The root of a mount namespace need not be the root of the container.
        rustix::process::fchdir(&self.root)?;
        Ok(rustix::process::chroot(".")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_a_container_is_read_without_what_is_no_variable() {
        let variables = parse_environment(b"A=1\0B=x=y\0\0junk\0=C\0D=\0");
        let pair = |name: &str, value: &str| (OsString::from(name), OsString::from(value));
        assert_eq!(variables, [pair("A", "1"), pair("B", "x=y"), pair("D", "")]);
    }

    #[test]
    fn a_process_that_has_ended_is_no_container() {
        let own = ContainerProcess::find(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(!ContainerNamespaces::open(own).unwrap().has_user_namespace(), "the same namespaces");
        let other = ContainerProcess { start_time: own.start_time + 1, ..own };
        assert_eq!(ContainerNamespaces::open(other).unwrap_err().to_string(), "the container has ended");
        assert!(enter_pid_namespace_with_children(other).is_err());
    }
}
