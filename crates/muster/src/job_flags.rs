//! Step 1, ask: the flags that describe a job, shared by `submit`, `run` and `plan`.

mod pairs;
mod sources;

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use muster_protocol::submit::{SubmitJob, SubmitTask};
use muster_protocol::written::{After, Moment, Priority, Span};

use crate::error::CliError;
use crate::options::Options;
use crate::units::TimeLimit;
use crate::when::Given;
use crate::{output, units, when};
use pairs::Pair;

/// A job, as flags. What a file says with `--file`, flags override.
#[derive(Debug, Clone, Default, Args)]
pub struct JobArgs {
    /// Read the job from a YAML or JSON file; flags override what it says; `-` is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Name for people [default: the program's]
    #[arg(long)]
    pub name: Option<String>,
    /// Who pays
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<String>,
    /// Higher runs first: 0 to 10000, or low, medium, high, critical
    #[arg(long, value_name = "N|NAME")]
    pub priority: Option<String>,

    /// GPUs, of each task [default: 1]
    #[arg(long, value_name = "N", value_parser = units::gpus, help_heading = "Resources")]
    #[arg(allow_negative_numbers = true)]
    pub gpus: Option<u32>,
    /// GPU model that will do, for example H100; may be repeated
    #[arg(long, value_name = "MODEL", value_delimiter = ',', help_heading = "Resources")]
    pub gpu_model: Vec<String>,
    /// A part of one GPU, beside others, for example 0.5
    #[arg(long, value_name = "PART", value_parser = units::share, help_heading = "Resources")]
    pub gpu_share: Option<f64>,
    /// How strictly neighbours on a shared GPU are kept apart: none, memory or full
    #[arg(long, value_name = "HOW", help_heading = "Resources", hide_possible_values = true)]
    pub isolation: Option<Isolation>,
    /// Memory that each GPU must have, for example 40G; of a shared one, what it may use of it
    #[arg(long, value_name = "SIZE", value_parser = units::memory_mib, help_heading = "Resources")]
    pub gpu_memory: Option<u64>,
    /// CPU cores, of each task
    #[arg(long, value_name = "N", help_heading = "Resources")]
    pub cpus: Option<u32>,
    /// Main memory, of each task, for example 64G
    #[arg(long, value_name = "SIZE", value_parser = units::memory_mib, help_heading = "Resources")]
    pub mem: Option<u64>,
    /// So many tasks that start together, each with the resources above; 2-8 starts with 2 and takes up to 8
    #[arg(long, value_name = "N|MIN-MAX", help_heading = "Resources")]
    pub tasks: Option<TaskCount>,
    /// Only GPUs of this pool, as policies register it
    #[arg(long, value_name = "POOL", help_heading = "Resources")]
    pub pool: Option<String>,
    /// How close together the GPUs must be: any, same-numa, nvlink or same-rack
    #[arg(long, value_name = "WISH", help_heading = "Resources", hide_possible_values = true)]
    pub topology: Option<Topology>,
    /// The GPUs of a task must lie on one NUMA node
    #[arg(long, help_heading = "Resources")]
    pub no_cross_numa: bool,
    /// NVLink is worth more than one NUMA node
    #[arg(long, help_heading = "Resources")]
    pub prefer_nvlink: bool,
    /// Only nodes with this label; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Resources")]
    pub node_label: Vec<Pair>,

    /// Stop it after this time, for example 2h; as in Slurm 90 is minutes, 90:00 minutes and seconds
    #[arg(long, value_name = "TIME", value_parser = units::time_limit, help_heading = "When")]
    #[arg(allow_hyphen_values = true)]
    pub time: Option<TimeLimit>,
    /// An array of jobs: 0-99, 0-99%8 (8 at once), 1,4,7-9
    #[arg(long, value_name = "INDEXES", help_heading = "When")]
    pub array: Option<String>,
    /// After this job has succeeded; `job-1:ended` and `job-1:failed` also work; may be repeated
    #[arg(long, value_name = "JOB", value_delimiter = ',', help_heading = "When")]
    pub after: Vec<String>,
    /// Not before this moment, in your time zone: 18:00, tomorrow, 2026-11-18T18:00, or a span from now such as 2h
    #[arg(long, value_name = "WHEN", value_parser = when::moment, help_heading = "When")]
    #[arg(allow_hyphen_values = true)]
    pub begin: Option<Given>,
    /// Accept it, and wait for `muster release`
    #[arg(long, help_heading = "When")]
    pub hold: bool,
    /// Start again after a failure, this many times
    #[arg(long, value_name = "N", help_heading = "When")]
    pub restarts: Option<u32>,
    /// When its node is lost: wait, requeue or requeue-unsafe
    #[arg(long, value_name = "RULE", help_heading = "When", hide_possible_values = true)]
    pub on_node_lost: Option<OnNodeLost>,

