//! Starts the tasks of an attempt: program, environment, working directory, logs, and one process group for all.
//!
//! Each task starts as a second stage (`shim_exec.rs`), which isolates itself. The programs are executed when all tasks of
//! this node are ready: until then nothing of the job has run.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use muster_protocol::agent::{AttemptOrder, Exit, RunSpec, SecretFile, TaskOrder};
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CpuSet;

use super::container_task::{ContainerError, ContainerTask};
use super::cpu_affinity;
use super::job_files::{give_to, place_host_file, place_script};
use super::second_stage::{self, StagedTask};
use super::task_environment::{self, SHELL};
use crate::attempt_dir::AttemptDir;
use crate::isolation::{Isolation, IsolationError, SecretsPlace};
use crate::job_user::JobUser;
use crate::logs::{self, Stream};
use crate::private_mounts::PRIVATE_TMP_DIR;
use crate::secret_files;
use crate::task_launch::{Mounts, Rights, SecretsMount, StageFailure, StageStep, TaskLaunch};

/// The exit code of shells for a program that does not exist.
const EXIT_CODE_NOT_FOUND: i32 = 127;
/// The exit code of shells for a file that is not executable, or not for this user.
const EXIT_CODE_NOT_EXECUTABLE: i32 = 126;

#[derive(Debug)]
pub(super) struct RunningGang {
    pub process_group: Pid,
    /// Rank and pid of each task.
    pub task_pids: Vec<(u32, Pid)>,
    /// The logs of the tasks.
    pub logs: Vec<(PathBuf, File)>,
    pub signals: SignalTarget,
}

/// Which processes of a gang get SIGTERM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignalTarget {
    /// All of them.
    Processes,
    /// The first process of each container, and no process of the runtime: each would pass the signal on.
    Containers,
}

/// The error of a gang that could not start, and how many of its tasks had started.
#[derive(Debug)]
pub(super) struct GangStartError {
    error: TaskStartError,
    started_tasks: usize,
}

