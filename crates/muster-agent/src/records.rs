//! What is written down about an attempt: the records by which agent and shim find each other again.
//!
//! The intent comes before the shim is started, the claim when a shim takes the attempt, the stop when it
//! must end, the exit when nothing of it is left. Each is complete and on disk, or not there.

use muster_protocol::agent::{Exit, Order};
use serde::{Deserialize, Serialize};

/// That we are about to launch, and what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// What to launch.
    pub order: Order,
    /// During which boot of the machine.
    pub boot_id: String,
}

/// Who has the attempt. It is taken once, by a shim that will run it or by an agent that gives it up: whoever
/// comes second knows, so a shim that was slow to start cannot run what was already reported as over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Claim {
    /// A shim runs it, or did.
    Shim(ShimRecord),
    /// An agent gave it up before a shim came.
    Abandoned,
}

/// Which process the shim is, and where its tasks are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimRecord {
    /// Its number, which may be someone else's after it has ended.
    pub pid: i32,
    /// In clock ticks since boot. With the pid it names one process for as long as the machine is up.
    pub start_time: u64,
    /// During which boot of the machine.
    pub boot_id: String,
    /// The session it leads.
    pub session: i32,
    /// Known as soon as all tasks run.
    pub group: Option<i32>,
}

/// That it must end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// How long it may take. It counts from when the shim sees it: wall clocks may be set.
    pub grace_ms: i64,
    /// Why, for people.
    pub why: String,
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitRecord {
    /// What became of it.
    pub exit: Exit,
    /// It had been told to stop.
    pub stopped: bool,
    /// Tells this attempt from one of the same number under a server that began anew.
    pub placed_at_ms: i64,
    /// When nothing of it was left, by the wall clock of the node. Usage is charged until then, however long it takes
    /// until a server hears of it. Absent in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at_ms: Option<i64>,
}

impl ExitRecord {
    /// How long ago that was, by the same clock. A clock that was set back meanwhile counts as no time.
    pub fn ended_ms_ago(&self, now_wall_ms: i64) -> Option<i64> {
        self.ended_at_ms.map(|ended_at_ms| now_wall_ms.saturating_sub(ended_at_ms).max(0))
    }
}