    /// Run this shell script; `-` reads it from standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command", help_heading = "What")]
    pub script: Option<PathBuf>,
    /// OCI image to run it in
    #[arg(long, help_heading = "What")]
    pub image: Option<String>,
    /// Working directory [default: this one, when the server is on this machine]
    #[arg(long, value_name = "DIR", help_heading = "What")]
    pub dir: Option<String>,
    /// Environment variable; `KEY` alone passes yours on; may be repeated
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "What")]
    pub env: Vec<String>,
    /// Where it saves its work, so that displacing it costs less
    #[arg(long, value_name = "PATH", help_heading = "What")]
    pub checkpoint: Option<String>,
    /// Free words to find it by; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What")]
    pub label: Vec<Pair>,
    /// Free words for machines; may be repeated
    #[arg(long, value_name = "KEY=VALUE", help_heading = "What")]
    pub annotation: Vec<Pair>,
    /// The command, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// How close together the GPUs of a job must be.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Topology {
    /// Wherever there is room
    Any,
    /// On GPUs of one NUMA node
    SameNuma,
    /// On GPUs joined by NVLink
    Nvlink,
    /// On nodes of one rack
    SameRack,
}

/// How strictly the neighbours on a shared GPU are kept apart.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Isolation {
    /// However the GPU is shared
    None,
    /// Nobody can take more memory than they have
    Memory,
    /// In hardware: memory, bandwidth and faults
    Full,
}

/// What happens to a job when its node is lost.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OnNodeLost {
    /// Wait until the node is fenced or comes back
    Wait,
    /// Start elsewhere after it has stopped itself
    Requeue,
    /// Start elsewhere at once; two copies may run
    RequeueUnsafe,
}

impl JobArgs {
    /// The job to ask for.
    pub fn into_job(self, options: &Options) -> Result<SubmitJob, CliError> {
        let mut job = match &self.file {
            Some(file) => sources::job_file(file)?,
            None => SubmitJob::default(),
        };
        self.lay_what(&mut job, options)?;
        self.lay_resources(&mut job)?;
        self.lay_when(&mut job);
        self.lay_words(&mut job)?;
        job.name = self.name.clone().or(job.name.take()).or_else(|| sources::usual_name(&self));
        Ok(job)
    }

    fn lay_what(&self, job: &mut SubmitJob, options: &Options) -> Result<(), CliError> {
        if let Some(file) = &self.script {
            job.script = Some(sources::script(file)?);
            job.command.clear();
        }
        if !self.command.is_empty() {
            (job.script, job.command, job.args) = (None, self.command.clone(), Vec::new());
        }
        over(&mut job.image, &self.image);
        over(&mut job.directory, &self.dir);
        if job.script.is_none() && job.command.is_empty() && job.image.is_none() {
            return Err(CliError::usage("there is nothing to run")
                .hint("put a command after `--`, or use `--script FILE` or `--file JOB.yaml`"));
        }
        if job.directory.is_none() && job.image.is_none() && options.connection.server.loopback {
            job.directory = std::env::current_dir().ok().and_then(|dir| dir.to_str().map(str::to_string));
        }
        Ok(())
    }

