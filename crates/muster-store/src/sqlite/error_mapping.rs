//! What an error of SQLite means for the engine.

use rusqlite::{Error, ErrorCode};

use crate::error::{RESTORE_ADVICE, StoreError};

/// An error before the commit: nothing was written.
pub fn map_write_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => {
            StoreError::invariant_violated(format!("{operation}: {error}"))
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            corrupt_file(operation, &error.to_string())
        }
        // Full disks, failed reads and writes, a lock that did not come free.
        Some(code) if code != ErrorCode::Unknown => StoreError::unavailable(operation, error),
        // What is left is SQL that does not fit the tables.
        _ => StoreError::invariant_violated(format!("{operation}: {error}")),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not be there yet.
pub fn map_read_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            corrupt_file(operation, &error.to_string())
        }
        _ => StoreError::unavailable(operation, error),
    }
}

/// An error of the commit itself. The frames may be in the log all the same, and show up after a restart.
pub fn map_commit_error(error: Error) -> StoreError {
    StoreError::OutcomeUnknown { source: error.into() }
}

/// The file is not what was written.
pub fn corrupt_file(operation: &str, problem: &str) -> StoreError {
    StoreError::invariant_violated(format!(
        "{operation}: the database file is damaged ({problem}); {RESTORE_ADVICE}"
    ))
}
