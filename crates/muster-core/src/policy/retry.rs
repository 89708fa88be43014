//! Whether a job starts again after a failure: what policies are asked, and what they answered. The job sleeps until they
//! were.

use serde::{Deserialize, Serialize};

use crate::ids::JobId;
use crate::policy::FailureView;
use crate::time::{DAY, Timestamp};

/// Who waits longer is better submitted again.
pub const WAIT_MS_MAX: i64 = DAY;

/// Whether a job starts again after a failure. Its own rule has allowed it: nobody starts more often for a policy.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(tag = "word", rename_all = "kebab-case")]
pub enum Retry {
    /// As the job's own rule says.
    #[default]
    AsAsked,
    /// As the job's own rule says, but not before this time has passed.
    After {
        /// In milliseconds.
        wait_ms: i64,
    },
    /// It does not.
    No {
        /// Why, in the words of the policy.
        why: String,
    },
}

impl Retry {
    /// The stricter of both: no is no, whoever says it first; else the longer wait.
    pub fn and(self, other: Retry) -> Retry {
        match (&self, &other) {
            (Retry::No { .. }, _) | (_, Retry::AsAsked) => self,
            (Retry::After { wait_ms: one }, Retry::After { wait_ms: another }) if one >= another => self,
            _ => other,
        }
    }

    /// When a job that would wake at a moment wakes then.
    pub fn wakes_at(&self, moment: Timestamp, now: Timestamp) -> Timestamp {
        match self {
            Retry::After { wait_ms } => moment.max(now.plus((*wait_ms).clamp(0, WAIT_MS_MAX))),
            Retry::AsAsked | Retry::No { .. } => moment,
        }
    }
}

/// An attempt that failed by itself, while policies have not said whether its job starts again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// How.
    pub seen: FailureView,
    /// What went wrong when policies were asked, if anything: then they are asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// What was answered of a job that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retried {
    /// Which job.
    pub job: JobId,
    /// Which of its attempts had failed.
    pub attempt: u32,
    /// Whether it starts again; nothing where that must be asked again.
    pub retry: Option<Retry>,
    /// What went wrong while it was asked, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}
