//! What an error of PostgreSQL means for the engine.

use tokio_postgres::Error;
use tokio_postgres::error::DbError;

use crate::error::StoreError;

/// An error before the commit: nothing was written.
pub fn fault(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(said) if !is_passing(said) => StoreError::broken(format!("{doing}: {}", sentence(said))),
        _ => unavailable(doing, &error),
    }
}

/// An error of a reader: nothing can have been written, and the tables may not be there yet.
pub fn read_fault(doing: &str) -> impl Fn(Error) -> StoreError + '_ {
    move |error| match error.as_db_error() {
        Some(said) if said.code().code().starts_with("XX") => {
            StoreError::broken(format!("{doing}: {}", sentence(said)))
        }
        _ => unavailable(doing, &error),
    }
}

/// An error of the commit itself. If the server refused it, it is undone; if the answer was lost, nobody knows.
pub fn commit_fault(error: Error) -> StoreError {
    match error.as_db_error() {
        Some(said) if matches!(class(said), "23" | "40") => fault("commit")(error),
        _ => StoreError::OutcomeUnknown { source: error.into() },
    }
}

fn unavailable(doing: &str, error: &Error) -> StoreError {
    // The driver's own sentence is only "db error"; what the server said is the source behind it.
    let said = error.as_db_error().map_or_else(|| chain(error), sentence);
    StoreError::unavailable(doing, said)
}

/// Faults that pass by themselves or by a repair: lost connections (08), aborted by concurrency (40), out of disk,
/// memory or connections (53), a lock that did not come free (55), the server shutting down (57), its disk (58),
/// and a password or database that is wrong (28, 3D).
fn is_passing(said: &DbError) -> bool {
    matches!(class(said), "08" | "25" | "28" | "3D" | "40" | "53" | "55" | "57" | "58")
}

fn class(said: &DbError) -> &str {
    said.code().code().get(..2).unwrap_or("")
}

fn sentence(said: &DbError) -> String {
    let mut sentence = format!("{} ({})", said.message(), said.code().code());
    if let Some(detail) = said.detail() {
        sentence.push_str(", ");
        sentence.push_str(detail);
    }
    sentence
}

fn chain(error: &Error) -> String {
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
