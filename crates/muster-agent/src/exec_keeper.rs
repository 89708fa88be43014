//! The keeper of one program inside an attempt: the process between the agent and the program.
//!
//! The agent starts it as `muster exec-keeper`. It starts the program by the second stage of tasks (`shim_exec.rs`), so the
//! program gets the cgroup, mounts, user and limits of its task, and it is the subreaper of everything that the program
//! starts. When the program ends, when the connection to the agent breaks, or when the shim of the attempt ends, it ends
//! them all: SIGHUP first, SIGKILL after a grace. The keeper itself is in no cgroup of the job.
//!
//! The first process of a container adopts what loses its parent there, so the keeper cannot be the subreaper. A program inside
//! a container therefore gets a cgroup of its own below that of the container, which lists all its processes.
//!
//! The bytes of the program do not pass through the keeper: the agent has the other ends of its pipes or its terminal.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as ChildSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process_group, pidfd_open, set_child_subreaper, setsid,
};
use serde::{Deserialize, Serialize};

use crate::cgroup::{Cgroup, CgroupLimits};
use crate::container_namespaces::{self, ContainerProcess};
use crate::shim::second_stage;
use crate::task_launch::{self, Mounts, StageFailure, StageStep, TaskLaunch};
use crate::{attempt_processes, passed_files, proc};

/// The hidden verb of the keeper.
pub(crate) const KEEPER_VERB: &str = "exec-keeper";
/// Between SIGHUP and SIGKILL.
const GRACE: Duration = Duration::from_secs(2);
const KILL_AGAIN_AFTER: Duration = Duration::from_millis(100);
/// The shim kills the processes of its cgroup, writes the exit record and ends.
const SHIM_END_TIMEOUT: Duration = Duration::from_secs(2);
const SIGKILL: i32 = 9;
const EXIT_CODE_USAGE: i32 = 2;

/// What a keeper starts. The files of the program follow: standard input, output and error, or one terminal.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeeperLaunch {
    pub launch: TaskLaunch,
    /// The shim of the attempt, by pid and start time.
    pub shim: (i32, u64),
}

/// A message to a running keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperCommand {
    Signal(i32),
}

/// A message of a keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum KeeperAnswer {
    Started,
    NotStarted(StageFailure),
    Exited(i32),
    Killed(i32),
    /// The attempt is over, and the program with it.
    AttemptEnded,
}

/// Runs a keeper and returns its exit code.
pub fn exec_keeper_main() -> i32 {
    let Ok((mut control, launch, files)) = take_launch() else {
        eprintln!("`muster exec-keeper` is started by an agent, which sends it a program");
        return EXIT_CODE_USAGE;
    };
    let answer = match Keeper::start(launch, files) {
        Ok(keeper) => {
            // If the agent is gone, the connection is closed, which ends the program.
            let _ = task_launch::send(&mut control, &KeeperAnswer::Started);
            keeper.run(&mut control)
        }
        Err(failure) => KeeperAnswer::NotStarted(failure),
    };
    let _ = task_launch::send(&mut control, &answer);
    0
}

fn take_launch() -> io::Result<(UnixStream, KeeperLaunch, Vec<OwnedFd>)> {
    let mut control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let launch = task_launch::receive(&mut control)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let files = passed_files::receive(&control)?;
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    Ok((control, launch, files))
}

struct Keeper {
    program: Pid,
    /// Readable when the shim has ended; `None` if it has already.
    shim: Option<OwnedFd>,
    /// Readable when the container of the program has ended; `None` outside of containers.
    container: Option<OwnedFd>,
    /// Of a program inside a container.
    cgroup: Option<Cgroup>,
    /// Processes are left that are no descendants of the keeper: no event says that they end.
    has_orphans: bool,
    children: SignalFd,
    answer: Option<KeeperAnswer>,
    kill_at: Option<Instant>,
    is_shim_gone: bool,
}

