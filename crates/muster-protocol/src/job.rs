//! A job as the server shows it: where it stands, and all that was asked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::amount::Amount;
use crate::score::Score;
use crate::share::Share;

/// The state of a job; the finer word is the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits, is held, or is being started.
    Pending,
    /// Runs, is being stopped, or its node is out of sight.
    Running,
    /// Ended with exit code 0.
    Completed,
    /// Ended in any other way of its own.
    Failed,
    /// Ran, lost its place, and waits again.
    Preempted,
    /// A person ended it.
    Cancelled,
}

/// A job as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// Its id for ever; `job-42.3` for one task of an array.
    #[schema(example = "job-42")]
    pub id: String,
    /// The same as `id`.
    #[schema(example = "job-42")]
    pub job_id: String,
    /// Who pays.
    pub tenant_id: String,
    /// Who asked.
    pub user: String,
    /// For people.
    pub name: String,
    /// Where it stands.
    pub state: JobState,
    /// The finer word: `Queued`, `Held`, `Starting`, `Running`, `Stopping`, `Done`, `Failed`, `Cancelled`.
    #[schema(example = "Queued")]
    pub phase: String,
    /// Why it is held, waits again, or ended, in a sentence; may be empty.
    pub message: String,
    /// The most telling reason why it waits, in a sentence; `reasons` of the job itself has them all.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// As asked, or as changed since.
    pub priority: u32,
    /// GPUs, all tasks together, whole or shared: what it holds now, or else what it needs at least.
    pub gpu_count: u64,
    /// How much of GPUs that is, where parts are among them: half a GPU is 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub gpu_amount: Option<Amount>,
    /// GPU memory asked for each GPU in MiB; the mean where tasks differ.
    pub gpu_memory_mb: u64,
    /// CPU cores, all tasks together.
    pub cpu_cores: u64,
    /// Main memory in MiB, all tasks together.
    pub memory_mb: u64,
    /// Time limit in whole minutes, rounded up.
    pub max_runtime_minutes: Option<u64>,
    /// Time limit, for people.
    #[schema(example = "2h30m")]
    pub max_runtime: Option<String>,
    /// Time limit in milliseconds.
    pub time_limit_ms: Option<i64>,
    /// When it was accepted, RFC 3339.
    pub submitted_at: String,
    /// The same in Unix milliseconds.
    pub submitted_at_ms: i64,
    /// When its attempt got its GPUs; absent while it waits, also after a former attempt.
    pub scheduled_at: Option<String>,
    /// The same in Unix milliseconds.
    pub scheduled_at_ms: Option<i64>,
    /// When its attempt was seen running; absent while it waits, also after a former attempt.
    pub started_at: Option<String>,
    /// The same in Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// When it ended.
    pub completed_at: Option<String>,
    /// The same in Unix milliseconds.
    pub completed_at_ms: Option<i64>,
    /// It is not placed before this moment.
    pub start_after: Option<String>,
    /// How long its attempt has run, for people; absent while it waits.
    pub actual_duration: Option<String>,
    /// The same in milliseconds.
    pub actual_duration_ms: Option<i64>,
    /// Number of its newest attempt; 0 before the first.
    pub attempts: u32,
    /// The first node of its attempt; absent while it waits.
    pub node_name: Option<String>,
    /// All nodes of its attempt; none while it waits.
    pub nodes: Vec<String>,
    /// Exit code, once it has ended; that of a former attempt is in the list of attempts.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// How often it was preempted.
    pub preempted_count: u32,
    /// How often it failed and was started again.
    pub restart_count: u32,
    /// How often it came back for other reasons.
    pub requeue_count: u32,
    /// GPU-hours of all its attempts, of one that runs until now.
    pub gpu_hours: f64,
    /// What they cost.
    pub cost: f64,
    /// Free words of the owner.
    pub labels: BTreeMap<String, String>,
    /// The tasks of the array that this row stands for; only in a list with `group=array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_tasks: Option<ArrayTasks>,
}

/// The tasks of an array, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayTasks {
    /// The lowest index.
    pub first: u64,
    /// The highest.
    pub last: u64,
    /// How many tasks, in every state.
    pub tasks: u64,
    /// How many are in each state.
    pub by_state: BTreeMap<String, u64>,
}

/// One page of jobs, newest first or as `sort` says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs of this page.
    pub jobs: Vec<JobSummary>,
    /// How many there are on all pages together.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}

