//! Adapter (Snapshot): consistent view of a SQLite file for verification, and the scratch database for the comparison.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::error_mapping::{map_read_error, map_write_error};
use super::file::DatabaseFile;
use super::{last_record, leader, read_pool, read_records, write_batch};
use crate::error::StoreError;
use crate::migrations;
use crate::record::{Entry, Record};
use crate::replay::PAGE_ROWS;
use crate::savepoint::{self, CompleteSavepoint};
use crate::snapshot::{Snapshot, Table};
use crate::tables::Value;

/// Open a consistent view. The file must exist: verification creates no database.
pub fn open_snapshot(path: &Path) -> Result<Box<dyn Snapshot>, StoreError> {
    let file = DatabaseFile::at_path(path)?;
    let connection = file.open_reader()?;
    connection.execute_batch("BEGIN").map_err(map_read_error("begin a read-only snapshot"))?;
    Ok(Box::new(SqliteSnapshot { connection }))
}

struct SqliteSnapshot {
    connection: Connection,
}

impl Snapshot for SqliteSnapshot {
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError> {
        read_records(&self.connection, from)
    }

    fn table_page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        page(&self.connection, table, after)
    }

    fn schema_version(&mut self) -> Result<Option<i64>, StoreError> {
        let sql = format!("SELECT max(version) FROM {}", migrations::HISTORY_TABLE);
        // Without a history table there are no tables.
        Ok(self.connection.query_row(&sql, [], |row| row.get(0)).unwrap_or(None))
    }

    fn unreadable_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError> {
        let sql = "SELECT seq, chunks, bytes FROM savepoints WHERE complete = 1 ORDER BY seq";
        let complete = |row: &rusqlite::Row<'_>| {
            Ok(CompleteSavepoint { seq: row.get(0)?, chunks: row.get(1)?, bytes: row.get(2)? })
        };
        let savepoints = self
            .connection
            .prepare(sql)
            .and_then(|mut list| list.query_map([], complete)?.collect::<rusqlite::Result<Vec<CompleteSavepoint>>>())
            .map_err(map_read_error("read savepoints"))?;
        savepoint::unreadable_savepoints(&savepoints, |seq, number| {
            super::savepoints::read_chunk(&self.connection, seq, number)
        })
    }
}

/// Temporary database with the schema of this release.
pub struct ScratchDatabase {
    // Dropped before `_file`, which deletes the folder.
    connection: Connection,
    _file: Arc<DatabaseFile>,
}

pub fn create_scratch_database() -> Result<ScratchDatabase, StoreError> {
    let file = Arc::new(DatabaseFile::at_path(Path::new(":memory:"))?);
    let mut connection = file.open_writer()?;
    leader::migrate(&mut connection)?;
    Ok(ScratchDatabase { connection, _file: file })
}

impl ScratchDatabase {
    /// Append entries of any epoch.
    pub fn write(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let map_error = map_write_error("rebuild the tables from the journal");
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&map_error)?;
        let (_, chain_end) = last_record(&tx)?;
        write_batch(&tx, batch, chain_end)?;
        tx.commit().map_err(&map_error)
    }

    pub fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        read_pool::query(&self.connection, sql, values).map_err(map_read_error("read the tables"))
    }

    pub fn page(&self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        page(&self.connection, table, after)
    }
}

fn page(connection: &Connection, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
    let keys: Vec<String> = table.key_columns().map(|column| format!("\"{}\"", column.name)).collect();
    let keys = keys.join(", ");
    let values: Vec<String> = (1..=after.map_or(0, <[Value]>::len)).map(|number| format!("${number}")).collect();
    let beyond = match after {
        Some(_) => format!("WHERE ({keys}) > ({})", values.join(", ")),
        None => String::new(),
    };
    let sql =
        format!("SELECT {} FROM \"{}\" {beyond} ORDER BY {keys} LIMIT {PAGE_ROWS}", table.column_list(), table.name);
    let operation = format!("read the table {}", table.name);
    read_pool::query(connection, &sql, after.unwrap_or_default()).map_err(map_read_error(&operation))
}
