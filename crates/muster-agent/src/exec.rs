//! Programs that people run inside a running attempt (`muster exec`), on the node of the attempt.
//!
//! A program starts under a keeper (`exec_keeper.rs`) with the cgroup, mounts, user, limits and environment of its task.
//! [`ExecSession`] moves its bytes. Both directions are bounded by a window: the program blocks when its reader is slow, so
//! a flood needs no memory. Each session has threads of its own, because few run at a time and pipes block.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use muster_protocol::exec::{
    DATA_BYTES_MAX, DATA_OVERHEAD_BYTES, ExecEnd, ExecMessage, ExecOrder, ExecStream, ExecTerminal, WINDOW_BYTES,
    data_cost,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::OFlags;
use rustix::pty::OpenptFlags;
use rustix::termios::{Winsize, tcsetwinsize};

use crate::attempt_dir::AttemptDir;
use crate::cgroup::Cgroup;
use crate::container_namespaces::ContainerProcess;
use crate::container_runtime::{ContainerSetup, container_name};
use crate::exec_keeper::{KEEPER_VERB, KeeperAnswer, KeeperCommand, KeeperLaunch};
use crate::isolation::Isolation;
use crate::private_mounts::PRIVATE_TMP_DIR;
use crate::proc::Process;
use crate::records::{LaunchIntent, LaunchLock, ShimRecord};
use crate::shim::task_environment::{self, SHELL};
use crate::task_launch::{self, Mounts, Rights, StageStep, TaskLaunch};
use crate::{attempt_processes, passed_files, proc};

/// Programs that run inside the attempts of a node at the same time.
const PROGRAMS_MAX: usize = 32;
/// The binary of this agent, also after an upgrade has replaced the file.
const OWN_BINARY: &str = "/proc/self/exe";
/// A program starts within milliseconds, unless a file system does not answer.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// What a terminal takes for the end of input.
const END_OF_TRANSMISSION: u8 = 4;
const DEFAULT_TERMINAL_KIND: &str = "xterm";
/// Variables of every process in a container of apptainer, and of its predecessor.
const APPTAINER_MARKS: [&str; 2] = ["APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"];

/// Takes the messages of a program. It may block, which makes the program wait; false if nobody takes them any more.
pub type ExecSink = Arc<dyn Fn(ExecMessage) -> bool + Send + Sync>;

/// The attempts of a data directory, as places to run programs in.
#[derive(Debug, Clone)]
pub struct ExecHost {
    data_dir: PathBuf,
    running: Arc<AtomicUsize>,
}

impl ExecHost {
    pub fn new(data_dir: impl Into<PathBuf>) -> ExecHost {
        ExecHost { data_dir: data_dir.into(), running: Arc::default() }
    }

    /// Starts a program. Never blocks: whether it has started is the first message.
    pub fn start(&self, order: ExecOrder, sink: ExecSink) -> ExecSession {
        let (sender, input) = channel();
        let session = Arc::new(Session::new(sender, sink));
        let (host, shared) = (self.clone(), Arc::clone(&session));
        let spawned = std::thread::Builder::new().name("exec".to_string()).spawn(move || {
            let end = host.run(&order, &shared, input);
            shared.send(ExecMessage::Ended(end));
        });
        if let Err(error) = spawned {
            session.send(ExecMessage::Ended(failed("exec-failed", &error)));
        }
        ExecSession(session)
    }

