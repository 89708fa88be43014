//! Step 1, submit: the flags that describe a job, shared by `submit`, `run` and `plan`.

mod pairs;
mod sources;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use muster_protocol::input::{DependencyInput, Moment, Priority, Span};
use muster_protocol::submit::{SubmitJob, SubmitTask};

use crate::error::CliError;
use crate::moments::ParsedMoment;
use crate::options::Options;
use crate::units::TimeLimit;
use crate::{moments, output, units};
use pairs::KeyValue;

/// A job as flags. Flags override the fields of `--file`.
#[derive(Debug, Clone, Default, Args)]
pub struct JobArgs {
    /// Read the job from a YAML or JSON file; flags override its fields; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name of the job [default: the name of the program]
    #[arg(long)]
    pub name: Option<String>,
    /// Tenant that the job belongs to
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Priority, higher starts first: 0 to 10000, or low, medium, high, critical
    #[arg(long, value_name = "N|NAME")]
    pub priority: Option<String>,

    /// GPUs per task [default: 1]
    #[arg(long, value_name = "N", value_parser = units::parse_gpu_count, help_heading = "Resources")]
    #[arg(allow_negative_numbers = true)]
    pub gpus: Option<u32>,
    /// Accepted GPU model, for example H100; may be repeated
    #[arg(long, value_name = "MODEL", value_delimiter = ',', help_heading = "Resources")]
    pub gpu_model: Vec<String>,
    /// Share of one GPU, for example 0.5; other jobs may hold the rest of the GPU
    #[arg(long, value_name = "PART", value_parser = units::parse_gpu_share, help_heading = "Resources")]
    pub gpu_share: Option<f64>,
    /// Isolation from other jobs on a shared GPU: none, memory or full
    #[arg(long, value_name = "HOW", help_heading = "Resources", hide_possible_values = true)]
    pub isolation: Option<Isolation>,
    /// Minimum memory of each GPU, for example 40G; with --gpu-share the memory the job may use
    #[arg(long, value_name = "SIZE", value_parser = units::parse_memory_mib, help_heading = "Resources")]
    pub gpu_memory: Option<u64>,
    /// CPU cores per task
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub cpus: Option<u32>,
    /// Main memory per task, for example 64G
    #[arg(long, value_name = "SIZE", value_parser = units::parse_memory_mib, help_heading = "Resources")]
    pub mem: Option<u64>,
    /// Tasks that start together (a gang), each with the resources above; 2-8 needs 2 and takes up to 8
    #[arg(long, value_name = "N|MIN-MAX", help_heading = "Resources")]
    pub tasks: Option<TaskCount>,
    /// Use only GPUs of this pool; pools are registered by policies
    #[arg(long, value_name = "POOL", help_heading = "Resources")]
    pub pool: Option<String>,
    /// Required locality of the GPUs: any, same-numa, nvlink or same-rack
    #[arg(long, value_name = "WISH", help_heading = "Resources", hide_possible_values = true)]
    pub topology: Option<Topology>,
    /// Require the GPUs of a task on one NUMA node
    #[arg(long, help_heading = "Resources")]
    pub no_cross_numa: bool,
    /// Prefer GPUs joined by NVLink to GPUs on one NUMA node
    #[arg(long, help_heading = "Resources")]
    pub prefer_nvlink: bool,
    /// Use only nodes with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Resources")]
    pub node_label: Vec<KeyValue>,

    /// Time limit, for example 2h; as in Slurm, 90 is minutes and 90:00 is minutes and seconds
    #[arg(long, value_name = "TIME", value_parser = units::parse_time_limit, help_heading = "When")]
    #[arg(allow_hyphen_values = true)]
    pub time: Option<TimeLimit>,
    /// Signal for the tasks before the time limit ends, for example USR1@300 (seconds) or TERM@5m; default 60 seconds before
    #[arg(long, value_name = "SIGNAL[@TIME]", help_heading = "When")]
    pub signal: Option<String>,
    /// Job array: 0-99, 0-99%8 (at most 8 run at once), 1,4,7-9
    #[arg(long, value_name = "INDEXES", help_heading = "When")]
    pub array: Option<String>,
    /// Start only after this job has succeeded; also `job-1:ended`, `job-1:failed`; may be repeated
    #[arg(long, value_name = "JOB", value_delimiter = ',', help_heading = "When")]
    pub after: Vec<String>,
    /// Earliest start, in your time zone: 18:00, tomorrow, 2026-11-18T18:00, or a span from now such as 2h
    #[arg(long, value_name = "WHEN", value_parser = moments::parse_moment, help_heading = "When")]
    #[arg(allow_hyphen_values = true)]
    pub begin: Option<ParsedMoment>,
    /// Hold the job until `muster release`
    #[arg(long, help_heading = "When")]
    pub hold: bool,
    /// Restart the job after a failure, at most this many times
    #[arg(long, value_name = "N", help_heading = "When")]
    pub restarts: Option<u32>,
    /// Rule for a lost node: wait for it, requeue once the node has provably killed the job, or requeue-unsafe (at once:
    /// two copies may run)
    #[arg(long, value_name = "RULE", help_heading = "When", hide_possible_values = true)]
    pub on_node_lost: Option<OnNodeLost>,

