//! What the tables answer: plain rows, ready to be written as JSON. Times are Unix milliseconds.

use std::collections::BTreeMap;

use muster_core::{JobId, JobSpec};
use serde::{Deserialize, Serialize};

/// The state of a job in the words of the commissioning document; the finer word is the phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Waits, is held, or is being started.
    Pending,
    /// Runs or is being stopped.
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

impl JobState {
    /// Every state there is.
    pub const ALL: [JobState; 6] = [
        JobState::Pending,
        JobState::Running,
        JobState::Completed,
        JobState::Failed,
        JobState::Preempted,
        JobState::Cancelled,
    ];

    /// The states of jobs that have not ended.
    pub const LIVE: [JobState; 3] = [JobState::Pending, JobState::Running, JobState::Preempted];

    /// As it is stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Running => "running",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Preempted => "preempted",
            JobState::Cancelled => "cancelled",
        }
    }

    /// The state with this word.
    pub fn of_word(word: &str) -> Option<JobState> {
        JobState::ALL.into_iter().find(|state| state.word() == word)
    }
}

/// A job, waiting, running or ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobRow {
    /// Its id.
    pub id: JobId,
    /// Who pays.
    pub tenant: String,
    /// Who asked.
    pub user: String,
    /// For people.
    pub name: String,
    /// As asked, or as changed since.
    pub priority: u32,
    /// In the words of the commissioning document.
    pub state: JobState,
    /// The finer word.
    pub phase: String,
    /// Why it is held, waits again, or ended; empty if there is nothing to say.
    pub why: String,
    /// GPUs of the gang, whole or shared.
    pub gpus: u64,
    /// How much of them, in thousandths.
    pub gpu_milli: u64,
    /// GPU memory asked for, over all GPUs.
    pub gpu_memory_mib: u64,
    /// CPU cores of the gang.
    pub cpus: u64,
    /// Main memory of the gang.
    pub memory_mib: u64,
    /// Time limit.
    pub time_limit_ms: Option<i64>,
    /// When it was accepted.
    pub submitted_at: i64,
    /// When its newest attempt got its slots.
    pub placed_at: Option<i64>,
    /// When its newest attempt was seen running on all its nodes.
    pub started_at: Option<i64>,
    /// When the server knew that it has ended.
    pub ended_at: Option<i64>,
    /// When the processes of its newest attempt had ended, which may be earlier.
    pub ran_until: Option<i64>,
    /// Not to be placed before.
    pub wakes_at: Option<i64>,
    /// Number of its newest attempt; 0 before the first.
    pub attempt: u32,
    /// Nodes of its newest attempt.
    pub nodes: Vec<String>,
    /// Exit code of the newest attempt that ended.
    pub exit_code: Option<i32>,
    /// Signal that ended it.
    pub signal: Option<i32>,
    /// How often it was preempted.
    pub preemptions: u32,
    /// How often it failed and was started again.
    pub restarts: u32,
    /// How often it came back for other reasons.
    pub requeues: u32,
    /// GPU-milliseconds of all its attempts that ended.
    pub gpu_ms: u64,
    /// CPU-milliseconds likewise.
    pub cpu_ms: u64,
    /// Cost likewise, in millionths.
    pub cost_micro: u64,
    /// Free words of the owner.
    pub labels: BTreeMap<String, String>,
}

/// The tasks of one array that are in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ArrayTasksRow {
    /// The state.
    pub state: JobState,
    /// How many tasks.
    pub tasks: u64,
    /// The lowest index among them.
    pub first: u64,
    /// The highest.
    pub last: u64,
}

/// A job with all that was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobDetail {
    /// Where it stands.
    #[serde(flatten)]
    pub row: JobRow,
    /// What was asked, with later changes.
    pub spec: JobSpec,
}

