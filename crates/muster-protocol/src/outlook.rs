//! Why a job waits, and what would become of a job that was not submitted.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::job::{JobState, Reason};
use crate::problem::Problem;
use crate::score::Score;
use crate::share::Share;

/// Why a job does not run: all its blockers, with numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Which job.
    pub job_id: String,
    /// Its name.
    pub name: String,
    /// Who pays.
    pub tenant_id: String,
    /// Where it stands.
    pub state: JobState,
    /// The finer word.
    pub phase: String,
    /// The answer in one sentence.
    pub summary: String,
    /// Since when it waits, RFC 3339; absent when it does not.
    pub waiting_since: Option<String>,
    /// The same in Unix milliseconds.
    pub waiting_since_ms: Option<i64>,
    /// How long it has waited, for people.
    pub waited: Option<String>,
    /// Where it stands in the queue, from 1.
    pub queue_position: Option<u64>,
    /// How many wait for their turn.
    pub queue_length: Option<u64>,
    /// Where it is, if it has its place.
    #[serde(default)]
    pub nodes: Vec<String>,
    /// Why it is there, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// The priority asked for.
    pub priority: u32,
    /// The priority it is ordered by now: as asked for, plus aging, less the penalty.
    pub effective_priority: Option<i64>,
    /// Priority gained by waiting.
    pub aging: Option<u32>,
    /// Priority lost because its tenant or user has more than others by their shares.
    pub fair_share_penalty: Option<u32>,
    /// 1 for who has nothing, one half for who has just their share, towards 0; 1 where nobody competes.
    pub fair_share_factor: Option<f64>,
    /// GPU-hours that it is expected to take, where the objective of the cluster is `fast`: the least comes first.
    #[serde(default)]
    pub expected_gpu_hours: Option<f64>,
    /// Every blocker, the most telling first; empty when it does not wait.
    pub reasons: Vec<Reason>,
    /// When it may start, for people; absent while nothing honest can be said.
    pub estimated_start: Option<String>,
    /// The same as a range.
    pub expected_start: Option<ExpectedStart>,
    /// Why no start range is told, in one sentence; absent when one is told or the job does not wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
    /// It has a reservation that no job behind it may delay: it is expected to start by then, in Unix milliseconds.
    /// Never after the end of the range.
    pub reserved_at_ms: Option<i64>,
    /// GPUs it asks for, over all tasks.
    #[serde(default)]
    pub gpus: u32,
    /// Jobs that hold GPUs it could use, the first to end first; of other tenants only where the caller may see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<HoldingJob>,
    /// How many more jobs hold such GPUs: beyond those listed, or not visible to the caller.
    #[serde(default)]
    pub other_holders: u32,
    /// Changes with which it would start at once, the smallest of each kind. Each was tried before it is told, and the
    /// caller may make each.
    #[serde(default)]
    pub sooner_with: Vec<SoonerWith>,
    /// True if the caller may change the job: cancel, hold, release or requeue it.
    #[serde(default)]
    pub may_change: bool,
    /// The first of those who are ahead of it, best first; of other tenants only where the caller may see them.
    #[serde(default)]
    pub ahead: Vec<Ahead>,
    /// Why it waited, each time that changed, oldest first. Kept after its end.
    #[serde(default)]
    pub history: Vec<WaitNote>,
    /// What became of it from its submission on, oldest first: waits with their reasons, attempts, preemptions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<JobPhase>,
}

/// A job that holds GPUs that another one waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HoldingJob {
    /// The job's id.
    pub job_id: String,
    /// The job's name.
    pub name: String,
    /// Its tenant.
    pub tenant_id: String,
    /// How many GPUs that would do it holds, whole or in part.
    pub gpus: u32,
    /// When it is expected to end, RFC 3339; absent while it is not known how long jobs run.
    pub expected_end: Option<String>,
    /// The same in Unix milliseconds.
    pub expected_end_ms: Option<i64>,
    /// Whether that is its time limit, and not an estimate from jobs that ended.
    pub is_time_limit: bool,
}

/// One phase of a job: a wait, an attempt, or the end of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobPhase {
    /// `waited`, `held`, `starting`, `ran`, `stopping`, `unreported`, `preempted`, `requeued`, `restarted` or
    /// `ended`.
    pub phase: String,
    /// From when, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// How long, in milliseconds; 0 for what happens at a moment.
    pub lasted_ms: i64,
    /// It is not over yet.
    #[serde(default)]
    pub ongoing: bool,
    /// For people, such as `waited 12m: no GPU is free`.
    pub sentence: String,
}

/// A job that is ahead of another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Ahead {
    /// Which job.
    pub job_id: String,
    /// Its name.
    pub name: String,
    /// Who pays.
    pub tenant_id: String,
    /// The priority it asked for.
    pub priority: u32,
}

/// Why a job waited from a moment on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitNote {
    /// From when, RFC 3339.
    pub at: String,
    /// The same in Unix milliseconds.
    pub at_ms: i64,
    /// Every blocker, the most telling first.
    pub reasons: Vec<Reason>,
}

/// When a job starts, as far as can be told, and how often such ranges were right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExpectedStart {
    /// Not before, RFC 3339.
    pub from: String,
    /// The same in Unix milliseconds.
    pub from_ms: i64,
    /// Not after, RFC 3339.
    pub to: String,
    /// The same in Unix milliseconds.
    pub to_ms: i64,
    /// How many of the last starts were inside the range that was first told.
    pub ranges_right: u32,
    /// Of how many.
    pub ranges_told: u32,
}

/// A change with which a job would start at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SoonerWith {
    /// For people, such as `4 GPUs`.
    pub words: String,
    /// Whether it can be changed as it waits, with `PATCH`; if not, it must be submitted anew.
    pub keeps_its_place: bool,
    /// What to change, for programs.
    #[schema(value_type = Object)]
    pub change: serde_json::Value,
}

/// What would become of a job if it were submitted now. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Outlook {
    /// What would happen.
    pub outcome: Prospect,
    /// The answer in one sentence.
    pub summary: String,
    /// Where it would run.
    pub node_name: Option<String>,
    /// The GPUs it would get.
    pub gpus: Vec<String>,
    /// What its tasks would have of them, one by one, where that is not all of a GPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Share>,
    /// Why it would be there, where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<Score>,
    /// Jobs that would make room for it.
    pub victims: Vec<String>,
    /// Where it would stand in the queue, from 1.
    pub queue_position: Option<u64>,
    /// How many would wait with it.
    pub queue_length: Option<u64>,
    /// Why it would wait.
    pub reasons: Vec<Reason>,
    /// Why it would be refused.
    pub refusal: Option<Problem>,
    /// When it would start, if it waits.
    #[serde(default)]
    pub expected_start: Option<ExpectedStart>,
    /// Why no start range is told, in one sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_estimate: Option<String>,
    /// Changes with which it would start at once. Each was tried before it is told.
    #[serde(default)]
    pub sooner_with: Vec<SoonerWith>,
}

/// What would become of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prospect {
    /// It would start in the next round.
    Starts,
    /// Others would be displaced for it.
    Preempts,
    /// It would wait.
    Waits,
    /// It would not be accepted.
    Refused,
}