impl Keeper {
    fn start(mut launch: KeeperLaunch, files: Vec<OwnedFd>) -> Result<Keeper, StageFailure> {
        let failed = |error: io::Error| StageFailure::new(StageStep::Isolation, error);
        let shim = open_process(launch.shim);
        let (mut container, mut cgroup) = (None, None);
        if let Mounts::Container(process) = launch.launch.mounts {
            container = open_process((process.pid, process.start_time));
            cgroup = enter_container(&mut launch.launch, process)?;
        }
        let program = start_program(&launch.launch, files).inspect_err(|_| cgroup.iter().for_each(Cgroup::remove))?;
        let mut signals = SigSet::empty();
        signals.add(ChildSignal::SIGCHLD);
        signals.thread_block().map_err(|error| failed(error.into()))?;
        let children = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC);
        let children = children.map_err(|error| failed(error.into()))?;
        let is_shim_gone = shim.is_none();
        let (answer, kill_at, has_orphans) = (None, None, false);
        Ok(Keeper { program, shim, container, cgroup, has_orphans, children, answer, kill_at, is_shim_gone })
    }

    /// Returns when no process is left.
    fn run(mut self, control: &mut UnixStream) -> KeeperAnswer {
        let mut is_connected = true;
        while self.has_processes() {
            if self.is_shim_gone {
                self.kill_at.get_or_insert_with(Instant::now);
            } else if self.answer.is_some() || !is_connected {
                self.hang_up();
            }
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.signal_all(Signal::KILL);
                self.kill_at = Some(Instant::now() + KILL_AGAIN_AFTER);
            }
            if self.wait(control, is_connected) {
                is_connected = self.take_command(control);
            }
        }
        self.cgroup.iter().for_each(Cgroup::remove);
        let was_killed = matches!(self.answer, Some(KeeperAnswer::Killed(SIGKILL)) | None);
        if self.is_shim_gone || (was_killed && is_connected && self.attempt_ends_soon()) {
            return KeeperAnswer::AttemptEnded;
        }
        self.answer.unwrap_or(KeeperAnswer::Killed(SIGKILL))
    }

    /// Asks all processes to end, once; those that do not are killed after the grace.
    fn hang_up(&mut self) {
        if self.kill_at.is_none() {
            self.kill_at = Some(Instant::now() + GRACE);
            self.signal_all(Signal::HUP);
            self.signal_all(Signal::CONT); // A stopped process cannot react.
        }
    }

    /// Waits for an event; true if the agent has sent something or is gone.
    fn wait(&mut self, control: &UnixStream, is_connected: bool) -> bool {
        let mut fds = vec![PollFd::new(&self.children, PollFlags::IN)];
        let shim = self.shim.as_ref().filter(|_| !self.is_shim_gone).map(|shim| PollFd::new(shim, PollFlags::IN));
        let (has_shim, at_control) = (shim.is_some(), 1 + usize::from(shim.is_some()));
        fds.extend(shim);
        if is_connected {
            fds.push(PollFd::new(control, PollFlags::IN));
        }
        let until_kill = self.kill_at.map(|at| at.saturating_duration_since(Instant::now()));
        let until_look = self.has_orphans.then_some(KILL_AGAIN_AFTER);
        let time_out = until_kill.into_iter().chain(until_look).min();
        let time_out = time_out.and_then(|time_out| Timespec::try_from(time_out).ok());
        // An interrupted wait is repeated by the caller.
        let _ = poll(&mut fds, time_out.as_ref());
        let is_ready = |index: usize| fds.get(index).is_some_and(|fd| !fd.revents().is_empty());
        let (is_shim_gone, has_command) = (has_shim && is_ready(1), is_connected && is_ready(at_control));
        drop(fds);
        self.is_shim_gone |= is_shim_gone;
        while matches!(self.children.read_signal(), Ok(Some(_))) {}
        has_command
    }

    /// False if the connection is closed.
    fn take_command(&self, control: &mut UnixStream) -> bool {
        match task_launch::receive(control) {
            Ok(Some(KeeperCommand::Signal(number))) => {
                // The program leads a session, and with it the process group of its number. Once it is reaped, the kernel may
                // give the number to others.
                if let Some(signal) = Signal::from_named_raw(number).filter(|_| self.answer.is_none()) {
                    let _ = kill_process_group(self.program, signal);
                }
                true
            }
            Ok(None) | Err(_) => false,
        }
    }

    /// False if nothing is left of the program and of what it has started.
    fn has_processes(&mut self) -> bool {
        let has_children = self.reap();
        self.has_orphans = !has_children && self.cgroup.as_ref().is_some_and(|cgroup| !cgroup.processes().is_empty());
        has_children || self.has_orphans
    }

    fn signal_all(&self, signal: Signal) {
        let table = proc::processes().unwrap_or_default();
        let mut all = attempt_processes::descendants(&table, getpid().as_raw_nonzero().get());
        let in_cgroup = self.cgroup.as_ref().map(Cgroup::processes).unwrap_or_default();
        all.extend(in_cgroup.into_iter().filter_map(proc::process));
        for process in all {
            // A process that is gone is what this is for.
            let _ = proc::send_signal(&process, signal);
        }
        if let Some(cgroup) = self.cgroup.as_ref().filter(|_| signal == Signal::KILL) {
            cgroup.kill(); // At once: processes that fork faster than they are listed do not escape.
        }
    }

    /// Reaps the children that have ended; false if none is left.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.program => {
                    let killed = status.terminating_signal().map(KeeperAnswer::Killed);
                    self.answer = Some(killed.unwrap_or(KeeperAnswer::Exited(status.exit_status().unwrap_or(1))));
                }
                Ok(None) => return true,
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }

    /// The end of a container ends all its processes, before the shim has noticed it.
    fn attempt_ends_soon(&self) -> bool {
        let Some(shim) = &self.shim else { return true };
        let mut ends: Vec<PollFd<'_>> =
            [shim].into_iter().chain(&self.container).map(|end| PollFd::new(end, PollFlags::IN)).collect();
        let time_out = Timespec::try_from(SHIM_END_TIMEOUT).ok();
        matches!(poll(&mut ends, time_out.as_ref()), Ok(ready) if ready > 0)
    }
}

