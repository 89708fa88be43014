//! Adapter (Snapshot): consistent view of a PostgreSQL database for verification.

use std::time::Duration;

use super::config::PostgresConfig;
use super::connection::{PostgresConnection, ReconnectingConnection};
use super::error_mapping::map_read_error;
use super::savepoints::{complete_savepoints, read_chunk};
use super::values::row_values;
use super::{leader, read_records};
use crate::error::StoreError;
use crate::record::Record;
use crate::replay::PAGE_ROWS;
use crate::savepoint;
use crate::snapshot::{Snapshot, Table};
use crate::tables::Value;

/// Long: a large table is sorted before its first row is returned.
const QUERY_TIMEOUT: Duration = Duration::from_secs(3600);

/// A read-only transaction with a fixed snapshot.
pub struct PostgresSnapshot(ReconnectingConnection);

impl PostgresSnapshot {
    pub fn new(config: &PostgresConfig) -> Result<PostgresSnapshot, StoreError> {
        let mut snapshot = PostgresSnapshot(ReconnectingConnection::new(config, "muster doctor")?);
        snapshot.call("begin a read-only snapshot", async |connection| {
            let begin = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = on";
            connection.client.batch_execute(begin).await.map_err(map_read_error("begin a read-only snapshot"))
        })?;
        Ok(snapshot)
    }

    fn call<T>(
        &mut self,
        operation: &str,
        work: impl AsyncFnOnce(&mut PostgresConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.call_within(QUERY_TIMEOUT, operation, work)
    }
}

impl Snapshot for PostgresSnapshot {
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError> {
        self.call("read the journal", async |connection| read_records(connection, from).await)
    }

    /// The cursor keeps its position, so `after` only tells whether this is the first page.
    fn table_page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        let operation = format!("read the table {}", table.name);
        let open = after.is_none().then(|| declare_cursor_sql(table));
        self.call(&operation, async |connection| {
            if let Some(open) = open {
                connection.client.batch_execute(&open).await.map_err(map_read_error(&operation))?;
            }
            let fetch = format!("FETCH {PAGE_ROWS} FROM verified_table");
            let rows = connection.client.query(&fetch, &[]).await.map_err(map_read_error(&operation))?;
            rows.iter().map(row_values).collect()
        })
    }

    fn schema_version(&mut self) -> Result<Option<i64>, StoreError> {
        self.call("read the schema version", async |connection| leader::schema_version(connection).await)
    }

    fn unreadable_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError> {
        let all = self.call("read savepoints", async |connection| complete_savepoints(connection, i64::MAX).await)?;
        savepoint::unreadable_savepoints(&all, |seq, number| {
            self.call("read a savepoint", async |connection| read_chunk(connection, seq, number).await)
        })
    }
}

fn declare_cursor_sql(table: &Table) -> String {
    // Texts in byte order, as in the scratch database.
    let key = |column: &crate::snapshot::Column| match column.is_text {
        true => format!("\"{}\" COLLATE \"C\"", column.name),
        false => format!("\"{}\"", column.name),
    };
    let order: Vec<String> = table.key_columns().map(key).collect();
    format!(
        "CLOSE ALL; DECLARE verified_table NO SCROLL CURSOR FOR SELECT {} FROM \"{}\" ORDER BY {}",
        table.column_list(),
        table.name,
        order.join(", ")
    )
}
