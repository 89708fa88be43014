//! How the processes of an attempt exited, and how a job ended.

use serde::{Deserialize, Serialize};

use crate::objects::job::DependencyWhen;

/// How the processes of an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "exit", rename_all = "kebab-case")]
pub enum Exit {
    /// By themselves, with this code.
    Code {
        code: i32,
    },
    Signal {
        signal: i32,
    },
    NotStarted {
        why: String,
    },
    /// They are gone and nobody saw how. Never invented as a code.
    Unknown {
        why: String,
    },
}

impl Exit {
    /// Whether it is a success.
    pub fn is_success(&self) -> bool {
        matches!(self, Exit::Code { code: 0 })
    }
}

/// How a job ended, for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Done,
    /// Anything else that the job did itself, and the time limit.
    Failed,
    /// A person said so.
    Cancelled,
}

impl Outcome {
    /// Whether an end like this satisfies a dependency.
    pub fn satisfies(self, when: DependencyWhen) -> bool {
        match when {
            DependencyWhen::Succeeded => self == Outcome::Done,
            DependencyWhen::Failed => self != Outcome::Done,
            DependencyWhen::Ended => true,
        }
    }

    /// The fine word of the phase.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Done => "Done",
            Outcome::Failed => "Failed",
            Outcome::Cancelled => "Cancelled",
        }
    }
}
