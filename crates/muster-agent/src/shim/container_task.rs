//! The tasks of a job with an image: each is the client of the container runtime, which runs the program of the task in a
//! container. The shim supervises the client, and asks the runtime how the container has ended.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_protocol::agent::{AttemptOrder, Exit, TaskOrder};

use super::job_files::{place_host_file, place_script};
use super::task_environment::{self, SHELL};
use crate::attempt_dir::{AttemptDir, CONTAINER_MOUNTS_DIR};
use crate::attempt_processes::ATTEMPT_DIR_VARIABLE;
use crate::container_runtime::{
    self, BindMount, ContainerEnd, ContainerRun, ContainerSetup, RuntimeKind, client_environment, last_line,
};
use crate::isolation::Isolation;
use crate::logs::{self, Stream};
use crate::private_mounts::PRIVATE_TMP_DIR;
use crate::records::ExitRecord;
use crate::secret_files::SECRETS_DIR;
use crate::task_launch::{Bind, Mounts, Rights, TaskLaunch};

/// What clients exit with if they, and not the program in the container, have failed.
const EXIT_CODE_CLIENT_FAILED: i32 = 125;
/// What clients exit with if the program cannot be executed, or the container cannot be set up.
const EXIT_CODE_NOT_EXECUTABLE: i32 = 126;
/// The exit code of shells for a program that does not exist.
const EXIT_CODE_NOT_FOUND: i32 = 127;
/// Clients exit with this and the number of the signal that has ended the program.
const EXIT_CODE_OF_SIGNALS: i32 = 128;
const SIGNAL_MAX: i32 = 64;
/// The end of the log that is searched for the error of a client.
const LOG_TAIL_BYTES: u64 = 4_096;
/// About five minutes in total.
const REMOVALS_MAX: u32 = 60;
const REMOVAL_RETRY_DELAY: Duration = Duration::from_secs(5);
/// Where the driver of a GPU vendor describes its devices to container runtimes.
const NVIDIA_CDI_FILES: [&str; 4] =
    ["/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json", "/var/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.json"];

/// Why a container cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContainerError {
    #[error("the job has an image, and this node has no container runtime")]
    NoRuntime,
    #[error("the variable `{0}` cannot be passed to a container: its value has several lines")]
    MultilineVariable(String),
    #[error("{0}")]
    Mount(String),
    #[error("`{path}` cannot be mounted: a container runtime takes no path with a comma or a colon")]
    MountPath { path: String },
    #[error("the files of the container cannot be written: {0}")]
    Files(#[from] io::Error),
    #[error("the container runtime `{program}` cannot be started: {source}")]
    Client { program: PathBuf, source: io::Error },
}

impl ContainerError {
    /// True if the job itself is the reason: it would fail in the same way on every node.
    pub fn is_of_the_job(&self) -> bool {
        match self {
            ContainerError::MultilineVariable(_) | ContainerError::Mount(_) | ContainerError::MountPath { .. } => true,
            ContainerError::NoRuntime | ContainerError::Files(_) | ContainerError::Client { .. } => false,
        }
    }
}

/// What is the same for all tasks of a gang.
#[derive(Debug)]
pub(super) struct ContainerTask {
    setup: ContainerSetup,
    image: String,
    entrypoint: Option<PathBuf>,
    args: Vec<String>,
    mounts: Vec<BindMount>,
    binds: Vec<Bind>,
    container_dir: PathBuf,
}

/// The attempt of a task.
type AttemptContext<'a> = (&'a AttemptDir, &'a AttemptOrder, &'a Isolation);

impl ContainerTask {
    pub fn prepare(
        attempt_dir: &AttemptDir,
        order: &AttemptOrder,
        isolation: &Isolation,
        image: &str,
    ) -> Result<ContainerTask, ContainerError> {
        let setup = isolation.container.clone().ok_or(ContainerError::NoRuntime)?;
        let run = &order.run;
        let mut task = ContainerTask {
            setup,
            image: image.to_string(),
            entrypoint: None,
            args: run.command.iter().chain(&run.args).cloned().collect(),
            mounts: own_mounts(attempt_dir, isolation),
            binds: Vec::new(),
            container_dir: attempt_dir.make_container_dir()?,
        };
        if let Some(script) = &run.script {
            task.run_script(place_script(attempt_dir, script, isolation.user.as_ref())?, script);
        }
        if let Some(path) = place_host_file(attempt_dir, order, isolation.user.as_ref())? {
            task.mounts.push(BindMount { source: path.clone(), target: path, read_only: true });
        }
        task.add_mounts(order, isolation)?;
        Ok(task)
    }