    fn run(&self, order: &ExecOrder, session: &Arc<Session>, input: Receiver<Input>) -> ExecEnd {
        let others = self.running.fetch_add(1, Ordering::SeqCst);
        let end = match others {
            0..PROGRAMS_MAX => {
                self.start_program(order).map_or_else(|end| end, |program| program.relay(session, input))
            }
            _ => {
                ExecEnd::failed("too-many-programs", format!("{others} programs run inside jobs of this node already"))
            }
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        end
    }

    fn start_program(&self, order: &ExecOrder) -> Result<Program, ExecEnd> {
        let data_dir = self.data_dir.canonicalize().map_err(|error| failed("exec-failed", &error))?;
        let task = RunningTask::find(&data_dir, order)?;
        if task.isolation.cgroup.is_none() {
            task.attempt_dir.note_exec().map_err(|error| failed("exec-failed", &error))?;
        }
        let (theirs, ours) = match &order.terminal {
            Some(terminal) => ProgramFiles::terminal(terminal, &task),
            None => ProgramFiles::pipes(),
        }
        .map_err(|error| failed("exec-failed", &error))?;
        let (keeper, mut control) = spawn_keeper().map_err(|error| failed("exec-failed", &error))?;
        let launch = task.task_launch(order).map_err(|error| failed("exec-failed", &error))?;
        let launch = KeeperLaunch { launch, shim: (task.shim.pid, task.shim.start_time) };
        let files: Vec<BorrowedFd<'_>> = theirs.iter().map(AsFd::as_fd).collect();
        let sent = task_launch::send(&mut control, &launch).and_then(|()| passed_files::send(&control, &files));
        drop(theirs);
        let answer = sent.and_then(|()| {
            control.set_read_timeout(Some(START_TIMEOUT))?;
            let answer = task_launch::receive::<KeeperAnswer>(&mut control)?;
            control.set_read_timeout(None)?;
            Ok(answer)
        });
        let program = Program { keeper, control, files: ours };
        match answer.map_err(|error| failed("exec-failed", &error))? {
            Some(KeeperAnswer::Started) => Ok(program),
            Some(KeeperAnswer::NotStarted(failure)) if failure.step == StageStep::Program => {
                let name = order.command.first().map_or(SHELL, String::as_str);
                Err(ExecEnd::failed("program-not-started", format!("`{name}` cannot be started: {}", failure.message)))
            }
            Some(KeeperAnswer::NotStarted(failure)) => Err(ExecEnd::failed("exec-failed", failure.message)),
            Some(_) | None => Err(ExecEnd::failed("exec-failed", "the keeper of the program ended")),
        }
    }
}

fn failed(code: &str, error: &dyn std::fmt::Display) -> ExecEnd {
    ExecEnd::failed(code, error.to_string())
}

fn not_running(why: &str) -> ExecEnd {
    ExecEnd::failed("attempt-not-running", why)
}

/// A task of a running attempt.
struct RunningTask {
    attempt_dir: AttemptDir,
    intent: LaunchIntent,
    isolation: Isolation,
    shim: ShimRecord,
    /// In `intent`.
    task: usize,
    place: TaskPlace,
}

/// Where the programs of a task run.
#[derive(Debug, Clone, Copy)]
enum TaskPlace {
    /// A process of the attempt; its mounts are those of all.
    Member(i32),
    Container(ContainerProcess),
}

impl RunningTask {
    fn find(data_dir: &Path, order: &ExecOrder) -> Result<RunningTask, ExecEnd> {
        let unreadable = |error: crate::error::AgentError| failed("exec-failed", &error);
        let attempt_dir = AttemptDir::for_attempt(data_dir, &order.job, order.attempt).map_err(unreadable)?;
        if attempt_dir.exit_record().map_err(unreadable)?.is_some() {
            return Err(not_running("the attempt has ended"));
        }
        let Some(intent) = attempt_dir.launch_intent().map_err(unreadable)? else {
            return Err(not_running("the attempt is not on this node"));
        };
        let shim = match attempt_dir.launch_lock().map_err(unreadable)? {
            Some(LaunchLock::Shim(shim)) => shim,
            Some(LaunchLock::Abandoned) => return Err(not_running("the attempt has ended")),
            None => return Err(not_running("the attempt is starting")),
        };
        let Some(leader) = shim.process_group else { return Err(not_running("the attempt is starting")) };
        let isolation = attempt_dir.isolation().map_err(unreadable)?;
        let task = intent.order.tasks.iter().position(|task| task.rank == order.rank);
        let task = task.ok_or_else(|| not_running("the attempt has no task of this rank on this node"))?;
        let table = proc::processes().map_err(unreadable)?;
        let is_shim = |process: &proc::Process| process.pid == shim.pid && process.start_time == shim.start_time;
        if !table.iter().any(|process| is_shim(process) && !process.is_zombie) {
            return Err(not_running("the attempt is ending"));
        }
        let members = attempt_processes::descendants(&table, shim.pid);
        let place = match &isolation.container {
            Some(setup) => TaskPlace::Container(find_container(setup, order, &members)?),
            None => {
                let member = members.iter().find(|process| process.pid == leader).or(members.first());
                TaskPlace::Member(member.ok_or_else(|| not_running("the attempt is ending"))?.pid)
            }
        };
        Ok(RunningTask { attempt_dir, intent, isolation, shim, task, place })
    }

    fn container(&self) -> Option<ContainerProcess> {
        match self.place {
            TaskPlace::Container(container) => Some(container),
            TaskPlace::Member(_) => None,
        }
    }

