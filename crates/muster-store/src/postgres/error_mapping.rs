//! What an error of PostgreSQL means for the engine.

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

/// An error of a reader: nothing can have been written, and the tables may not be there yet.
pub fn map_read_error(operation: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(db_error) if db_error.code().code().starts_with("XX") => {
            StoreError::invariant_violated(format!("{operation}: {}", db_error_message(db_error)))
        }
        _ => unavailable(operation, &error),
    }
}

/// An error of the commit itself. If the server refused it, it is undone; if the answer was lost, nobody knows.
pub fn map_commit_error(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(db_error) if matches!(sqlstate_class(db_error), "23" | "40") => map_write_error("commit")(error),
        _ => StoreError::OutcomeUnknown { source: error.into() },
    }
}

fn unavailable(operation: &str, error: &Error) -> StoreError {
    // The driver's own sentence is only "db error"; what the server db_error is the source behind it.
    let db_error = error.as_db_error().map_or_else(|| error_chain_message(error), db_error_message);
    StoreError::unavailable(operation, db_error)
}

/// Faults that pass by themselves or by a repair: lost connections (08), aborted by concurrency (40), out of disk,
/// memory or connections (53), a lock that did not come free (55), the server shutting down (57), its disk (58),
/// and a password or database that is wrong (28, 3D).
fn is_transient(db_error: &DbError) -> bool {
    matches!(sqlstate_class(db_error), "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
}

fn sqlstate_class(db_error: &DbError) -> &str {
    db_error.code().code().get(..2).unwrap_or("")
}

fn db_error_message(db_error: &DbError) -> String {
    let mut sentence = format!("{} ({})", db_error.message(), db_error.code().code());
    if let Some(detail) = db_error.detail() {
        sentence.push_str(", ");
        sentence.push_str(detail);
    }
    sentence
}

fn error_chain_message(error: &Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let db_error = next.to_string();
        if !sentence.contains(&db_error) {
            sentence = format!("{sentence}: {db_error}");
        }
        cause = next.source();
    }
    sentence
}
