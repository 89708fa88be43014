//! Adapter (Journal): a SQLite file, for a cluster with one server.
//!
//! The write-ahead log is flushed at each commit, so an acknowledged batch survives a loss of power.

mod error_mapping;
mod file;
mod identity;
mod leader;
mod lock_file;
mod read_pool;
mod savepoints;
mod secrets;
mod snapshot;
mod write_queue;

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params_from_iter};

use self::error_mapping::{map_commit_error, map_read_error, map_write_error};
use self::file::{DatabaseFile, increment_write_count};
use self::lock_file::LockFile;
use self::read_pool::SqliteReadPool;
use self::savepoints::SqliteSavepoints;
use self::secrets::SqliteSecrets;
use crate::Store;
use crate::chain::ChainChecksum;
use crate::error::StoreError;
use crate::journal::{ClusterIdentity, EntryVisitor, Journal, Leadership};
use crate::leader_epoch::{LeaderEpoch, random_number};
use crate::reader::TableReader;
use crate::record::{Entry, Record, check_batch};
use crate::replay::{PAGE_ROWS, replay};
use crate::tables::{BoundStatement, journal_row, project};

pub fn open(path: &Path) -> Result<Store, StoreError> {
    let file = Arc::new(DatabaseFile::at_path(path)?);
    Ok(Store {
        tables: Arc::new(TableReader(SqliteReadPool::new(file.clone()))),
        savepoints: Arc::new(SqliteSavepoints::new(file.clone())),
        secrets: Arc::new(SqliteSecrets::new(file.clone())),
        journal: Box::new(SqliteJournal { connection: None, leader_epoch: None, lock: None, file }),
    })
}

pub use self::snapshot::{ScratchDatabase, create_scratch_database, open_snapshot};

/// The journal in a file. Fields are dropped in this order: connection, lock, file.
struct SqliteJournal {
    connection: Option<Connection>,
    leader_epoch: Option<LeaderEpoch>,
    lock: Option<LockFile>,
    file: Arc<DatabaseFile>,
}

impl Journal for SqliteJournal {
    fn acquire_leadership(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        self.leader_epoch = None;
        match &self.lock {
            Some(lock) => lock.write_holder(holder)?,
            None => match LockFile::try_lock(&self.file.path, holder)? {
                Ok(lock) => self.lock = Some(lock),
                Err(other) => return Ok(self.standby(other)),
            },
        }
        let nonce = random_number()?;
        let connection = self.connection()?;
        let leader_epoch = leader::take_leader_row(connection, nonce, holder, lease_ms)?;
        leader::migrate(connection)?;
        // A migration may have taken longer than the lease.
        self.in_transaction("acquire leadership", |tx| leader::extend_lease(tx, leader_epoch, lease_ms))?;
        self.leader_epoch = Some(leader_epoch);
        Ok(Leadership::Leading { epoch: leader_epoch.epoch, nonce: leader_epoch.nonce })
    }

    fn renew_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        self.in_transaction("renew the lease", |tx| {
            leader::check_leader(tx, leader_epoch)?;
            leader::extend_lease(tx, leader_epoch, lease_ms)
        })
    }

    fn resume_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        self.in_transaction("resume the lease", |tx| {
            leader::check_not_replaced(tx, leader_epoch)?;
            leader::extend_lease(tx, leader_epoch, lease_ms)
        })
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        if let Some(leader_epoch) = self.leader_epoch.take() {
            self.in_transaction("resign", |tx| leader::end_lease(tx, leader_epoch))?;
            // Leaves a single file behind. If a reader prevents that, the log remains, which does no harm.
            let _ = self.connection()?.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        self.connection = None;
        self.lock = None;
        Ok(())
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.in_transaction("append to the journal", |tx| {
            leader::check_leader(tx, leader_epoch)?;
            let (last, chain_end) = last_record(tx)?;
            check_batch(batch, leader_epoch.epoch, last)?;
            write_batch(tx, batch, chain_end)
        })
    }

    fn cluster_identity(&mut self) -> Result<ClusterIdentity, StoreError> {
        Ok(self.file.cluster_identity())
    }

    fn set_cluster_id(&mut self, cluster: &str) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        self.in_transaction("set the cluster id", |tx| {
            leader::check_leader(tx, leader_epoch)?;
            leader::set_cluster_id(tx, cluster)
        })
    }

    fn replay(&mut self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64, StoreError> {
        let connection = self.connection()?;
        replay(after, &mut |from| read_records(connection, from), visit)
    }
}