    fn task_launch(&self, order: &ExecOrder) -> io::Result<TaskLaunch> {
        let (directory, mut environment) = self.surroundings()?;
        if let Some(terminal) = &order.terminal {
            let kind = if terminal.kind.is_empty() { DEFAULT_TERMINAL_KIND } else { &terminal.kind };
            environment.push(("TERM".into(), kind.into()));
        }
        let shell = || environment.iter().rev().find(|(name, _)| name == "SHELL").map(|(_, value)| value.clone());
        let (program, args) = match order.command.split_first() {
            Some((program, args)) => (OsString::from(program), args.iter().map(OsString::from).collect()),
            None => (shell().unwrap_or_else(|| SHELL.into()), vec![OsString::from("-l")]),
        };
        Ok(TaskLaunch {
            program,
            args,
            environment,
            directory,
            attempt_dir: self.attempt_dir.path().to_path_buf(),
            cgroup: self.cgroup()?,
            user: self.isolation.user.clone(),
            mounts: self.mounts(),
            open_files_max: self.isolation.limits.open_files_max,
            umask: self.isolation.limits.umask,
            rights: Rights::Job,
            binds: Vec::new(),
            secrets: None,
            session: Some(order.terminal.is_some()),
            copy: order.copy.clone(),
        })
    }

    /// The working directory and the environment of the task.
    fn surroundings(&self) -> io::Result<(PathBuf, Vec<(OsString, OsString)>)> {
        let (whole, task) = (&self.intent.order, &self.intent.order.tasks[self.task]);
        let wanted = whole.run.directory.as_deref().map(PathBuf::from);
        if let Some(container) = self.container() {
            return Ok((wanted.unwrap_or_else(|| container.directory()), container.environment()?));
        }
        let directory = wanted.unwrap_or_else(|| self.attempt_dir.file("work"));
        let environment = task_environment::of_task(&self.attempt_dir, whole, task, &self.isolation, &directory);
        Ok((directory, environment))
    }

    fn cgroup(&self) -> io::Result<Option<Cgroup>> {
        let cgroup = self.isolation.task_cgroup(&self.intent.order, &self.intent.order.tasks[self.task]);
        match (cgroup, self.container()) {
            (Some(cgroup), Some(container)) => cgroup.of_container(container.pid).map(Some).map_err(io::Error::other),
            (cgroup, _) => Ok(cgroup),
        }
    }

    fn mounts(&self) -> Mounts {
        let has_private_mounts = self.isolation.private_mounts && self.isolation.user.is_some();
        debug_assert!(!has_private_mounts || self.attempt_dir.file(PRIVATE_TMP_DIR).exists());
        match self.place {
            TaskPlace::Container(container) => Mounts::Container(container),
            TaskPlace::Member(pid) if has_private_mounts => Mounts::Join { pid },
            TaskPlace::Member(_) => Mounts::Host,
        }
    }
}

/// The first process of the container of a task.
fn find_container(setup: &ContainerSetup, order: &ExecOrder, members: &[Process]) -> Result<ContainerProcess, ExecEnd> {
    let pid = if setup.runtime.kind.runs_as_the_job() {
        members.iter().find(|process| is_in_container_of(order.rank, process.pid)).map(|process| process.pid)
    } else {
        let name = container_name(&setup.agent, &order.job, order.attempt, order.rank);
        setup.runtime.first_process_of(&name).map_err(|error| failed("exec-failed", &error))?
    };
    pid.and_then(ContainerProcess::find).ok_or_else(|| not_running("the container of the task does not run"))
}

/// Apptainer marks the processes inside a container by a variable; those of its client have none.
fn is_in_container_of(rank: u32, pid: i32) -> bool {
    let Some(environment) = ContainerProcess::find(pid).and_then(|process| process.environment().ok()) else {
        return false;
    };
    let has = |wanted: &str| environment.iter().any(|(name, _)| name == wanted);
    let is_of_rank = environment.iter().any(|(name, value)| name == "MUSTER_RANK" && *value == *rank.to_string());
    is_of_rank && APPTAINER_MARKS.into_iter().any(has)
}

/// This side of the files of a program.
struct ProgramFiles {
    input: File,
    output: File,
    /// `None` with a terminal.
    error: Option<File>,
}

impl ProgramFiles {
    fn pipes() -> io::Result<(Vec<OwnedFd>, ProgramFiles)> {
        let ((stdin, input), (output, stdout), (error, stderr)) = (io::pipe()?, io::pipe()?, io::pipe()?);
        let (input, output) = (File::from(OwnedFd::from(input)), File::from(OwnedFd::from(output)));
        let error = Some(File::from(OwnedFd::from(error)));
        Ok((vec![stdin.into(), stdout.into(), stderr.into()], ProgramFiles { input, output, error }))
    }

