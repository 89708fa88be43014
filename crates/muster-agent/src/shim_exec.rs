//! The second stage of a task: it gives up the rights of the agent step by step and becomes the program of the task.
//!
//! A shim starts it as `muster shim-exec` with an empty environment. It is a program of its own and not code between fork
//! and exec, which would be `unsafe` and could not report what failed. It runs one thread, so what it changes for its
//! thread holds for the process.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use rustix::fs::{Access, FileType, Mode};
use rustix::process::{
    Gid, Resource, Rlimit, Uid, getgid, getgroups, getrlimit, getuid, ioctl_tiocsctty, setrlimit, setsid, umask,
};
use rustix::thread::{
    CapabilitySet, clear_ambient_capability_set, remove_capability_from_bounding_set, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::container_namespaces::ContainerNamespaces;
use crate::file_transfer;
use crate::job_user::JobUser;
use crate::passed_files;
use crate::private_mounts::{self, PrivateMounts};
use crate::secret_files;
use crate::task_launch::{self, Bind, Mounts, Rights, StageAnswer, StageFailure, StageStep, TaskLaunch};

/// The second stage failed; the shim knows the reason.
const EXIT_CODE_FAILED: i32 = 126;
const EXIT_CODE_USAGE: i32 = 2;
const STDERR: i32 = 2;
/// Of directories that the second stage makes; the job's own umask comes later.
const PREPARING_UMASK: u32 = 0o022;
/// Where programs are found if neither the job nor the agent has a `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Prepares this process and executes the program of the task. Returns only if that fails, or after a copy.
pub fn shim_exec_main() -> i32 {
    if let Err(error) = close_inherited_files_at_exec() {
        eprintln!("the files of the agent cannot be closed: {error}");
        return EXIT_CODE_FAILED;
    }
    let Ok((mut channel, launch)) = take_launch() else {
        eprintln!("`muster shim-exec` is started by a shim, which sends it a task");
        return EXIT_CODE_USAGE;
    };
    if let Err(failure) = prepare(&launch) {
        let _ = task_launch::send(&mut channel, &StageAnswer::Failed(failure));
        return EXIT_CODE_FAILED;
    }
    if task_launch::send(&mut channel, &StageAnswer::Ready).is_err() || channel.read_exact(&mut [0]).is_err() {
        return EXIT_CODE_FAILED; // The shim is gone, or another task of the gang cannot start.
    }
    if let Some(copy) = &launch.copy {
        drop(channel); // As if a program were executed.
        return file_transfer::copy_main(copy);
    }
    let failure = StageFailure::new(StageStep::Program, execute(&launch));
    let _ = task_launch::send(&mut channel, &StageAnswer::Failed(failure));
    EXIT_CODE_FAILED
}

/// What muster opens is closed by `exec` anyway. The agent may have inherited more, for example from a wrapper script, and
/// the job must not get it.
fn close_inherited_files_at_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(fd) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if fd > STDERR {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
    }
    Ok(())
}

/// Reads the launch from standard input, and puts `/dev/null` there for a task, or what follows for another program. The
/// connection is kept on a descriptor that closes when the program is executed.
fn take_launch() -> io::Result<(UnixStream, TaskLaunch)> {
    let mut channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let launch: TaskLaunch = task_launch::receive(&mut channel)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    match launch.session {
        None => rustix::stdio::dup2_stdin(File::open("/dev/null")?)?,
        Some(has_terminal) => {
            let stdin = passed_files::receive(&channel)?.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
            setsid()?;
            if has_terminal {
                ioctl_tiocsctty(&stdin)?;
            }
            rustix::stdio::dup2_stdin(stdin)?;
        }
    }
    Ok((channel, launch))
}

/// The order matters: each step needs rights that a later one gives up.
fn prepare(launch: &TaskLaunch) -> Result<(), StageFailure> {
    leave_session_keyring();
    umask(Mode::from_raw_mode(PREPARING_UMASK));
    if let Some(cgroup) = &launch.cgroup {
        cgroup.join().map_err(isolation_failure)?;
    }
    enter_mounts(launch)?;
    let container = open_container(launch)?;
    if launch.rights == Rights::Agent {
        return std::env::set_current_dir(&launch.directory)
            .map_err(|error| StageFailure::new(StageStep::Isolation, error));
    }
    let (container, container_of_the_user) = match container {
        Some(container) if container.has_user_namespace() => (None, Some(container)),
        container => (container, None),
    };
    join_container(container)?;
    if let Some(user) = &launch.user {
        drop_capabilities().map_err(|error| failure("the capabilities cannot be dropped", error))?;
        become_user(user).map_err(|error| failure(&format!("cannot become the user `{}`", user.name), error))?;
    }
    join_container(container_of_the_user)?;
    limit_resources(launch).map_err(|error| failure("the resource limits cannot be set", error))?;
    umask(Mode::from_raw_mode(launch.umask));
    // Set-user-ID programs keep the rights of the job from here on.
    set_no_new_privs(true).map_err(|error| failure("no_new_privs cannot be set", error.into()))?;
    std::env::set_current_dir(&launch.directory).map_err(|error| StageFailure::new(StageStep::Directory, error))
}

