//! One connection of its own, on a small runtime of its own, opened anew when it was lost.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row, Statement};

use super::config::PostgresConfig;
use super::fault::fault;
use super::limits::Limits;
use super::tls::Tls;
use crate::error::StoreError;

/// Longer than any batch should take; after this the server counts as lost.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection, and the statements it has prepared.
pub struct Link {
    pub client: Client,
    statements: HashMap<&'static str, Statement>,
    mover: JoinHandle<()>,
    limits: Option<Limits>,
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
    route: Route,
    link: Option<Link>,
}

/// All that it takes to connect.
struct Route {
    config: PostgresConfig,
    tls: Tls,
    name: &'static str,
    /// Set where the work must end before a lease does.
    limits: Option<Limits>,
}

impl Line {
    pub fn new(config: &PostgresConfig, name: &'static str) -> Result<Line, StoreError> {
        let runtime = OwnRuntime::new(Builder::new_current_thread())?;
        let route = Route { config: config.clone(), tls: Tls::of(config)?, name, limits: None };
        Ok(Line { runtime, route, link: None })
    }

    /// From now on calls, transactions and the connection itself keep these limits.
    pub fn limit(&mut self, limits: Limits) {
        if self.route.limits != Some(limits) {
            self.hang_up();
            self.route.limits = Some(limits);
        }
    }

    /// Do some work over the connection. After any fault it is made anew next time: a transaction may be
    /// open, a lock held, or an answer still on its way.
    pub fn call<T>(
        &mut self,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let limit = self.route.limits.map_or(CALL_TIMEOUT, |limits| limits.act);
        self.call_within(limit, doing, work)
    }

    /// The same for work that may take longer.
    pub fn call_within<T>(
        &mut self,
        limit: Duration,
        doing: &str,
        work: impl AsyncFnOnce(&mut Link) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (route, slot) = (&self.route, &mut self.link);
        let done = self.runtime.wait(async {
            let whole = async {
                let link = match slot {
                    Some(link) => link,
                    empty => empty.insert(Link::connect(route).await?),
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
    async fn connect(route: &Route) -> Result<Link, StoreError> {
        let doing = format!("connect to the {}", route.config.place());
        let mut driver = route.config.driver(route.name);
        if let Some(limits) = route.limits {
            limits.apply(&mut driver);
        }
        let (client, connection) = driver.connect(route.tls.clone()).await.map_err(fault(&doing))?;
        let mover = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL has ended");
            }
        });
        let link = Link { client, statements: HashMap::new(), mover, limits: route.limits };
        link.client.batch_execute(&link.session()).await.map_err(fault(&doing))?;
        Ok(link)
    }

    fn session(&self) -> String {
        let limits = self.limits.map(|limits| limits.session()).unwrap_or_default();
        format!("{SESSION}; {limits}")
    }

    /// The text that begins a transaction.
    pub fn begin(&self) -> String {
        self.limits.map_or_else(|| "BEGIN".to_string(), |limits| limits.begin())
    }

    /// The text that begins the transaction in which the leader row is taken.
    pub fn begin_taking(&self) -> String {
        self.limits.map_or_else(|| "BEGIN".to_string(), |limits| limits.begin_taking())
    }

    /// How long a client may be silent before another one counts it as lost.
    pub fn patience(&self) -> Duration {
        self.limits.map_or(CALL_TIMEOUT, |limits| limits.act)
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
