//! Adapter (Tables): a few read-only connections to the SQLite file. The log lets them read while one writes.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::fault::read_fault;
use super::file::Place;
use crate::error::StoreError;
use crate::reader::Source;
use crate::select::Dialect;
use crate::tables::Value;

/// Connections kept for the next reader. More are opened when more read at once.
const IDLE_MAX: usize = 8;

/// A pool of readers.
pub struct SqliteReads {
    place: Arc<Place>,
    idle: Mutex<Vec<Connection>>,
}

impl SqliteReads {
    pub fn new(place: Arc<Place>) -> SqliteReads {
        SqliteReads { place, idle: Mutex::new(Vec::new()) }
    }

    fn borrow(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.place.reader(), Ok)
    }

    fn put_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        }
    }
}

impl Source for SqliteReads {
    const DIALECT: Dialect = Dialect::Sqlite;

    fn rows(&self, doing: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let connection = self.borrow()?;
        let rows = query(&connection, sql, values).map_err(read_fault(doing))?;
        self.put_back(connection);
        Ok(rows)
    }
}

pub fn query(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<Vec<Vec<Value>>> {
    let mut statement = connection.prepare_cached(&own_parameters(sql))?;
    let columns = statement.column_count();
    statement.query_map(params_from_iter(values), |row| cells(row, columns))?.collect()
}

fn cells(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns)
        .map(|column| match row.get_ref(column)? {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(number) => Ok(Value::Int(number)),
            ValueRef::Text(text) => Ok(Value::Text(String::from_utf8_lossy(text).into_owned())),
            other => Err(rusqlite::Error::InvalidColumnType(column, String::new(), other.data_type())),
        })
        .collect()
}

/// Numbered parameters are `?1` here. Our SQL has no other dollar sign.
fn own_parameters(sql: &str) -> String {
    sql.replace('$', "?")
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Value::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Value::Int(number) => (*number).into(),
            Value::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Value::Bool(truth) => (*truth).into(),
        })
    }
}
