//! What is wrong with a policy, and where.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use starlark::codemap::FileSpan;

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PolicyError {
    /// The file is not there, or cannot be read.
    #[error("cannot read the policy `{}`: {why}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// It does not run.
    #[error("{file}:{line}:{column}: {what}")]
    InvalidAt {
        /// In which file.
        file: String,
        /// Counted from one.
        line: usize,
        /// Counted from one.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// It does not run, and nobody knows where.
    #[error("{file}: {what}")]
    Invalid {
        /// In which file.
        file: String,
        /// What is wrong.
        message: String,
    },
    /// The process it ran in gave no answer.
    #[error("the policy gave no answer: {what}")]
    WorkerFailed {
        /// What became of it.
        message: String,
    },
}

impl PolicyError {
    /// What the interpreter says, with the place where it happened.
    pub(crate) fn from_starlark(error: &starlark::Error, file: &str) -> PolicyError {
        let what = short_message(&error.without_diagnostic().to_string());
        match error.span() {
            Some(span) => PolicyError::at_span(span, what),
            None => PolicyError::Invalid { file: file.to_string(), message: what },
        }
    }

    /// The same for another reason.
    pub(crate) fn with_message(self, why: &str) -> PolicyError {
        let what = why.to_string();
        match self {
            PolicyError::InvalidAt { file, line, column, .. } => PolicyError::InvalidAt { file, line, column, message: what },
            PolicyError::Invalid { file, .. } => PolicyError::Invalid { file, message: what },
            other => other,
        }
    }

    /// Something that is wrong at a place.
    pub(crate) fn at_span(span: &FileSpan, what: String) -> PolicyError {
        let at = span.resolve();
        let (line, column) = (at.span.begin.line + 1, at.span.begin.column + 1);
        PolicyError::InvalidAt { file: at.file, line, column, message: what }
    }
}

/// Nobody reads more than this, and a policy chooses what its errors say.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// The message without the frames of the interpreter.
fn short_message(message: &str) -> String {
    let end = message.char_indices().nth(MESSAGE_CHARS_MAX).map_or(message.len(), |(place, _)| place);
    let short = &message[..end];
    let said = short.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if short.len() < message.len() { said + " …" } else { said }
}
