//! Adapter (Tables): a pool of read-only connections to the SQLite file. In WAL mode readers do not wait for the
//! writer.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, ToSql, params_from_iter};

use super::error_mapping::map_read_error;
use super::file::DatabaseFile;
use crate::error::StoreError;
use crate::reader::SqlSource;
use crate::select::Dialect;
use crate::tables::Value;

/// Idle connections that are kept. Concurrent readers may open more.
const IDLE_CONNECTIONS_MAX: usize = 8;

pub struct SqliteReadPool {
    file: Arc<DatabaseFile>,
    idle: Mutex<Vec<Connection>>,
}

impl SqliteReadPool {
    pub fn new(file: Arc<DatabaseFile>) -> SqliteReadPool {
        SqliteReadPool { file, idle: Mutex::new(Vec::new()) }
    }

    fn borrow(&self) -> Result<Connection, StoreError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        idle.map_or_else(|| self.file.open_reader(), Ok)
    }

    fn put_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
    }
}

impl SqlSource for SqliteReadPool {
    const DIALECT: Dialect = Dialect::Sqlite;

    fn query_rows(&self, operation: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let connection = self.borrow()?;
        let rows = query(&connection, sql, values).map_err(map_read_error(operation))?;
        self.put_back(connection);
        Ok(rows)
    }
}

pub fn query(connection: &Connection, sql: &str, values: &[Value]) -> rusqlite::Result<Vec<Vec<Value>>> {
    let mut statement = connection.prepare_cached(&to_sqlite_parameters(sql))?;
    let columns = statement.column_count();
    statement.query_map(params_from_iter(values), |row| row_values(row, columns))?.collect()
}

fn row_values(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns)
        .map(|column| match row.get_ref(column)? {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(number) => Ok(Value::Int(number)),
            ValueRef::Text(text) => Ok(Value::Text(String::from_utf8_lossy(text).into_owned())),
            other => Err(rusqlite::Error::InvalidColumnType(column, String::new(), other.data_type())),
        })
        .collect()
}

/// SQLite numbers parameters as `?1`. The queries contain no other dollar sign.
fn to_sqlite_parameters(sql: &str) -> String {
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
