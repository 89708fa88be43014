//! Rebuilds the tables from the journal in a temporary database.

use crate::error::StoreError;
use crate::record::Entry;
use crate::snapshot::{Column, Table};
use crate::sqlite::{self, ScratchDatabase};
use crate::tables::Value;

const ENTRIES_PER_TRANSACTION: usize = 1_000;

/// Tables that do not follow from the journal.
const TABLES_NOT_PROJECTED: [&str; 6] =
    ["savepoints", "savepoint_chunks", "sealed_secrets", "leader", "cluster", crate::migrations::HISTORY_TABLE];

/// Projects entries into a temporary database.
pub struct TableRebuilder {
    scratch: ScratchDatabase,
    pending_entries: Vec<Entry>,
}

/// The tables after the last entry.
pub struct RebuiltTables {
    scratch: ScratchDatabase,
}

impl TableRebuilder {
    pub fn new() -> Result<TableRebuilder, StoreError> {
        Ok(TableRebuilder { scratch: sqlite::create_scratch_database()?, pending_entries: Vec::new() })
    }

    pub fn add(&mut self, entry: Entry) -> Result<(), StoreError> {
        self.pending_entries.push(entry);
        if self.pending_entries.len() < ENTRIES_PER_TRANSACTION { Ok(()) } else { self.flush() }
    }

    fn flush(&mut self) -> Result<(), StoreError> {
        let batch = std::mem::take(&mut self.pending_entries);
        self.scratch.write(&batch)
    }

    pub fn finish(mut self) -> Result<RebuiltTables, StoreError> {
        self.flush()?;
        Ok(RebuiltTables { scratch: self.scratch })
    }
}

impl RebuiltTables {
    /// All tables that follow from the journal, and the journal itself for its derived columns.
    pub fn list(&mut self) -> Result<Vec<Table>, StoreError> {
        let sql = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
        let mut tables = Vec::new();
        for row in self.scratch.rows(sql, &[])? {
            match row.as_slice() {
                [Value::Text(name)] if !TABLES_NOT_PROJECTED.contains(&name.as_str()) => tables.push(self.table(name)?),
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
                // Entries do not tell which records an older release wrote without a chain.
                (name != "chain").then(|| Column { name: name.clone(), is_key: *key > 0, is_text: kind == "TEXT" })
            }
            _ => None,
        };
        let mut columns: Vec<Column> = rows.into_iter().filter_map(column).collect();
        // In a table without a primary key all columns form the key.
        if columns.iter().all(|column| !column.is_key) {
            columns.iter_mut().for_each(|column| column.is_key = true);
        }
        Ok(Table { name: name.to_string(), columns })
    }

    pub fn page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        self.scratch.page(table, after)
    }
}