    fn terminal(terminal: &ExecTerminal, task: &RunningTask) -> io::Result<(Vec<OwnedFd>, ProgramFiles)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let inside =
            task.container().map(|container| container.open_terminal(OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC));
        // A container without terminals of its own has those of the host.
        let master = inside.and_then(Result::ok).map_or_else(|| rustix::pty::openpt(flags), Ok)?;
        rustix::pty::unlockpt(&master)?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags)?;
        tcsetwinsize(&master, winsize(terminal.rows, terminal.columns))?;
        if let Some(user) = &task.isolation.user {
            // The program opens its terminal again by name, as `sudo` and `tmux` do.
            rustix::fs::fchown(&slave, Some(rustix::fs::Uid::from_raw(user.uid)), None)?;
        }
        let output = File::from(master);
        Ok((vec![slave], ProgramFiles { input: output.try_clone()?, output, error: None }))
    }
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The keeper outlives a killed agent by moments only: it sees that the connection is closed.
fn spawn_keeper() -> io::Result<(Child, UnixStream)> {
    let (control, theirs) = UnixStream::pair()?;
    let mut command = Command::new(OWN_BINARY);
    command.arg(KEEPER_VERB).env_clear().current_dir("/");
    command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null()).stderr(Stdio::null());
    // The second stage searches programs in the `PATH` of the job, which is in its launch.
    Ok((command.spawn()?, control))
}

/// A running program.
struct Program {
    keeper: Child,
    control: UnixStream,
    files: ProgramFiles,
}

impl Program {
    /// Moves its bytes until it has ended.
    fn relay(mut self, session: &Arc<Session>, input: Receiver<Input>) -> ExecEnd {
        let ProgramFiles { input: stdin, output, error } = self.files;
        let has_terminal = error.is_none();
        let master = has_terminal.then(|| output.try_clone().ok()).flatten();
        let started = self.control.try_clone().map(|control| session.attach(control, master));
        let readers = match started {
            Ok(true) if session.send(ExecMessage::Started) && session.send(ExecMessage::Credit(WINDOW_BYTES)) => {
                let reader = |file: File, stream| spawn_reader(Arc::clone(session), file, stream);
                spawn_writer(Arc::clone(session), stdin, input, has_terminal);
                let readers =
                    [Some(reader(output, ExecStream::Output)), error.map(|file| reader(file, ExecStream::Error))];
                readers.into_iter().flatten().flatten().collect()
            }
            _ => {
                let _ = self.control.shutdown(std::net::Shutdown::Write); // The caller is gone.
                Vec::new()
            }
        };
        let answer = task_launch::receive::<KeeperAnswer>(&mut self.control);
        session.note_end();
        readers.into_iter().for_each(|reader: JoinHandle<()>| drop(reader.join()));
        let _ = self.keeper.wait();
        match answer {
            Ok(Some(KeeperAnswer::Exited(code))) => ExecEnd::Exited(code),
            Ok(Some(KeeperAnswer::Killed(signal))) => ExecEnd::Killed(signal),
            Ok(Some(KeeperAnswer::AttemptEnded)) => ExecEnd::failed("attempt-ended", "the attempt has ended"),
            _ => ExecEnd::failed("exec-failed", "the keeper of the program was killed"),
        }
    }
}

/// One program and the person who runs it. Dropping it ends the program.
#[derive(Debug)]
pub struct ExecSession(Arc<Session>);

impl ExecSession {
    /// Passes a message of the person on. Never blocks; a person who sends more than was granted loses the program.
    pub fn take(&self, message: ExecMessage) {
        self.0.take(message);
    }
}

