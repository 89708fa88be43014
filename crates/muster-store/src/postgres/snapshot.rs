//! A consistent view of a PostgreSQL database, for one that examines all of it.

use std::time::Duration;

use super::config::PostgresConfig;
use super::fault::read_fault;
use super::link::{Line, Link};
use super::savepoints::{read_chunk, wholes};
use super::values::cells;
use super::{leader, records};
use crate::deep::{Snapshot, Table};
use crate::error::StoreError;
use crate::record::Record;
use crate::replay::PAGE;
use crate::savepoint;
use crate::tables::Value;

/// A large table is put into order before its first row is there.
const QUERY_MAX: Duration = Duration::from_secs(3600);

/// One transaction that sees one moment.
pub struct PostgresSnapshot(Line);

impl PostgresSnapshot {
    pub fn new(config: &PostgresConfig) -> Result<PostgresSnapshot, StoreError> {
        let mut snapshot = PostgresSnapshot(Line::new(config, "muster doctor")?);
        snapshot.call("begin to read", async |link| {
            let begin =
                "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL enable_seqscan = on";
            link.client.batch_execute(begin).await.map_err(read_fault("begin to read"))
        })?;
        Ok(snapshot)
    }

    fn call<T>(
        &mut self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.call_within(QUERY_MAX, doing, work)
    }
}

impl Snapshot for PostgresSnapshot {
    fn records(&mut self, from: u64) -> Result<Vec<Record>, StoreError> {
        self.call("read the journal", async |link| records(link, from).await)
    }

    /// A cursor remembers where it was, so only its first page looks at `after`.
    fn page(&mut self, table: &Table, after: Option<&[Value]>) -> Result<Vec<Vec<Value>>, StoreError> {
        let doing = format!("read the table {}", table.name);
        let open = after.is_none().then(|| cursor(table));
        self.call(&doing, async |link| {
            if let Some(open) = open {
                link.client.batch_execute(&open).await.map_err(read_fault(&doing))?;
            }
            let fetch = format!("FETCH {PAGE} FROM examined");
            let rows = link.client.query(&fetch, &[]).await.map_err(read_fault(&doing))?;
            rows.iter().map(cells).collect()
        })
    }

    fn version(&mut self) -> Result<Option<i64>, StoreError> {
        self.call("read the version of the tables", async |link| leader::version(link).await)
    }

    fn broken_savepoints(&mut self) -> Result<Vec<(u64, String)>, StoreError> {
        let all = self.call("read savepoints", async |link| wholes(link, i64::MAX).await)?;
        savepoint::broken(&all, |seq, number| {
            self.call("read a savepoint", async |link| read_chunk(link, seq, number).await)
        })
    }
}

fn cursor(table: &Table) -> String {
    // Texts in the order of their bytes, as in the database that they are compared with.
    let key = |column: &crate::deep::Column| match column.is_text {
        true => format!("\"{}\" COLLATE \"C\"", column.name),
        false => format!("\"{}\"", column.name),
    };
    let order: Vec<String> = table.keys().map(key).collect();
    format!(
        "CLOSE ALL; DECLARE examined NO SCROLL CURSOR FOR SELECT {} FROM \"{}\" ORDER BY {}",
        table.column_list(),
        table.name,
        order.join(", ")
    )
}