/// The session keyring of the kernel survives fork and exec: with that of the agent a job would read the keys of the account
/// that started the agent, and those of other jobs. Where the kernel or a sandbox refuses the call, it refuses it to jobs, too.
fn leave_session_keyring() {
    let _ = keyutils::Keyring::join_anonymous_session();
}

fn isolation_failure(error: impl std::fmt::Display) -> StageFailure {
    StageFailure { step: StageStep::Isolation, errno: None, message: error.to_string() }
}

fn failure(what: &str, error: io::Error) -> StageFailure {
    isolation_failure(format!("{what}: {error}"))
}

fn enter_mounts(launch: &TaskLaunch) -> Result<(), StageFailure> {
    match (launch.mounts, &launch.user) {
        (Mounts::Private { shm_mib }, Some(user)) => {
            private_mounts::enter_new_namespace().map_err(isolation_failure)?;
            let sources = open_sources(launch)?; // As the host has them: before anything is covered.
            let attempt_dir = launch.attempt_dir.as_path();
            let directory = match launch.rights {
                Rights::Job => directory_outside(attempt_dir, &launch.directory, user)?,
                Rights::Agent => None,
            };
            let mounts = PrivateMounts { attempt_dir, directory, user, shm_mib };
            private_mounts::set_up(&mounts).map_err(isolation_failure)?;
            if let Some(secrets) = &launch.secrets {
                let mounted = secret_files::mount_private(&secrets.dir, &secrets.files, user);
                mounted.map_err(|error| failure("the secrets cannot be mounted", error))?;
            }
            sources
                .iter()
                .try_for_each(|(mount_point, source)| private_mounts::bind_source(source, mount_point))
                .map_err(isolation_failure)
        }
        (Mounts::Join { pid }, _) => private_mounts::join_namespace_of(pid).map_err(isolation_failure),
        (Mounts::Container(_), _) => Ok(()),
        (Mounts::Host | Mounts::Private { .. }, _) => open_sources(launch).map(drop), // A daemon mounts them.
    }
}

/// As the host names its processes: `/proc` of the container comes later.
fn open_container(launch: &TaskLaunch) -> Result<Option<ContainerNamespaces>, StageFailure> {
    let Mounts::Container(container) = launch.mounts else { return Ok(None) };
    ContainerNamespaces::open(container).map(Some).map_err(|error| failure("cannot open the container", error))
}

fn join_container(container: Option<ContainerNamespaces>) -> Result<(), StageFailure> {
    let joined = container.map_or(Ok(()), ContainerNamespaces::join);
    joined.map_err(|error| failure("cannot join the container", error))
}

/// Opens what the job mounts with the rights of the job's user, and returns what is mounted in the namespace.
fn open_sources(launch: &TaskLaunch) -> Result<Vec<(PathBuf, OwnedFd)>, StageFailure> {
    let mut opened = Vec::new();
    for bind in &launch.binds {
        let Some(user) = &launch.user else { continue };
        let source = open_source(bind, user)?;
        opened.extend(bind.mount_point.clone().map(|mount_point| (mount_point, source)));
    }
    Ok(opened)
}

fn open_source(bind: &Bind, user: &JobUser) -> Result<OwnedFd, StageFailure> {
    let refused = |why: &str| {
        let message = format!("`{}` cannot be mounted: {why}", bind.source.display());
        StageFailure { step: StageStep::Mount, errno: None, message }
    };
    let opened = as_user(user, || private_mounts::open_source(&bind.source));
    let opened = opened.map_err(|error| failure(&format!("cannot act as the user `{}`", user.name), error))?;
    let (path, source) = opened.map_err(|error| refused(&format!("user `{}` cannot read it: {error}", user.name)))?;
    // The path that was opened, also if a link was replaced meanwhile.
    let path = std::fs::read_link(format!("/proc/self/fd/{}", source.as_raw_fd())).unwrap_or(path);
    if !bind.allowed.iter().any(|allowed| path.starts_with(allowed)) {
        return Err(refused("this site does not allow jobs to mount it; see `agent.image_mounts`"));
    }
    let kind = rustix::fs::fstat(&source).map(|found| FileType::from_raw_mode(found.st_mode));
    if !matches!(kind, Ok(FileType::Directory | FileType::RegularFile)) {
        return Err(refused("it is neither a directory nor a file"));
    }
    if bind.mount_point.is_none() && (path != bind.source || private_mounts::is_replaceable(&path, user)) {
        return Err(refused(
            "the container runtime of this node mounts only paths without links that the user cannot replace",
        ));
    }
    Ok(source)
}

