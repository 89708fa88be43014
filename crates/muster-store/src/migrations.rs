//! The tables of each release, brought up to date by the leader.

use crate::error::StoreError;

pub mod sqlite {
    refinery::embed_migrations!("migrations/sqlite");
}

pub mod postgres {
    refinery::embed_migrations!("migrations/postgres");
}

/// Where refinery notes what was done.
pub const HISTORY: &str = "refinery_schema_history";

/// The newest version a runner knows.
pub fn known(runner: &refinery::Runner) -> i64 {
    runner.get_migrations().iter().map(|migration| i64::from(migration.version())).max().unwrap_or(0)
}

/// A database that a newer release has changed must not be touched by an older one.
pub fn refuse_newer(found: Option<i64>, known: i64) -> Result<(), StoreError> {
    match found {
        Some(found) if found > known => Err(StoreError::Newer { found, known }),
        _ => Ok(()),
    }
}

/// What refinery said.
pub fn failed(error: refinery::Error) -> StoreError {
    StoreError::broken(format!("the tables could not be brought up to date: {error}"))
}
