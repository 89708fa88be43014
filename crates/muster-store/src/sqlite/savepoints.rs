//! Adapter (Savepoints): savepoints in SQLite, written in small transactions between those of the journal.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::error_mapping::{map_read_error, map_write_error};
use super::file::{DatabaseFile, increment_write_count};
use crate::error::StoreError;
use crate::journal::{Savepoint, Savepoints};
use crate::savepoint::{self, Chunk, CompleteSavepoint};

pub struct SqliteSavepoints {
    file: Arc<DatabaseFile>,
    connection: Mutex<Option<Connection>>,
}

impl SqliteSavepoints {
    pub fn new(file: Arc<DatabaseFile>) -> SqliteSavepoints {
        SqliteSavepoints { file, connection: Mutex::new(None) }
    }

    fn with_writer<T>(
        &self,
        work: impl FnOnce(&mut SavepointWriter) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            empty => empty.insert(self.file.open_writer()?),
        };
        work(&mut SavepointWriter { connection, file: &self.file })
    }
}

/// Connection and write queue for one savepoint write.
struct SavepointWriter<'a> {
    connection: &'a mut Connection,
    file: &'a DatabaseFile,
}

impl Savepoints for SqliteSavepoints {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.with_writer(|writer| {
            begin_savepoint(writer, seq, bytes)?;
            for chunk in savepoint::split_into_chunks(bytes) {
                add_chunk(writer, seq, &chunk)?;
            }
            writer.write("finish a savepoint", |tx| {
                tx.execute("UPDATE savepoints SET complete = 1 WHERE seq = ?1", [seq as i64])
            })?;
            delete_obsolete_savepoints(writer)
        })
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        self.with_writer(|writer| {
            let connection = &*writer.connection;
            let map_error = map_read_error("read a savepoint");
            let before = before.map_or(i64::MAX, |seq| seq as i64);
            let mut list = connection
                .prepare("SELECT seq, chunks, bytes FROM savepoints WHERE complete = 1 AND seq < ?1 ORDER BY seq DESC")
                .map_err(&map_error)?;
            let complete = list
                .query_map([before], |row| {
                    Ok(CompleteSavepoint { seq: row.get(0)?, chunks: row.get(1)?, bytes: row.get(2)? })
                })
                .and_then(Iterator::collect::<rusqlite::Result<Vec<CompleteSavepoint>>>)
                .map_err(&map_error)?;
            savepoint::first_readable(&complete, |seq, number| read_chunk(connection, seq, number))
        })
    }
}

fn begin_savepoint(writer: &mut SavepointWriter<'_>, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let known = writer
        .connection
        .query_row("SELECT 1 FROM journal WHERE seq = ?1", [seq as i64], |_| Ok(()))
        .optional()
        .map_err(map_write_error("begin a savepoint"))?;
    if known.is_none() {
        return Err(savepoint::ahead_of_journal(seq));
    }
    // Remove what an interrupted save left behind.
    delete_savepoint(writer, seq as i64)?;
    writer.write("begin a savepoint", |tx| {
        let sql = "INSERT INTO savepoints (seq, chunks, bytes, complete) VALUES (?1, ?2, ?3, 0)";
        tx.execute(sql, (seq as i64, savepoint::split_into_chunks(bytes).len() as i64, bytes.len() as i64))
    })
}

fn add_chunk(writer: &mut SavepointWriter<'_>, seq: u64, chunk: &Chunk) -> Result<(), StoreError> {
    writer.write("write a savepoint", |tx| {
        let sql = "INSERT INTO savepoint_chunks (seq, chunk, crc, bytes) VALUES (?1, ?2, ?3, ?4)";
        tx.execute(sql, (seq as i64, chunk.number, chunk.crc, chunk.bytes))
    })
}

pub fn read_chunk(connection: &Connection, seq: i64, number: i64) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let sql = "SELECT crc, bytes FROM savepoint_chunks WHERE seq = ?1 AND chunk = ?2";
    connection
        .query_row(sql, [seq, number], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .map_err(map_read_error("read a savepoint"))
}

fn delete_obsolete_savepoints(writer: &mut SavepointWriter<'_>) -> Result<(), StoreError> {
    let operation = "delete obsolete savepoints";
    let old: Vec<i64> = writer
        .connection
        .prepare(savepoint::SELECT_OBSOLETE_SAVEPOINTS)
        .and_then(|mut list| list.query_map([], |row| row.get(0))?.collect())
        .map_err(map_write_error(operation))?;
    old.into_iter().try_for_each(|seq| delete_savepoint(writer, seq))
}

/// Deletes each chunk in its own transaction and the row last, so that the journal never waits for long.
fn delete_savepoint(writer: &mut SavepointWriter<'_>, seq: i64) -> Result<(), StoreError> {
    let operation = "delete obsolete savepoints";
    writer.write(operation, |tx| tx.execute("UPDATE savepoints SET complete = 0 WHERE seq = ?1", [seq]))?;
    let chunks: Vec<i64> = writer
        .connection
        .prepare("SELECT chunk FROM savepoint_chunks WHERE seq = ?1")
        .and_then(|mut list| list.query_map([seq], |row| row.get(0))?.collect())
        .map_err(map_write_error(operation))?;
    for chunk in chunks {
        let sql = "DELETE FROM savepoint_chunks WHERE seq = ?1 AND chunk = ?2";
        writer.write(operation, |tx| tx.execute(sql, [seq, chunk]))?;
    }
    writer.write(operation, |tx| tx.execute("DELETE FROM savepoints WHERE seq = ?1", [seq]))
}

impl SavepointWriter<'_> {
    fn write(
        &mut self,
        operation: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        let _permit = self.file.write_queue.acquire();
        let written = || -> rusqlite::Result<()> {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Without a change the transaction is rolled back, which saves a flush.
            if work(&tx)? > 0 {
                increment_write_count(&tx)?;
                tx.commit()?;
            }
            Ok(())
        };
        written().map_err(map_write_error(operation))
    }
}
