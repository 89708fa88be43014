//! Starting the tasks of an attempt: program, environment, folder, logs, and one process group for all.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use muster_protocol::agent::{Exit, Order, Run, TaskOrder, TaskShare};
use rustix::io::Errno;
use rustix::process::Pid;
use rustix::thread::CpuSet;

use super::cores;
use crate::folder::Folder;
use crate::logs::{self, Stream};
use crate::members::MARK;

/// What a task sees of the agent's environment. The rest may hold secrets of the server.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH"];

/// What shells answer when there is no such program.
const NOT_FOUND: i32 = 127;
/// And when it is there but is not a program, or not for us.
const NOT_EXECUTABLE: i32 = 126;

/// The running tasks.
#[derive(Debug)]
pub(super) struct Gang {
    pub group: Pid,
    /// By rank.
    pub tasks: Vec<(u32, Pid)>,
}

/// A gang that could not start, and how many of its tasks had.
#[derive(Debug)]
pub(super) struct Unfinished {
    error: TaskError,
    started: usize,
}

/// Why a task could not start.
#[derive(Debug, thiserror::Error)]
enum TaskError {
    #[error("no container runtime is configured; use a script or command")]
    Image,
    #[error("nothing to run: the job has neither a script nor a command")]
    Nothing,
    #[error("no task of the gang belongs to this node")]
    NoTasks,
    #[error("the working directory `{path}` cannot be used: {source}")]
    Directory { path: PathBuf, source: io::Error },
    #[error("the script cannot be written: {0}")]
    Script(#[source] io::Error),
    #[error("the log `{path}` cannot be opened: {source}")]
    Log { path: PathBuf, source: io::Error },
    #[error("`{program}` cannot be started: {source}")]
    Program { program: String, source: io::Error },
    #[error("the script cannot be started; does the interpreter in its first line exist? {0}")]
    Interpreter(#[source] io::Error),
}

impl TaskError {
    /// What a shell would answer, where the job itself is wrong: trying again elsewhere would not help.
    fn exit_code(&self) -> Option<i32> {
        let (TaskError::Program { source, .. } | TaskError::Interpreter(source)) = self else { return None };
        match source.kind() {
            io::ErrorKind::NotFound => Some(NOT_FOUND),
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotADirectory => Some(NOT_EXECUTABLE),
            _ if source.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => Some(NOT_EXECUTABLE),
            // Out of memory or processes, for example: the node's trouble, not the job's.
            _ => None,
        }
    }
}

impl Unfinished {
    /// `NotStarted` is a promise that nothing ran. If some ranks did, we do not give it.
    pub fn into_exit(self) -> Exit {
        match (self.error.exit_code(), self.started) {
            (Some(code), _) => Exit::Code(code),
            (None, 0) => Exit::NotStarted(self.error.to_string()),
            (None, started) => {
                Exit::Unknown(format!("{started} tasks ran and were killed, because {}", self.error))
            }
        }
    }
}

/// Start every task that is due on this node, in one process group.
pub(super) fn start(folder: &Folder, order: &Order) -> Result<Gang, Unfinished> {
    let mut tasks = Vec::new();
    match start_each(folder, order, &mut tasks) {
        Ok(group) => Ok(Gang { group, tasks }),
        Err(error) => Err(Unfinished { error, started: tasks.len() }),
    }
}

fn start_each(folder: &Folder, order: &Order, tasks: &mut Vec<(u32, Pid)>) -> Result<Pid, TaskError> {
    let program = Program::of(folder, &order.run)?;
    let directory = directory(folder, order.run.directory.as_deref())?;
    let mut group = None;
    for task in &order.tasks {
        let mut command = command(folder, order, task, &program)?;
        // The first task leads the group. Nobody is reaped before all have started, so it exists until then.
        command
            .current_dir(&directory)
            .process_group(group.map_or(0, |group: Pid| group.as_raw_nonzero().get()));
        let child = cores::spawn(&mut command, near_cores(task).as_ref());
        let child = child.map_err(|source| program.cannot_start(source)).inspect_err(|error| {
            note(folder, task.rank, error);
        })?;
        let pid = Pid::from_child(&child);
        group = group.or(Some(pid));
        tasks.push((task.rank, pid));
    }
    group.ok_or(TaskError::NoTasks)
}

/// The cores it is to stay on. It runs anywhere where they are not known or too few: far cores are slow, none are worse.
fn near_cores(task: &TaskOrder) -> Option<CpuSet> {
    if task.numa_nodes.is_empty() {
        return None;
    }
    let found = cores::near(&task.numa_nodes, task.cpus);
    found.inspect_err(|error| eprintln!("task {} is not bound to cores: {error}", task.rank)).ok()
}

fn command(
    folder: &Folder,
    order: &Order,
    task: &TaskOrder,
    program: &Program,
) -> Result<Command, TaskError> {
    let mut command = Command::new(&program.path);
    command.args(&program.args);
    command.env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(&order.run.env);
    command.envs(told(folder, order, task)); // Last, so that a job cannot tell itself other GPUs.
    command.stdin(Stdio::null());
    command.stdout(log(folder, task.rank, Stream::Stdout)?);
    command.stderr(log(folder, task.rank, Stream::Stderr)?);
    Ok(command)
}

/// What we tell a task about itself.
fn told(folder: &Folder, order: &Order, task: &TaskOrder) -> Vec<(&'static str, OsString)> {
    let gpus = task.gpus.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    let mut told = vec![
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
        (MARK, folder.path().as_os_str().to_os_string()),
    ];
    if !task.numa_nodes.is_empty() {
        let numbers: Vec<String> = task.numa_nodes.iter().map(u32::to_string).collect();
        told.push(("MUSTER_NUMA_NODES", OsString::from(numbers.join(","))));
    }
    if let Some(milliwatts) = order.gpu_milliwatts_max {
        told.push(("MUSTER_GPU_POWER_MAX_MW", OsString::from(milliwatts.to_string())));
    }
    told.extend(task.share.as_ref().map(told_of_share).unwrap_or_default());
    told.extend(told_of_gang(order, task));
    told
}

/// What it has of a device that others use beside it. The limits are those that an MPS server keeps for its clients; the
/// device is the first that the task sees, and the only one.
fn told_of_share(share: &TaskShare) -> Vec<(&'static str, OsString)> {
    let mut told = vec![
        ("MUSTER_GPU_SHARE_MODE", OsString::from(&share.mode)),
        ("MUSTER_GPU_SHARE_MILLI", OsString::from(share.compute_milli.to_string())),
        ("MUSTER_GPU_MEMORY_MIB", OsString::from(share.memory_mib.to_string())),
    ];
    if share.mode == "mps" {
        let percentage = (share.compute_milli / 10).max(1);
        told.push(("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", OsString::from(percentage.to_string())));
        told.push(("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", OsString::from(format!("0={}M", share.memory_mib))));
    }
    told
}

/// Its place among the others, which launchers such as torchrun and mpirun ask for. Nothing where the server did not
/// say: a count of no nodes would be believed.
fn told_of_gang(order: &Order, task: &TaskOrder) -> Vec<(&'static str, OsString)> {
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

/// Who looks for the output of a job that never had any finds out why. The log is only a courtesy: the report
/// says it too, so a log that cannot be written is passed over.
fn note(folder: &Folder, rank: u32, error: &TaskError) {
    if let Ok(mut log) = logs::open_to_append(&folder.file(&logs::log_name(rank, Stream::Stderr))) {
        let _ = writeln!(log, "muster: {error}");
    }
}

fn log(folder: &Folder, rank: u32, stream: Stream) -> Result<Stdio, TaskError> {
    let path = folder.file(&logs::log_name(rank, stream));
    match logs::open_to_append(&path) {
        Ok(file) => Ok(Stdio::from(file)),
        Err(source) => Err(TaskError::Log { path, source }),
    }
}

/// Looked at beforehand, because a missing folder and a missing program are the same error to `exec`.
fn directory(folder: &Folder, asked: Option<&str>) -> Result<PathBuf, TaskError> {
    let path = asked.map_or_else(|| folder.file("work"), PathBuf::from);
    let usable = match asked {
        None => logs::make_private_dir(&path),
        Some(_) => fs::metadata(&path).and_then(|found| match found.is_dir() {
            true => Ok(()),
            false => Err(io::ErrorKind::NotADirectory.into()),
        }),
    };
    usable.map_err(|source| TaskError::Directory { path: path.clone(), source })?;
    Ok(path)
}

/// What `exec` gets.
#[derive(Debug)]
struct Program {
    path: OsString,
    args: Vec<String>,
    has_interpreter: bool,
}

impl Program {
    fn of(folder: &Folder, run: &Run) -> Result<Program, TaskError> {
        if run.image.is_some() {
            return Err(TaskError::Image);
        }
        if let Some(script) = &run.script {
            return Program::of_script(folder, script, run);
        }
        let (path, rest) = run.command.split_first().ok_or(TaskError::Nothing)?;
        let args = rest.iter().chain(&run.args).cloned().collect();
        Ok(Program { path: OsString::from(path), args, has_interpreter: false })
    }

    /// A first line `#!…` is the kernel's business; without one it is a script for the shell.
    fn of_script(folder: &Folder, script: &str, run: &Run) -> Result<Program, TaskError> {
        let path = folder.file("script");
        write_script(&path, script).map_err(TaskError::Script)?;
        let args: Vec<String> = run.command.iter().chain(&run.args).cloned().collect();
        if script.starts_with("#!") {
            return Ok(Program { path: path.into_os_string(), args, has_interpreter: true });
        }
        let args = [vec![path.to_string_lossy().into_owned()], args].concat();
        Ok(Program { path: OsString::from("/bin/sh"), args, has_interpreter: false })
    }

    fn cannot_start(&self, source: io::Error) -> TaskError {
        if self.has_interpreter && source.kind() == io::ErrorKind::NotFound {
            return TaskError::Interpreter(source);
        }
        TaskError::Program { program: OsStr::to_string_lossy(&self.path).into_owned(), source }
    }
}

fn write_script(path: &Path, script: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o700).open(path)?;
    file.write_all(script.as_bytes())
}