impl Drop for ExecSession {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Standard input of a program, in parts; `None` at its end.
type Input = Option<Vec<u8>>;

struct Session {
    sink: ExecSink,
    state: Mutex<SessionState>,
    credit_came: Condvar,
    /// Readable when the readers must not wait for output any more.
    over: io::Result<OwnedFd>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("state", &self.state).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct SessionState {
    /// `None` after its end.
    input: Option<Sender<Input>>,
    /// What the person may still send.
    input_window: i64,
    /// What may still be sent to the person.
    output_window: i64,
    control: Option<UnixStream>,
    master: Option<File>,
    is_closed: bool,
}

impl Session {
    fn new(input: Sender<Input>, sink: ExecSink) -> Session {
        let state = SessionState {
            input: Some(input),
            input_window: WINDOW_BYTES.into(),
            output_window: WINDOW_BYTES.into(),
            control: None,
            master: None,
            is_closed: false,
        };
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        Session { sink, state: Mutex::new(state), credit_came: Condvar::new(), over }
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False if the session was closed meanwhile.
    fn attach(&self, control: UnixStream, master: Option<File>) -> bool {
        let mut state = self.lock();
        (state.control, state.master) = (Some(control), master);
        !state.is_closed
    }

    fn take(&self, message: ExecMessage) {
        let mut state = self.lock();
        match message {
            ExecMessage::Data { stream: ExecStream::Input, bytes } => {
                state.input_window -= i64::from(data_cost(bytes.len()));
                if state.input_window < 0 {
                    tracing::warn!("a program inside a job was sent more than it can take; it is ended");
                    drop(state);
                    return self.close();
                }
                // A failed send means that the program has closed its input.
                state.input.as_ref().map(|input| input.send(Some(bytes)));
            }
            ExecMessage::EndOfInput => {
                state.input.take().map(|input| input.send(None));
            }
            ExecMessage::Credit(bytes) => {
                state.output_window = (state.output_window + i64::from(bytes)).min(WINDOW_BYTES.into());
                self.credit_came.notify_all();
            }
            ExecMessage::Resize { rows, columns } => {
                // The kernel tells the program by SIGWINCH.
                state.master.as_ref().map(|master| tcsetwinsize(master, winsize(rows, columns)));
            }
            ExecMessage::Signal(number) => {
                if let Some(control) = &mut state.control {
                    // A keeper that is gone has ended the program.
                    let _ = task_launch::send(control, &KeeperCommand::Signal(number));
                }
            }
            ExecMessage::Data { .. } | ExecMessage::Started | ExecMessage::Ended(_) => {}
        }
    }

    fn send(&self, message: ExecMessage) -> bool {
        (self.sink)(message)
    }

    /// The person is gone.
    fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.input = None;
        state.master = None;
        if let Some(control) = &state.control {
            let _ = control.shutdown(std::net::Shutdown::Write); // The keeper ends the program.
        }
        self.credit_came.notify_all();
        drop(state);
        self.note_end();
    }

    fn note_end(&self) {
        if let Ok(over) = &self.over {
            // Fails only if the counter is full, and then it is readable.
            let _ = rustix::io::write(over, &1u64.to_ne_bytes());
        }
    }

    /// Waits until output of this size may be sent, or a part of it; 0 if the session is closed.
    fn wait_for_window(&self, bytes: usize) -> usize {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return 0;
            }
            let window = usize::try_from(state.output_window - i64::from(DATA_OVERHEAD_BYTES)).unwrap_or(0);
            if window > 0 {
                let granted = bytes.min(window);
                state.output_window -= i64::from(data_cost(granted));
                return granted;
            }
            state = self.credit_came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn give_back(&self, bytes: usize) {
        self.lock().output_window += i64::try_from(bytes).unwrap_or(0);
    }

    /// Waits for output; false if there is none and there will be none.
    fn wait_for_output(&self, file: &File) -> bool {
        let mut fds = vec![PollFd::new(file, PollFlags::IN)];
        fds.extend(self.over.as_ref().ok().map(|over| PollFd::new(over, PollFlags::IN)));
        while poll(&mut fds, None).is_err() {}
        !fds[0].revents().is_empty()
    }
}

/// Sends the output of the program, as fast as it is taken.
fn spawn_reader(session: Arc<Session>, mut file: File, stream: ExecStream) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("exec-output".to_string()).spawn(move || {
        let mut buffer = vec![0; DATA_BYTES_MAX];
        while session.wait_for_output(&file) {
            let granted = session.wait_for_window(buffer.len());
            if granted == 0 {
                return;
            }
            let read = match file.read(&mut buffer[..granted]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                Ok(0) | Err(_) => return, // A terminal without program is an error.
                Ok(read) => read,
            };
            session.give_back(granted - read);
            if read > 0 && !session.send(ExecMessage::Data { stream, bytes: buffer[..read].to_vec() }) {
                return session.close();
            }
        }
    })
}

/// Nobody waits for this thread: it may hang in a write until the program has ended.
fn spawn_writer(session: Arc<Session>, mut file: File, input: Receiver<Input>, has_terminal: bool) {
    let write = move || {
        while let Ok(Some(bytes)) = input.recv() {
            if file.write_all(&bytes).is_err() {
                break; // The program has closed its input.
            }
            let cost = data_cost(bytes.len());
            session.lock().input_window += i64::from(cost);
            session.send(ExecMessage::Credit(cost));
        }
        if has_terminal {
            let _ = file.write_all(&[END_OF_TRANSMISSION]);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("exec-input".to_string()).spawn(write) {
        tracing::warn!("the input of a program inside a job is not passed on: {error}");
    }
}
