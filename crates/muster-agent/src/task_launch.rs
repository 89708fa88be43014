//! The messages between a shim and the second stage of a task (`shim_exec.rs`), over the standard input of the second stage.
//!
//! The shim sends the launch, the second stage prepares itself and answers, the shim sends the start signal once all tasks
//! are ready, and the second stage becomes the program, which closes the connection. An error comes instead.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use muster_protocol::agent::SecretFile;
use muster_protocol::exec::ExecCopy;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;
use crate::container_namespaces::ContainerProcess;
use crate::job_user::JobUser;

/// The hidden verb of the second stage.
pub(crate) const SECOND_STAGE_VERB: &str = "shim-exec";
/// Larger than every launch: a job specification has at most a few megabytes.
const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// What the second stage does. The environment is a part of it, because the second stage still has the rights of the agent:
/// a variable such as `LD_PRELOAD` must not reach its own start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct TaskLaunch {
    pub program: OsString,
    pub args: Vec<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub directory: PathBuf,
    pub attempt_dir: PathBuf,
    pub cgroup: Option<Cgroup>,
    pub user: Option<JobUser>,
    pub mounts: Mounts,
    pub open_files_max: u64,
    pub umask: u32,
    pub rights: Rights,
    /// What the container of the task sees of the host because the job says so.
    pub binds: Vec<Bind>,
    /// The secrets of the job, for the task that makes the mount namespace.
    #[serde(default)]
    pub secrets: Option<SecretsMount>,
    /// For a program that a person runs inside the attempt: it leads a session of its own, with a terminal or without, and
    /// its standard input follows the launch.
    #[serde(default)]
    pub session: Option<bool>,
    /// Copies files instead of executing the program.
    #[serde(default)]
    pub copy: Option<ExecCopy>,
}

/// A tmpfs with the secrets of the job, in the mount namespace of the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SecretsMount {
    pub dir: PathBuf,
    pub files: Vec<SecretFile>,
}

/// With which rights the program of a task is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Rights {
    /// Those of the job's user, without capabilities and within the limits of the task.
    Job,
    /// Those of the agent: the program is the client of a container runtime, which limits the container itself.
    Agent,
}

/// A directory or file that a job mounts into its container. The job's user must be able to read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bind {
    pub source: PathBuf,
    /// Where it is mounted in the namespace of the attempt; the runtime mounts it from there, whatever the source has become.
    /// `None` for a daemon, which mounts the source itself: then only root may be able to replace the source.
    pub mount_point: Option<PathBuf>,
    /// It must lie in one of these.
    pub allowed: Vec<PathBuf>,
}

/// The mount namespace of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mounts {
    /// That of the host.
    Host,
    /// A new one.
    Private { shm_mib: Option<u64> },
    /// That of another task of the attempt, by its process.
    Join { pid: i32 },
    /// That of a container, with its other namespaces.
    Container(ContainerProcess),
}

/// What the second stage answers before the start signal. Afterwards it only reports a program that cannot be executed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum StageAnswer {
    Ready,
    Failed(StageFailure),
}

/// Why a task cannot start.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct StageFailure {
    pub step: StageStep,
    /// Of the system call that failed, if it was one.
    pub errno: Option<i32>,
    pub message: String,
}

/// The part of the start that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StageStep {
    /// A fault of the node.
    Isolation,
    Directory,
    /// What the job mounts into its container.
    Mount,
    Program,
}

impl StageFailure {
    pub fn new(step: StageStep, error: io::Error) -> StageFailure {
        StageFailure { step, errno: error.raw_os_error(), message: error.to_string() }
    }

    /// The error of the system call, with its number if it has one.
    pub fn into_io_error(self) -> io::Error {
        self.errno.map_or_else(|| io::Error::other(self.message), io::Error::from_raw_os_error)
    }
}

pub(crate) fn send<T: Serialize>(channel: &mut impl Write, message: &T) -> io::Result<()> {
    let text = muster_json::to_string(message);
    let length = u32::try_from(text.len()).map_err(io::Error::other)?;
    channel.write_all(&[&length.to_le_bytes(), text.as_bytes()].concat())
}

/// `None` if the other side has closed the connection instead of sending.
pub(crate) fn receive<T: DeserializeOwned>(channel: &mut impl Read) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match channel.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > MESSAGE_BYTES_MAX {
        return Err(io::Error::other(format!("a message of {length} bytes is too long")));
    }
    let mut bytes = vec![0; length as usize];
    channel.read_exact(&mut bytes)?;
    muster_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip_and_a_closed_connection_is_no_message() {
        let mut bytes = Vec::new();
        send(&mut bytes, &StageAnswer::Ready).unwrap();
        send(&mut bytes, &OsString::from("x\u{e9}")).unwrap();
        let mut reader = bytes.as_slice();
        assert!(matches!(receive::<StageAnswer>(&mut reader).unwrap(), Some(StageAnswer::Ready)));
        assert_eq!(receive::<OsString>(&mut reader).unwrap().unwrap(), "x\u{e9}");
        assert!(receive::<StageAnswer>(&mut reader).unwrap().is_none());
        assert!(receive::<StageAnswer>(&mut &u32::MAX.to_le_bytes()[..]).is_err());
    }
}
