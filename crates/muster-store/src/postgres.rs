//! Adapter (Journal): a PostgreSQL server.

pub mod config;

use crate::Store;
use crate::error::StoreError;
use config::PostgresConfig;

/// Open.
pub fn open(_config: &PostgresConfig) -> Result<Store, StoreError> {
    Err(StoreError::Misconfigured("not yet".into()))
}
