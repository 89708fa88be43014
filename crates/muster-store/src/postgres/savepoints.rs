//! Adapter (Savepoints): saved states in PostgreSQL, over a connection of their own.

use std::sync::{Mutex, PoisonError};

use super::config::PostgresConfig;
use super::fault::{fault, read_fault};
use super::link::{Line, Link};
use crate::error::StoreError;
use crate::journal::{Savepoint, Savepoints};
use crate::savepoint::{self, Chunk, Whole};

/// Saved states beside the journal.
pub struct PostgresSavepoints(Mutex<Line>);

impl PostgresSavepoints {
    pub fn new(config: &PostgresConfig) -> Result<PostgresSavepoints, StoreError> {
        Ok(PostgresSavepoints(Mutex::new(Line::new(config, "muster savepoints")?)))
    }

    /// Each call has a time limit of its own, so a large state is not one call.
    fn call<T>(
        &self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).call(doing, work)
    }
}

impl Savepoints for PostgresSavepoints {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.call("begin a savepoint", async |link| begin(link, seq, bytes).await)?;
        for chunk in savepoint::chunks(bytes) {
            self.call("write a savepoint", async |link| add_chunk(link, seq, &chunk).await)?;
        }
        self.call("finish a savepoint", async |link| finish(link, seq as i64).await)
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        let before = before.map_or(i64::MAX, |seq| seq as i64);
        let wholes = self.call("read a savepoint", async |link| wholes(link, before).await)?;
        savepoint::first_readable(&wholes, |seq, number| {
            self.call("read a savepoint", async |link| read_chunk(link, seq, number).await)
        })
    }
}

async fn begin(link: &mut Link, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
    let doing = fault("begin a savepoint");
    let number = seq as i64;
    let known =
        link.client.query_opt("SELECT 1 FROM journal WHERE seq = $1", &[&number]).await.map_err(&doing)?;
    if known.is_none() {
        return Err(savepoint::ahead_of_journal(seq));
    }
    // What an interrupted attempt left behind is written over.
    delete(link, number).await?;
    let chunks = savepoint::chunks(bytes).len() as i64;
    let insert = "INSERT INTO savepoints (seq, chunks, bytes, complete) VALUES ($1, $2, $3, false)";
    link.client.execute(insert, &[&number, &chunks, &(bytes.len() as i64)]).await.map(drop).map_err(&doing)
}

async fn add_chunk(link: &mut Link, seq: u64, chunk: &Chunk<'_>) -> Result<(), StoreError> {
    let insert = "INSERT INTO savepoint_chunks (seq, chunk, crc, bytes) VALUES ($1, $2, $3, $4)";
    let written =
        link.client.execute(insert, &[&(seq as i64), &chunk.number, &chunk.crc, &chunk.bytes]).await;
    written.map(drop).map_err(fault("write a savepoint"))
}

async fn finish(link: &mut Link, seq: i64) -> Result<(), StoreError> {
    let doing = fault("finish a savepoint");
    link.client
        .execute("UPDATE savepoints SET complete = true WHERE seq = $1", &[&seq])
        .await
        .map_err(&doing)?;
    for row in link.client.query(savepoint::OLD, &[]).await.map_err(&doing)? {
        delete(link, row.get(0)).await?;
    }
    Ok(())
}

async fn delete(link: &Link, seq: i64) -> Result<(), StoreError> {
    let chunks = "DELETE FROM savepoint_chunks WHERE seq = $1";
    let row = "DELETE FROM savepoints WHERE seq = $1";
    // Without its row a savepoint does not exist, so the row goes first.
    for sql in [row, chunks] {
        link.client.execute(sql, &[&seq]).await.map_err(fault("drop old savepoints"))?;
    }
    Ok(())
}

pub async fn wholes(link: &mut Link, before: i64) -> Result<Vec<Whole>, StoreError> {
    let list = "SELECT seq, chunks, bytes FROM savepoints WHERE complete AND seq < $1 ORDER BY seq DESC";
    let rows = link.client.query(list, &[&before]).await.map_err(read_fault("read a savepoint"))?;
    Ok(rows.iter().map(|row| Whole { seq: row.get(0), chunks: row.get(1), bytes: row.get(2) }).collect())
}

pub async fn read_chunk(
    link: &mut Link,
    seq: i64,
    number: i64,
) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let sql = "SELECT crc, bytes FROM savepoint_chunks WHERE seq = $1 AND chunk = $2";
    let row = link.client.query_opt(sql, &[&seq, &number]).await.map_err(read_fault("read a savepoint"))?;
    Ok(row.map(|row| (row.get(0), row.get(1))))
}
