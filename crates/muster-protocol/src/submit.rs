//! Step 1, ask: a job to accept. The flat fields are those of the commissioning document, verbatim.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::written::{After, Moment, Priority, Span};

/// A job to accept. At least one of `command`, `script` and `image` must be given.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"tenant_id": "default", "name": "api-job", "priority": 500, "gpu_count": 1,
    "gpu_memory_mb": 16000, "cpu_cores": 4, "memory_mb": 32000, "image": "nvidia/cuda:12.0-base"}))]
pub struct SubmitJob {
    /// Who pays; the caller's tenant, or `default`, when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// For people; need not be unique. `job` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Who asks; the caller's name when not given. Only operators may name somebody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Higher runs first: 0 to 10,000, or `low`, `medium`, `high`, `critical`. 100 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,

    /// Whole GPUs, at least 1; 1 when not given. For a job without GPUs use `tasks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_count: Option<u32>,
    /// Memory that each GPU must have at least, in MiB; of a shared GPU, what the job may use of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mb: Option<u64>,
    /// A GPU model that will do, for example `H100` or `RTX_5070ti`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
    /// GPU models that will do; any when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Share of one GPU, 0.021 to 1, that others may use beside it; whole GPUs when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_share: Option<f64>,
    /// How strictly neighbours on a shared GPU are kept apart: `none`, `memory` or `full`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores; 1 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Main memory in MiB; 1,024 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// A gang of several tasks that start together or not at all. Then `gpu_count` is not given, and the other
    /// resource fields are what tasks get that do not say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<SubmitTask>,
    /// Accepted for compatibility. All GPUs of a job are always given together or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gang_scheduling: Option<bool>,
    /// How close together the GPUs must be: `any`, `same-numa`, `nvlink` or `same-rack`. With `any` they are as close as
    /// possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// `false` demands that all GPUs lie on one NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_cross_numa: Option<bool>,
    /// NVLink is worth more than one NUMA node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer_nvlink: Option<bool>,
    /// Only nodes that carry all of these labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_labels: BTreeMap<String, String>,
    /// A named pool to stay inside of.
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
    /// Its further arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,

    /// The job is stopped when it has run this long: seconds, or a text such as `2h30m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<Span>,
    /// The same in minutes. Give one of the two; 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_runtime_minutes: Option<u64>,
    /// An array of jobs with these indexes instead of one job: `0-99`, `0-99%8` (8 at once), `1,4,7-9`, `0-20:5`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Jobs that must have ended first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    /// Not before this moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_after: Option<Moment>,
    /// Accept it in the held state; it waits until it is released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold: Option<bool>,

    /// Start again after a failure, this many times; 0 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_restarts: Option<u32>,
    /// Come back after a lost node or a failed launch, this many times; 5 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requeues: Option<u32>,
    /// What happens when its node is lost: `wait`, `requeue` or `requeue-unsafe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_node_lost: Option<String>,
    /// It saves its work, so that displacing it costs less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_enabled: Option<bool>,
    /// Where it saves its work, as the job sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_path: Option<String>,
    /// How often it saves its work by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_interval: Option<Span>,

    /// Free words of the owner, searchable.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Free words for machines, for example `muster.sim/runtime`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// Tasks of one kind inside a gang, for example sixteen workers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SubmitTask {
    /// What the group is called; `task` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How many tasks; 1 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// The most tasks it can make use of, for a group that starts with `count` and takes what else is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_count: Option<u32>,
    /// GPUs of each task; 0 is allowed, 1 when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Memory that each GPU must have at least, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_mb: Option<u64>,
    /// GPU models that will do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// Share of one GPU for each task; the job's when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_share: Option<f64>,
    /// How strictly neighbours on a shared GPU are kept apart; the job's when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<String>,
    /// CPU cores of each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<u32>,
    /// Main memory of each task in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
}

/// The answer to a submission. The job is durable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Submitted {
    /// Its id for ever; for an array, the number that all tasks share.
    #[schema(example = "job-42")]
    pub job_id: String,
    /// Always `submitted`.
    #[schema(example = "submitted")]
    pub status: String,
    /// A sentence for people.
    pub message: String,
}

/// What to change of a job that has not ended. What is not sent stays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct JobChange {
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its priority.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Its time limit; `null` lifts it.
    #[serde(deserialize_with = "crate::written::sent", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Span>)]
    pub time_limit: Option<Option<Span>>,
    /// Its labels, all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
}

/// Why something is done, for those who read the history.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reasoned {
    /// A sentence for people; may be empty.
    pub why: String,
}

/// A job, or the tasks of an array, were cancelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Cancelled {
    /// A sentence for people.
    pub message: String,
    /// `Cancelled` if everything has ended; `Stopping` if processes were told to stop. A job whose processes had exited
    /// with code 0 before they were told has done its work: it ends as completed, not as cancelled.
    pub phase: String,
    /// How many jobs are stopping.
    pub stopping: u64,
}

/// It is done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {
    /// A sentence for people.
    pub message: String,
}