/// One try at running a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttemptRow {
    /// Number of the journal entry that placed it; attempts are paged by it.
    pub seq: u64,
    /// Which job.
    pub job: JobId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Who pays.
    pub tenant: String,
    /// Under which leadership it was placed.
    pub epoch: u64,
    /// `Starting`, `Running`, `Stopping`, or how it ended: `Done`, `Failed`, `Cancelled`, `Preempted`,
    /// `Restarted`, `Requeued`, `Held`.
    pub state: String,
    /// When it got its slots.
    pub placed_at: i64,
    /// When it was seen running on all its nodes.
    pub started_at: Option<i64>,
    /// When it was told to stop.
    pub stopping_at: Option<i64>,
    /// When the server knew that it was over on all its nodes, and its leases were released.
    pub ended_at: Option<i64>,
    /// Why it was told to stop, as JSON of the event.
    pub stop_cause: Option<String>,
    /// How its processes ended: `code`, `signal`, `not-started`, `unknown`.
    pub exit: Option<String>,
    /// Exit code, if there is one.
    pub exit_code: Option<i32>,
    /// Signal, if there is one.
    pub signal: Option<i32>,
    /// What is known beyond that.
    pub why: String,
    /// GPUs it holds or held.
    pub gpus: u64,
    /// Its nodes.
    pub nodes: Vec<String>,
    /// GPU-milliseconds charged.
    pub gpu_ms: u64,
    /// CPU-milliseconds charged.
    pub cpu_ms: u64,
    /// GiB-milliseconds of main memory charged.
    pub memory_gib_ms: u64,
    /// Cost in millionths.
    pub cost_micro: u64,
    /// Until when its usage was charged: when its processes were gone, as far as that is known. Absent while it runs, and
    /// where an older release charged until `ended_at`.
    pub charged_until: Option<i64>,
    /// CPU cores held; known once it has ended.
    pub cpus: Option<u64>,
    /// Main memory held; known once it has ended.
    pub memory_mib: Option<u64>,
    /// Its time limit or expected runtime; known once it has ended.
    pub planned_ms: Option<i64>,
    /// What it cost an hour in millionths; known once it has ended.
    pub cost_per_hour_micro: Option<u64>,
}

/// A GPU or a part of it, held by an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeaseRow {
    /// Which node.
    pub node: String,
    /// Which device there.
    pub gpu: u8,
    /// Which task of the gang.
    pub rank: u32,
    /// What is held of it: nothing for all of it, `mps` or `time-slice` for a part, `mig:<profile>@<start>` for an
    /// instance.
    pub slot: String,
    /// Share of the device in thousandths.
    pub compute_milli: u32,
    /// Share of its memory in thousandths.
    pub memory_milli: u32,
    /// The same in MiB; `None` for all of it.
    pub memory_mib: Option<u64>,
    /// Since when.
    pub from_ms: i64,
    /// Until when; `None` while it is held.
    pub to_ms: Option<i64>,
}

/// An attempt with its leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AllocationRow {
    /// The attempt.
    #[serde(flatten)]
    pub attempt: AttemptRow,
    /// What it holds or held.
    pub leases: Vec<LeaseRow>,
}

/// A journal entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct EventRow {
    /// Its number.
    pub seq: u64,
    /// Under which leadership.
    pub epoch: u64,
    /// When.
    pub at_ms: i64,
    /// Its kind.
    pub kind: String,
    /// The event as JSON.
    pub payload: String,
}

/// Why jobs of one bucket waited from a moment on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WaitRow {
    /// From when.
    pub at_ms: i64,
    /// Every reason, as JSON; an empty list when they no longer waited.
    pub reasons: String,
}

/// What was used in a span of time by one tenant, user or job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UsageRow {
    /// The tenant, user or job.
    pub key: String,
    /// Attempts that ended.
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
    /// When.
    pub at_ms: i64,
    /// Who.
    pub actor: String,
    /// Kind of the actor; unknown of acts that an older version recorded.
    pub actor_kind: Option<String>,
    /// What.
    pub act: String,
    /// On what.
    pub object: String,
    /// The code of the refusal, if it was refused.
    pub refused: Option<String>,
    /// How often; refusals of the same act are counted together.
    pub times: u32,
}

/// How many jobs of a tenant are in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CountRow {
    /// Whose.
    pub tenant: String,
    /// In which state.
    pub state: JobState,
    /// How many.
    pub jobs: u64,
}
