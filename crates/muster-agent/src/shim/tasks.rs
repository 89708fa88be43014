//! Starts the tasks of an attempt: program, environment, working directory, logs, and one process group for all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use muster_protocol::agent::{AttemptOrder, Exit, RunSpec, TaskOrder, TaskShare};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CpuSet;

use super::cpu_affinity;
use crate::attempt_dir::AttemptDir;
use crate::attempt_processes::ATTEMPT_DIR_VARIABLE;
use crate::logs::{self, Stream};

/// The variables that a task inherits from the agent's environment. The others may contain secrets of the server.
const INHERITED_ENVIRONMENT: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"];

/// The exit code of shells for a program that does not exist.
const EXIT_CODE_NOT_FOUND: i32 = 127;
/// The exit code of shells for a file that is not executable, or not for this user.
const EXIT_CODE_NOT_EXECUTABLE: i32 = 126;

#[derive(Debug)]
pub(super) struct RunningGang {
    pub process_group: Pid,
    /// Rank and pid of each task.
    pub task_pids: Vec<(u32, Pid)>,
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
    #[error("no container runtime is configured; use a script or command")]
    ContainerImage,
    #[error("nothing to run: the job has neither a script nor a command")]
    NothingToRun,
    #[error("no task of the gang belongs to this node")]
    NoTasks,
    #[error("the working directory `{path}` cannot be used: {source}")]
    WorkingDirectory { path: PathBuf, source: io::Error },
    #[error("the script cannot be written: {0}")]
    Script(#[source] io::Error),
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

impl GangStartError {
    /// `NotStarted` promises that nothing ran, so it is not returned if some ranks did.
    pub fn into_exit(self) -> Exit {
        match (self.error.exit_code(), self.started_tasks) {
            (Some(code), _) => Exit::Code(code),
            (None, 0) => Exit::NotStarted(self.error.to_string()),
            (None, started) => {
                Exit::Unknown(format!("the gang could not start; {started} started tasks were killed: {}", self.error))
            }
        }
    }
}

/// Starts every task of the order in one process group.
pub(super) fn start_gang(attempt_dir: &AttemptDir, order: &AttemptOrder) -> Result<RunningGang, GangStartError> {
    let mut tasks = Vec::new();
    match start_tasks(attempt_dir, order, &mut tasks) {
        Ok(group) => Ok(RunningGang { process_group: group, task_pids: tasks }),
        Err(error) => Err(GangStartError { error, started_tasks: tasks.len() }),
    }
}

fn start_tasks(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    tasks: &mut Vec<(u32, Pid)>,
) -> Result<Pid, TaskStartError> {
    let program = TaskProgram::from_run(attempt_dir, &order.run)?;
    let directory = working_directory(attempt_dir, order.run.directory.as_deref())?;
    let mut group = None;
    for task in &order.tasks {
        let mut command = task_command(attempt_dir, order, task, &program)?;
        // The first task leads the group. No task is reaped before all have started, so the group exists until then.
        command.current_dir(&directory).process_group(group.map_or(0, |group: Pid| group.as_raw_nonzero().get()));
        let child = cpu_affinity::spawn_with_affinity(&mut command, task_cpu_affinity(task).as_ref());
        let child = child.map_err(|source| program.start_error(source)).inspect_err(|error| {
            append_error_to_log(attempt_dir, task.rank, error);
        })?;
        let pid = Pid::from_child(&child);
        group = group.or(Some(pid));
        tasks.push((task.rank, pid));
    }
    group.ok_or(TaskStartError::NoTasks)
}

/// The cores to bind a task to; `None` if they are unknown or too few: far cores are slow, too few are worse.
fn task_cpu_affinity(task: &TaskOrder) -> Option<CpuSet> {
    if task.numa_nodes.is_empty() {
        return None;
    }
    let found = cpu_affinity::cpus_of_numa_nodes(&task.numa_nodes, task.cpus);
    found.inspect_err(|error| eprintln!("task {} is not bound to cores: {error}", task.rank)).ok()
}

fn task_command(
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    task: &TaskOrder,
    program: &TaskProgram,
) -> Result<Command, TaskStartError> {
    let mut command = Command::new(&program.path);
    command.args(&program.args);
    command.env_clear();
    command.envs(INHERITED_ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(&order.run.env);
    command.envs(task_environment(attempt_dir, order, task)); // Last, so that a job cannot give itself other GPUs.
    command.stdin(Stdio::null());
    command.stdout(open_log(attempt_dir, task.rank, Stream::Stdout)?);
    command.stderr(open_log(attempt_dir, task.rank, Stream::Stderr)?);
    Ok(command)
}

/// The variables that describe a task to itself.
fn task_environment(attempt_dir: &AttemptDir, order: &AttemptOrder, task: &TaskOrder) -> Vec<(&'static str, OsString)> {
    let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let mut variables = vec![
        ("MUSTER_JOB_ID", OsString::from(&order.job)),
        ("MUSTER_JOB_NAME", OsString::from(&order.name)),
        ("MUSTER_TENANT", OsString::from(&order.tenant)),
        ("MUSTER_USER", OsString::from(&order.user)),
        ("MUSTER_ATTEMPT", OsString::from(order.attempt.to_string())),
        ("MUSTER_RESTART_COUNT", OsString::from(order.attempt.saturating_sub(1).to_string())),
        ("MUSTER_RANK", OsString::from(task.rank.to_string())),
        ("MUSTER_GANG_SIZE", OsString::from(order.gang_size.to_string())),
        ("MUSTER_GPUS", OsString::from(&gpus)),
        ("CUDA_VISIBLE_DEVICES", OsString::from(gpus)), // Empty without GPUs: then CUDA shows none.
        (ATTEMPT_DIR_VARIABLE, attempt_dir.path().as_os_str().to_os_string()),
    ];
    if !task.numa_nodes.is_empty() {
        let numbers: Vec<String> = task.numa_nodes.iter().map(u32::to_string).collect();
        variables.push(("MUSTER_NUMA_NODES", OsString::from(numbers.join(","))));
    }
    if let Some(milliwatts) = order.gpu_milliwatts_max {
        variables.push(("MUSTER_GPU_POWER_MAX_MW", OsString::from(milliwatts.to_string())));
    }
    variables.extend(task.share.as_ref().map(gpu_share_environment).unwrap_or_default());
    variables.extend(gang_environment(order, task));
    variables
}

/// The variables of a task that shares its GPU. The limits are those that an MPS server enforces for its clients;
/// device 0 is the only GPU that the task sees.
fn gpu_share_environment(share: &TaskShare) -> Vec<(&'static str, OsString)> {
    let mut variables = vec![
        ("MUSTER_GPU_SHARE_MODE", OsString::from(&share.mode)),
        ("MUSTER_GPU_SHARE_MILLI", OsString::from(share.compute_milli.to_string())),
        ("MUSTER_GPU_MEMORY_MIB", OsString::from(share.memory_mib.to_string())),
    ];
    if share.mode == "mps" {
        let percentage = (share.compute_milli / 10).max(1);
        variables.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", OsString::from(percentage.to_string())));
        variables.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", OsString::from(format!("0={}M", share.memory_mib))));
    }
    variables
}

/// The ranks and nodes of the gang, for launchers such as torchrun and mpirun. Empty if the orders have no nodes: a
/// launcher would believe a node count of 0.
fn gang_environment(order: &AttemptOrder, task: &TaskOrder) -> Vec<(&'static str, OsString)> {
    let Some(master) = order.nodes.first() else { return Vec::new() };
    let local_rank = order.tasks.iter().filter(|other| other.rank < task.rank).count();
    vec![
        ("MUSTER_NODES", OsString::from(order.nodes.join(","))),
        ("MUSTER_NODE_COUNT", OsString::from(order.nodes.len().to_string())),
        ("MUSTER_NODE_RANK", OsString::from(order.node_rank.to_string())),
        ("MUSTER_MASTER", OsString::from(master)),
        ("MUSTER_MASTER_ADDRESS", OsString::from(&order.master_address)),
        ("MUSTER_LOCAL_RANK", OsString::from(local_rank.to_string())),
        ("MUSTER_GROUP", OsString::from(&task.group)),
        ("MUSTER_GROUP_RANK", OsString::from(task.group_rank.to_string())),
    ]
}

/// Appends the start error to the task log, where users look for output. Best effort: the exit report carries the
/// same error.
fn append_error_to_log(attempt_dir: &AttemptDir, rank: u32, error: &TaskStartError) {
    if let Ok(mut log) = logs::open_to_append(&attempt_dir.file(&logs::log_name(rank, Stream::Stderr))) {
        let _ = writeln!(log, "muster: {error}");
    }
}

fn open_log(attempt_dir: &AttemptDir, rank: u32, stream: Stream) -> Result<Stdio, TaskStartError> {
    let path = attempt_dir.file(&logs::log_name(rank, stream));
    match logs::open_to_append(&path) {
        Ok(file) => Ok(Stdio::from(file)),
        Err(source) => Err(TaskStartError::Log { path, source }),
    }
}

/// Checks the working directory before the start, because a missing directory and a missing program give the same
/// error.
fn working_directory(attempt_dir: &AttemptDir, requested: Option<&str>) -> Result<PathBuf, TaskStartError> {
    let path = requested.map_or_else(|| attempt_dir.file("work"), PathBuf::from);
    let usable = match requested {
        None => logs::make_private_dir(&path),
        Some(_) => fs::metadata(&path).and_then(|found| match found.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }),
    };
    usable.map_err(|source| TaskStartError::WorkingDirectory { path: path.clone(), source })?;
    Ok(path)
}

/// The program and arguments for `exec`.
#[derive(Debug)]
struct TaskProgram {
    path: OsString,
    args: Vec<String>,
    has_shebang: bool,
}

impl TaskProgram {
    fn from_run(attempt_dir: &AttemptDir, run: &RunSpec) -> Result<TaskProgram, TaskStartError> {
        if run.image.is_some() {
            return Err(TaskStartError::ContainerImage);
        }
        if let Some(script) = &run.script {
            return TaskProgram::from_script(attempt_dir, script, run);
        }
        let (path, rest) = run.command.split_first().ok_or(TaskStartError::NothingToRun)?;
        let args = rest.iter().chain(&run.args).cloned().collect();
        Ok(TaskProgram { path: OsString::from(path), args, has_shebang: false })
    }

    /// The kernel runs a script with a first line `#!…`; the shell runs any other script.
    fn from_script(attempt_dir: &AttemptDir, script: &str, run: &RunSpec) -> Result<TaskProgram, TaskStartError> {
        let path = attempt_dir.file("script");
        write_script(&path, script).map_err(TaskStartError::Script)?;
        let args: Vec<String> = run.command.iter().chain(&run.args).cloned().collect();
        if script.starts_with("#!") {
            return Ok(TaskProgram { path: path.into_os_string(), args, has_shebang: true });
        }
        let args = [vec![path.to_string_lossy().into_owned()], args].concat();
        Ok(TaskProgram { path: OsString::from("/bin/sh"), args, has_shebang: false })
    }

    fn start_error(&self, source: io::Error) -> TaskStartError {
        if self.has_shebang && source.kind() == io::ErrorKind::NotFound {
            return TaskStartError::Interpreter(source);
        }
        TaskStartError::Program { program: OsStr::to_string_lossy(&self.path).into_owned(), source }
    }
}

fn write_script(path: &Path, script: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o700).open(path)?;
    file.write_all(script.as_bytes())
}