    fn lay_resources(&self, job: &mut SubmitJob) -> Result<(), CliError> {
        if !self.gpu_model.is_empty() {
            (job.gpu_model, job.gpu_models) = (None, self.gpu_model.clone());
        }
        over(&mut job.gpu_memory_mb, &self.gpu_memory);
        over(&mut job.gpu_share, &self.gpu_share);
        over(&mut job.isolation, &self.isolation.as_ref().and_then(word));
        over(&mut job.cpu_cores, &self.cpus);
        over(&mut job.memory_mb, &self.mem);
        over(&mut job.pool, &self.pool);
        over(&mut job.topology, &self.topology.as_ref().and_then(word));
        over(&mut job.allow_cross_numa, &self.no_cross_numa.then_some(false));
        over(&mut job.prefer_nvlink, &self.prefer_nvlink.then_some(true));
        job.node_labels.extend(pairs::map(&self.node_label));
        match (self.tasks, self.gpus) {
            (None, None) => {}
            (None, Some(gpus @ 1..)) if job.tasks.is_empty() => job.gpu_count = Some(gpus),
            // A job without GPUs, and a gang, are said in tasks.
            (count, gpus) => lay_tasks(job, count, gpus)?,
        }
        Ok(())
    }

    fn lay_when(&self, job: &mut SubmitJob) {
        if let Some(limit) = &self.time {
            limit.note.iter().for_each(|note| output::talk(note));
            (job.time_limit, job.max_runtime_minutes) = (Some(span(limit.ms)), None);
        }
        over(&mut job.array, &self.array);
        job.after.extend(self.after.iter().map(|after| After::Text(after.clone())));
        over(&mut job.start_after, &self.begin.as_ref().map(begins));
        over(&mut job.hold, &self.hold.then_some(true));
        over(&mut job.max_restarts, &self.restarts);
        over(&mut job.on_node_lost, &self.on_node_lost.as_ref().and_then(word));
    }

    fn lay_words(&self, job: &mut SubmitJob) -> Result<(), CliError> {
        over(&mut job.tenant_id, &self.tenant);
        over(&mut job.priority, &self.priority.as_deref().map(priority));
        over(&mut job.checkpoint_path, &self.checkpoint);
        job.environment.extend(pairs::environment(&self.env)?);
        job.labels.extend(pairs::map(&self.label));
        job.annotations.extend(pairs::map(&self.annotation));
        Ok(())
    }
}

/// How many tasks: `4`, or `2-8` for a gang that starts with 2 and takes up to 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskCount {
    least: u32,
    most: Option<u32>,
}

impl FromStr for TaskCount {
    type Err = String;

    fn from_str(text: &str) -> Result<TaskCount, String> {
        let wrong = || format!("`{text}` is neither a number of tasks like `4` nor a range like `2-8`");
        let number = |text: &str| text.parse().map_err(|_| wrong());
        let Some((least, most)) = text.split_once('-') else {
            return Ok(TaskCount { least: number(text)?, most: None });
        };
        Ok(TaskCount { least: number(least)?, most: Some(number(most)?) })
    }
}

fn over<T: Clone>(field: &mut Option<T>, said: &Option<T>) {
    if said.is_some() {
        field.clone_from(said);
    }
}

fn lay_tasks(job: &mut SubmitJob, count: Option<TaskCount>, gpus: Option<u32>) -> Result<(), CliError> {
    if job.tasks.len() > 1 {
        return Err(CliError::usage("the file describes several groups of tasks; change them there"));
    }
    let from_count = job.gpu_count.take();
    let mut task =
        job.tasks.pop().unwrap_or_else(|| SubmitTask { gpus: from_count, ..SubmitTask::default() });
    if let Some(TaskCount { least, most }) = count {
        (task.count, task.max_count) = (Some(least), most);
    }
    over(&mut task.gpus, &gpus);
    job.tasks = vec![task];
    Ok(())
}

/// When it may start. A moment that is over is taken, and told: it may be a slip.
fn begins(begin: &Given) -> Moment {
    if !begin.past {
        return begin.told("starts not before");
    }
    output::talk(&format!("warning: {} is past, so the job may start at once", units::moment(begin.ms)));
    begin.moment()
}

fn word(value: &impl ValueEnum) -> Option<String> {
    value.to_possible_value().map(|value| value.get_name().to_string())
}

/// A span as the API reads it.
pub fn span(ms: i64) -> Span {
    Span::Text(format!("{ms}ms"))
}

/// A number, or a name for the server to know.
pub fn priority(text: &str) -> Priority {
    text.parse().map(Priority::Number).unwrap_or_else(|_| Priority::Name(text.to_string()))
}

#[cfg(test)]
mod tests;