    /// As without a container: the kernel runs a script with a first line `#!…`, the shell of the image any other.
    fn run_script(&mut self, path: PathBuf, script: &str) {
        let mount = BindMount { source: path.clone(), target: path.clone(), read_only: true };
        self.mounts.push(mount);
        if script.starts_with("#!") {
            self.entrypoint = Some(path);
        } else {
            self.entrypoint = Some(PathBuf::from(SHELL));
            self.args.insert(0, path.to_string_lossy().into_owned());
        }
    }

    /// The mounts that the job asks for. In the mount namespace of the attempt the runtime finds each at a mount point of its
    /// own, where it stays what it was when the rights of the job's user were checked.
    fn add_mounts(&mut self, order: &AttemptOrder, isolation: &Isolation) -> Result<(), ContainerError> {
        let kind = self.setup.runtime.kind;
        let has_namespace = isolation.private_mounts && isolation.user.is_some();
        for (index, mount) in order.run.mounts.iter().enumerate() {
            if let Some(path) = [&mount.source, &mount.target].into_iter().find(|path| path.contains([',', ':'])) {
                return Err(ContainerError::MountPath { path: path.clone() });
            }
            let mount_point = self.container_dir.join(CONTAINER_MOUNTS_DIR).join(index.to_string());
            let mount_point = (kind == RuntimeKind::Podman && has_namespace).then_some(mount_point);
            let source = mount_point.clone().unwrap_or_else(|| PathBuf::from(&mount.source));
            self.mounts.push(BindMount { source, target: PathBuf::from(&mount.target), read_only: mount.read_only });
            // Apptainer has the rights of the job, so it can mount what the job may read.
            if !kind.runs_as_the_job() {
                let allowed = self.setup.allowed_mounts.clone();
                self.binds.push(Bind { source: PathBuf::from(&mount.source), mount_point, allowed });
            }
        }
        Ok(())
    }

    pub fn task_launch(
        &self,
        (attempt_dir, order, isolation): AttemptContext<'_>,
        task: &TaskOrder,
        mounts: Mounts,
    ) -> Result<TaskLaunch, ContainerError> {
        let kind = self.setup.runtime.kind;
        let cgroup = isolation.task_cgroup(order, task);
        let variables = task_environment::in_container(attempt_dir, order, task, isolation);
        let env_file = self.container_dir.join(format!("env-{}", task.rank));
        let run = ContainerRun {
            name: container_runtime::container_name(&self.setup.agent, &order.job, order.attempt, task.rank),
            agent: &self.setup.agent,
            image: &self.image,
            entrypoint: self.entrypoint.clone(),
            args: self.args.clone(),
            user: isolation.user.as_ref(),
            cgroup_parent: cgroup.as_ref().and_then(|cgroup| cgroup.path_in_hierarchies()),
            memory_mib: Some(task.memory_mib).filter(|mib| *mib > 0),
            pids_max: isolation.limits.pids_max,
            env_file: env_file.clone(),
            mounts: self.mounts.clone(),
            directory: order.run.directory.as_deref().map(Path::new),
            devices: cdi_devices(task, &NVIDIA_CDI_FILES),
            open_files_max: open_files_max(isolation),
            umask: isolation.limits.umask,
        };
        let is_client = !kind.runs_as_the_job();
        let environment = if is_client {
            write_env_file(&env_file, &variables)?;
            let attempt = attempt_dir.path().as_os_str().to_os_string();
            client_environment().into_iter().chain([(ATTEMPT_DIR_VARIABLE.into(), attempt)]).collect()
        } else {
            variables
        };
        Ok(TaskLaunch {
            program: self.setup.runtime.program.clone().into_os_string(),
            args: self.setup.runtime.run_arguments(&run),
            environment,
            directory: if is_client { PathBuf::from("/") } else { attempt_dir.file("work") },
            attempt_dir: attempt_dir.path().to_path_buf(),
            // The client is not charged to the job, and stays out of the cgroup that gets those of the container as children.
            cgroup: cgroup.filter(|_| !is_client),
            user: isolation.user.clone(),
            // A daemon does not see the namespace.
            mounts: if kind.has_daemon() { Mounts::Host } else { mounts },
            open_files_max: isolation.limits.open_files_max,
            umask: isolation.limits.umask,
            rights: if is_client { Rights::Agent } else { Rights::Job },
            binds: self.binds.clone(),
            secrets: None, // The gang adds them for its first task.
            session: None,
            copy: None,
        })
    }

    /// The task is the program itself, and no client.
    pub fn is_process(&self) -> bool {
        self.setup.runtime.kind.runs_as_the_job()
    }

