//! The records of an attempt, by which agent and shim find each other after a restart.
//!
//! The launch intent is written before the shim is started, the launch lock when a shim takes the attempt, the stop
//! record when the attempt must end, the exit record when no process of it is left. A record is complete and on disk,
//! or absent.

use muster_protocol::agent::{AttemptOrder, Exit};
use serde::{Deserialize, Serialize};

/// Written before the shim of an attempt is started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchIntent {
    pub order: AttemptOrder,
    /// The boot of the node in which the agent wrote the intent.
    pub boot_id: String,
    /// The self-fence deadline at the launch; `None` if the attempt is never fenced by time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub self_fence: Option<SelfFence>,
}

/// How long an attempt may live without news from a leader. By the boot clock of the node: valid within one boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelfFence {
    /// When the agent sent the newest heartbeat that a leader acknowledged.
    pub acknowledged_at_boot_ms: i64,
    /// The attempt is killed if no later heartbeat is acknowledged within this time.
    pub within_ms: i64,
}

impl SelfFence {
    pub fn deadline_boot_ms(&self) -> i64 {
        self.acknowledged_at_boot_ms.saturating_add(self.within_ms)
    }

    pub fn has_passed(&self, now_boot_ms: i64) -> bool {
        self.deadline_boot_ms() <= now_boot_ms
    }

    /// The reason in the exit record of an attempt that was killed at its deadline.
    pub fn why(&self) -> String {
        let seconds = self.within_ms as f64 / 1_000.0;
        format!("{SELF_FENCED}: no leader acknowledged a heartbeat for {seconds} s")
    }
}

/// The first word of the exit of a self-fenced attempt, which separates it from other unknown exits.
pub const SELF_FENCED: &str = "self-fenced";

/// The owner of the attempt. The lock is taken once, by a shim that will run the attempt or by an agent that abandons
/// the launch. A slow shim that finds the lock taken does not run an attempt whose end is already reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaunchLock {
    /// A shim runs the attempt, or ran it.
    Shim(ShimRecord),
    /// An agent abandoned the launch before a shim took the lock.
    Abandoned,
}

/// The process of a shim, and the process group of its tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// The kernel may give the pid to another process after the shim has ended.
    pub pid: i32,
    /// In clock ticks since boot. Pid and start time together identify one process within a boot.
    pub start_time: u64,
    pub boot_id: String,
    /// The session that the shim leads.
    pub session: i32,
    /// `None` until all tasks run.
    pub process_group: Option<i32>,
}

/// Tells the shim to end the attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// Counts from the moment at which the shim reads the record, because wall clocks may be set.
    pub grace_ms: i64,
    /// The reason, for people.
    pub why: String,
}

/// Tells the shim to signal the tasks once, before the time limit of the job ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalRecord {
    /// Number of the signal.
    pub signal: i32,
}

/// Processes of an attempt that SIGKILL does not end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnkillableRecord {
    /// Pids, commands and states, for people.
    pub processes: String,
}

/// The programs after an attempt: the epilog, then the health program if the site wants it between jobs. The record is the
/// lock of the process that runs them, so they never run twice at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpilogRecord {
    pub runner: ShimRecord,
    /// `None` while they run. A runner that is gone without a result was killed, and they run again.
    #[serde(default)]
    pub result: Option<EpilogResult>,
}

/// How the programs after an attempt ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpilogResult {
    #[serde(default)]
    pub epilog_failure: Option<String>,
    #[serde(default)]
    pub health_failure: Option<String>,
}

/// Proves that no process of the attempt is left, and says how the attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    pub exit: Exit,
    /// A stop was requested before the attempt ended.
    pub stopped: bool,
    /// Distinguishes this attempt from one of the same number under a server that lost its journal.
    pub placed_at_ms: i64,
    /// When the last process was gone, by the wall clock of the node. Usage is charged until then, however late the
    /// report arrives. Absent in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
    /// The prolog failed, so no task ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prolog_failed: bool,
}

impl ExitRecord {
    /// The record of a shim that starts no task.
    pub fn not_started(placed_at_ms: i64, why: String, ended_at_ms: i64) -> ExitRecord {
        let (exit, ended_at_ms) = (Exit::NotStarted(why), Some(ended_at_ms));
        ExitRecord { exit, stopped: false, placed_at_ms, ended_at_ms, prolog_failed: false }
    }

    /// Milliseconds since the end, by the same clock; 0 if the clock was set back since then.
    pub fn ended_ms_ago(&self, now_wall_ms: i64) -> Option<i64> {
        self.ended_at_ms.map(|ended_at_ms| now_wall_ms.saturating_sub(ended_at_ms).max(0))
    }
}
