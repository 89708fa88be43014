//! Exit of an attempt's processes, and the final outcome of a job.

use serde::{Deserialize, Serialize};

use crate::objects::job::DependencyWhen;

/// How the processes of an attempt exited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "exit", rename_all = "kebab-case")]
pub enum Exit {
    /// The processes exited by themselves.
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    /// The kernel killed a task because it used more memory than its limit.
    OutOfMemory {
        limit_mib: u64,
    },
    NotStarted {
        why: String,
    },
    /// The processes were never started because of the job itself, for example its working directory: every start would
    /// fail in the same way.
    InvalidJob {
        why: String,
    },
    /// The processes are gone, and their exit status was not observed. No exit code is made up.
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
