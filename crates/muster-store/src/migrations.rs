//! Schema migrations, run by a new leader.

use crate::error::StoreError;

pub mod sqlite {
    refinery::embed_migrations!("migrations/sqlite");
}

pub mod postgres {
    refinery::embed_migrations!("migrations/postgres");
}

/// Table in which refinery records the migrations that have run.
pub const HISTORY_TABLE: &str = "refinery_schema_history";

pub fn newest_known_version(runner: &refinery::Runner) -> i64 {
    runner.get_migrations().iter().map(|migration| i64::from(migration.version())).max().unwrap_or(0)
}

/// An older release must not use a schema that a newer one has migrated.
pub fn refuse_newer_schema(found: Option<i64>, known: i64) -> Result<(), StoreError> {
    match found {
        Some(found) if found > known => Err(StoreError::NewerSchema { found, known }),
        _ => Ok(()),
    }
}

pub fn migration_error(error: refinery::Error) -> StoreError {
    StoreError::invariant_violated(format!("schema migration failed: {error}"))
}
