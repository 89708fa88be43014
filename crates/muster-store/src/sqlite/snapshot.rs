//! A consistent view of a SQLite file for one that examines all of it, and the scratch database it compares with.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior};

use super::fault::{fault, read_fault};
use super::file::Place;
use super::{last_record, leader, reads, records, write_batch};
use crate::deep::{Snapshot, Table};
use crate::error::StoreError;
use crate::migrations;
use crate::record::{Entry, Record};
use crate::replay::PAGE;
use crate::savepoint::{self, Whole};
use crate::tables::Value;

/// A consistent view of a file. It must exist: a look makes no database.
pub fn snapshot(path: &Path) -> Result<Box<dyn Snapshot>, StoreError> {
    let place = Place::of(path)?;
    let connection = place.reader()?;
    connection.execute_batch("BEGIN").map_err(read_fault("begin to read"))?;
    Ok(Box::new(SqliteSnapshot { connection }))
}

struct SqliteSnapshot {
    connection: Connection,
}

impl Snapshot for SqliteSnapshot {
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError> {
        records(&self.connection, from)
    }

    fn page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        page(&self.connection, table, after)
    }

    fn version(&mut self) -> Result<Option<i64>, StoreError> {
        let sql = format!("SELECT max(version) FROM {}", migrations::HISTORY);
        // Without a history there are no tables.
        Ok(self.connection.query_row(&sql, [], |row| row.get(0)).unwrap_or(None))
    }

    fn broken_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError> {
        let sql = "SELECT seq, chunks, bytes FROM savepoints WHERE complete = 1 ORDER BY seq";
        let whole =
            |row: &rusqlite::Row<'_>| Ok(Whole { seq: row.get(0)?, chunks: row.get(1)?, bytes: row.get(2)? });
        let wholes = self
            .connection
            .prepare(sql)
            .and_then(|mut list| list.query_map([], whole)?.collect::<rusqlite::Result<Vec<Whole>>>())
            .map_err(read_fault("read savepoints"))?;
        savepoint::broken(&wholes, |seq, number| super::savepoints::read_chunk(&self.connection, seq, number))
    }
}

/// A throwaway database with the tables of this release.
pub struct Scratch {
    // The connection goes before the folder it lies in.
    connection: Connection,
    _place: Arc<Place>,
}

/// Make one.
pub fn scratch() -> Result<Scratch, StoreError> {
    let place = Arc::new(Place::of(Path::new(":memory:"))?);
    let mut connection = place.writer()?;
    leader::migrate(&mut connection)?;
    Ok(Scratch { connection, _place: place })
}

impl Scratch {
    /// Write entries behind those that are there, whichever their epoch.
    pub fn write(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let doing = fault("write the tables a second time");
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(&doing)?;
        let (_, link) = last_record(&tx)?;
        write_batch(&tx, batch, link)?;
        tx.commit().map_err(&doing)
    }

    pub fn rows(&self, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        reads::query(&self.connection, sql, values).map_err(read_fault("read the tables"))
    }

    pub fn page(&self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        page(&self.connection, table, after)
    }
}

fn page(
    connection: &Connection,
    table: &Table,
    after: Option<&[Value]>,
) -> Result<Vec<Vec<Value>>, StoreError> {
    let keys: Vec<String> = table.keys().map(|column| format!("\"{}\"", column.name)).collect();
    let keys = keys.join(", ");
    let values: Vec<String> =
        (1..=after.map_or(0, <[Value]>::len)).map(|number| format!("${number}")).collect();
    let beyond = match after {
        Some(_) => format!("WHERE ({keys}) > ({})", values.join(", ")),
        None => String::new(),
    };
    let sql = format!(
        "SELECT {} FROM \"{}\" {beyond} ORDER BY {keys} LIMIT {PAGE}",
        table.column_list(),
        table.name
    );
    let doing = format!("read the table {}", table.name);
    reads::query(connection, &sql, after.unwrap_or_default()).map_err(read_fault(&doing))
}
