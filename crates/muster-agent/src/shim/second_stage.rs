//! The shim's side of the second stage of a task: starts it, and lets it become the program once all tasks are ready.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::thread::CpuSet;

use super::cpu_affinity;
use crate::passed_files;
use crate::task_launch::{self, SECOND_STAGE_VERB, StageAnswer, StageFailure, StageStep, TaskLaunch};

/// The binary of this shim, also after an upgrade has replaced the file.
const OWN_BINARY: &str = "/proc/self/exe";
/// A second stage answers within milliseconds, unless a file system does not answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A task that is prepared, or prepares itself, and waits for the start signal.
#[derive(Debug)]
pub(crate) struct StagedTask {
    pub child: Child,
    channel: UnixStream,
    is_ready: bool,
}

/// A command that becomes a second stage; the caller adds output files and the process group.
pub(crate) fn command() -> Command {
    let mut command = Command::new(OWN_BINARY);
    command.arg(SECOND_STAGE_VERB).env_clear();
    command
}

/// Starts the second stage of a task and sends it the launch.
pub(crate) fn stage(command: &mut Command, launch: &TaskLaunch, cores: Option<&CpuSet>) -> io::Result<StagedTask> {
    let (mut channel, theirs) = UnixStream::pair()?;
    channel.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    let child = cpu_affinity::spawn_with_affinity(command, cores)?;
    command.stdin(Stdio::null()); // Closes this process's copy of their end.
    // A second stage that has ended cannot read the launch; its answer, or the lack of one, says more than this error.
    let _ = task_launch::send(&mut channel, launch);
    Ok(StagedTask { child, channel, is_ready: false })
}

impl StagedTask {
    /// Waits until the task is prepared. A second call does nothing.
    pub fn wait_until_ready(&mut self) -> Result<(), StageFailure> {
        if self.is_ready {
            return Ok(());
        }
        match task_launch::receive(&mut self.channel) {
            Ok(Some(StageAnswer::Ready)) => {
                self.is_ready = true;
                Ok(())
            }
            Ok(Some(StageAnswer::Failed(failure))) => Err(failure),
            Ok(None) => Err(no_answer("the second stage of the task ended without an answer".to_string())),
            Err(error) => Err(no_answer(format!("the second stage of the task did not answer: {error}"))),
        }
    }

    /// Sends the standard input of the program, if the launch says that it has one.
    pub fn send_stdin(&self, file: OwnedFd) -> Result<(), StageFailure> {
        passed_files::send(&self.channel, &[file.as_fd()]).map_err(|error| no_answer(error.to_string()))
    }

    /// Gives the start signal.
    pub fn start(&mut self) -> Result<(), StageFailure> {
        self.channel.write_all(&[1]).map_err(|error| no_answer(format!("a task ended before its start: {error}")))
    }

    /// Waits until the program is executed, which closes the connection.
    pub fn wait_until_executed(mut self) -> Result<(), StageFailure> {
        match task_launch::receive(&mut self.channel) {
            Ok(None) => Ok(()),
            Ok(Some(StageAnswer::Failed(failure))) => Err(failure),
            Ok(Some(StageAnswer::Ready)) => Err(no_answer("the second stage of the task answered twice".to_string())),
            Err(error) => Err(no_answer(format!("the program was not executed in time: {error}"))),
        }
    }
}

fn no_answer(message: String) -> StageFailure {
    StageFailure { step: StageStep::Isolation, errno: None, message }
}
