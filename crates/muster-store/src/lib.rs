//! Step 5, persist: the journal, its savepoints, and the SQL tables for lists, reports and history.
//!
//! The journal is the source of truth. The same transaction that appends events also projects them into relational
//! tables, whose constraints check the main invariants of the engine a second time. Nothing is decided here.
//!
//! [`open`] returns handles to one database: the [`Journal`] for the leader's engine, the [`Tables`] for any number of
//! readers, the [`Savepoints`] for the thread that saves the state periodically, and the [`SealedSecrets`].

pub mod error;
pub mod journal;
pub mod private_files;
pub mod queries;
pub mod record;
pub mod rows;

mod chain;
mod decode;
mod leader_epoch;
mod migrations;
mod reader;
mod replay;
mod savepoint;
pub mod sealed_secrets;
mod select;
mod snapshot;
mod tables;

pub mod memory;
mod postgres;
mod sqlite;

#[cfg(feature = "testing")]
pub mod testing;
pub mod verify;

use std::path::PathBuf;
use std::sync::Arc;

pub use error::StoreError;
pub use journal::{ClusterIdentity, Journal, Leadership, Savepoint, Savepoints};
pub use leader_epoch::LeaderEpoch;
pub use postgres::config::PostgresConfig;
pub use queries::Tables;
pub use record::{Entry, Record};
pub use sealed_secrets::{SealedSecret, SealedSecrets};

/// The database of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// A SQLite file, for a cluster with one server.
    Sqlite {
        /// Path of the file; its folder must exist. `:memory:` is a temporary database that is deleted on close.
        path: PathBuf,
    },
    /// A PostgreSQL database, for a leader and its standbys.
    Postgres(PostgresConfig),
}

/// Handles to one database.
pub struct Store {
    pub journal: Box<dyn Journal>,
    pub tables: Arc<dyn Tables>,
    pub savepoints: Arc<dyn Savepoints>,
    pub secrets: Arc<dyn SealedSecrets>,
}

/// Open a store. No connection is made and nothing is written before the first call; the first leader creates the
/// tables.
pub fn open(config: &StoreConfig) -> Result<Store, StoreError> {
    match config {
        StoreConfig::Sqlite { path } => sqlite::open(path),
        StoreConfig::Postgres(config) => postgres::open(config),
    }
}
