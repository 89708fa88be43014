//! The leader row of SQLite. The holder of the lock file may take it; the row stores the epoch.

use rusqlite::{Connection, OptionalExtension, Row};

use super::error_mapping::map_write_error;
use crate::error::StoreError;
use crate::leader_epoch::{LeaderEpoch, LeaderRow};
use crate::migrations;

/// Unix milliseconds by the clock of the database.
const NOW_MS_SQL: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// Start the next epoch. The former holder is dead, otherwise it would hold the lock file.
pub fn take_leader_row(
    connection: &Connection,
    nonce: u64,
    holder: &str,
    lease_ms: i64,
) -> Result<LeaderEpoch, StoreError> {
    // Outside of the migrations, because only the holder of an epoch may migrate.
    let create = "CREATE TABLE IF NOT EXISTS leader (id INTEGER PRIMARY KEY CHECK (id = 1), epoch INTEGER NOT NULL, \
                nonce INTEGER NOT NULL, holder TEXT NOT NULL, expires_at INTEGER NOT NULL) STRICT";
    let take = format!(
        "INSERT INTO leader (id, epoch, nonce, holder, expires_at) VALUES (1, 1, ?1, ?2, {NOW_MS_SQL} + ?3) \
         ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, nonce = excluded.nonce, holder = excluded.holder, \
         expires_at = excluded.expires_at RETURNING epoch"
    );
    let epoch = connection
        .execute_batch(create)
        .and_then(|()| connection.query_row(&take, (nonce as i64, holder, lease_ms), |row| row.get::<_, i64>(0)))
        .map_err(map_write_error("acquire leadership"))?;
    Ok(LeaderEpoch { epoch: epoch as u64, nonce })
}

/// Let the lease expire `lease_ms` from now.
pub fn extend_lease(connection: &Connection, leader_epoch: LeaderEpoch, lease_ms: i64) -> Result<(), StoreError> {
    set_lease_end(connection, leader_epoch, &format!("{NOW_MS_SQL} + {lease_ms}"))
}

pub fn end_lease(connection: &Connection, leader_epoch: LeaderEpoch) -> Result<(), StoreError> {
    set_lease_end(connection, leader_epoch, "0")
}

fn set_lease_end(connection: &Connection, leader_epoch: LeaderEpoch, end: &str) -> Result<(), StoreError> {
    let sql = format!("UPDATE leader SET expires_at = {end} WHERE id = 1 AND epoch = ?1 AND nonce = ?2");
    connection
        .execute(&sql, (leader_epoch.epoch as i64, leader_epoch.nonce as i64))
        .map_err(map_write_error("set the end of the lease"))?;
    Ok(())
}

/// `Ok` if this server still leads. Called in every write transaction.
pub fn check_leader(connection: &Connection, leader_epoch: LeaderEpoch) -> Result<(), StoreError> {
    leader_epoch.check(read_leader_row(connection)?)
}

/// `Ok` if no other server has led since, also if the lease has expired.
pub fn check_not_replaced(connection: &Connection, leader_epoch: LeaderEpoch) -> Result<(), StoreError> {
    leader_epoch.check_not_replaced(read_leader_row(connection)?)
}

fn read_leader_row(connection: &Connection) -> Result<Option<LeaderRow>, StoreError> {
    let sql = format!("SELECT epoch, nonce, holder, expires_at - {NOW_MS_SQL} FROM leader WHERE id = 1");
    connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_row([], leader_row).optional())
        .map_err(map_write_error("check leadership"))
}

fn leader_row(row: &Row<'_>) -> rusqlite::Result<LeaderRow> {
    Ok(LeaderRow { epoch: row.get(0)?, nonce: row.get(1)?, holder: row.get(2)?, lease_left_ms: row.get(3)? })
}

/// When the current lease expires; `None` if that cannot be read.
pub fn lease_end(connection: &Connection) -> Option<i64> {
    connection.query_row("SELECT expires_at FROM leader WHERE id = 1", [], |row| row.get(0)).ok()
}

/// Migrate the schema to this release.
pub fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let runner = migrations::sqlite::migrations::runner();
    let sql = format!("SELECT max(version) FROM {}", migrations::HISTORY_TABLE);
    // Without a history table the database is new.
    let found: Option<i64> = connection.query_row(&sql, [], |row| row.get(0)).unwrap_or(None);
    migrations::refuse_newer_schema(found, migrations::newest_known_version(&runner))?;
    runner.run(connection).map_err(migrations::migration_error)?;
    Ok(())
}

/// Set the id of the cluster, unless it has one.
pub fn set_cluster_id(connection: &Connection, cluster: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO cluster (id, cluster_id) VALUES (1, ?1) ON CONFLICT DO NOTHING";
    connection.execute(sql, [cluster]).map(drop).map_err(map_write_error("set the cluster id"))
}
