//! Errors of policies, with file, line and column where they are known.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use starlark::codemap::FileSpan;

/// An error in a policy, or the failure of the worker that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum PolicyError {
    /// The file does not exist or cannot be read.
    #[error("cannot read the policy `{}`: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    /// The policy does not compile, or fails while it runs.
    #[error("{file}:{line}:{column}: {message}")]
    InvalidAt {
        file: String,
        /// Counted from one.
        line: usize,
        /// Counted from one.
        column: usize,
        message: String,
    },
    /// The same where the interpreter reports no position.
    #[error("{file}: {message}")]
    Invalid { file: String, message: String },
    /// The worker process gave no answer: it could not be started, was killed, or is not called at present.
    #[error("the policy worker failed: {message}")]
    WorkerFailed { message: String },
}

impl PolicyError {
    /// An error of the interpreter, with its position.
    pub(crate) fn from_starlark(error: &starlark::Error, file: &str) -> PolicyError {
        let message = short_message(&error.without_diagnostic().to_string());
        match error.span() {
            Some(span) => PolicyError::at_span(span, message),
            None => PolicyError::Invalid { file: file.to_string(), message },
        }
    }

    /// The same position with another message.
    pub(crate) fn with_message(self, message: &str) -> PolicyError {
        let message = message.to_string();
        match self {
            PolicyError::InvalidAt { file, line, column, .. } => PolicyError::InvalidAt { file, line, column, message },
            PolicyError::Invalid { file, .. } => PolicyError::Invalid { file, message },
            other => other,
        }
    }

    pub(crate) fn at_span(span: &FileSpan, message: String) -> PolicyError {
        let position = span.resolve();
        let (line, column) = (position.span.begin.line + 1, position.span.begin.column + 1);
        PolicyError::InvalidAt { file: position.file, line, column, message }
    }
}

/// The most characters of a message: a policy chooses the text of its own errors.
const MESSAGE_CHARS_MAX: usize = 2_000;

/// The message on one line, without the interpreter's stack frames, cut at [`MESSAGE_CHARS_MAX`].
fn short_message(message: &str) -> String {
    let end = message.char_indices().nth(MESSAGE_CHARS_MAX).map_or(message.len(), |(index, _)| index);
    let kept = &message[..end];
    let line = kept.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if kept.len() < message.len() { line + " …" } else { line }
}
