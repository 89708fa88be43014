//! Adapter (Journal): a PostgreSQL database, shared by a leader and its standbys.
//!
//! The calls are synchronous like the port and run on a dedicated current-thread runtime. A lost connection is reopened
//! by the next call.

mod batch;
pub mod config;
mod connection;
mod error_mapping;
mod leader;
mod lease_timeouts;
mod read_pool;
mod savepoints;
mod secrets;
mod snapshot;
mod tls;
mod values;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use self::config::PostgresConfig;
use self::connection::{CALL_TIMEOUT, PostgresConnection, ReconnectingConnection};
use self::error_mapping::{map_commit_error, map_write_error};
use self::leader::{Candidate, TakeoverResult};
use self::lease_timeouts::LeaseTimeouts;
use self::read_pool::PostgresReadPool;
use self::savepoints::PostgresSavepoints;
use self::secrets::PostgresSecrets;
use crate::Store;
use crate::chain;
use crate::error::StoreError;
use crate::journal::{ClusterIdentity, EntryVisitor, Journal, Leadership};
use crate::leader_epoch::{LeaderEpoch, random_number};
use crate::reader::TableReader;
use crate::record::{Entry, Record, check_batch};
use crate::replay::{PAGE_ROWS, replay};
use crate::snapshot::Snapshot;

pub fn open(config: &PostgresConfig) -> Result<Store, StoreError> {
    Ok(Store {
        journal: Box::new(PostgresJournal {
            connection: ReconnectingConnection::new(config, "muster journal")?,
            leader_epoch: None,
            dead_holder: None,
        }),
        tables: Arc::new(TableReader(PostgresReadPool::new(config)?)),
        savepoints: Arc::new(PostgresSavepoints::new(config)?),
        secrets: Arc::new(PostgresSecrets::new(config)?),
    })
}

pub fn open_snapshot(config: &PostgresConfig) -> Result<Box<dyn Snapshot>, StoreError> {
    Ok(Box::new(snapshot::PostgresSnapshot::new(config)?))
}

struct PostgresJournal {
    connection: ReconnectingConnection,
    leader_epoch: Option<LeaderEpoch>,
    /// Holder that is declared dead.
    dead_holder: Option<String>,
}

/// A migration may rewrite large tables.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(3600);

const SELECT_LAST_RECORD: &str = "SELECT seq, crc, chain FROM journal ORDER BY seq DESC LIMIT 1";

const SELECT_RECORDS: &str = "SELECT seq, epoch, at_ms, kind, version, payload, crc, chain FROM journal \
    WHERE seq >= $1 ORDER BY seq LIMIT $2";

/// For a database of an older release that is read before it is migrated.
const SELECT_RECORDS_WITHOUT_CHAIN: &str = "SELECT seq, epoch, at_ms, kind, version, payload, crc, CAST(NULL AS BIGINT) FROM journal \
    WHERE seq >= $1 ORDER BY seq LIMIT $2";

const SELECT_CHAIN_COLUMN: &str =
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('journal') AND attname = 'chain'";

impl Journal for PostgresJournal {
    fn acquire_leadership(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        let candidate = Candidate {
            holder,
            lease_ms,
            nonce: random_number()?,
            previous_epoch: self.leader_epoch,
            dead_holder: self.dead_holder.as_deref(),
        };
        self.connection.set_timeouts(LeaseTimeouts::for_lease(lease_ms));
        let leader_epoch = match self
            .connection
            .call("acquire leadership", async |connection| leader::try_take_over(connection, &candidate).await)?
        {
            TakeoverResult::Acquired(leader_epoch) => leader_epoch,
            TakeoverResult::HeldByOther { holder, until_ms } => {
                self.leader_epoch = None;
                return Ok(Leadership::Standby { holder, until_ms });
            }
        };
        let migrate = async |connection: &mut PostgresConnection| leader::migrate(connection).await;
        // The long timeout applies only if there is something to migrate; otherwise a lost connection is detected as
        // quickly as in other calls.
        match self
            .connection
            .call("read the schema version", async |connection| leader::is_schema_current(connection).await)?
        {
            true => self.connection.call("check the schema", migrate)?,
            false => self.connection.call_within(MIGRATION_TIMEOUT, "migrate the schema", migrate)?,
        }
        self.connection.call("acquire leadership", async |connection| {
            leader::start_lease(connection, leader_epoch, lease_ms).await
        })?;
        self.leader_epoch = Some(leader_epoch);
        Ok(Leadership::Leading { epoch: leader_epoch.epoch, nonce: leader_epoch.nonce })
    }

    fn declare_holder_dead(&mut self, dead: &str) {
        self.dead_holder = Some(dead.to_string());
    }

