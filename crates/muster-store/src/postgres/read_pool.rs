//! Adapter (Tables): a pool of read-only connections to PostgreSQL.

use std::time::Duration;

use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use tokio::runtime::Builder;
use tokio_postgres::types::{ToSql, Type};

use super::config::PostgresConfig;
use super::connection::DedicatedRuntime;
use super::error_mapping::map_read_error;
use super::tls::Tls;
use super::values::row_values;
use crate::error::StoreError;
use crate::reader::SqlSource;
use crate::select::Dialect;
use crate::tables::Value;

/// A reader that gets no connection within this time fails with `Unavailable`.
const POOL_WAIT_MAX: Duration = Duration::from_secs(10);

pub struct PostgresReadPool {
    pool: Pool,
    runtime: DedicatedRuntime,
    idle_max: usize,
    location: String,
}

impl PostgresReadPool {
    pub fn new(config: &PostgresConfig) -> Result<PostgresReadPool, StoreError> {
        let mut builder = Builder::new_multi_thread();
        // One I/O thread for all readers, which wait on their own threads.
        builder.worker_threads(1).thread_name("muster-store-reads");
        let mut driver = config.driver_config("muster reads");
        driver.options("-c default_transaction_read_only=on -c statement_timeout=30s");
        let recycle = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let lifetime_mins = config.conn_max_lifetime_mins;
        let pool = Pool::builder(Manager::from_config(driver, Tls::from_config(config)?, recycle))
            .max_size(config.readers_max())
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(POOL_WAIT_MAX))
            .create_timeout(Some(POOL_WAIT_MAX))
            .pre_recycle(Hook::sync_fn(move |_, metrics| match exceeds_lifetime(metrics.age(), lifetime_mins) {
                true => Err(HookError::message("connection exceeded conn_max_lifetime_mins")),
                false => Ok(()),
            }))
            .build()
            .map_err(|error| StoreError::Misconfigured(format!("the connection pool cannot be created: {error}")))?;
        let runtime = DedicatedRuntime::new(builder)?;
        Ok(PostgresReadPool { pool, runtime, idle_max: config.max_idle_conns, location: config.location() })
    }

    async fn query(&self, operation: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let connecting = format!("connect to the {}", self.location);
        let client = self.pool.get().await.map_err(|error| match error {
            PoolError::Backend(error) => map_read_error(&connecting)(error),
            other => StoreError::unavailable(&connecting, other),
        })?;
        // With explicit types instead of a prepared statement: the SQL of a list differs for each length.
        let typed: Vec<(&(dyn ToSql + Sync), Type)> =
            values.iter().map(|value| (value as &(dyn ToSql + Sync), value.postgres_type())).collect();
        let rows = client.query_typed(sql, &typed).await.map_err(map_read_error(operation))?;
        rows.iter().map(row_values).collect()
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

/// True if a connection of this age must be replaced; never with a lifetime of 0.
fn exceeds_lifetime(age: Duration, lifetime_mins: u64) -> bool {
    lifetime_mins > 0 && age > Duration::from_secs(lifetime_mins.saturating_mul(60))
}

impl SqlSource for PostgresReadPool {
    const DIALECT: Dialect = Dialect::Postgres;

    fn query_rows(&self, operation: &str, sql: &str, values: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let rows = self.runtime.block_on(self.query(operation, sql, values));
        self.close_idle();
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_replaced_after_its_lifetime_unless_that_is_zero() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(exceeds_lifetime(minutes(31), 30) && !exceeds_lifetime(minutes(29), 30));
        assert!(!exceeds_lifetime(minutes(1_000_000), 0));
    }
}
