//! Two databases side by side: the rows of each table in the order of their keys.

use std::cmp::Ordering;

use super::rebuilt::Tables;
use super::{Damage, Snapshot, Table};
use crate::error::StoreError;
use crate::tables::Value;

/// A row, and its key in front.
type Row = Vec<Value>;

/// Compare all tables. Returns how many rows there should be.
pub fn tables(
    source: &mut dyn Snapshot,
    rebuilt: &mut Tables,
    damaged: &mut dyn FnMut(Damage),
) -> Result<u64, StoreError> {
    let mut rows = 0;
    for table in rebuilt.list()? {
        rows += one_table(&table, source, rebuilt, damaged)?;
    }
    Ok(rows)
}

fn one_table(
    table: &Table,
    source: &mut dyn Snapshot,
    rebuilt: &mut Tables,
    damaged: &mut dyn FnMut(Damage),
) -> Result<u64, StoreError> {
    let mut found = Stream::new(table);
    let mut expected = Stream::new(table);
    let mut rows = 0;
    loop {
        found.fill(|after| source.page(table, after))?;
        expected.fill(|after| rebuilt.page(table, after))?;
        let order = match (found.first(), expected.first()) {
            (None, None) => return Ok(rows),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(found), Some(expected)) => by_key(table, found, expected),
        };
        rows += u64::from(order != Ordering::Less);
        match order {
            Ordering::Less => found
                .take(|row| damaged(Damage::ExtraRow { table: table.name.clone(), key: key(table, &row) })),
            Ordering::Greater => {
                expected.take(|row| {
                    damaged(Damage::MissingRow { table: table.name.clone(), key: key(table, &row) })
                });
            }
            Ordering::Equal => {
                found.take(|found| expected.take(|expected| cells(table, &found, &expected, damaged)))
            }
        }
    }
}

/// The rows of one table, page by page.
struct Stream<'a> {
    table: &'a Table,
    rows: std::collections::VecDeque<Row>,
    after: Option<Row>,
    over: bool,
}

impl<'a> Stream<'a> {
    fn new(table: &'a Table) -> Stream<'a> {
        Stream { table, rows: Default::default(), after: None, over: false }
    }

    fn fill(
        &mut self,
        mut page: impl FnMut(Option<&[Value]>) -> Result<Vec<Row>, StoreError>,
    ) -> Result<(), StoreError> {
        while self.rows.is_empty() && !self.over {
            let rows = page(self.after.as_deref())?;
            self.over = rows.is_empty();
            self.after = rows.last().map(|row| row[..self.table.keys().count()].to_vec());
            self.rows = rows.into_iter().map(plain).filter(|row| counts(self.table, row)).collect();
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

/// SQLite keeps truth values as numbers.
fn plain(row: Row) -> Row {
    let number = |value| match value {
        Value::Bool(truth) => Value::Int(i64::from(truth)),
        other => other,
    };
    row.into_iter().map(number).collect()
}

/// The two databases keep counts that have gone down to zero differently; nobody reads them.
fn counts(table: &Table, row: &Row) -> bool {
    table.name != "job_counts" || row.last() != Some(&Value::Int(0))
}

fn by_key(table: &Table, one: &Row, other: &Row) -> Ordering {
    let count = table.keys().count();
    one.iter()
        .zip(other)
        .take(count)
        .map(|(one, other)| by_value(one, other))
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn by_value(one: &Value, other: &Value) -> Ordering {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => one.cmp(other),
        // Bytes, which is how both databases were asked to order them.
        (Value::Text(one), Value::Text(other)) => one.as_bytes().cmp(other.as_bytes()),
        _ => Ordering::Equal,
    }
}

fn cells(table: &Table, found: &Row, expected: &Row, damaged: &mut dyn FnMut(Damage)) {
    for ((column, found_cell), expected_cell) in table.columns.iter().zip(found).zip(expected) {
        if found_cell != expected_cell {
            damaged(Damage::Cell {
                table: table.name.clone(),
                key: key(table, found),
                column: column.name.clone(),
                found: text(found_cell),
                expected: text(expected_cell),
            });
        }
    }
}

fn key(table: &Table, row: &Row) -> String {
    let parts: Vec<String> =
        table.keys().zip(row).map(|(column, value)| format!("{} {}", column.name, text(value))).collect();
    parts.join(", ")
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_string(),
        Value::Int(number) => number.to_string(),
        Value::Text(text) => format!("`{text}`"),
        Value::Bool(truth) => truth.to_string(),
    }
}
