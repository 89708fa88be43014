//! Exit of an attempt's processes, and the final outcome of a job.

use serde::{Deserialize, Serialize};

use crate::objects::job::DependencyWhen;

/// How the processes of an attempt exited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "exit", rename_all = "kebab-case")]
pub enum Exit {
    /// They exited by themselves.
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    NotStarted {
        why: String,
    },
    /// They are gone, and the exit status was not observed. It is never reported as a made-up code.
    Unknown {
        why: String,
    },
}

impl Exit {
    pub fn is_success(&self) -> bool {
        matches!(self, Exit::Code { code: 0 })
    }
}

/// The final outcome of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Done,
    /// The job failed by itself, or exceeded its time limit.
    Failed,
    Cancelled,
}

impl Outcome {
    /// True if this outcome satisfies a dependency.
    pub fn satisfies(self, when: DependencyWhen) -> bool {
        match when {
            DependencyWhen::Succeeded => self == Outcome::Done,
            DependencyWhen::Failed => self != Outcome::Done,
            DependencyWhen::Ended => true,
        }
    }

    /// The phase name as users see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "Done",
            Outcome::Failed => "Failed",
            Outcome::Cancelled => "Cancelled",
        }
    }
}
