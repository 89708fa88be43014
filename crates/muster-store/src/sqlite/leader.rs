//! The leader row of SQLite. Whoever holds the lock file may take it; the row carries the epoch on.

use rusqlite::{Connection, OptionalExtension, Row};

use super::fault::fault;
use crate::error::StoreError;
use crate::migrations;
use crate::term::{LeaderRow, Term};

/// Milliseconds by the clock of the database.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Take the next epoch. The former holder is dead, else it would hold the lock file.
pub fn take(connection: &Connection, nonce: u64, holder: &str, lease_ms: i64) -> Result<Term, StoreError> {
    // Outside of the migrations, because only the holder of an epoch may migrate.
    let make = "CREATE TABLE IF NOT EXISTS leader (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, \
                nonce INTEGER NOT NULL, holder TEXT NOT NULL, expires_at INTEGER NOT NULL) STRICT";
    let take = format!(
        "INSERT INTO leader (id, epoch, nonce, holder, expires_at) VALUES (1, 1, ?1, ?2, {NOW} + ?3) \
         ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, nonce = excluded.nonce, holder = excluded.holder, \
         expires_at = excluded.expires_at RETURNING epoch"
    );
    let epoch = connection
        .execute_batch(make)
        .and_then(|()| {
            connection.query_row(&take, (nonce as i64, holder, lease_ms), |row| row.get::<_, i64>(0))
        })
        .map_err(fault("take the lead"))?;
    Ok(Term { epoch: epoch as u64, nonce })
}

/// Let the lease end so long from now.
pub fn expire_in(connection: &Connection, term: Term, lease_ms: i64) -> Result<(), StoreError> {
    set_end(connection, term, &format!("{NOW} + {lease_ms}"))
}

/// End the lease.
pub fn expire_now(connection: &Connection, term: Term) -> Result<(), StoreError> {
    set_end(connection, term, "0")
}

fn set_end(connection: &Connection, term: Term, end: &str) -> Result<(), StoreError> {
    let sql = format!("UPDATE leader SET expires_at = {end} WHERE id = 1 AND epoch = ?1 AND nonce = ?2");
    connection
        .execute(&sql, (term.epoch as i64, term.nonce as i64))
        .map_err(fault("set the end of the lease"))?;
    Ok(())
}

/// Whether we lead, to be asked inside every writing transaction.
pub fn check(connection: &Connection, term: Term) -> Result<(), StoreError> {
    let sql = format!("SELECT epoch, nonce, holder, expires_at - {NOW} FROM leader WHERE id = 1");
    let row = connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_row([], leader_row).optional())
        .map_err(fault("check the lead"))?;
    term.check(row)
}

fn leader_row(row: &Row<'_>) -> rusqlite::Result<LeaderRow> {
    Ok(LeaderRow { epoch: row.get(0)?, nonce: row.get(1)?, holder: row.get(2)?, left_ms: row.get(3)? })
}

/// When the present lease runs out, as far as it can be read.
pub fn lease_end(connection: &Connection) -> Option<i64> {
    connection.query_row("SELECT expires_at FROM leader WHERE id = 1", [], |row| row.get(0)).ok()
}

/// Bring the tables up to this release.
pub fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let runner = migrations::sqlite::migrations::runner();
    let sql = format!("SELECT max(version) FROM {}", migrations::HISTORY);
    // Without a history there is nothing yet.
    let found: Option<i64> = connection.query_row(&sql, [], |row| row.get(0)).unwrap_or(None);
    migrations::refuse_newer(found, migrations::known(&runner))?;
    runner.run(connection).map_err(migrations::failed)?;
    Ok(())
}

/// Give the cluster its id, unless it has one.
pub fn found(connection: &Connection, cluster: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO cluster (id, cluster_id) VALUES (1, ?1) ON CONFLICT DO NOTHING";
    connection.execute(sql, [cluster]).map(drop).map_err(fault("give the cluster its id"))
}