/// Why a task could not start.
#[derive(Debug, thiserror::Error)]
enum TaskStartError {
    #[error(transparent)]
    Container(#[from] ContainerError),
    #[error("nothing to run: the job has neither a script nor a command")]
    NothingToRun,
    #[error("no task of the gang belongs to this node")]
    NoTasks,
    #[error("the working directory `{path}` cannot be used: {source}")]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("the working directory `{path}` of the job cannot be used: {source}")]
    JobDirectory { path: PathBuf, source: io::Error },
    #[error("the job cannot be isolated: {0}")]
    Isolation(#[from] IsolationError),
    #[error("the secrets cannot be written: {0}")]
    Secrets(#[source] io::Error),
    #[error("task {rank} cannot be started: {message}")]
    SecondStage { rank: u32, message: String },
    #[error("the script cannot be written: {0}")]
    Script(#[source] io::Error),
    #[error("the host file cannot be written: {0}")]
    HostFile(#[source] io::Error),
    #[error("the log `{path}` cannot be opened: {source}")]
    Log { path: PathBuf, source: io::Error },
    #[error("`{program}` cannot be started: {source}")]
    Program { program: String, source: io::Error },
    #[error("the script cannot be started; does the interpreter in its first line exist? {0}")]
    Interpreter(#[source] io::Error),
}

impl TaskStartError {
    /// The exit code of a shell, if the job itself is wrong and a retry on another node would fail the same way.
    fn exit_code(&self) -> Option<i32> {
        let (TaskStartError::Program { source, .. } | TaskStartError::Interpreter(source)) = self else {
            return None;
        };
        match source.kind() {
            io::ErrorKind::NotFound => Some(EXIT_CODE_NOT_FOUND),
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => Some(EXIT_CODE_NOT_EXECUTABLE),
            _ if source.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => Some(EXIT_CODE_NOT_EXECUTABLE),
            // For example out of memory or processes: a fault of the node, not of the job.
            _ => None,
        }
    }
}

impl TaskStartError {
    /// True if the job itself is the reason: it would fail in the same way on every node.
    fn is_of_the_job(&self) -> bool {
        use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
        match self {
            TaskStartError::NothingToRun => true,
            TaskStartError::Container(error) => error.is_of_the_job(),
            TaskStartError::JobDirectory { source, .. } => {
                matches!(source.kind(), NotFound | NotADirectory | PermissionDenied)
            }
            _ => false,
        }
    }
}

impl GangStartError {
    /// `NotStarted` promises that nothing ran, so it is not returned if some ranks did.
    pub fn into_exit(self) -> Exit {
        match (self.error.exit_code(), self.started_tasks) {
            (Some(code), _) => Exit::Code(code),
            (None, 0) if self.error.is_of_the_job() => Exit::invalid_job(&self.error.to_string()),
            (None, 0) => Exit::NotStarted(self.error.to_string()),
            (None, started) => {
                Exit::Unknown(format!("the gang could not start; {started} started tasks were killed: {}", self.error))
            }
        }
    }
}

/// Starts every task of the order in one process group.
pub(super) fn start_gang(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    isolation: &Isolation,
    secrets: Vec<SecretFile>,
) -> Result<RunningGang, GangStartError> {
    let prepared = StartingGang::prepare(attempt_dir, order, isolation, secrets);
    let mut gang = prepared.map_err(|error| GangStartError { error, started_tasks: 0 })?;
    let started = gang.stage_tasks().and_then(|()| gang.execute_tasks());
    match (started, gang.process_group()) {
        (Ok(()), Some(process_group)) => {
            let (task_pids, signals) = (gang.task_pids(), gang.program.signal_target());
            Ok(RunningGang { process_group, task_pids, logs: gang.logs, signals })
        }
        (Ok(()), None) => Err(GangStartError { error: TaskStartError::NoTasks, started_tasks: 0 }),
        (Err((rank, error)), _) => {
            append_error_to_log(attempt_dir, rank, &error);
            Err(GangStartError { error, started_tasks: gang.executed_tasks })
        }
    }
}

/// An error of a task, with its rank.
type RankedError = (u32, TaskStartError);

/// The tasks of a gang on their way from the launch to the execution of their programs.
struct StartingGang<'a> {
    attempt_dir: &'a AttemptDir,
    order: &'a AttemptOrder,
    isolation: &'a Isolation,
    secrets: Vec<SecretFile>,
    program: GangProgram,
    directory: PathBuf,
    /// By rank; the last is gone once its program is executed.
    staged: Vec<(u32, Pid, Option<StagedTask>)>,
    executed_tasks: usize,
    logs: Vec<(PathBuf, File)>,
}

impl StartingGang<'_> {
    fn prepare<'a>(
        attempt_dir: &'a AttemptDir,
        order: &'a AttemptOrder,
        isolation: &'a Isolation,
        secrets: Vec<SecretFile>,
    ) -> Result<StartingGang<'a>, TaskStartError> {
        let (program, directory) = match &order.run.image {
            Some(image) => {
                prepare_directories(attempt_dir, order, isolation)?;
                let container = ContainerTask::prepare(attempt_dir, order, isolation, image)?;
                (GangProgram::Container(Box::new(container)), PathBuf::from("/"))
            }
            None => {
                place_host_file(attempt_dir, order, isolation.user.as_ref()).map_err(TaskStartError::HostFile)?;
                let program = TaskProgram::from_run(attempt_dir, &order.run, isolation.user.as_ref())?;
                (GangProgram::Process(program), prepare_directories(attempt_dir, order, isolation)?)
            }
        };
        let cpu_list = |task: &TaskOrder| task_cpu_affinity(task).map(|cores| cpu_affinity::cpu_list(&cores));
        isolation.create_cgroups(order, cpu_list)?;
        if let Some(SecretsPlace::Shared(dir)) = &isolation.secrets {
            let written = secret_files::write_shared(dir, &secrets, isolation.user.as_ref());
            written.map_err(TaskStartError::Secrets)?;
        }
        let (staged, logs, executed_tasks) = Default::default();
        Ok(StartingGang { attempt_dir, order, isolation, secrets, program, directory, staged, executed_tasks, logs })
    }

    fn task_pids(&self) -> Vec<(u32, Pid)> {
        self.staged.iter().map(|(rank, pid, _)| (*rank, *pid)).collect()
    }

    /// The first task leads the group. No task is reaped before all have started, so the group exists until then.
    fn process_group(&self) -> Option<Pid> {
        self.staged.first().map(|(_, pid, _)| *pid)
    }

    /// Starts the second stage of each task, and waits until all are ready.
    fn stage_tasks(&mut self) -> Result<(), RankedError> {
        let order = self.order;
        for task in &order.tasks {
            let staged = self.stage_task(task).map_err(|error| (task.rank, error))?;
            let is_first = self.staged.is_empty();
            self.staged.push((task.rank, Pid::from_child(&staged.child), Some(staged)));
            if is_first {
                self.wait_until_ready()?; // The others join its mount namespace, which must exist.
            }
        }
        self.wait_until_ready()
    }

    fn stage_task(&mut self, task: &TaskOrder) -> Result<StagedTask, TaskStartError> {
        let mut command = second_stage::command();
        command.process_group(self.process_group().map_or(0, |group| group.as_raw_nonzero().get()));
        command.stdout(self.open_log(task.rank, Stream::Stdout)?);
        command.stderr(self.open_log(task.rank, Stream::Stderr)?);
        let launch = self.task_launch(task)?;
        let staged = second_stage::stage(&mut command, &launch, task_cpu_affinity(task).as_ref());
        staged.map_err(|error| TaskStartError::SecondStage { rank: task.rank, message: error.to_string() })
    }

    fn wait_until_ready(&mut self) -> Result<(), RankedError> {
        for (rank, _, staged) in &mut self.staged {
            let ready = staged.as_mut().map_or(Ok(()), StagedTask::wait_until_ready);
            ready.map_err(|failure| (*rank, start_error(*rank, failure, &self.program, &self.directory)))?;
        }
        Ok(())
    }

    /// Gives all start signals before it waits for the first program, so that the ranks start together.
    fn execute_tasks(&mut self) -> Result<(), RankedError> {
        let (program, directory) = (&self.program, &self.directory);
        let ranked = |rank: u32, failure| (rank, start_error(rank, failure, program, directory));
        for (rank, _, staged) in &mut self.staged {
            staged.as_mut().map_or(Ok(()), StagedTask::start).map_err(|failure| ranked(*rank, failure))?;
            self.executed_tasks += 1; // From here on it may run.
        }
        let mut first_error = None;
        for (rank, _, staged) in &mut self.staged {
            if let Err(failure) = staged.take().map_or(Ok(()), StagedTask::wait_until_executed) {
                self.executed_tasks -= 1;
                first_error.get_or_insert_with(|| ranked(*rank, failure));
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    fn task_launch(&self, task: &TaskOrder) -> Result<TaskLaunch, TaskStartError> {
        let launch = match &self.program {
            GangProgram::Process(program) => self.process_launch(program, task),
            GangProgram::Container(container) => {
                let place = (self.attempt_dir, self.order, self.isolation);
                container.task_launch(place, task, self.mounts())?
            }
        };
        let makes_namespace = matches!(launch.mounts, Mounts::Private { .. });
        Ok(TaskLaunch { secrets: self.secrets_mount().filter(|_| makes_namespace), ..launch })
    }

    fn secrets_mount(&self) -> Option<SecretsMount> {
        let is_private = self.isolation.secrets == Some(SecretsPlace::Private);
        let dir = self.isolation.secrets_dir(self.attempt_dir.path()).filter(|_| is_private)?;
        Some(SecretsMount { dir, files: self.secrets.clone() })
    }

    fn process_launch(&self, program: &TaskProgram, task: &TaskOrder) -> TaskLaunch {
        TaskLaunch {
            program: program.path.clone(),
            args: program.args.iter().map(OsString::from).collect(),
            environment: self.environment(task),
            directory: self.directory.clone(),
            attempt_dir: self.attempt_dir.path().to_path_buf(),
            cgroup: self.isolation.task_cgroup(self.order, task),
            user: self.isolation.user.clone(),
            mounts: self.mounts(),
            open_files_max: self.isolation.limits.open_files_max,
            umask: self.isolation.limits.umask,
            rights: Rights::Job,
            binds: Vec::new(),
            secrets: None,
            session: None,
            copy: None,
        }
    }

    fn mounts(&self) -> Mounts {
        let leader = self.process_group();
        match (self.isolation.private_mounts && self.isolation.user.is_some(), leader) {
            (false, _) => Mounts::Host,
            (true, Some(leader)) => Mounts::Join { pid: leader.as_raw_nonzero().get() },
            (true, None) => Mounts::Private { shm_mib: self.isolation.shm_mib(self.order) },
        }
    }

    fn environment(&self, task: &TaskOrder) -> Vec<(OsString, OsString)> {
        task_environment::of_task(self.attempt_dir, self.order, task, self.isolation, &self.directory)
    }

    /// A log belongs to the job's user, so that `> /dev/stderr` works in a script; its directory belongs to the agent.
    fn open_log(&mut self, rank: u32, stream: Stream) -> Result<Stdio, TaskStartError> {
        let path = self.attempt_dir.file(&logs::log_name(rank, stream));
        let opened = logs::open_to_append(&path).and_then(|file| match &self.isolation.user {
            None => Ok(file),
            Some(user) => rustix::fs::fchown(&file, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))
                .map(|()| file)
                .map_err(io::Error::from),
        });
        let opened = opened.and_then(|file| Ok((file.try_clone()?, file)));
        let (kept, file) = opened.map_err(|source| TaskStartError::Log { path: path.clone(), source })?;
        self.logs.push((path, kept));
        Ok(Stdio::from(file))
    }
}

/// What each task of a gang executes.
#[derive(Debug)]
enum GangProgram {
    Process(TaskProgram),
    Container(Box<ContainerTask>),
}

impl GangProgram {
    fn signal_target(&self) -> SignalTarget {
        match self {
            GangProgram::Process(_) => SignalTarget::Processes,
            GangProgram::Container(task) if task.is_process() => SignalTarget::Processes,
            GangProgram::Container(_) => SignalTarget::Containers,
        }
    }

    fn start_error(&self, source: io::Error) -> TaskStartError {
        match self {
            GangProgram::Process(program) => program.start_error(source),
            GangProgram::Container(container) => TaskStartError::Container(container.client_error(source)),
        }
    }
}

/// The error of a task whose second stage has failed.
fn start_error(rank: u32, failure: StageFailure, program: &GangProgram, directory: &Path) -> TaskStartError {
    match failure.step {
        StageStep::Mount => TaskStartError::Container(ContainerError::Mount(failure.message)),
        StageStep::Isolation => TaskStartError::SecondStage { rank, message: failure.message },
        StageStep::Directory => {
            TaskStartError::JobDirectory { path: directory.to_path_buf(), source: failure.into_io_error() }
        }
        StageStep::Program => program.start_error(failure.into_io_error()),
    }
}

/// The cores to bind a task to; `None` if they are unknown or too few: far cores are slow, too few are worse.
fn task_cpu_affinity(task: &TaskOrder) -> Option<CpuSet> {
    if task.numa_nodes.is_empty() {
        return None;
    }
    let found = cpu_affinity::cpus_of_numa_nodes(&task.numa_nodes, task.cpus);
    found.inspect_err(|error| eprintln!("task {} is not bound to cores: {error}", task.rank)).ok()
}

/// Appends the start error to the task log, where users look for output. Best effort: the exit report carries the
/// same error.
fn append_error_to_log(attempt_dir: &AttemptDir, rank: u32, error: &TaskStartError) {
    if let Ok(mut log) = logs::open_to_append(&attempt_dir.file(&logs::log_name(rank, Stream::Stderr))) {
        let _ = writeln!(log, "muster: {error}");
    }
}

/// Makes the directories that the job's user writes to, and returns the working directory. One that the job has named is
/// checked by the second stage, with the rights of the job's user.
fn prepare_directories(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    isolation: &Isolation,
) -> Result<PathBuf, TaskStartError> {
    let work = attempt_dir.file("work");
    let mut made = vec![work.clone()];
    if isolation.private_mounts {
        made.push(attempt_dir.file(PRIVATE_TMP_DIR));
    }
    for path in made {
        let ready = logs::make_private_dir(&path).and_then(|()| match &isolation.user {
            None => Ok(()),
            Some(user) => give_to(&path, user),
        });
        ready.map_err(|source| TaskStartError::WorkingDirectory { path, source })?;
    }
    if isolation.user.is_some() {
        let path = attempt_dir.path().to_path_buf();
        attempt_dir
            .let_others_enter(!isolation.private_mounts)
            .map_err(|source| TaskStartError::WorkingDirectory { path, source })?;
    }
    Ok(order.run.directory.as_deref().map_or(work, PathBuf::from))
}

/// The program and arguments for `exec`.
#[derive(Debug)]
struct TaskProgram {
    path: OsString,
    args: Vec<String>,
    has_shebang: bool,
}

impl TaskProgram {
    fn from_run(
        attempt_dir: &AttemptDir,
        run: &RunSpec,
        user: Option<&JobUser>,
    ) -> Result<TaskProgram, TaskStartError> {
        if let Some(script) = &run.script {
            return TaskProgram::from_script(attempt_dir, script, run, user);
        }
        let (path, rest) = run.command.split_first().ok_or(TaskStartError::NothingToRun)?;
        let args = rest.iter().chain(&run.args).cloned().collect();
        Ok(TaskProgram { path: OsString::from(path), args, has_shebang: false })
    }

    /// The kernel runs a script with a first line `#!…`; the shell runs any other script.
    fn from_script(
        attempt_dir: &AttemptDir,
        script: &str,
        run: &RunSpec,
        user: Option<&JobUser>,
    ) -> Result<TaskProgram, TaskStartError> {
        let path = place_script(attempt_dir, script, user).map_err(TaskStartError::Script)?;
        let args: Vec<String> = run.command.iter().chain(&run.args).cloned().collect();
        if script.starts_with("#!") {
            return Ok(TaskProgram { path: path.into_os_string(), args, has_shebang: true });
        }
        let args = [vec![path.to_string_lossy().into_owned()], args].concat();
        Ok(TaskProgram { path: OsString::from(SHELL), args, has_shebang: false })
    }

    fn start_error(&self, source: io::Error) -> TaskStartError {
        if self.has_shebang && source.kind() == io::ErrorKind::NotFound {
            return TaskStartError::Interpreter(source);
        }
        TaskStartError::Program { program: OsStr::to_string_lossy(&self.path).into_owned(), source }
    }
}
