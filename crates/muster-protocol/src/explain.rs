//! Explanation of a waiting job (`muster why`) and of a job that is not submitted yet (`muster plan`).

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::gpu_share::Share;
use crate::job::{JobState, Reason};
use crate::problem::Problem;
use crate::score::Score;

/// Why a job does not run: all its wait reasons, with numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobExplanation {
    /// Job id.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// State of the job.
    pub state: JobState,
    /// Phase, more detailed than `state`.
    pub phase: String,
    /// Summary in one sentence.
    pub summary: String,
    /// Start of the wait, RFC 3339; absent if the job does not wait.
    pub waiting_since: Option<String>,
    /// The same in Unix milliseconds.
    pub waiting_since_ms: Option<i64>,
    /// Duration of the wait, for display.
    pub waited: Option<String>,
    /// Position in the queue, from 1.
    pub queue_position: Option<u64>,
    /// Length of the queue.
    pub queue_length: Option<u64>,
    /// Nodes of the job, if it is placed.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Score of the placement; absent without an alternative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Requested priority.
    pub priority: u32,
    /// Effective priority: the requested priority plus aging minus the fair-share penalty. The queue is ordered by it.
    pub effective_priority: Option<i64>,
    /// Priority gained by waiting.
    pub aging: Option<u32>,
    /// Priority lost because its tenant or user is above the fair share.
    pub fair_share_penalty: Option<u32>,
    /// Fair-share factor: 1 without usage, 0.5 at exactly the fair share, towards 0 above it; 1 if no other tenant
    /// competes.
    pub fair_share_factor: Option<f64>,
    /// Expected remaining GPU-hours, if the objective of the cluster is `fast`: the job with the least comes first.
    #[serde(default)]
    pub expected_gpu_hours: Option<f64>,
    /// All reasons why the job waits, most significant first; empty if it does not wait.
    pub reasons: Vec<Reason>,
    /// Expected start, for display; absent without a forecast.
    pub estimated_start: Option<String>,
    /// Expected start as a range.
    pub expected_start: Option<ExpectedStart>,
    /// Why there is no start range, in one sentence; absent if there is one or the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
    /// Time of its reservation, which no later job may delay, in Unix milliseconds: the job is expected to start by
    /// then. Never after the end of the start range.
    pub reserved_at_ms: Option<i64>,
    /// Requested GPUs, over all tasks.
    #[serde(default)]
    pub gpus: u32,
    /// Jobs that hold eligible GPUs, in order of their expected end; jobs of other tenants only if visible to the
    /// caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<HoldingJob>,
    /// Number of further jobs that hold eligible GPUs: not listed, or not visible to the caller.
    #[serde(default)]
    pub other_holders: u32,
    /// Changes with which it would start at once, the smallest of each kind. Each was tried on a copy of the cluster,
    /// and the caller is allowed to make it.
    #[serde(default)]
    pub sooner_with: Vec<JobRemedy>,
    /// True if the caller may change the job: cancel, hold, release or requeue it.
    #[serde(default)]
    pub may_change: bool,
    /// First jobs ahead in the queue, best first; jobs of other tenants only if visible to the caller.
    #[serde(default)]
    pub ahead: Vec<JobAhead>,
    /// Changes of the wait reasons, oldest first. Kept after the end of the job.
    #[serde(default)]
    pub history: Vec<WaitNote>,
    /// Timeline of the job since its submission, oldest first: waits with their reasons, attempts, preemptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<JobPhase>,
}

/// A job that holds GPUs that another job waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldingJob {
    /// Job id.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// Number of eligible GPUs that it holds, whole or in part.
    pub gpus: u32,
    /// Expected end, RFC 3339; absent without a runtime estimate.
    pub expected_end: Option<String>,
    /// The same in Unix milliseconds.
    pub expected_end_ms: Option<i64>,
    /// True if the expected end is the time limit and not a runtime estimate.
    pub is_time_limit: bool,
}

/// One entry of a job's timeline: a wait, an attempt, or the end of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobPhase {
    /// `waited`, `held`, `starting`, `ran`, `stopping`, `unreported`, `preempted`, `requeued`, `restarted` or
    /// `ended`.
    pub phase: String,
    /// Start, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// Duration in milliseconds; 0 for an instant.
    pub lasted_ms: i64,
    /// True if it is not over yet.
    #[serde(default)]
    pub ongoing: bool,
    /// Text for display, for example `waited 12m: no GPU is free`.
    pub sentence: String,
}

/// A job ahead of another in the queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobAhead {
    /// Job id.
    pub job_id: String,
    /// Name of the job.
    pub name: String,
    /// Tenant of the job.
    pub tenant_id: String,
    /// Requested priority.
    pub priority: u32,
}

/// Wait reasons of a job from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitNote {
    /// Start, RFC 3339.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// All reasons, most significant first.
    pub reasons: Vec<Reason>,
}

/// Start forecast of a job, and how often such forecasts were right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpectedStart {
    /// Earliest expected start, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// Latest expected start, RFC 3339.
    pub to: String,
    /// The same in Unix milliseconds.
    pub to_ms: i64,
    /// Number of recent starts that were within their first forecast range.
    pub ranges_right: u32,
    /// Number of recent starts that had a forecast range.
    pub ranges_told: u32,
}

/// Remedy: a change with which a job would start at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobRemedy {
    /// Text for display, for example `4 GPUs`.
    pub words: String,
    /// True if the change can be made with `PATCH` while the job keeps its queue position; otherwise the job must be
    /// resubmitted.
    pub keeps_its_place: bool,
    /// The change as JSON, for programs.
    #[schema(value_type = Object)]
    pub change: serde_json::Value,
}

/// Result of a dry run: what would happen to a job if it were submitted now. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DryRun {
    /// Kind of result.
    pub outcome: DryRunOutcome,
    /// Summary in one sentence.
    pub summary: String,
    /// Node on which it would run.
    pub node_name: Option<String>,
    /// GPUs that it would get.
    pub gpus: Vec<String>,
    /// GPU shares of its tasks; empty if it would get whole GPUs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// Score of the placement; absent without an alternative.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Jobs that would be preempted for it.
    pub victims: Vec<String>,
    /// Position in the queue that it would have, from 1.
    pub queue_position: Option<u64>,
    /// Length of the queue with this job.
    pub queue_length: Option<u64>,
    /// Reasons why it would wait.
    pub reasons: Vec<Reason>,
    /// Why it would be refused.
    pub refusal: Option<Problem>,
    /// Start forecast, if it would wait.
    #[serde(default)]
    pub expected_start: Option<ExpectedStart>,
    /// Why there is no start forecast, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
    /// Changes with which it would start at once. Each was tried on a copy of the cluster.
    #[serde(default)]
    pub sooner_with: Vec<JobRemedy>,
}

/// Kind of result of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DryRunOutcome {
    /// It would start in the next planning round.
    Starts,
    /// It would start by preempting running jobs.
    Preempts,
    /// It would wait.
    Waits,
    /// It would not be accepted.
    Refused,
}