    pub fn client_error(&self, source: io::Error) -> ContainerError {
        ContainerError::Client { program: self.setup.runtime.program.clone(), source }
    }
}

/// What every container shares with the host: the working directory of the attempt, and, in the mount namespace of the
/// attempt, what its tasks share with each other.
fn own_mounts(attempt_dir: &AttemptDir, isolation: &Isolation) -> Vec<BindMount> {
    let work = attempt_dir.file("work");
    let mount = |source: PathBuf, target: PathBuf| BindMount { source, target, read_only: false };
    let mut mounts = vec![mount(work.clone(), work)];
    // At one path in every container, wherever the node has them.
    let secrets = isolation.secrets_dir(attempt_dir.path());
    mounts.extend(secrets.map(|source| BindMount { source, target: attempt_dir.file(SECRETS_DIR), read_only: true }));
    if isolation.private_mounts {
        mounts.push(mount(attempt_dir.file(PRIVATE_TMP_DIR), PathBuf::from("/tmp")));
        let is_shared = isolation.container.as_ref().is_some_and(|setup| setup.runtime.kind == RuntimeKind::Podman);
        let shm = PathBuf::from("/dev/shm");
        mounts.extend((is_shared && shm.is_dir()).then(|| mount(shm.clone(), shm)));
    }
    mounts
}

/// The names by which a runtime adds the GPUs of a task; none where no driver describes them, as for counted GPUs.
fn cdi_devices(task: &TaskOrder, files: &[&str]) -> Vec<String> {
    match files.iter().any(|path| Path::new(path).exists()) {
        true => task.gpus.iter().map(|gpu| format!("nvidia.com/gpu={gpu}")).collect(),
        false => Vec::new(),
    }
}

/// A runtime refuses a limit above that of the agent.
fn open_files_max(isolation: &Isolation) -> u64 {
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    hard.map_or(isolation.limits.open_files_max, |hard| hard.min(isolation.limits.open_files_max))
}