    /// Shell script to run; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command", help_heading = "What")]
    pub script: Option<PathBuf>,
    /// OCI image to run the job in; only nodes with a container runtime take the job
    #[arg(long, help_heading = "What")]
    pub image: Option<String>,
    /// With --image: a directory or file of the node in the container; may be repeated
    #[arg(long, value_name = "SRC:DST[:ro]", help_heading = "What")]
    pub mount: Vec<String>,
    /// Working directory [default: this directory, if the server is on this machine; with --image that of the image]
    #[arg(long, value_name = "DIR", help_heading = "What")]
    pub dir: Option<String>,
    /// Environment variable; `KEY` alone passes on your own value; may be repeated
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "What")]
    pub env: Vec<String>,
    /// File of environment variables, one `KEY=VALUE` a line, as for docker; may be repeated
    #[arg(long, value_name = "FILE", help_heading = "What")]
    pub env_file: Vec<PathBuf>,
    /// Secret that the job finds as a file in `$MUSTER_SECRETS_DIR`, under its name or FILE; may be repeated
    #[arg(long, value_name = "NAME[=FILE]", help_heading = "What")]
    pub secret: Vec<String>,
    /// Checkpoint directory; preemption then costs only the work since the last checkpoint
    #[arg(long, value_name = "PATH", help_heading = "What")]
    pub checkpoint: Option<String>,
    /// Label, for searches and policies; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What")]
    pub label: Vec<KeyValue>,
    /// Annotation, for programs; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What")]
    pub annotation: Vec<KeyValue>,
    /// The command to run, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// The locality that a job requires of its GPUs.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Topology {
    /// No requirement
    Any,
    /// GPUs of one NUMA node
    SameNuma,
    /// GPUs joined by NVLink
    Nvlink,
    /// Nodes of one rack
    SameRack,
}

/// The isolation that a job requires from other jobs on a shared GPU.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Isolation {
    /// Any sharing mode
    None,
    /// Memory limits per job
    Memory,
    /// Separate hardware (MIG): memory, bandwidth and faults
    Full,
}

/// The rule of a job for a lost node.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnNodeLost {
    /// Keep running; the job ends only when an operator fences the node
    Wait,
    /// The node kills the job when it loses the server; the job starts elsewhere once that is proven
    Requeue,
    /// Start on another node as soon as the node is unreachable: two copies may run
    RequeueUnsafe,
}

impl JobArgs {
    /// The submission: the fields of the file, overridden by flags.
    pub fn into_job(self, options: &Options) -> Result<SubmitJob, CliError> {
        let mut job = match &self.file {
            Some(file) => sources::read_job_file(file)?,
            None => SubmitJob::default(),
        };
        self.apply_command_flags(&mut job, options)?;
        self.apply_resource_flags(&mut job)?;
        self.apply_schedule_flags(&mut job);
        self.apply_metadata_flags(&mut job)?;
        job.name = self.name.clone().or(job.name.take()).or_else(|| sources::default_name(&self));
        Ok(job)
    }

    fn apply_command_flags(&self, job: &mut SubmitJob, options: &Options) -> Result<(), CliError> {
        if let Some(file) = &self.script {
            job.script = Some(sources::read_script(file)?);
            job.command.clear();
        }
        if !self.command.is_empty() {
            (job.script, job.command, job.args) = (None, self.command.clone(), Vec::new());
        }
        override_with(&mut job.image, &self.image);
        override_with(&mut job.directory, &self.dir);
        job.mounts.extend(self.mount.iter().cloned());
        job.secrets.extend(self.secret.iter().cloned());
        if job.script.is_none() && job.command.is_empty() && job.image.is_none() {
            return Err(CliError::usage("there is nothing to run")
                .hint("put a command after `--`, or use `--script FILE` or `--file JOB.yaml`"));
        }
        if job.directory.is_none() && job.image.is_none() && options.connection.server.loopback {
            job.directory = std::env::current_dir().ok().and_then(|dir| dir.to_str().map(str::to_string));
        }
        Ok(())
    }