/// A job with all that was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// Where it stands.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// The GPUs it holds now.
    #[schema(example = json!(["gpu01/gpu-0"]))]
    pub allocated_gpus: Vec<String>,
    /// What its tasks have of them, one by one, where that is not all of a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// The most that each of them may draw, in watts, where a policy said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_power_max_watts: Option<f64>,
    /// Where it stands in the queue, from 1; absent when it does not wait for its turn.
    pub queue_position: Option<u64>,
    /// How many wait for their turn.
    pub queue_length: Option<u64>,
    /// How long it still waits by the newest forecast, for people; absent when it does not wait for its turn and while
    /// there is no forecast.
    #[schema(example = "5m to 20m")]
    pub estimated_wait: Option<String>,
    /// Why it waits: every blocker, the most telling first.
    pub reasons: Vec<Reason>,
    /// How many tasks are in each state, where the id means a whole array.
    pub array: Option<BTreeMap<String, u64>>,
    /// Where its output is read.
    #[schema(example = "/api/v1/jobs/job-42/logs")]
    pub logs: String,
    /// What was measured of it, by name.
    pub metrics: BTreeMap<String, f64>,

    /// The gang, group by group.
    pub tasks: Vec<Task>,
    /// As submitted, `true` when not given. The GPUs of a job are granted together or not at all either way.
    pub gang_scheduling: bool,
    /// How close together the GPUs want to be.
    pub topology: String,
    /// Whether its GPUs may lie on several NUMA nodes, where something was said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// NVLink is worth more to it than one NUMA node.
    #[serde(default)]
    pub prefer_nvlink: bool,
    /// GPU models that will do, over all groups; any when empty.
    pub gpu_models: Vec<String>,
    /// Only nodes that carry all of these labels.
    pub node_labels: BTreeMap<String, String>,
    /// The pool it stays inside of.
    pub pool: Option<String>,
    /// A shell script.
    pub script: Option<String>,
    /// Environment variables. Only the job's owner sees the values; for all others, admins too, each is `***`.
    pub environment: BTreeMap<String, String>,
    /// True where the values of `environment` are hidden from the caller.
    #[serde(default)]
    pub environment_hidden: bool,
    /// An OCI image.
    pub image: Option<String>,
    /// A command, without a shell.
    pub command: Vec<String>,
    /// Its further arguments.
    pub args: Vec<String>,
    /// Working directory.
    pub directory: Option<String>,
    /// Jobs that must have ended first, as `job-1:succeeded`.
    pub after: Vec<String>,
    /// How often it may start again after a failure.
    pub max_restarts: u32,
    /// How often it may come back for other reasons.
    pub max_requeues: u32,
    /// What happens when its node is lost.
    pub on_node_lost: String,
    /// It saves its work.
    pub checkpoint_enabled: bool,
    /// Where.
    pub checkpoint_path: Option<String>,
    /// Free words for machines.
    pub annotations: BTreeMap<String, String>,

    /// How long it is expected to run, for people. Always null in this version: learned estimates are not there yet.
    pub estimated_duration: Option<String>,
    /// How sure that is, 0 to 1. Always null in this version: learned estimates are not there yet.
    pub prediction_confidence: Option<f64>,
    /// Mean utilisation of its GPUs, 0 to 1. Always null in this version: utilisation is not measured yet.
    pub gpu_utilization: Option<f64>,
    /// When it was accepted, RFC 3339.
    pub created_at: String,
    /// When something about it last changed, RFC 3339.
    pub updated_at: String,
}

/// Tasks of one kind inside a gang.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// What the group is called.
    pub name: String,
    /// How many tasks; of an elastic group the fewest it starts with.
    pub count: u32,
    /// The most tasks it takes, where that is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// GPUs of each.
    pub gpus: u32,
    /// GPU models that will do; any when empty.
    pub gpu_models: Vec<String>,
    /// Memory that each GPU must have at least, in MiB.
    pub gpu_memory_mb: u64,
    /// Share of each GPU, up to 1.
    pub gpu_share: f64,
    /// How strictly neighbours on a shared GPU are kept apart; absent for whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores of each.
    pub cpu_cores: u32,
    /// Main memory of each in MiB.
    pub memory_mb: u64,
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// A fixed word, the same in command line, API and metrics.
    #[schema(example = "Fragmented")]
    pub reason: String,
    /// One sentence for people, with the numbers.
    pub sentence: String,
    /// Since when it holds, RFC 3339, as far as that was noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
}

/// One try at running a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Which job.
    pub job_id: String,
    /// From 1.
    pub attempt: u32,
    /// `Starting`, `Running`, `Stopping`, or how it ended: `Done`, `Failed`, `Cancelled`, `Preempted`,
    /// `Restarted`, `Requeued`, `Held`.
    pub state: String,
    /// Under which leadership it was placed.
    pub epoch: u64,
    /// When it got its GPUs.
    pub placed_at: String,
    /// The same in Unix milliseconds.
    pub placed_at_ms: i64,
    /// When it was seen running on all its nodes.
    pub started_at: Option<String>,
    /// The same in Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// When the server knew that it was over, and its GPUs were free again.
    pub ended_at: Option<String>,
    /// The same in Unix milliseconds.
    pub ended_at_ms: Option<i64>,
    /// Why it was told to stop, if it was: `cancelled`, `time-limit`, `preempted`, `requeued`, `held`, `gang-failed`.
    pub stop_cause: Option<String>,
    /// How its processes ended: `code`, `signal`, `not-started`, `unknown`.
    pub exit: Option<String>,
    /// Exit code, if there is one.
    pub exit_code: Option<i32>,
    /// Signal, if there is one.
    pub signal: Option<i32>,
    /// What is known beyond that.
    pub message: String,
    /// GPUs it holds or held.
    pub gpu_count: u64,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// Why it was placed there, where there was a choice, while it is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// GPU-hours charged.
    pub gpu_hours: f64,
    /// What they cost.
    pub cost: f64,
    /// Until when usage was charged: when its processes were gone. Earlier than `ended_at` where the server heard of the
    /// end later, for example after an outage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_until: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_until_ms: Option<i64>,
}

/// The attempts of a job, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct AttemptList {
    /// The attempts.
    pub attempts: Vec<Attempt>,
}

/// A piece of a job's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPiece {
    /// Which job.
    pub job_id: String,
    /// Which attempt.
    pub attempt: u32,
    /// Which task of the gang.
    pub rank: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// Where this piece begins, in bytes.
    pub offset: u64,
    /// Where the next piece begins: send it as `offset`.
    pub next_offset: u64,
    /// No more will come: the attempt has ended and all of its output was read.
    pub complete: bool,
    /// The output; bytes that are not UTF-8 are replaced.
    pub text: String,
}
