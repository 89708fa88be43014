//! Mapping of SQLite errors to [`StoreError`].

use rusqlite::{Error, ErrorCode};

use crate::error::{RESTORE_ADVICE, StoreError};

/// An error before the commit: nothing was written.
pub fn map_write_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => StoreError::invariant_violated(format!("{operation}: {error}")),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => corrupt_file(operation, &error.to_string()),
        // A full disk, a failed read or write, a lock timeout.
        Some(code) if code != ErrorCode::Unknown => StoreError::unavailable(operation, error),
        // SQL that does not match the schema.
        _ => StoreError::invariant_violated(format!("{operation}: {error}")),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not exist yet.
pub fn map_read_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => corrupt_file(operation, &error.to_string()),
        _ => StoreError::unavailable(operation, error),
    }
}

/// An error of the commit itself. The frames may nevertheless be in the log and appear after a restart.
pub fn map_commit_error(error: Error) -> StoreError {
    StoreError::OutcomeUnknown { source: error.into() }
}

pub fn corrupt_file(operation: &str, problem: &str) -> StoreError {
    StoreError::invariant_violated(format!("{operation}: the database file is corrupt ({problem}); {RESTORE_ADVICE}"))
}
