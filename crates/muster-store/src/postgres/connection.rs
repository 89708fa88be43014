//! A dedicated connection on its own runtime, reopened after an error.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row, Statement};

use super::config::PostgresConfig;
use super::error_mapping::map_write_error;
use super::lease_timeouts::LeaseTimeouts;
use super::tls::Tls;
use crate::error::StoreError;

/// Longer than any batch should take; after that the connection counts as lost.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection with its prepared statements.
pub struct PostgresConnection {
    pub client: Client,
    statements: HashMap<&'static str, Statement>,
    driver_task: JoinHandle<()>,
    timeouts: Option<LeaseTimeouts>,
}

/// A runtime that may be dropped anywhere, also within another runtime.
pub struct DedicatedRuntime(Option<Runtime>);

impl DedicatedRuntime {
    pub fn new(mut builder: Builder) -> Result<DedicatedRuntime, StoreError> {
        let runtime = builder.enable_all().build();
        runtime
            .map(|runtime| DedicatedRuntime(Some(runtime)))
            .map_err(|error| StoreError::unavailable("start a runtime", error))
    }

    pub fn block_on<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match &self.0 {
            Some(runtime) => runtime.block_on(work),
            None => Err(StoreError::unavailable("run", "the runtime has ended")),
        }
    }
}

impl Drop for DedicatedRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection that is opened on demand.
pub struct ReconnectingConnection {
    runtime: DedicatedRuntime,
    options: ConnectOptions,
    connection: Option<PostgresConnection>,
}

struct ConnectOptions {
    config: PostgresConfig,
    tls: Tls,
    application_name: &'static str,
    /// Set if each call must end before the lease expires.
    timeouts: Option<LeaseTimeouts>,
}

impl ReconnectingConnection {
    pub fn new(config: &PostgresConfig, name: &'static str) -> Result<ReconnectingConnection, StoreError> {
        let runtime = DedicatedRuntime::new(Builder::new_current_thread())?;
        let options = ConnectOptions {
            config: config.clone(),
            tls: Tls::from_config(config)?,
            application_name: name,
            timeouts: None,
        };
        Ok(ReconnectingConnection { runtime, options, connection: None })
    }

    /// Use these timeouts for calls, transactions and the connection itself. A change closes the connection.
    pub fn set_timeouts(&mut self, timeouts: LeaseTimeouts) {
        if self.options.timeouts != Some(timeouts) {
            self.disconnect();
            self.options.timeouts = Some(timeouts);
        }
    }

    /// Run some work over the connection. After an error the connection is closed, and the next call reopens it: a
    /// transaction may be open, a lock held, or a reply in flight.
    pub fn call<T>(
        &mut self,
        operation: &str,
        work: impl AsyncFnOnce(&mut PostgresConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let limit = self.options.timeouts.map_or(CALL_TIMEOUT, |timeouts| timeouts.call_timeout);
        self.call_within(limit, operation, work)
    }

    /// The same with another timeout.
    pub fn call_within<T>(
        &mut self,
        limit: Duration,
        operation: &str,
        work: impl AsyncFnOnce(&mut PostgresConnection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (options, slot) = (&self.options, &mut self.connection);
        let done = self.runtime.block_on(async {
            let connect_and_work = async {
                let connection = match slot {
                    Some(connection) => connection,
                    empty => empty.insert(PostgresConnection::connect(options).await?),
                };
                work(connection).await
            };
            match tokio::time::timeout(limit, connect_and_work).await {
                Ok(done) => done,
                Err(_) => Err(StoreError::unavailable(operation, format!("no reply within {limit:?}"))),
            }
        });
        if done.is_err() {
            self.disconnect();
        }
        done
    }

    /// Close the connection now. The runtime does not run between calls, and a transaction that stays open until the
    /// next call would keep a new leader waiting for its locks.
    fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            let _ = self.runtime.block_on(async {
                connection.driver_task.abort();
                let _ = connection.driver_task.await;
                Ok(())
            });
        }
    }
}

impl PostgresConnection {
    async fn connect(options: &ConnectOptions) -> Result<PostgresConnection, StoreError> {
        let operation = format!("connect to the {}", options.config.location());
        let mut driver = options.config.driver_config(options.application_name);
        if let Some(timeouts) = options.timeouts {
            timeouts.apply_to_client(&mut driver);
        }
        let (client, driver_connection) =
            driver.connect(options.tls.clone()).await.map_err(map_write_error(&operation))?;
        let driver_task = tokio::spawn(async move {
            if let Err(error) = driver_connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        let connection =
            PostgresConnection { client, statements: HashMap::new(), driver_task, timeouts: options.timeouts };
        connection.client.batch_execute(&connection.session_sql()).await.map_err(map_write_error(&operation))?;
        Ok(connection)
    }

    fn session_sql(&self) -> String {
        let timeouts = self.timeouts.map(|timeouts| timeouts.session_sql()).unwrap_or_default();
        format!("{SESSION_SETTINGS_SQL}; {timeouts}")
    }

    /// SQL that begins a transaction.
    pub fn begin_sql(&self) -> String {
        self.timeouts.map_or_else(|| "BEGIN".to_string(), |timeouts| timeouts.begin_sql())
    }

    /// SQL that begins the transaction that takes the leader row.
    pub fn begin_takeover_sql(&self) -> String {
        self.timeouts.map_or_else(|| "BEGIN".to_string(), |timeouts| timeouts.begin_takeover_sql())
    }

    /// How long a client may be silent before another client treats it as lost.
    pub fn client_silence_max(&self) -> Duration {
        self.timeouts.map_or(CALL_TIMEOUT, |timeouts| timeouts.call_timeout)
    }

    /// Prepare a statement, once per connection.
    pub async fn prepare(&mut self, sql: &'static str) -> Result<(), StoreError> {
        if !self.statements.contains_key(sql) {
            // PostgreSQL numbers parameters as `$1`. The statements contain no other question mark.
            let postgres_sql = sql.replace('?', "$");
            let statement = self.client.prepare(&postgres_sql).await.map_err(map_write_error("prepare a statement"))?;
            self.statements.insert(sql, statement);
        }
        Ok(())
    }

    /// A statement that [`Self::prepare`] has prepared.
    pub fn prepared(&self, sql: &'static str) -> Result<&Statement, StoreError> {
        self.statements.get(sql).ok_or_else(|| StoreError::invariant_violated(format!("`{sql}` was not prepared")))
    }

    /// Prepare a query once, and run it.
    pub async fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.prepare(sql).await?;
        self.client.query(self.prepared(sql)?, values).await.map_err(map_write_error("query the database"))
    }
}

/// An acknowledged commit must be on disk, whatever the default of the server; a stricter default stays. Every
/// statement finds its rows by an index. Query plans are made once per connection, possibly while the tables are empty,
/// so plans that only suit empty tables are disabled.
const SESSION_SETTINGS_SQL: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local'); \
    SET jit = off; SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