/// Opens a working directory that the job has named, with the rights of the job's user: mounting it again with the rights of
/// the agent would open it to everyone.
fn directory_outside(
    attempt_dir: &Path,
    directory: &Path,
    user: &JobUser,
) -> Result<Option<(PathBuf, OwnedFd)>, StageFailure> {
    if directory.starts_with(attempt_dir) {
        return Ok(None);
    }
    let opened = as_user(user, || private_mounts::open_directory(directory));
    let opened = opened.map_err(|error| failure(&format!("cannot act as the user `{}`", user.name), error))?;
    opened.map(Some).map_err(|error| StageFailure::new(StageStep::Directory, error))
}

/// Runs `act` with the effective ids of a user; the kernel takes away the effective capabilities meanwhile.
fn as_user<T>(user: &JobUser, act: impl FnOnce() -> T) -> io::Result<T> {
    let former_groups = getgroups()?;
    set_thread_groups(&groups_of(user))?;
    set_thread_res_gid(None, Gid::from_raw(user.gid), None)?;
    set_thread_res_uid(None, Uid::from_raw(user.uid), None)?;
    let result = act();
    set_thread_res_uid(None, getuid(), None)?;
    set_thread_res_gid(None, getgid(), None)?;
    set_thread_groups(&former_groups)?;
    Ok(result)
}

/// Empties the bounding set, so that no program can gain a capability by its file.
fn drop_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    for number in 0..u64::BITS {
        match remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number)) {
            Err(rustix::io::Errno::INVAL) => return Ok(()), // Past the last capability of this kernel.
            removed => removed?,
        }
    }
    Ok(())
}

/// Groups first: without root's rights they cannot be changed any more.
fn become_user(user: &JobUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    set_thread_groups(&groups_of(user))?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}

fn groups_of(user: &JobUser) -> Vec<Gid> {
    user.groups.iter().map(|group| Gid::from_raw(*group)).collect()
}

/// A core file holds the memory of a program, often gigabytes, on a disk that others need.
fn limit_resources(launch: &TaskLaunch) -> io::Result<()> {
    setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    let hard = getrlimit(Resource::Nofile).maximum;
    let open_files = Some(hard.map_or(launch.open_files_max, |hard| hard.min(launch.open_files_max)));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: open_files, maximum: open_files })?)
}

/// Returns only with an error.
fn execute(launch: &TaskLaunch) -> io::Error {
    let path = launch.environment.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let program = match find_program(&launch.program, path.unwrap_or(OsStr::new(DEFAULT_PATH))) {
        Ok(program) => program,
        Err(error) => return error,
    };
    let mut command = Command::new(program);
    command.arg0(&launch.program).args(&launch.args).env_clear();
    command.envs(launch.environment.iter().map(|(name, value)| (name, value)));
    command.exec()
}

/// Searches as a shell does. `execvp` calls a program "not permitted" as soon as the job's user may not enter one directory
/// of the agent's `PATH`, for example one of root's.
fn find_program(program: &OsStr, path: &OsStr) -> io::Result<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Ok(PathBuf::from(program));
    }
    let candidates = || std::env::split_paths(path).map(|dir| dir.join(program)).filter(|path| path.is_file());
    let executable = candidates().find(|path| rustix::fs::access(path, Access::EXEC_OK).is_ok());
    executable.ok_or_else(|| match candidates().next() {
        Some(_) => rustix::io::Errno::ACCESS.into(),
        None => rustix::io::Errno::NOENT.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_searched_in_the_path_of_the_job() {
        let find = |program: &str, path: &str| find_program(program.as_ref(), path.as_ref());
        assert_eq!(find("sh", "/no/such:/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(find("./own", "/bin").unwrap(), Path::new("./own"));
        assert_eq!(find("sh", "/etc").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(find("passwd", "/etc").unwrap_err().kind(), io::ErrorKind::PermissionDenied, "not executable");
        assert_eq!(find("", "/bin").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