impl SqliteJournal {
    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(self.file.open_verified_writer()?)),
        }
    }

    /// Run a write transaction, which is rolled back if the work fails. After an error the connection is dropped, so
    /// that the next call reads the actual contents of the file.
    fn in_transaction(
        &mut self,
        operation: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let file = self.file.clone();
        let _permit = file.write_queue.acquire();
        let done = self.connection().and_then(|connection| {
            let immediate = TransactionBehavior::Immediate;
            let tx = connection.transaction_with_behavior(immediate).map_err(map_write_error(operation))?;
            work(&tx)?;
            increment_write_count(&tx).map_err(map_write_error(operation))?;
            tx.commit().map_err(map_commit_error)
        });
        if done.is_err() {
            self.connection = None;
        }
        done
    }

    fn standby(&self, holder: String) -> Leadership {
        let until = self.file.open_reader().ok().and_then(|connection| leader::lease_end(&connection));
        Leadership::Standby { holder, until_ms: until.unwrap_or(0) }
    }
}

/// Sequence number and chain checksum of the last record.
fn last_record(connection: &Connection) -> Result<(u64, ChainChecksum), StoreError> {
    let sql = "SELECT seq, crc, chain FROM journal ORDER BY seq DESC LIMIT 1";
    let last = connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement
                .query_row([], |row| {
                    Ok((row.get::<_, i64>(0)? as u64, ChainChecksum::of_record(row.get(1)?, row.get(2)?)))
                })
                .optional()
        })
        .map_err(map_write_error("read the end of the journal"))?;
    Ok(last.unwrap_or((0, ChainChecksum::START)))
}

/// Append entries after the record with chain checksum `previous`.
fn write_batch(connection: &Connection, batch: &[Entry], mut previous: ChainChecksum) -> Result<(), StoreError> {
    for entry in batch {
        execute(connection, &journal_row(entry, &mut previous), entry.seq)?;
        for change in project(entry) {
            execute(connection, &change, entry.seq)?;
        }
    }
    Ok(())
}

fn execute(connection: &Connection, change: &BoundStatement, seq: u64) -> Result<(), StoreError> {
    let statement = change.statement;
    let operation = || format!("entry {seq}, {}", statement.name);
    let affected = connection
        .prepare_cached(statement.sql)
        .and_then(|mut prepared| prepared.execute(params_from_iter(&change.values)))
        .map_err(|error| map_write_error(&operation())(error))?;
    match statement.rows.allows(affected as u64, 1) {
        true => Ok(()),
        false => Err(change.wrong_row_count(&operation(), affected as u64)),
    }
}

fn read_records(connection: &Connection, from: u64) -> Result<Vec<Record>, StoreError> {
    // A database of an older release may be read before it is migrated; it has no chain.
    let chain = match has_column(connection, "journal", "chain").map_err(map_read_error("read the journal"))? {
        true => "chain",
        false => "NULL",
    };
    let sql = format!(
        "SELECT seq, epoch, at_ms, kind, version, payload, crc, {chain} FROM journal WHERE seq >= ?1 ORDER BY seq LIMIT ?2"
    );
    connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_map((from as i64, PAGE_ROWS), record_from_row)?.collect())
        .map_err(map_read_error("read the journal"))
}

fn has_column(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    connection.prepare_cached(sql)?.query_row((table, column), |row| row.get::<_, i64>(0)).map(|count| count > 0)
}

fn record_from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        epoch: row.get::<_, i64>(1)? as u64,
        at_ms: row.get(2)?,
        kind: row.get(3)?,
        version: row.get(4)?,
        payload: row.get(5)?,
        crc: row.get(6)?,
        chain: row.get(7)?,
    })
}
