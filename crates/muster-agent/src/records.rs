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
}

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
}

impl ExitRecord {
    /// Milliseconds since the end, by the same clock; 0 if the clock was set back since then.
    pub fn ended_ms_ago(&self, now_wall_ms: i64) -> Option<i64> {
        self.ended_at_ms.map(|ended_at_ms| now_wall_ms.saturating_sub(ended_at_ms).max(0))
    }
}
