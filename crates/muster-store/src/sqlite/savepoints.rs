//! Adapter (Savepoints): saved states in SQLite, written in small transactions between those of the journal.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::fault::{fault, read_fault};
use super::file::{Place, count_this_write};
use crate::error::StoreError;
use crate::journal::{Savepoint, Savepoints};
use crate::savepoint::{self, Chunk, Whole};

/// Saved states in the file of the journal.
pub struct SqliteSavepoints {
    place: Arc<Place>,
    connection: Mutex<Option<Connection>>,
}

impl SqliteSavepoints {
    pub fn new(place: Arc<Place>) -> SqliteSavepoints {
        SqliteSavepoints { place, connection: Mutex::new(None) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Pen) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut slot = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = match &mut *slot {
            Some(connection) => connection,
            empty => empty.insert(self.place.writer()?),
        };
        work(&mut Pen { connection, place: &self.place })
    }
}

/// What it takes to write.
struct Pen<'a> {
    connection: &'a mut Connection,
    place: &'a Place,
}

impl Savepoints for SqliteSavepoints {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.with(|pen| {
            begin(pen, seq, bytes)?;
            for chunk in savepoint::chunks(bytes) {
                add_chunk(pen, seq, &chunk)?;
            }
            pen.write("finish a savepoint", |tx| {
                tx.execute("UPDATE savepoints SET complete = 1 WHERE seq = ?1", [seq as i64])
            })?;
            drop_old(pen)
        })
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        self.with(|pen| {
            let connection = &*pen.connection;
            let doing = read_fault("read a savepoint");
            let before = before.map_or(i64::MAX, |seq| seq as i64);
            let mut list = connection
                .prepare(
                    "SELECT seq, chunks, bytes FROM savepoints WHERE complete = 1 AND seq < ?1 ORDER BY seq DESC",
                )
                .map_err(&doing)?;
            let wholes = list
                .query_map([before], |row| {
                    Ok(Whole { seq: row.get(0)?, chunks: row.get(1)?, bytes: row.get(2)? })
                })
                .and_then(Iterator::collect::<rusqlite::Result<Vec<Whole>>>)
                .map_err(&doing)?;
            savepoint::first_readable(&wholes, |seq, number| read_chunk(connection, seq, number))
        })
    }
}

fn begin(pen: &mut Pen<'_>, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let known = pen
        .connection
        .query_row("SELECT 1 FROM journal WHERE seq = ?1", [seq as i64], |_| Ok(()))
        .optional()
        .map_err(fault("begin a savepoint"))?;
    if known.is_none() {
        return Err(savepoint::ahead_of_journal(seq));
    }
    // What an interrupted attempt left behind is written over.
    delete(pen, seq as i64)?;
    pen.write("begin a savepoint", |tx| {
        let sql = "INSERT INTO savepoints (seq, chunks, bytes, complete) VALUES (?1, ?2, ?3, 0)";
        tx.execute(sql, (seq as i64, savepoint::chunks(bytes).len() as i64, bytes.len() as i64))
    })
}

fn add_chunk(pen: &mut Pen<'_>, seq: u64, chunk: &Chunk) -> Result<(), StoreError> {
    pen.write("write a savepoint", |tx| {
        let sql = "INSERT INTO savepoint_chunks (seq, chunk, crc, bytes) VALUES (?1, ?2, ?3, ?4)";
        tx.execute(sql, (seq as i64, chunk.number, chunk.crc, chunk.bytes))
    })
}

pub fn read_chunk(
    connection: &Connection,
    seq: i64,
    number: i64,
) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let sql = "SELECT crc, bytes FROM savepoint_chunks WHERE seq = ?1 AND chunk = ?2";
    connection
        .query_row(sql, [seq, number], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
        .map_err(read_fault("read a savepoint"))
}

fn drop_old(pen: &mut Pen<'_>) -> Result<(), StoreError> {
    let doing = "drop old savepoints";
    let old: Vec<i64> = pen
        .connection
        .prepare(savepoint::OLD)
        .and_then(|mut list| list.query_map([], |row| row.get(0))?.collect())
        .map_err(fault(doing))?;
    old.into_iter().try_for_each(|seq| delete(pen, seq))
}

/// The row goes last, and each chunk goes alone, so that the journal never waits for long.
fn delete(pen: &mut Pen<'_>, seq: i64) -> Result<(), StoreError> {
    let doing = "drop old savepoints";
    pen.write(doing, |tx| tx.execute("UPDATE savepoints SET complete = 0 WHERE seq = ?1", [seq]))?;
    let chunks: Vec<i64> = pen
        .connection
        .prepare("SELECT chunk FROM savepoint_chunks WHERE seq = ?1")
        .and_then(|mut list| list.query_map([seq], |row| row.get(0))?.collect())
        .map_err(fault(doing))?;
    for chunk in chunks {
        let sql = "DELETE FROM savepoint_chunks WHERE seq = ?1 AND chunk = ?2";
        pen.write(doing, |tx| tx.execute(sql, [seq, chunk]))?;
    }
    pen.write(doing, |tx| tx.execute("DELETE FROM savepoints WHERE seq = ?1", [seq]))
}

impl Pen<'_> {
    fn write(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<usize>,
    ) -> Result<(), StoreError> {
        let _turn = self.place.turns.take();
        let written = || -> rusqlite::Result<()> {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Nothing to change, nothing to flush.
            if work(&tx)? > 0 {
                count_this_write(&tx)?;
                tx.commit()?;
            }
            Ok(())
        };
        written().map_err(fault(doing))
    }
}
