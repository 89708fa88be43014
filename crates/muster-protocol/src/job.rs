//! Jobs in lists and in detail, their attempts and their output.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu_amount::GpuAmount;
use crate::gpu_share::Share;
use crate::score::Score;

/// State of a job. The phase is more detailed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits, is held, or is starting.
    Pending,
    /// Runs, is stopping, or its node is unreachable.
    Running,
    /// Ended with exit code 0.
    Completed,
    /// Ended otherwise, and was not cancelled.
    Failed,
    /// Was preempted and waits again.
    Preempted,
    /// Was cancelled.
    Cancelled,
}

/// A job as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobSummary {
    /// Permanent id; `job-42.3` for one task of an array.
    #[schema(example = "job-42")]
    pub id: String,
    /// The same as `id`.
    #[schema(example = "job-42")]
    pub job_id: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// User who submitted it.
    pub user: String,
    /// Display name; need not be unique.
    pub name: String,
    /// State of the job.
    pub state: JobState,
    /// Phase, more detailed than `state`: `Queued`, `Held`, `Starting`, `Running`, `Stopping`, `Done`, `Failed`,
    /// `Cancelled`.
    #[schema(example = "Queued")]
    pub phase: String,
    /// Why it is held, was queued again, or ended, in a sentence; may be empty.
    pub message: String,
    /// Most significant wait reason, in a sentence; `reasons` of the job lists all.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Priority as submitted or changed, without aging and fair share.
    pub priority: u32,
    /// GPUs of all tasks, whole or shared: those it holds now, otherwise the fewest it needs.
    pub gpu_count: u64,
    /// Amount of GPUs, if it includes GPU shares: half a GPU is 0.5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub gpu_amount: Option<GpuAmount>,
    /// Requested memory per GPU in MiB; the mean if tasks differ.
    pub gpu_memory_mb: u64,
    /// CPU cores of all tasks.
    pub cpu_cores: u64,
    /// Main memory of all tasks, in MiB.
    pub memory_mb: u64,
    /// Time limit in whole minutes, rounded up.
    pub max_runtime_minutes: Option<u64>,
    /// Time limit, for display.
    #[schema(example = "2h30m")]
    pub max_runtime: Option<String>,
    /// Time limit in milliseconds.
    pub time_limit_ms: Option<i64>,
    /// Time of submission, RFC 3339.
    pub submitted_at: String,
    /// The same in Unix milliseconds.
    pub submitted_at_ms: i64,
    /// When its attempt was placed; absent while the job waits, also after an earlier attempt.
    pub scheduled_at: Option<String>,
    /// The same in Unix milliseconds.
    pub scheduled_at_ms: Option<i64>,
    /// When its attempt was reported as running; absent while the job waits, also after an earlier attempt.
    pub started_at: Option<String>,
    /// The same in Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// When it ended.
    pub completed_at: Option<String>,
    /// The same in Unix milliseconds.
    pub completed_at_ms: Option<i64>,
    /// The job is not placed before this time.
    pub start_after: Option<String>,
    /// Runtime of its attempt, for display; absent while the job waits.
    pub actual_duration: Option<String>,
    /// The same in milliseconds.
    pub actual_duration_ms: Option<i64>,
    /// Number of the newest attempt; 0 before the first.
    pub attempts: u32,
    /// First node of its attempt; absent while the job waits.
    pub node_name: Option<String>,
    /// All nodes of its attempt; empty while the job waits.
    pub nodes: Vec<String>,
    /// Exit code of an ended job; exit codes of earlier attempts are in the list of attempts.
    pub exit_code: Option<i32>,
    /// Signal that ended the job.
    pub signal: Option<i32>,
    /// Number of preemptions.
    pub preempted_count: u32,
    /// Number of restarts after a failure.
    pub restart_count: u32,
    /// Number of requeues that are neither preemptions nor restarts after a failure.
    pub requeue_count: u32,
    /// GPU-hours of all attempts; a running attempt counts until now.
    pub gpu_hours: f64,
    /// Cost of the GPU-hours.
    pub cost: f64,
    /// Labels of the job.
    pub labels: BTreeMap<String, String>,
    /// Tasks of the array that this row represents; only in a list with `group=array`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array_tasks: Option<ArrayTasks>,
}