/// Makes the program start among the processes of the container, and in a new child of its cgroup.
fn enter_container(launch: &mut TaskLaunch, container: ContainerProcess) -> Result<Option<Cgroup>, StageFailure> {
    let failed = |error: io::Error| StageFailure::new(StageStep::Isolation, error);
    container_namespaces::enter_pid_namespace_with_children(container).map_err(failed)?;
    let Some(parent) = launch.cgroup.take() else { return Ok(None) };
    let cgroup = parent.exec_child(getpid().as_raw_nonzero().get().unsigned_abs());
    cgroup.create(&CgroupLimits::default()).map_err(|error| failed(io::Error::other(error)))?;
    launch.cgroup = Some(cgroup.clone());
    Ok(Some(cgroup))
}

fn open_process((pid, start_time): (i32, u64)) -> Option<OwnedFd> {
    let opened = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
    proc::process(pid).filter(|process| process.start_time == start_time && !process.is_zombie)?;
    Some(opened)
}

fn start_program(launch: &TaskLaunch, files: Vec<OwnedFd>) -> Result<Pid, StageFailure> {
    let failed = |error: io::Error| StageFailure::new(StageStep::Isolation, error);
    let mut files = files.into_iter();
    let stdin = files.next().ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
    let duplicate = |file: Option<OwnedFd>| file.map_or_else(|| stdin.try_clone(), Ok).map_err(failed);
    let (stdout, stderr) = (duplicate(files.next())?, duplicate(files.next())?);
    let mut command = second_stage::command();
    command.stdout(stdout).stderr(stderr);
    let mut staged = second_stage::stage(&mut command, launch, None).map_err(failed)?;
    drop(command); // It holds ends of the program's pipes.
    staged.send_stdin(stdin)?;
    let pid = Pid::from_child(&staged.child);
    staged.wait_until_ready()?;
    staged.start()?;
    staged.wait_until_executed()?;
    Ok(pid)
}
