//! What is wrong with a policy, and where.

use std::path::PathBuf;

use starlark::codemap::FileSpan;

/// What is wrong with a policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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

    /// Something that is wrong at a place.
    pub(crate) fn at(span: &FileSpan, what: String) -> PolicyError {
        let at = span.resolve();
        let (line, column) = (at.span.begin.line + 1, at.span.begin.column + 1);
        PolicyError::Wrong { file: at.file, line, column, what }
    }
}

/// The message without the frames of the interpreter.
fn sentence(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
