//! Port: a consistent read-only view of a database, for its verification.

use crate::error::StoreError;
use crate::record::Record;
use crate::tables::Value;

/// A consistent read-only view of a database.
pub(crate) trait Snapshot {
    /// Up to [`crate::replay::PAGE_ROWS`] records from number `from`, in order.
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError>;

    /// The next rows of a table in key order: after the key `after`, or from the first row.
    fn table_page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError>;

    /// Version of the newest migration that has run.
    fn schema_version(&mut self) -> Result<Option<i64>, StoreError>;

    /// Complete savepoints that cannot be read back, each with its problem.
    fn unreadable_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError>;
}

/// A table to compare.
pub(crate) struct Table {
    pub name: String,
    pub columns: Vec<Column>,
}

/// A column of a table. Key columns come first.
pub(crate) struct Column {
    pub name: String,
    pub is_key: bool,
    pub is_text: bool,
}

impl Table {
    pub fn key_columns(&self) -> impl Iterator<Item = &Column> {
        self.columns.iter().filter(|column| column.is_key)
    }

    pub fn column_list(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
        names.join(", ")
    }
}