/// Not on the command line, which every user of the machine can read. A line is `NAME=VALUE`, without quoting.
fn write_env_file(path: &Path, variables: &[(OsString, OsString)]) -> Result<(), ContainerError> {
    let mut text = Vec::new();
    for (name, value) in variables {
        if value.as_bytes().contains(&b'\n') {
            return Err(ContainerError::MultilineVariable(name.to_string_lossy().into_owned()));
        }
        text.extend([name.as_bytes(), b"=", value.as_bytes(), b"\n"].concat());
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.create(true).truncate(true).write(true).mode(0o600).open(path)?;
    Ok(file.write_all(&text)?)
}

/// The exit record with the exit of the program in the container instead of that of the client.
pub(super) fn with_container_ends(
    record: ExitRecord,
    attempt_dir: &AttemptDir,
    order: &AttemptOrder,
    isolation: &Isolation,
) -> ExitRecord {
    let (Some(setup), Exit::Code(code)) = (&isolation.container, &record.exit) else { return record };
    if setup.runtime.kind.runs_as_the_job() {
        return record;
    }
    let ends = container_ends(setup, &isolation.container_names(order));
    let exit = match *code {
        code @ (EXIT_CODE_CLIENT_FAILED | EXIT_CODE_NOT_EXECUTABLE)
            if ends.as_ref().is_ok_and(|ends| ends.iter().all(|end| *end == ContainerEnd::NotStarted)) =>
        {
            exit_without_start(code, &error_of_the_client(attempt_dir, order))
        }
        code if (EXIT_CODE_OF_SIGNALS + 1..=EXIT_CODE_OF_SIGNALS + SIGNAL_MAX).contains(&code) => {
            let is_out_of_memory =
                |ends: &Vec<ContainerEnd>| ends.contains(&ContainerEnd::Ended { out_of_memory: true });
            match ends.as_ref().is_ok_and(is_out_of_memory) && !record.stopped {
                true => out_of_memory(order),
                false => Exit::Signal(code - EXIT_CODE_OF_SIGNALS),
            }
        }
        code => exit_of_the_init(&error_of_the_client(attempt_dir, order)).unwrap_or(Exit::Code(code)),
    };
    ExitRecord { exit, ..record }
}

/// An error if the runtime does not say how all of them have ended.
fn container_ends(setup: &ContainerSetup, names: &[String]) -> io::Result<Vec<ContainerEnd>> {
    let ends: io::Result<Vec<ContainerEnd>> = names.iter().map(|name| setup.runtime.end_of(name)).collect();
    ends.inspect_err(|error| eprintln!("the end of the containers is unknown: {error}"))
}

/// The exit as of a shell if the init program of podman could not execute the program of the job: its own exit code is 1.
fn exit_of_the_init(error: &str) -> Option<Exit> {
    let (_, why) = error.strip_prefix("ERROR (catatonit")?.split_once("failed to exec pid1: ")?;
    Some(Exit::Code(if why.starts_with("No such file") { EXIT_CODE_NOT_FOUND } else { EXIT_CODE_NOT_EXECUTABLE }))
}

fn out_of_memory(order: &AttemptOrder) -> Exit {
    Exit::OutOfMemory { limit_mib: order.tasks.first().map_or(0, |task| task.memory_mib) }
}

/// The exit of containers of which none has run its program. Runtimes exit with the same code for a program that is not
/// executable, which is the fault of the job, and for what they themselves cannot do.
fn exit_without_start(code: i32, error: &str) -> Exit {
    if code == EXIT_CODE_NOT_EXECUTABLE && error.contains("exec") {
        return Exit::Code(code);
    }
    let why = format!("the container cannot be started: {error}");
    if error.contains("workdir") { Exit::invalid_job(&why) } else { Exit::NotStarted(why) }
}

/// What the client has written to the log of the first task that says anything.
fn error_of_the_client(attempt_dir: &AttemptDir, order: &AttemptOrder) -> String {
    let tail = |task: &TaskOrder| {
        let path = attempt_dir.file(&logs::log_name(task.rank, Stream::Stderr));
        let from = path.metadata().map(|found| found.len().saturating_sub(LOG_TAIL_BYTES)).unwrap_or_default();
        logs::read_from(&path, from, LOG_TAIL_BYTES as usize).map(|(bytes, _)| bytes).unwrap_or_default()
    };
    let tails = order.tasks.iter().map(tail).find(|bytes| !bytes.is_empty());
    last_line(&tails.unwrap_or_default())
}

/// Removes the containers, so that an exit record proves that none is left. A runtime that does not answer is asked again
/// for a while; its containers have no process any more, or the agent removes them at its next start.
pub(super) fn remove_containers(order: &AttemptOrder, isolation: &Isolation) {
    let Some(setup) = &isolation.container else { return };
    for _ in 0..REMOVALS_MAX {
        match isolation.remove_containers(order) {
            Ok(()) => return,
            Err(error) => eprintln!("the containers cannot be removed: {error}"),
        }
        if !setup.runtime.kind.has_daemon() {
            return;
        }
        std::thread::sleep(REMOVAL_RETRY_DELAY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{self, TempDir};

    #[test]
    fn a_container_that_never_ran_is_a_fault_of_the_job_or_of_the_node() {
        let workdir = exit_without_start(126, "workdir \"/nope\" does not exist on container 613f");
        assert!(matches!(&workdir, Exit::NotStarted(why) if why.starts_with("invalid job: ")), "{workdir:?}");
        let denied = "runc: exec: \"/etc/passwd\": permission denied: OCI permission denied";
        assert_eq!(exit_without_start(126, denied), Exit::Code(126));
        let missing = "ERROR (catatonit:6): failed to exec pid1: No such file or directory";
        assert_eq!(exit_of_the_init(missing), Some(Exit::Code(127)));
        assert_eq!(
            exit_of_the_init("ERROR (catatonit:6): failed to exec pid1: Permission denied"),
            Some(Exit::Code(126))
        );
        assert_eq!(exit_of_the_init("of the job itself"), None);
        let node = exit_without_start(126, "crun: cgroups in hybrid mode not supported");
        assert_eq!(
            node,
            Exit::NotStarted("the container cannot be started: crun: cgroups in hybrid mode not supported".into())
        );
        assert!(
            matches!(exit_without_start(125, "no space left"), Exit::NotStarted(why) if !why.starts_with("invalid"))
        );
    }

    #[test]
    fn the_environment_is_a_private_file_and_values_of_several_lines_are_refused() {
        let dir = TempDir::new();
        let path = dir.join("env");
        let pair = |value: &str| (OsString::from("A"), OsString::from(value));
        write_env_file(&path, &[pair(" x\"y'=#z ")]).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "A= x\"y'=#z \n");
        let error = write_env_file(&path, &[pair("1\n2")]).unwrap_err();
        assert!(error.is_of_the_job() && error.to_string().contains("`A`"), "{error}");
    }

    #[test]
    fn gpus_are_named_only_where_a_driver_describes_them() {
        let mut task = test_fixtures::order("job-1", &[]).tasks[0].clone();
        task.gpus = vec![2, 5];
        assert_eq!(cdi_devices(&task, &["/etc/passwd"]), ["nvidia.com/gpu=2", "nvidia.com/gpu=5"]);
        assert!(cdi_devices(&task, &["/no/such/file"]).is_empty());
    }
}
