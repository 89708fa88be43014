//! Mapping of PostgreSQL errors to [`StoreError`].

use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use crate::error::StoreError;

/// An error before the commit: nothing was written.
pub fn map_write_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(db_error) if !is_transient(db_error) => {
            StoreError::invariant_violated(format!("{operation}: {}", db_error_message(db_error)))
        }
        _ => unavailable(operation, &error),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not exist yet.
pub fn map_read_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(db_error) if db_error.code().code().starts_with("XX") => {
            StoreError::invariant_violated(format!("{operation}: {}", db_error_message(db_error)))
        }
        _ => unavailable(operation, &error),
    }
}

/// An error of the commit itself. A refused commit is rolled back; if its reply was lost, the outcome is unknown.
pub fn map_commit_error(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(db_error) if matches!(sqlstate_class(db_error), "23" | "40") => map_write_error("commit")(error),
        _ => StoreError::OutcomeUnknown { source: error.into() },
    }
}

fn unavailable(operation: &str, error: &Error) -> StoreError {
    // The driver's own message is only "db error"; the message of the server is its source.
    let message = error.as_db_error().map_or_else(|| error_chain_message(error), db_error_message);
    StoreError::unavailable(operation, message)
}

/// Errors that pass by themselves or after a repair: lost connection (08), invalid transaction state (25), wrong
/// password (28) or database (3D), aborted by concurrency (40), out of disk, memory or connections (53), lock timeout
/// (55), server shutdown (57), I/O error (58).
fn is_transient(db_error: &DbError) -> bool {
    matches!(sqlstate_class(db_error), "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
}

fn sqlstate_class(db_error: &DbError) -> &str {
    db_error.code().code().get(..2).unwrap_or("")
}

fn db_error_message(db_error: &DbError) -> String {
    let mut message = format!("{} ({})", db_error.message(), db_error.code().code());
    if let Some(detail) = db_error.detail() {
        message.push_str(", ");
        message.push_str(detail);
    }
    message
}

fn error_chain_message(error: &Error) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let cause_message = next.to_string();
        if !message.contains(&cause_message) {
            message = format!("{message}: {cause_message}");
        }
        cause = next.source();
    }
    message
}
