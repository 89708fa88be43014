//! Adapter (Tables): a pool of read-only connections to PostgreSQL.

use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio::runtime::Builder;
use tokio_postgres::types::{ToSql, Type};

use super::config::PostgresConfig;
use super::fault::read_fault;
use super::link::OwnRuntime;
use super::tls::Tls;
use super::values::cells;
use crate::error::StoreError;
use crate::reader::Source;
use crate::select::Dialect;
use crate::tables::Value;

/// A reader that gets no connection in this time hears that the store is unavailable.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A pool of readers.
pub struct PostgresReads {
    pool: Pool,
    runtime: OwnRuntime,
    idle_max: usize,
    place: String,
}

impl PostgresReads {
    pub fn new(config: &PostgresConfig) -> Result<PostgresReads, StoreError> {
        let mut builder = Builder::new_multi_thread();
        // One thread moves the bytes of all readers; they wait on threads of their own.
        builder.worker_threads(1).thread_name("muster-store-reads");
        let mut driver = config.driver("muster reads");
        driver.options("-c default_transaction_read_only=on -c statement_timeout=30s");
        let recycle = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let lifetime_mins = config.conn_max_lifetime_mins;
        let pool = Pool::builder(Manager::from_config(driver, Tls::of(config)?, recycle))
            .max_size(config.readers_max())
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT_MAX))
            .create_timeout(Some(WAIT_MAX))
            .pre_recycle(Hook::sync_fn(move |_, metrics| match is_old(metrics.age(), lifetime_mins) {
                true => Err(HookError::message("it is old")),
                false => Ok(()),
            }))
            .build()
            .map_err(|error| StoreError::Misconfigured(format!("the pool cannot be made: {error}")))?;
        let runtime = OwnRuntime::new(builder)?;
        Ok(PostgresReads { pool, runtime, idle_max: config.max_idle_conns, place: config.place() })
    }

    async fn query(&self, doing: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let connecting = format!("connect to the {}", self.place);
        let client = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => read_fault(&connecting)(error),
            other => StoreError::unavailable(&connecting, other),
        })?;
        // Types are said rather than asked for: lists make a new text for each length, not worth preparing.
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as &(dyn ToSql + Sync), value.postgres_type())).collect();
        let rows = client.query_typed(sql, &typed).await.map_err(read_fault(doing))?;
        rows.iter().map(cells).collect()
    }

    fn close_idle(&self) {
        let mut excess = self.pool.status().available.saturating_sub(self.idle_max);
        if excess > 0 {
            self.pool.retain(|_, _| {
                let keep = excess == 0;
                excess = excess.saturating_sub(1);
                keep
            });
        }
    }
}

/// Whether a connection of this age is replaced; 0 minutes is never.
fn is_old(age: Duration, lifetime_mins: u64) -> bool {
    lifetime_mins > 0 && age > Duration::from_secs(lifetime_mins.saturating_mul(60))
}

impl Source for PostgresReads {
    const DIALECT: Dialect = Dialect::Postgres;

    fn rows(&self, doing: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let rows = self.runtime.wait(self.query(doing, sql, values));
        self.close_idle();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_replaced_after_its_lifetime_and_never_where_that_is_zero() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(is_old(minutes(31), 30) && !is_old(minutes(29), 30));
        assert!(!is_old(minutes(1_000_000), 0));
    }
}
