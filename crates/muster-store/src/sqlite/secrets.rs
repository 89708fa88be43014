//! Adapter (SealedSecrets): the table of sealed values in SQLite.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

use super::error_mapping::{map_commit_error, map_read_error, map_write_error};
use super::file::{DatabaseFile, increment_write_count};
use super::leader;
use crate::error::StoreError;
use crate::leader_epoch::LeaderEpoch;
use crate::sealed_secrets::{DISCARD_VALUE, READ_VALUE, SealedSecret, SealedSecrets, WRITE_VALUE};

pub struct SqliteSecrets {
    file: Arc<DatabaseFile>,
    connection: Mutex<Option<Connection>>,
}

impl SqliteSecrets {
    pub fn new(file: Arc<DatabaseFile>) -> SqliteSecrets {
        SqliteSecrets { file, connection: Mutex::new(None) }
    }

    /// After an error the connection is dropped, so that the next call reads the actual contents of the file.
    fn with_connection<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let mut connection = slot.take().map_or_else(|| self.file.open_writer(), Ok)?;
        let done = work(&mut connection)?;
        *slot = Some(connection);
        Ok(done)
    }

    /// A transaction of the leader.
    fn write(
        &self,
        operation: &str,
        leader_epoch: LeaderEpoch,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        self.with_connection(|connection| {
            let _permit = self.file.write_queue.acquire();
            let immediate = TransactionBehavior::Immediate;
            let tx = connection.transaction_with_behavior(immediate).map_err(map_write_error(operation))?;
            leader::check_leader(&tx, leader_epoch)?;
            work(&tx).and_then(|_| increment_write_count(&tx)).map_err(map_write_error(operation))?;
            tx.commit().map_err(map_commit_error)
        })
    }
}

impl SealedSecrets for SqliteSecrets {
    fn put(&self, leader: LeaderEpoch, value: &SealedSecret<'_>) -> Result<(), StoreError> {
        self.write(WRITE_VALUE, leader, |tx| {
            let sql = "INSERT INTO sealed_secrets (id, tenant, owner, name, sealed) VALUES (?1, ?2, ?3, ?4, ?5)";
            let SealedSecret { id, secret, sealed } = value;
            tx.execute(sql, (id, secret.tenant.as_str(), value.owner(), &secret.name, sealed))
        })
    }

    fn discard(&self, leader: LeaderEpoch, id: &str) -> Result<(), StoreError> {
        self.write(DISCARD_VALUE, leader, |tx| tx.execute("DELETE FROM sealed_secrets WHERE id = ?1", [id]))
    }

    fn sealed(&self, id: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.with_connection(|connection| {
            let sql = "SELECT sealed FROM sealed_secrets WHERE id = ?1";
            connection.query_row(sql, [id], |row| row.get(0)).optional().map_err(map_read_error(READ_VALUE))
        })
    }
}
