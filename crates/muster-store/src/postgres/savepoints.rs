//! Adapter (Savepoints): savepoints in PostgreSQL, over their own connection.

use std::sync::{Mutex, PoisonError};

use super::config::PostgresConfig;
use super::connection::{PostgresConnection, ReconnectingConnection};
use super::error_mapping::{map_read_error, map_write_error};
use crate::error::StoreError;
use crate::journal::{Savepoint, Savepoints};
use crate::savepoint::{self, Chunk, CompleteSavepoint};

pub struct PostgresSavepoints(Mutex<ReconnectingConnection>);

impl PostgresSavepoints {
    pub fn new(config: &PostgresConfig) -> Result<PostgresSavepoints, StoreError> {
        Ok(PostgresSavepoints(Mutex::new(ReconnectingConnection::new(config, "muster savepoints")?)))
    }

    /// Each call has its own timeout, so a large state takes several calls.
    fn call<T>(
        &self,
        operation: &str,
        work: impl AsyncFnOnce(&mut PostgresConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call(operation, work)
    }
}

impl Savepoints for PostgresSavepoints {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.call("begin a savepoint", async |connection| begin_savepoint(connection, seq, bytes).await)?;
        for chunk in savepoint::split_into_chunks(bytes) {
            self.call("write a savepoint", async |connection| add_chunk(connection, seq, &chunk).await)?;
        }
        self.call("finish a savepoint", async |connection| finish_savepoint(connection, seq as i64).await)
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        let before = before.map_or(i64::MAX, |seq| seq as i64);
        let complete =
            self.call("read a savepoint", async |connection| complete_savepoints(connection, before).await)?;
        savepoint::first_readable(&complete, |seq, number| {
            self.call("read a savepoint", async |connection| read_chunk(connection, seq, number).await)
        })
    }
}

async fn begin_savepoint(connection: &mut PostgresConnection, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let map_error = map_write_error("begin a savepoint");
    let number = seq as i64;
    let known =
        connection.client.query_opt("SELECT 1 FROM journal WHERE seq = $1", &[&number]).await.map_err(&map_error)?;
    if known.is_none() {
        return Err(savepoint::ahead_of_journal(seq));
    }
    // Remove what an interrupted save left behind.
    delete_savepoint(connection, number).await?;
    let chunks = savepoint::split_into_chunks(bytes).len() as i64;
    let insert = "INSERT INTO savepoints (seq, chunks, bytes, complete) VALUES ($1, $2, $3, false)";
    connection.client.execute(insert, &[&number, &chunks, &(bytes.len() as i64)]).await.map(drop).map_err(&map_error)
}

async fn add_chunk(connection: &mut PostgresConnection, seq: u64, chunk: &Chunk<'_>) -> Result<(), StoreError> {
    let insert = "INSERT INTO savepoint_chunks (seq, chunk, crc, bytes) VALUES ($1, $2, $3, $4)";
    let written = connection.client.execute(insert, &[&(seq as i64), &chunk.number, &chunk.crc, &chunk.bytes]).await;
    written.map(drop).map_err(map_write_error("write a savepoint"))
}

async fn finish_savepoint(connection: &mut PostgresConnection, seq: i64) -> Result<(), StoreError> {
    let map_error = map_write_error("finish a savepoint");
    connection
        .client
        .execute("UPDATE savepoints SET complete = true WHERE seq = $1", &[&seq])
        .await
        .map_err(&map_error)?;
    for row in connection.client.query(savepoint::SELECT_OBSOLETE_SAVEPOINTS, &[]).await.map_err(&map_error)? {
        delete_savepoint(connection, row.get(0)).await?;
    }
    Ok(())
}

async fn delete_savepoint(connection: &PostgresConnection, seq: i64) -> Result<(), StoreError> {
    let chunks = "DELETE FROM savepoint_chunks WHERE seq = $1";
    let row = "DELETE FROM savepoints WHERE seq = $1";
    // A savepoint without its row does not exist, so the row is deleted first.
    for sql in [row, chunks] {
        connection.client.execute(sql, &[&seq]).await.map_err(map_write_error("delete obsolete savepoints"))?;
    }
    Ok(())
}

pub async fn complete_savepoints(
    connection: &mut PostgresConnection,
    before: i64,
) -> Result<Vec<CompleteSavepoint>, StoreError> {
    let list = "SELECT seq, chunks, bytes FROM savepoints WHERE complete AND seq < $1 ORDER BY seq DESC";
    let rows = connection.client.query(list, &[&before]).await.map_err(map_read_error("read a savepoint"))?;
    Ok(rows.iter().map(|row| CompleteSavepoint { seq: row.get(0), chunks: row.get(1), bytes: row.get(2) }).collect())
}

pub async fn read_chunk(
    connection: &mut PostgresConnection,
    seq: i64,
    number: i64,
) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let sql = "SELECT crc, bytes FROM savepoint_chunks WHERE seq = $1 AND chunk = $2";
    let row = connection.client.query_opt(sql, &[&seq, &number]).await.map_err(map_read_error("read a savepoint"))?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}
