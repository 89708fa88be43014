//! Rows that the queries return, serialisable as JSON. Times are Unix milliseconds.

use std::collections::BTreeMap;

use muster_core::{Event, JobId, JobSpec};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::record::{Record, decode_payload};

/// State of a job, with the names of the specification. The phase is more detailed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits, is held, or is starting.
    Pending,
    /// Runs or is stopping.
    Running,
    /// Ended with exit code 0.
    Completed,
    /// Ended otherwise, and was not cancelled.
    Failed,
    /// Was preempted and waits again.
    Preempted,
    Cancelled,
}

impl JobState {
    pub const ALL: [JobState; 6] = [
        JobState::Pending,
        JobState::Running,
        JobState::Completed,
        JobState::Failed,
        JobState::Preempted,
        JobState::Cancelled,
    ];

    /// States of jobs that have not ended.
    pub const LIVE: [JobState; 3] = [JobState::Pending, JobState::Running, JobState::Preempted];

    /// Stable spelling in tables and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Preempted => "preempted",
            JobState::Cancelled => "cancelled",
        }
    }

    pub fn parse(name: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// A waiting, running or ended job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobRow {
    pub id: JobId,
    pub tenant: String,
    pub user: String,
    pub name: String,
    /// As submitted or changed, without aging and fair share.
    pub priority: u32,
    pub state: JobState,
    /// More detailed than `state`, for example `Held` or `Stopping`.
    pub phase: String,
    /// Why it is held, was queued again, or ended; empty otherwise.
    pub why: String,
    /// GPUs of the gang, whole or shared.
    pub gpus: u64,
    /// Sum of the GPU shares, in thousandths.
    pub gpu_milli: u64,
    /// Requested GPU memory, over all GPUs.
    pub gpu_memory_mib: u64,
    /// CPU cores of the gang.
    pub cpus: u64,
    /// Main memory of the gang.
    pub memory_mib: u64,
    pub time_limit_ms: Option<i64>,
    pub submitted_at: i64,
    /// When its newest attempt was placed.
    pub placed_at: Option<i64>,
    /// When its newest attempt was reported as running on all its nodes.
    pub started_at: Option<i64>,
    /// When the server recorded its end.
    pub ended_at: Option<i64>,
    /// When the processes of its newest attempt ended, which may be before `ended_at`.
    pub ran_until: Option<i64>,
    /// The job is not placed before this time.
    pub wakes_at: Option<i64>,
    /// Number of the newest attempt; 0 before the first.
    pub attempt: u32,
    /// Nodes of the newest attempt.
    pub nodes: Vec<String>,
    /// Exit code of the newest attempt that ended.
    pub exit_code: Option<i32>,
    /// Signal that ended that attempt.
    pub signal: Option<i32>,
    /// Number of preemptions.
    pub preemptions: u32,
    /// Number of restarts after a failure.
    pub restarts: u32,
    /// Number of requeues that are neither preemptions nor restarts after a failure.
    pub requeues: u32,
    /// GPU-milliseconds of all attempts that have ended.
    pub gpu_ms: u64,
    /// CPU-milliseconds of all attempts that have ended.
    pub cpu_ms: u64,
    /// Cost of all attempts that have ended, in millionths.
    pub cost_micro: u64,
    pub labels: BTreeMap<String, String>,
}

/// The tasks of one array that are in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ArrayTasksRow {
    pub state: JobState,
    /// Number of tasks.
    pub tasks: u64,
    /// Lowest index of these tasks.
    pub first: u64,
    /// Highest index of these tasks.
    pub last: u64,
}

/// A job with its spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobDetail {
    #[serde(flatten)]
    pub row: JobRow,
    /// As submitted, with later changes.
    pub spec: JobSpec,
}

