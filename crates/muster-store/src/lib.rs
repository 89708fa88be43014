//! Step 5, keep: the journal, its savepoints, and the tables that people and history pages query.
//!
//! The journal is the truth. In the same transaction the events are projected into relational tables, whose
//! constraints check the engine a second time. Nothing is decided here.
//!
//! [`open`] gives three handles to one database: the [`Journal`] for the one writer, the [`Tables`] for any
//! number of readers, and the [`Savepoints`] for a thread that saves the state now and then.

pub mod deep;
pub mod error;
pub mod journal;
pub mod memory;
pub mod private;
pub mod queries;
pub mod record;
pub mod rows;

mod chain;
mod decode;
mod migrations;
mod postgres;
mod reader;
mod replay;
mod savepoint;
mod select;
mod sqlite;
mod tables;
mod term;

#[cfg(feature = "testing")]
pub mod testing;

use std::path::PathBuf;
use std::sync::Arc;

pub use error::StoreError;
pub use journal::{Identity, Journal, Leadership, Savepoint, Savepoints};
pub use postgres::config::PostgresConfig;
pub use queries::Tables;
pub use record::{Entry, Record};

/// Which database holds the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreConfig {
    /// A file of our own; for one server.
    Sqlite {
        /// The file; its folder must exist. `:memory:` is a throwaway database that vanishes when it is closed.
        path: PathBuf,
    },
    /// A PostgreSQL server; for several servers, of which one leads.
    Postgres(PostgresConfig),
}

/// Three handles to one database.
pub struct Store {
    /// For the one writer.
    pub journal: Box<dyn Journal>,
    /// For readers.
    pub tables: Arc<dyn Tables>,
    /// For the thread that saves the state.
    pub savepoints: Arc<dyn Savepoints>,
}

/// Open a store. Nothing is connected or written before the first call; the tables exist once someone has led.
pub fn open(config: &StoreConfig) -> Result<Store, StoreError> {
    match config {
        StoreConfig::Sqlite { path } => sqlite::open(path),
        StoreConfig::Postgres(config) => postgres::open(config),
    }
}