    fn cluster_identity(&mut self) -> Result<ClusterIdentity, StoreError> {
        self.connection.call("read the cluster id", async |connection| leader::cluster_identity(connection).await)
    }

    fn set_cluster_id(&mut self, cluster: &str) -> Result<(), StoreError> {
        LeaderEpoch::require(self.leader_epoch)?;
        self.connection.call("set the cluster id", async |connection| leader::set_cluster_id(connection, cluster).await)
    }

    fn renew_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        self.connection
            .call("renew the lease", async |connection| leader::renew_lease(connection, leader_epoch, lease_ms).await)
    }

    fn resume_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        self.connection
            .call("resume the lease", async |connection| leader::resume_lease(connection, leader_epoch, lease_ms).await)
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        match self.leader_epoch.take() {
            Some(leader_epoch) => {
                self.connection.call("resign", async |connection| leader::end_lease(connection, leader_epoch).await)
            }
            None => Ok(()),
        }
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut committing = false;
        let appended = self.connection.call("append to the journal", async |connection| {
            let last = begin_append(connection, batch, leader_epoch).await?;
            batch::write(connection, &batch::group_statements(batch, last)).await?;
            committing = true;
            connection.client.batch_execute("COMMIT").await.map_err(map_commit_error)
        });
        match appended {
            // The call timed out after the commit was sent.
            Err(StoreError::Unavailable { source, .. }) if committing => Err(StoreError::OutcomeUnknown { source }),
            other => other,
        }
    }

    fn replay(&mut self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64, StoreError> {
        let connection = &mut self.connection;
        // A read holds no lock that others wait for, so it may take longer than the lease allows.
        let mut fetch = |from: u64| {
            connection
                .call_within(CALL_TIMEOUT, "read the journal", async |connection| read_records(connection, from).await)
        };
        replay(after, &mut fetch, visit)
    }
}

/// Begin a transaction, and check that this server leads and that the batch continues the journal. Returns the chain
/// checksum of the last record. On an error the connection is closed, and the transaction with it.
async fn begin_append(
    connection: &mut PostgresConnection,
    batch: &[Entry],
    leader_epoch: LeaderEpoch,
) -> Result<chain::ChainChecksum, StoreError> {
    let map_error = map_write_error("begin to append");
    connection.prepare(leader::CHECK_LEADER_ROW).await?;
    connection.prepare(SELECT_LAST_RECORD).await?;
    let begin = connection.begin_sql();
    let (begun, leader, last) = tokio::join!(
        connection.client.batch_execute(&begin),
        connection.client.query_opt(connection.prepared(leader::CHECK_LEADER_ROW)?, &[]),
        connection.client.query_opt(connection.prepared(SELECT_LAST_RECORD)?, &[]),
    );
    begun.map_err(&map_error)?;
    leader_epoch.check(leader.map_err(&map_error)?.as_ref().map(leader::leader_row))?;
    let last = last.map_err(&map_error)?;
    let seq = last.as_ref().map_or(0, |row| row.get::<_, i64>(0) as u64);
    check_batch(batch, leader_epoch.epoch, seq)?;
    // A checksum that is out of range is corrupt; the chain then does not match.
    let end = |row: &Row| {
        chain::ChainChecksum::of_record(row.get::<_, i64>(1) as u32, row.get::<_, Option<i64>>(2).map(|n| n as u32))
    };
    Ok(last.as_ref().map_or(chain::ChainChecksum::START, end))
}

async fn read_records(connection: &mut PostgresConnection, from: u64) -> Result<Vec<Record>, StoreError> {
    let sql = match connection.query(SELECT_CHAIN_COLUMN, &[]).await?.is_empty() {
        true => SELECT_RECORDS_WITHOUT_CHAIN,
        false => SELECT_RECORDS,
    };
    let rows = connection.query(sql, &[&(from as i64), &i64::from(PAGE_ROWS)]).await?;
    rows.iter().map(record_from_row).collect()
}

fn record_from_row(row: &Row) -> Result<Record, StoreError> {
    let seq = row.get::<_, i64>(0) as u64;
    let out_of_range = |_| StoreError::unreadable_record(seq, "has a number that is out of range");
    Ok(Record {
        seq,
        epoch: row.get::<_, i64>(1) as u64,
        at_ms: row.get(2),
        kind: row.get(3),
        version: u32::try_from(row.get::<_, i64>(4)).map_err(out_of_range)?,
        payload: row.get(5),
        crc: u32::try_from(row.get::<_, i64>(6)).map_err(out_of_range)?,
        chain: row.get::<_, Option<i64>>(7).map(u32::try_from).transpose().map_err(out_of_range)?,
    })
}