    fn apply_resource_flags(&self, job: &mut SubmitJob) -> Result<(), CliError> {
        if !self.gpu_model.is_empty() {
            (job.gpu_model, job.gpu_models) = (None, self.gpu_model.clone());
        }
        override_with(&mut job.gpu_memory_mb, &self.gpu_memory);
        override_with(&mut job.gpu_share, &self.gpu_share);
        override_with(&mut job.isolation, &self.isolation.as_ref().and_then(possible_value_name));
        override_with(&mut job.cpu_cores, &self.cpus);
        override_with(&mut job.memory_mb, &self.mem);
        override_with(&mut job.pool, &self.pool);
        override_with(&mut job.topology, &self.topology.as_ref().and_then(possible_value_name));
        override_with(&mut job.allow_cross_numa, &self.no_cross_numa.then_some(false));
        override_with(&mut job.prefer_nvlink, &self.prefer_nvlink.then_some(true));
        job.node_labels.extend(pairs::pairs_to_map(&self.node_label));
        match (self.tasks, self.gpus) {
            (None, None) => {}
            (None, Some(gpus @ 1..)) if job.tasks.is_empty() => job.gpu_count = Some(gpus),
            // Jobs without GPUs and gangs are submitted as tasks.
            (count, gpus) => apply_task_flags(job, count, gpus)?,
        }
        Ok(())
    }

    fn apply_schedule_flags(&self, job: &mut SubmitJob) {
        if let Some(limit) = &self.time {
            limit.note.iter().for_each(|note| output::print_stderr(note));
            (job.time_limit, job.max_runtime_minutes) = (Some(api_duration(limit.ms)), None);
        }
        override_with(&mut job.signal, &self.signal);
        override_with(&mut job.array, &self.array);
        job.after.extend(self.after.iter().map(|after| DependencyInput::Text(after.clone())));
        override_with(&mut job.start_after, &self.begin.as_ref().map(start_after));
        override_with(&mut job.hold, &self.hold.then_some(true));
        override_with(&mut job.max_restarts, &self.restarts);
        override_with(&mut job.on_node_lost, &self.on_node_lost.as_ref().and_then(possible_value_name));
    }

    fn apply_metadata_flags(&self, job: &mut SubmitJob) -> Result<(), CliError> {
        override_with(&mut job.tenant_id, &self.tenant);
        override_with(&mut job.priority, &self.priority.as_deref().map(parse_priority));
        override_with(&mut job.checkpoint_path, &self.checkpoint);
        for file in &self.env_file {
            job.environment.extend(sources::read_env_file(file)?);
        }
        job.environment.extend(pairs::environment(&self.env)?);
        job.labels.extend(pairs::pairs_to_map(&self.label));
        job.annotations.extend(pairs::pairs_to_map(&self.annotation));
        Ok(())
    }
}

/// The number of tasks: `4`, or `2-8` for an elastic gang that starts with 2 and takes up to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCount {
    min: u32,
    max: Option<u32>,
}

impl FromStr for TaskCount {
    type Err = String;

    fn from_str(text: &str) -> Result<TaskCount, String> {
        let wrong = || format!("`{text}` is neither a number of tasks like `4` nor a range like `2-8`");
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let Some((least, most)) = text.split_once('-') else {
            return Ok(TaskCount { min: number(text)?, max: None });
        };
        Ok(TaskCount { min: number(least)?, max: Some(number(most)?) })
    }
}

fn override_with<T: Clone>(field: &mut Option<T>, flag: &Option<T>) {
    if flag.is_some() {
        field.clone_from(flag);
    }
}

fn apply_task_flags(job: &mut SubmitJob, count: Option<TaskCount>, gpus: Option<u32>) -> Result<(), CliError> {
    if job.tasks.len() > 1 {
        return Err(CliError::usage("`--tasks` and `--gpus` cannot change a file with several task groups")
            .hint("change the task groups in the file"));
    }
    let from_count = job.gpu_count.take();
    let mut task = job.tasks.pop().unwrap_or_else(|| SubmitTask { gpus: from_count, ..SubmitTask::default() });
    if let Some(TaskCount { min, max }) = count {
        (task.count, task.max_count) = (Some(min), max);
    }
    override_with(&mut task.gpus, &gpus);
    job.tasks = vec![task];
    Ok(())
}

/// The earliest start. A moment in the past is accepted with a warning: it may be a mistake.
fn start_after(begin: &ParsedMoment) -> Moment {
    if !begin.is_past {
        return begin.announced_moment("starts not before");
    }
    output::print_stderr(&format!(
        "warning: {} is past, so the job may start at once",
        units::local_time_text(begin.ms)
    ));
    begin.to_api_moment()
}

fn possible_value_name(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_string())
}

/// A span in the format of the API.
pub fn api_duration(ms: i64) -> Span {
    Span::Text(format!("{ms}ms"))
}

/// A number, or a name that the server resolves.
pub fn parse_priority(text: &str) -> Priority {
    text.parse().map(Priority::Number).unwrap_or_else(|_| Priority::Name(text.to_string()))
}

#[cfg(test)]
mod tests;