/// Counts of the tasks of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ArrayTasks {
    /// Lowest index.
    pub first: u64,
    /// Highest index.
    pub last: u64,
    /// Number of tasks in all states.
    pub tasks: u64,
    /// Number of tasks by state.
    pub by_state: BTreeMap<String, u64>,
}

/// One page of jobs, newest first or in the order of `sort`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobList {
    /// The jobs of this page.
    pub jobs: Vec<JobSummary>,
    /// Number of jobs on all pages.
    pub total: u64,
    /// Send it as `cursor` to get the next page; absent on the last one.
    pub next_cursor: Option<String>,
}

/// A job with its submitted spec.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Job {
    /// The fields of lists.
    #[serde(flatten)]
    pub summary: JobSummary,
    /// GPUs that it holds now.
    #[schema(example = json!(["gpu01/gpu-0"]))]
    pub allocated_gpus: Vec<String>,
    /// GPU shares of its tasks; empty if it holds whole GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// Power limit of each of its GPUs in watts, if a policy sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_power_max_watts: Option<f64>,
    /// Position in the queue, from 1; absent if it is not queued.
    pub queue_position: Option<u64>,
    /// Length of the queue.
    pub queue_length: Option<u64>,
    /// Remaining wait by the newest forecast, for display; absent without a forecast and if the job is not queued.
    #[schema(example = "5m to 20m")]
    pub estimated_wait: Option<String>,
    /// All wait reasons, most significant first.
    pub reasons: Vec<Reason>,
    /// Number of tasks by state, if the id names a whole array.
    pub array: Option<BTreeMap<String, u64>>,
    /// Path of its output.
    #[schema(example = "/api/v1/jobs/job-42/logs")]
    pub logs: String,
    /// Measured values, by name.
    pub metrics: BTreeMap<String, f64>,

    /// Task groups of the gang.
    pub tasks: Vec<Task>,
    /// As submitted; default: `true`. In either case all GPUs of a job are granted together or not at all.
    pub gang_scheduling: bool,
    /// Required locality of the GPUs.
    pub topology: String,
    /// True if its GPUs may be on several NUMA nodes; absent if not submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// True if NVLink is preferred over a common NUMA node.
    #[serde(default)]
    pub prefer_nvlink: bool,
    /// Signal that the tasks get before the time limit, for example `USR1@5m`; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub early_signal: Option<String>,
    /// Allowed GPU models, over all task groups; empty for any.
    pub gpu_models: Vec<String>,
    /// Node labels that a node must have, all of them.
    pub node_labels: BTreeMap<String, String>,
    /// Pool that the job is restricted to.
    pub pool: Option<String>,
    /// A shell script.
    pub script: Option<String>,
    /// Environment variables. Only the owner of the job sees the values; for all other callers, including admins, each
    /// is `***`.
    pub environment: BTreeMap<String, String>,
    /// True if the values of `environment` are hidden from the caller.
    #[serde(default)]
    pub environment_hidden: bool,
    /// An OCI image.
    pub image: Option<String>,
    /// A command, without a shell.
    pub command: Vec<String>,
    /// Further arguments of the command.
    pub args: Vec<String>,
    /// Working directory.
    pub directory: Option<String>,
    /// What the container sees of the node, each as `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
    #[serde(default)]
    pub mounts: Vec<String>,
    /// Names of the secrets that the job finds as files, each as `NAME` or `NAME=FILE`.
    #[serde(default)]
    pub secrets: Vec<String>,
    /// Dependencies, for example `job-1:succeeded`.
    pub after: Vec<String>,
    /// Maximum number of restarts after a failure.
    pub max_restarts: u32,
    /// Maximum number of requeues after a lost node or a failed launch.
    pub max_requeues: u32,
    /// Rule for a lost node: `wait`, `requeue` or `requeue-unsafe`.
    pub on_node_lost: String,
    /// True if the job saves checkpoints.
    pub checkpoint_enabled: bool,
    /// Path of the checkpoints.
    pub checkpoint_path: Option<String>,
    /// Annotations of the job.
    pub annotations: BTreeMap<String, String>,

    /// Expected runtime, for display. Always null in this version: there is no prediction by machine learning yet.
    pub estimated_duration: Option<String>,
    /// Confidence of the expected runtime, 0 to 1. Always null in this version: there is no prediction by machine learning yet.
    pub prediction_confidence: Option<f64>,
    /// Mean utilisation of its GPUs, 0 to 1. Always null in this version: utilisation is not measured yet.
    pub gpu_utilization: Option<f64>,
    /// Time of submission, RFC 3339.
    pub created_at: String,
    /// Time of the last change, RFC 3339.
    pub updated_at: String,
}

