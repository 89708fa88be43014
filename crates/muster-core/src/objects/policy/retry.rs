//! Restarts after a failure: the input and the answer of the policy hook `retry`. The job stays out of the queue until
//! the policies have answered.

use serde::{Deserialize, Serialize};

use crate::ids::{JobId, NodeId};
use crate::objects::job::Exit;
use crate::time::{DAY, Timestamp};

/// Longest delay of a restart; for a longer one a new submission is better.
pub const RETRY_WAIT_MS_MAX: i64 = DAY;

/// Whether a job restarts after a failure. The job's own restart rule has already allowed it: a policy can only
/// restrict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Retry {
    /// As the job's own rule says.
    #[default]
    ByRestartRule,
    /// As the job's own rule says, but not before this delay has passed.
    After { wait_ms: i64 },
    No {
        /// Text from the policy.
        why: String,
    },
}

impl Retry {
    /// The stricter of both: a refusal, the first of two; else the longer delay.
    pub fn and(self, other: Retry) -> Retry {
        match (&self, &other) {
            (Retry::No { .. }, _) | (_, Retry::ByRestartRule) => self,
            (Retry::After { wait_ms: one }, Retry::After { wait_ms: another }) if one >= another => self,
            _ => other,
        }
    }

    /// The wake-up time of a job whose own rule gives `planned`.
    pub fn wakes_at(&self, planned: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            Retry::After { wait_ms } => planned.max(now.plus((*wait_ms).clamp(0, RETRY_WAIT_MS_MAX))),
            Retry::ByRestartRule | Retry::No { .. } => planned,
        }
    }
}

/// A failed attempt whose restart the policies have not decided yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    pub seen: FailureView,
    /// The error if a policy failed; then it is called again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// The policy answer about a job whose attempt failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryAnswer {
    pub job: JobId,
    /// Number of the failed attempt.
    pub attempt: u32,
    /// `None` if the policies must be called again.
    pub retry: Option<Retry>,
    /// The error if a policy failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// An attempt that failed by itself, as the hook `retry` sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureView {
    pub exit: Exit,
    /// Number of the attempt.
    pub attempt: u32,
    /// Earlier attempts that failed by themselves.
    pub failures: u32,
    pub ran_ms: i64,
    pub nodes: Vec<NodeId>,
}
