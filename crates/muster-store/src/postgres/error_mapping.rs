//! What an error of PostgreSQL means for the engine.

use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use crate::error::StoreError;

/// An error before the commit: nothing was written.
pub fn map_write_error(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(said) if !is_transient(said) => StoreError::invariant_violated(format!("{doing}: {}", db_error_message(said))),
        _ => unavailable(doing, &error),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not be there yet.
pub fn map_read_error(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(said) if said.code().code().starts_with("XX") => {
            StoreError::invariant_violated(format!("{doing}: {}", db_error_message(said)))
        }
        _ => unavailable(doing, &error),
    }
}

/// An error of the commit itself. If the server refused it, it is undone; if the answer was lost, nobody knows.
pub fn map_commit_error(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(said) if matches!(sqlstate_class(said), "23" | "40") => map_write_error("commit")(error),
        _ => StoreError::OutcomeUnknown { source: error.into() },
    }
}

fn unavailable(doing: &str, error: &Error) -> StoreError {
    // The driver's own sentence is only "db error"; what the server said is the source behind it.
    let said = error.as_db_error().map_or_else(|| error_chain_message(error), db_error_message);
    StoreError::unavailable(doing, said)
}

/// Faults that pass by themselves or by a repair: lost connections (08), aborted by concurrency (40), out of disk,
/// memory or connections (53), a lock that did not come free (55), the server shutting down (57), its disk (58),
/// and a password or database that is wrong (28, 3D).
fn is_transient(said: &DbError) -> bool {
    matches!(sqlstate_class(said), "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
}

fn sqlstate_class(said: &DbError) -> &str {
    said.code().code().get(..2).unwrap_or("")
}

fn db_error_message(said: &DbError) -> String {
    let mut sentence = format!("{} ({})", said.message(), said.code().code());
    if let Some(detail) = said.detail() {
        sentence.push_str(", ");
        sentence.push_str(detail);
    }
    sentence
}

fn error_chain_message(error: &Error) -> String {
    let mut sentence = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        let said = next.to_string();
        if !sentence.contains(&said) {
            sentence = format!("{sentence}: {said}");
        }
        cause = next.source();
    }
    sentence
}