/// One execution of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptRow {
    /// Number of the journal entry that placed it; attempts are paged by it.
    pub seq: u64,
    pub job: JobId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    pub tenant: String,
    /// Epoch of the leader that placed it.
    pub epoch: u64,
    /// `Starting`, `Running`, `Stopping`, or the result: `Done`, `Failed`, `Cancelled`, `Preempted`,
    /// `Restarted`, `Requeued`, `Held`.
    pub state: String,
    /// Start of its leases.
    pub placed_at: i64,
    /// When it was reported as running on all its nodes.
    pub started_at: Option<i64>,
    /// When it was ordered to stop.
    pub stopping_at: Option<i64>,
    /// When the server recorded its end on all its nodes and released its leases.
    pub ended_at: Option<i64>,
    /// Cause of the stop order, as JSON of the event.
    pub stop_cause: Option<String>,
    /// Kind of exit: `code`, `signal`, `out-of-memory`, `not-started`, `invalid-job`,
    /// `unknown`.
    pub exit: Option<String>,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    /// Why the exit is `not-started`, `invalid-job` or `unknown`; empty otherwise.
    pub why: String,
    /// GPUs that it holds or held.
    pub gpus: u64,
    pub nodes: Vec<String>,
    /// GPU-milliseconds charged.
    pub gpu_ms: u64,
    /// CPU-milliseconds charged.
    pub cpu_ms: u64,
    /// GiB-milliseconds of main memory charged.
    pub memory_gib_ms: u64,
    /// Cost in millionths.
    pub cost_micro: u64,
    /// End of the charged time: when its processes were gone, if known. `None` while it runs, and if an older release
    /// charged until `ended_at`.
    pub charged_until: Option<i64>,
    /// CPU cores held; `None` until it has ended.
    pub cpus: Option<u64>,
    /// Main memory held; `None` until it has ended.
    pub memory_mib: Option<u64>,
    /// Time limit or runtime estimate; `None` until it has ended.
    pub planned_ms: Option<i64>,
    /// Cost per hour in millionths; `None` until it has ended.
    pub cost_per_hour_micro: Option<u64>,
    /// The node of rank 0, if it is a gang with a port there.
    pub master: Option<String>,
    pub master_port: Option<u32>,
}

/// A lease: a GPU or a part of one, held by an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseRow {
    pub node: String,
    /// Index of the GPU on its node.
    pub gpu: u8,
    /// Rank of the task.
    pub rank: u32,
    /// Empty for a whole GPU, `mps` or `time-slice` for a share, `mig:<profile>@<start>` for a MIG instance.
    pub slot: String,
    /// Share of the compute in thousandths.
    pub compute_milli: u32,
    /// Share of the memory in thousandths.
    pub memory_milli: u32,
    /// Share of the memory in MiB; `None` for a whole GPU.
    pub memory_mib: Option<u64>,
    pub from_ms: i64,
    /// `None` while it is held.
    pub to_ms: Option<i64>,
}

/// An attempt with its leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllocationRow {
    #[serde(flatten)]
    pub attempt: AttemptRow,
    pub leases: Vec<LeaseRow>,
}

/// A journal entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    pub seq: u64,
    pub epoch: u64,
    pub at_ms: i64,
    pub kind: String,
    /// Version of the payload's meaning.
    pub version: u32,
    /// The event as JSON.
    pub payload: String,
}

impl From<Record> for EventRow {
    fn from(record: Record) -> EventRow {
        let Record { seq, epoch, at_ms, kind, version, payload, .. } = record;
        EventRow { seq, epoch, at_ms, kind, version, payload }
    }
}

impl EventRow {
    /// The event, also of a payload that an earlier release wrote.
    pub fn event(&self) -> Result<Event, StoreError> {
        decode_payload(self.seq, &self.kind, self.version, &self.payload)
    }
}

/// Wait reasons of the jobs of one bucket from a time on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitRow {
    pub at_ms: i64,
    /// All reasons as JSON; an empty list if the jobs no longer waited.
    pub reasons: String,
}

/// Usage of one tenant, user or job in a time span.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageRow {
    /// Tenant, user or job.
    pub key: String,
    /// Number of attempts that ended.
    pub attempts: u64,
    /// GPU-milliseconds.
    pub gpu_ms: u64,
    /// CPU-milliseconds.
    pub cpu_ms: u64,
    /// GiB-milliseconds of main memory.
    pub memory_gib_ms: u64,
    /// Cost in millionths.
    pub cost_micro: u64,
    /// Energy in millijoules.
    pub energy_mj: u64,
}

/// An administrative act, done or refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditRow {
    /// Number of its journal entry.
    pub seq: u64,
    pub at_ms: i64,
    /// Name of the actor.
    pub actor: String,
    /// Kind of the actor; `None` for acts that an older release recorded.
    pub actor_kind: Option<String>,
    /// For example `tenant.change`.
    pub act: String,
    pub object: String,
    /// Refusal code, if the act was refused.
    pub refused: Option<String>,
    /// Count; repeated refusals of the same act are recorded together.
    pub times: u32,
}

/// Number of jobs of a tenant in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountRow {
    pub tenant: String,
    pub state: JobState,
    pub jobs: u64,
}
