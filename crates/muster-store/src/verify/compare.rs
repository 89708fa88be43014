//! Comparison of two databases: a merge of the rows of each table in key order.

use std::cmp::Ordering;

use super::rebuild::RebuiltTables;
use super::{Corruption, Snapshot};
use crate::error::StoreError;
use crate::snapshot::Table;
use crate::tables::Value;

/// Values of a row; key columns first.
type Row = Vec<Value>;

/// Compare all tables. Returns the number of expected rows.
pub fn compare_tables(
    source: &mut dyn Snapshot,
    rebuilt: &mut RebuiltTables,
    report: &mut dyn FnMut(Corruption),
) -> Result<u64, StoreError> {
    let mut rows = 0;
    for table in rebuilt.list()? {
        rows += compare_table(&table, source, rebuilt, report)?;
    }
    Ok(rows)
}

fn compare_table(
    table: &Table,
    source: &mut dyn Snapshot,
    rebuilt: &mut RebuiltTables,
    report: &mut dyn FnMut(Corruption),
) -> Result<u64, StoreError> {
    let mut found = RowStream::new(table);
    let mut expected = RowStream::new(table);
    let mut rows = 0;
    loop {
        found.fill(|after| source.table_page(table, after))?;
        expected.fill(|after| rebuilt.page(table, after))?;
        let order = match (found.first(), expected.first()) {
            (None, None) => return Ok(rows),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(found), Some(expected)) => compare_keys(table, found, expected),
        };
        rows += u64::from(order != Ordering::Less);
        match order {
            Ordering::Less => found
                .take(|row| report(Corruption::ExtraRow { table: table.name.clone(), key: describe_key(table, &row) })),
            Ordering::Greater => {
                expected.take(|row| {
                    report(Corruption::MissingRow { table: table.name.clone(), key: describe_key(table, &row) })
                });
            }
            Ordering::Equal => {
                found.take(|found| expected.take(|expected| compare_cells(table, &found, &expected, report)))
            }
        }
    }
}

/// The rows of one table, page by page.
struct RowStream<'a> {
    table: &'a Table,
    rows: std::collections::VecDeque<Row>,
    after: Option<Row>,
    is_exhausted: bool,
}

impl<'a> RowStream<'a> {
    fn new(table: &'a Table) -> RowStream<'a> {
        RowStream { table, rows: Default::default(), after: None, is_exhausted: false }
    }

    fn fill(
        &mut self,
        mut page: impl FnMut(Option<&[Value]>) -> Result<Vec<Row>, StoreError>,
    ) -> Result<(), StoreError> {
        while self.rows.is_empty() && !self.is_exhausted {
            let rows = page(self.after.as_deref())?;
            self.is_exhausted = rows.is_empty();
            self.after = rows.last().map(|row| row[..self.table.key_columns().count()].to_vec());
            self.rows =
                rows.into_iter().map(booleans_as_integers).filter(|row| is_comparable(self.table, row)).collect();
        }
        Ok(())
    }

    fn first(&self) -> Option<&Row> {
        self.rows.front()
    }

    fn take(&mut self, then: impl FnOnce(Row)) {
        if let Some(row) = self.rows.pop_front() {
            then(row);
        }
    }
}

/// SQLite stores booleans as integers.
fn booleans_as_integers(row: Row) -> Row {
    let number = |value| match value {
        Value::Bool(truth) => Value::Int(i64::from(truth)),
        other => other,
    };
    row.into_iter().map(number).collect()
}

/// Counts of zero are ignored: no query reads them, and only one of the databases may have the row.
fn is_comparable(table: &Table, row: &Row) -> bool {
    table.name != "job_counts" || row.last() != Some(&Value::Int(0))
}

fn compare_keys(table: &Table, one: &Row, other: &Row) -> Ordering {
    let count = table.key_columns().count();
    one.iter()
        .zip(other)
        .take(count)
        .map(|(one, other)| compare_values(one, other))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn compare_values(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        // By bytes: both databases are asked for that order.
        (Value::Text(one), Value::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
        _ => Ordering::Equal,
    }
}

fn compare_cells(table: &Table, found: &Row, expected: &Row, report: &mut dyn FnMut(Corruption)) {
    for ((column, found_cell), expected_cell) in table.columns.iter().zip(found).zip(expected) {
        if found_cell != expected_cell {
            report(Corruption::Cell {
                table: table.name.clone(),
                key: describe_key(table, found),
                column: column.name.clone(),
                found: describe_value(found_cell),
                expected: describe_value(expected_cell),
            });
        }
    }
}

fn describe_key(table: &Table, row: &Row) -> String {
    let parts: Vec<String> = table
        .key_columns()
        .zip(row)
        .map(|(column, value)| format!("{} {}", column.name, describe_value(value)))
        .collect();
    parts.join(", ")
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Null => "NULL".to_string(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("`{text}`"),
        Value::Bool(truth) => truth.to_string(),
    }
}
