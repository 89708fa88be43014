//! One connection of its own, on a small runtime of its own, opened anew when it was lost.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls, Row, Statement};

use super::config::PostgresConfig;
use super::fault::fault;
use crate::error::StoreError;

/// Longer than any batch should take; after this the server counts as lost.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, and the statements it has prepared.
pub struct Link {
    pub client: Client,
    statements: HashMap<&'static str, Statement>,
    mover: JoinHandle<()>,
}

/// A runtime that may be dropped anywhere, also inside of another one.
pub struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub fn new(mut builder: Builder) -> Result<OwnRuntime, StoreError> {
        let runtime = builder.enable_all().build();
        runtime
            .map(|runtime| OwnRuntime(Some(runtime)))
            .map_err(|error| StoreError::unavailable("start a runtime", error))
    }

    /// Wait for the end of some work.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        match &self.0 {
            Some(runtime) => runtime.block_on(work),
            None => Err(StoreError::unavailable("run", "the runtime has ended")),
        }
    }
}

impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A connection that may have to be made first.
pub struct Line {
    runtime: OwnRuntime,
    config: PostgresConfig,
    name: &'static str,
    link: Option<Link>,
}

impl Line {
    pub fn new(config: &PostgresConfig, name: &'static str) -> Result<Line, StoreError> {
        let runtime = OwnRuntime::new(Builder::new_current_thread())?;
        Ok(Line { runtime, config: config.clone(), name, link: None })
    }

    /// Do some work over the connection. After any fault it is made anew next time: a transaction may be
    /// open, a lock held, or an answer still on its way.
    pub fn call<T>(
        &mut self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.call_within(CALL_TIMEOUT, doing, work)
    }

    /// The same for work that may take longer.
    pub fn call_within<T>(
        &mut self,
        limit: Duration,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (config, name, slot) = (&self.config, self.name, &mut self.link);
        let done = self.runtime.wait(async {
            let whole = async {
                let link = match slot {
                    Some(link) => link,
                    empty => empty.insert(Link::connect(config, name).await?),
                };
                work(link).await
            };
            match tokio::time::timeout(limit, whole).await {
                Ok(done) => done,
                Err(_) => Err(StoreError::unavailable(doing, format!("no answer for {limit:?}"))),
            }
        });
        if done.is_err() {
            self.hang_up();
        }
        done
    }

    /// Close the connection now. Nothing moves on the runtime between calls, and a transaction that stays open
    /// until the next one would keep a new leader waiting for our locks.
    fn hang_up(&mut self) {
        if let Some(link) = self.link.take() {
            let _ = self.runtime.wait(async {
                link.mover.abort();
                let _ = link.mover.await;
                Ok(())
            });
        }
    }
}

impl Link {
    async fn connect(config: &PostgresConfig, name: &str) -> Result<Link, StoreError> {
        let doing = format!("connect to the {}", config.place());
        let (client, connection) = config.driver(name).connect(NoTls).await.map_err(fault(&doing))?;
        let mover = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        client.batch_execute(SESSION).await.map_err(fault(&doing))?;
        Ok(Link { client, statements: HashMap::new(), mover })
    }

    /// Prepare a statement, once for each connection.
    pub async fn prepare(&mut self, sql: &'static str) -> Result<(), StoreError> {
        if !self.statements.contains_key(sql) {
            // Numbered parameters are `$1` here. Our SQL has no other question mark.
            let own = sql.replace('?', "$");
            let statement = self.client.prepare(&own).await.map_err(fault("prepare a statement"))?;
            self.statements.insert(sql, statement);
        }
        Ok(())
    }

    /// A statement that was prepared before.
    pub fn prepared(&self, sql: &'static str) -> Result<&Statement, StoreError> {
        self.statements.get(sql).ok_or_else(|| StoreError::broken(format!("`{sql}` was not prepared")))
    }

    /// Run a query that is asked often.
    pub async fn query(
        &mut self,
        sql: &'static str,
        values: &[&(dyn tokio_postgres::types::ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        self.prepare(sql).await?;
        self.client.query(self.prepared(sql)?, values).await.map_err(fault("ask the database"))
    }
}

/// An acknowledged commit must be on disk, whatever the server's default; a stricter default stays. Every
/// statement of ours finds its rows by an index. Plans are made once for each connection, perhaps while the
/// tables are still empty, so they must not come to rely on that.
const SESSION: &str = "SELECT set_config('synchronous_commit', 'on', false) \
    WHERE current_setting('synchronous_commit') IN ('off', 'local'); \
    SET jit = off; SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";
