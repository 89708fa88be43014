//! Step 1, submit: the submission of a job, and changes of jobs. The flat fields have the names of the
//! specification.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::input::{DependencyInput, Moment, Priority, Span};

/// Submission of a job. At least one of `command`, `script` and `image` must be given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"tenant_id": "default", "name": "api-job", "priority": 500, "gpu_count": 1,
    "gpu_memory_mb": 16000, "cpu_cores": 4, "memory_mb": 32000, "image": "nvidia/cuda:12.0-base"}))]
pub struct SubmitJob {
    /// Tenant of the job. Default: the caller's tenant, or `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// Display name; need not be unique. Default: `job`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// User of the job. Default: the caller's name. Only operators may name another user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Priority, higher first: 0 to 10,000, or `low`, `medium`, `high`, `critical`. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,

    /// Number of whole GPUs, at least 1. Default: 1. A job without GPUs uses `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
    /// Minimum memory of each GPU in MiB; for a GPU share, the memory that the job may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mb: Option<u64>,
    /// Allowed GPU model, for example `H100` or `RTX_5070ti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// Allowed GPU models; empty for any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Share of one GPU, 0.021 to 1; other jobs may use the rest. Default: whole GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_share: Option<f64>,
    /// Isolation between jobs on a shared GPU: `none`, `memory` or `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Main memory in MiB. Default: 1,024.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Task groups of a gang, whose tasks start together or not at all. With `tasks`, `gpu_count` must not be given,
    /// and the other resource fields are defaults for the groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<SubmitTask>,
    /// Accepted for compatibility. All GPUs of a job are always granted together or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_scheduling: Option<bool>,
    /// Required locality of the GPUs: `any`, `same-numa`, `nvlink` or `same-rack`. With `any` they are placed as close
    /// as possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// `false` requires all GPUs on one NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// True to prefer NVLink over a common NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_nvlink: Option<bool>,
    /// Node labels that a node must have, all of them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// Pool that the job is restricted to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,

    /// A shell script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// An OCI image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// A command, without a shell.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Further arguments of the command.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Working directory; with an image, the one in the container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// What the container of a job with an image sees of the node, each as `SOURCE:TARGET` or `SOURCE:TARGET:ro`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// Secrets of the tenant or the user that the job finds as files in the directory `MUSTER_SECRETS_DIR`, each as `NAME` or
    /// `NAME=FILE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,

    /// Time limit, after which the job is stopped: seconds, or a text such as `2h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// Time limit in minutes, instead of `time_limit`; 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_minutes: Option<u64>,
    /// Signal that the tasks get once before the time limit: name or number, then `@` and how long before, in seconds or as
    /// a text: `USR1@300`, `TERM@5m`. Default: 60 seconds before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Indexes of a job array: `0-99`, `0-99%8` (8 at once), `1,4,7-9`, `0-20:5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Dependencies: jobs that must have ended first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<DependencyInput>,
    /// The job does not start before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Moment>,
    /// True to submit the job as held; it waits until it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,

    /// Maximum number of restarts after a failure. Default: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<u32>,
    /// Maximum number of requeues after a lost node or a failed launch. Default: 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requeues: Option<u32>,
    /// Rule for a lost node: `wait`, `requeue` or `requeue-unsafe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_node_lost: Option<String>,
    /// True if the job saves checkpoints, so that preempting it costs less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_enabled: Option<bool>,
    /// Path of the checkpoints, as seen by the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_path: Option<String>,
    /// Interval at which the job saves checkpoints by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_interval: Option<Span>,

    /// Labels, for searching and for policies.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, for programs; for example `muster.sim/runtime`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A task group: tasks of a gang with the same resources, for example sixteen workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubmitTask {
    /// Name of the group. Default: `task`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of tasks. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Maximum number of tasks of an elastic group, which starts with at least `count` tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// GPUs of each task; may be 0. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Minimum memory of each GPU, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mb: Option<u64>,
    /// Allowed GPU models.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Share of one GPU for each task. Default: that of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_share: Option<f64>,
    /// Isolation between jobs on a shared GPU. Default: that of the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores of each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Main memory of each task, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
}

/// Answer to a submission. The job is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Permanent id; for an array, the number that all tasks share.
    #[schema(example = "job-42")]
    pub job_id: String,
    /// Always `submitted`.
    #[schema(example = "submitted")]
    pub status: String,
    /// Message for display.
    pub message: String,
}

/// Changes of a job that has not ended. A field that is not sent stays unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobChange {
    /// New name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// New priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// New time limit; `null` removes it.
    #[serde(deserialize_with = "crate::input::double_option", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub time_limit: Option<Option<Span>>,
    /// New labels, which replace all labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Reason of an action, for the history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ActionReason {
    /// Reason in a sentence; may be empty.
    pub why: String,
}

/// Answer to the cancellation of a job or array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// Message for display.
    pub message: String,
    /// `Cancelled` if all jobs have ended; `Stopping` if processes were ordered to stop. A job whose processes had
    /// exited with code 0 before the stop order ends as completed, not as cancelled.
    pub phase: String,
    /// Number of jobs that are stopping.
    pub stopping: u64,
}

/// Answer to an action that was done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Acknowledgement {
    /// Message for display.
    pub message: String,
}
