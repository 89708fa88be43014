//! What an error of SQLite means for the engine.

use rusqlite::{Error, ErrorCode};

use crate::error::{RESTORE, StoreError};

/// An error before the commit: nothing was written.
pub fn fault(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::ConstraintViolation) => StoreError::broken(format!("{doing}: {error}")),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(doing, &error.to_string()),
        // Full disks, failed reads and writes, a lock that did not come free.
        Some(code) if code != ErrorCode::Unknown => StoreError::unavailable(doing, error),
        // What is left is SQL that does not fit the tables.
        _ => StoreError::broken(format!("{doing}: {error}")),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not be there yet.
pub fn read_fault(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(doing, &error.to_string()),
        _ => StoreError::unavailable(doing, error),
    }
}

/// An error of the commit itself. The frames may be in the log all the same, and show up after a restart.
pub fn commit_fault(error: Error) -> StoreError {
    StoreError::OutcomeUnknown { source: error.into() }
}

/// The file is not what was written.
pub fn damaged(doing: &str, problem: &str) -> StoreError {
    StoreError::broken(format!("{doing}: the database file is damaged ({problem}); {RESTORE}"))
}