/// A task group: tasks of a gang with the same resources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Task {
    /// Name of the group.
    pub name: String,
    /// Number of tasks; the minimum of an elastic group.
    pub count: u32,
    /// Maximum number of tasks of an elastic group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// GPUs of each task.
    pub gpus: u32,
    /// Allowed GPU models; empty for any.
    pub gpu_models: Vec<String>,
    /// Minimum memory of each GPU, in MiB.
    pub gpu_memory_mb: u64,
    /// Share of each GPU, at most 1.
    pub gpu_share: f64,
    /// Isolation between jobs on a shared GPU; absent for whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores of each task.
    pub cpu_cores: u32,
    /// Main memory of each task, in MiB.
    pub memory_mb: u64,
}

/// One wait reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reason {
    /// Stable code, the same in CLI, API and metrics.
    #[schema(example = "Fragmented")]
    pub reason: String,
    /// One sentence with the numbers, for display.
    pub sentence: String,
    /// Start of this reason, RFC 3339; absent if it was not recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The same in Unix milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<i64>,
}

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Attempt {
    /// Job id.
    pub job_id: String,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// `Starting`, `Running`, `Stopping`, or the result: `Done`, `Failed`, `Cancelled`, `Preempted`,
    /// `Restarted`, `Requeued`, `Held`.
    pub state: String,
    /// Epoch of the leader that placed it.
    pub epoch: u64,
    /// Start of its leases, RFC 3339.
    pub placed_at: String,
    /// The same in Unix milliseconds.
    pub placed_at_ms: i64,
    /// When it was reported as running on all its nodes.
    pub started_at: Option<String>,
    /// The same in Unix milliseconds.
    pub started_at_ms: Option<i64>,
    /// When the server recorded its end and released its leases.
    pub ended_at: Option<String>,
    /// The same in Unix milliseconds.
    pub ended_at_ms: Option<i64>,
    /// Cause of the stop order, if there was one: `cancelled`, `time-limit`, `preempted`, `requeued`, `held`,
    /// `gang-failed`, `late-start`.
    pub stop_cause: Option<String>,
    /// Kind of exit of its processes: `code`, `signal`, `out-of-memory`, `not-started`, `invalid-job`,
    /// `unknown`.
    pub exit: Option<String>,
    /// Exit code, if the processes exited with one.
    pub exit_code: Option<i32>,
    /// Signal, if one ended the processes.
    pub signal: Option<i32>,
    /// Further details of the exit; may be empty.
    pub message: String,
    /// Number of GPUs that it holds or held.
    pub gpu_count: u64,
    /// Nodes of the attempt.
    pub nodes: Vec<String>,
    /// Node of rank 0 and the port that a gang holds there, for example `gpu01:29500`; absent if it is no gang.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master: Option<String>,
    /// Score of the placement; absent without an alternative and after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// GPU-hours charged.
    pub gpu_hours: f64,
    /// Cost of the GPU-hours.
    pub cost: f64,
    /// End of the charged time: when its processes were gone. Earlier than `ended_at` if the server received the report
    /// of the end later, for example after an outage.
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

/// A chunk of a job's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LogPiece {
    /// Job id.
    pub job_id: String,
    /// Number of the attempt.
    pub attempt: u32,
    /// Rank of the task.
    pub rank: u32,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// The node that holds the output; `None` if the task has not been placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Start of this chunk, in bytes.
    pub offset: u64,
    /// Start of the next chunk; send it as `offset`.
    pub next_offset: u64,
    /// Size of the output so far, in bytes.
    pub size: u64,
    /// Bytes before this chunk that were requested and no longer exist: the head of a large output is removed to limit
    /// its disk use.
    pub skipped_bytes: u64,
    /// True if there will be no more output: the attempt has ended and all its output was read.
    pub complete: bool,
    /// The output; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// The unchanged bytes of the output in base64, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
}
