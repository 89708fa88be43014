//! A worker process, seen by its caller: requests have a deadline, after which the process is killed.

use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::pipe::{self, TimedPipe};
use super::protocol::{self, Reply};
use super::{WorkerCommand, worker_failed};
use crate::error::PolicyError;

/// Bytes kept of the end of standard error.
const STDERR_TAIL_BYTES_MAX: usize = 4 << 10;

#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// Bytes of one reply.
    answer_bytes: usize,
    /// The thread that reads standard error.
    stderr_tail: Option<JoinHandle<Vec<u8>>>,
}

/// Why a process sent no valid reply.
#[derive(Debug)]
pub enum WorkerFailure {
    /// The deadline passed.
    TimedOut,
    /// The process ended by itself.
    Exited {
        status: Option<ExitStatus>,
        /// The end of its standard error.
        stderr_tail: String,
    },
    /// The reply could not be decoded.
    InvalidReply,
}

impl WorkerProcess {
    /// Start a process without environment, in the root folder. It sets its own resource limits.
    pub fn start(worker: &WorkerCommand, answer_bytes: usize) -> Result<WorkerProcess, PolicyError> {
        let mut command = Command::new(&worker.program);
        command.args(&worker.args).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed =
            |error: io::Error| worker_failed(format!("`{}` cannot be started: {error}", worker.program.display()));
        let mut child = command.spawn().map_err(failed)?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(worker_failed("the worker process was started without pipes".to_string()));
        };
        pipe::set_nonblocking(&stdin).and_then(|()| pipe::set_nonblocking(&stdout)).map_err(failed)?;
        let stderr_tail = Some(std::thread::spawn(move || read_stderr_tail(stderr)));
        Ok(WorkerProcess { child, stdin, stdout, answer_bytes, stderr_tail })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Send a request and wait for its reply.
    pub fn request(&mut self, message: &[u8], within: Duration) -> Result<Reply, WorkerFailure> {
        // `Duration::MAX` overflows: no deadline.
        let deadline = Instant::now().checked_add(within);
        match self.exchange(message, deadline) {
            Ok(Some(reply)) => Reply::decode(&reply).ok_or(WorkerFailure::InvalidReply),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(WorkerFailure::TimedOut),
            Ok(None) | Err(_) => Err(self.exit_failure()),
        }
    }

    /// Runs in the caller's thread: an I/O thread would cost two more context switches for each message.
    fn exchange(&mut self, message: &[u8], deadline: Option<Instant>) -> io::Result<Option<Vec<u8>>> {
        protocol::write_frame(&mut TimedPipe::new(&mut self.stdin, deadline), message)?;
        protocol::read_frame(&mut TimedPipe::new(&mut self.stdout, deadline), self.answer_bytes)
    }

    fn exit_failure(&mut self) -> WorkerFailure {
        let status = self.wait_or_kill();
        let stderr = self.stderr_tail.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        WorkerFailure::Exited { status, stderr_tail: String::from_utf8_lossy(&stderr).into_owned() }
    }

    /// The exit status of a process that closed its pipes. A process that still runs is killed.
    fn wait_or_kill(&mut self) -> Option<ExitStatus> {
        // The pipes close before the process can be reaped. Without the wait, the kill would hide its own exit status.
        for _ in 0..20 {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl WorkerFailure {
    /// The failure in a sentence that names the exceeded limit.
    pub fn message(&self, time_limit: Duration, memory_mib: u64) -> String {
        match self {
            WorkerFailure::TimedOut => {
                format!("it exceeded its time limit of {} ms and was killed", time_limit.as_millis())
            }
            WorkerFailure::InvalidReply => "the worker sent an unreadable reply".to_string(),
            WorkerFailure::Exited { stderr_tail, .. } if stderr_tail.contains("memory allocation of") => {
                format!("it exceeded its memory limit of {memory_mib} MiB and was killed")
            }
            WorkerFailure::Exited { stderr_tail, .. } if stderr_tail.contains("overflowed its stack") => {
                "it overflowed its stack and was killed".to_string()
            }
            WorkerFailure::Exited { status, .. } => match status.as_ref().and_then(ExitStatus::signal) {
                Some(signal) => format!("the worker process was killed by signal {signal}"),
                None => "the worker process exited without a reply".to_string(),
            },
        }
    }
}

/// Read standard error to its end, so that the process never blocks on it, and keep the last bytes.
fn read_stderr_tail(mut stderr: ChildStderr) -> Vec<u8> {
    let (mut tail, mut buffer) = (Vec::new(), [0; 1 << 10]);
    while let Ok(read @ 1..) = stderr.read(&mut buffer) {
        tail.extend_from_slice(&buffer[..read]);
        tail.drain(..tail.len().saturating_sub(STDERR_TAIL_BYTES_MAX));
    }
    tail
}
