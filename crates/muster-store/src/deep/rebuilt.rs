//! The tables as the journal says they should be, in a throwaway database.

use crate::deep::{Column, Table};
use crate::error::StoreError;
use crate::record::Entry;
use crate::sqlite::{self, Scratch};
use crate::tables::Value;

/// Entries written in one transaction.
const BATCH: usize = 1_000;

/// Tables that are not written from the journal, or that are the journal's own.
const NOT_PROJECTED: [&str; 5] =
    ["savepoints", "savepoint_chunks", "leader", "cluster", crate::migrations::HISTORY];

/// Takes the entries one by one.
pub struct Rebuilt {
    scratch: Scratch,
    waiting: Vec<Entry>,
}

/// All entries are in.
pub struct Tables {
    scratch: Scratch,
}

impl Rebuilt {
    pub fn new() -> Result<Rebuilt, StoreError> {
        Ok(Rebuilt { scratch: sqlite::scratch()?, waiting: Vec::new() })
    }

    pub fn add(&mut self, entry: Entry) -> Result<(), StoreError> {
        self.waiting.push(entry);
        if self.waiting.len() < BATCH { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.waiting);
        self.scratch.write(&batch)
    }

    pub fn finish(mut self) -> Result<Tables, StoreError> {
        self.flush()?;
        Ok(Tables { scratch: self.scratch })
    }
}

impl Tables {
    /// Every table that is written from the journal, and the journal itself for its columns beside the records.
    pub fn list(&mut self) -> Result<Vec<Table>, StoreError> {
        let sql =
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
        let mut tables = Vec::new();
        for row in self.scratch.rows(sql, &[])? {
            match row.as_slice() {
                [Value::Text(name)] if !NOT_PROJECTED.contains(&name.as_str()) => {
                    tables.push(self.table(name)?)
                }
                _ => {}
            }
        }
        Ok(tables)
    }

    fn table(&mut self, name: &str) -> Result<Table, StoreError> {
        let sql = format!("SELECT name, type, pk FROM pragma_table_info('{name}') ORDER BY pk = 0, pk, cid");
        let rows = self.scratch.rows(&sql, &[])?;
        let column = |row: Vec<Value>| match row.as_slice() {
            [Value::Text(name), Value::Text(kind), Value::Int(key)] => {
                // How an old journal was chained is not in its entries.
                (name != "chain").then(|| Column {
                    name: name.clone(),
                    is_key: *key > 0,
                    is_text: kind == "TEXT",
                })
            }
            _ => None,
        };
        let mut columns: Vec<Column> = rows.into_iter().filter_map(column).collect();
        // Rows without a key are told apart by all of their cells.
        if columns.iter().all(|column| !column.is_key) {
            columns.iter_mut().for_each(|column| column.is_key = true);
        }
        Ok(Table { name: name.to_string(), columns })
    }

    pub fn page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        self.scratch.page(table, after)
    }
}
