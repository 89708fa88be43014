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
        why: String,
    },
    /// It does not run.
    #[error("{file}:{line}:{column}: {what}")]
    Wrong {
        /// In which file.
        file: String,
        /// Counted from one.
        line: usize,
        /// Counted from one.
        column: usize,
        /// What is wrong.
        what: String,
    },
    /// It does not run, and nobody knows where.
    #[error("{file}: {what}")]
    Somewhere {
        /// In which file.
        file: String,
        /// What is wrong.
        what: String,
    },
    /// The process it ran in gave no answer.
    #[error("the policy gave no answer: {what}")]
    Ended {
        /// What became of it.
        what: String,
    },
}

impl PolicyError {
    /// What the interpreter says, with the place where it happened.
    pub(crate) fn of(error: &starlark::Error, file: &str) -> PolicyError {
        let what = sentence(&error.without_diagnostic().to_string());
        match error.span() {
            Some(span) => PolicyError::at(span, what),
            None => PolicyError::Somewhere { file: file.to_string(), what },
        }
    }

    /// The same for another reason.
    pub(crate) fn because(self, why: &str) -> PolicyError {
        let what = why.to_string();
        match self {
            PolicyError::Wrong { file, line, column, .. } => PolicyError::Wrong { file, line, column, what },
            PolicyError::Somewhere { file, .. } => PolicyError::Somewhere { file, what },
            other => other,
        }
    }

    /// Something that is wrong at a place.
    pub(crate) fn at(span: &FileSpan, what: String) -> PolicyError {
        let at = span.resolve();
        let (line, column) = (at.span.begin.line + 1, at.span.begin.column + 1);
        PolicyError::Wrong { file: at.file, line, column, what }
    }
}

/// Nobody reads more than this, and a policy chooses what its errors say.
const SENTENCE_LETTERS: usize = 2_000;

/// The message without the frames of the interpreter.
fn sentence(message: &str) -> String {
    let end = message.char_indices().nth(SENTENCE_LETTERS).map_or(message.len(), |(place, _)| place);
    let short = &message[..end];
    let said = short.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
    if short.len() < message.len() { said + " …" } else { said }
}
