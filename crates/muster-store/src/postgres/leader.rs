//! Leader election in PostgreSQL: the leader row and its lease by the clock of the database. A server that takes the
//! row terminates the transactions of the former leader.

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::connection::PostgresConnection;
use super::error_mapping::map_write_error;
use crate::error::StoreError;
use crate::journal::ClusterIdentity;
use crate::leader_epoch::{LeaderEpoch, LeaderRow};
use crate::migrations;

/// Advisory lock of a server that is becoming the leader, so that two servers cannot migrate at once: refinery takes no
/// lock. The number is `muster` in ASCII.
const LEADER_LOCK_KEY: i64 = 0x6d75_7374_6572;

/// Unix milliseconds by the clock of the database.
macro_rules! now_ms_sql {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

const CREATE_LEADER_TABLE: &str = "CREATE TABLE IF NOT EXISTS leader (id BIGINT PRIMARY KEY CHECK (id = 1), \
    epoch BIGINT NOT NULL, nonce BIGINT NOT NULL, holder TEXT NOT NULL, expires_at BIGINT NOT NULL)";

// `$4` is the nonce of this server's previous epoch: a leader may start a new epoch at any time. `$5` is a holder that
// is declared dead.
const TAKE_LEADER_ROW: &str = concat!(
    "INSERT INTO leader (id, epoch, nonce, holder, expires_at) VALUES (1, 1, $1, $2, ",
    now_ms_sql!(),
    " + $3) ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, nonce = excluded.nonce, \
      holder = excluded.holder, expires_at = excluded.expires_at WHERE leader.expires_at <= ",
    now_ms_sql!(),
    " OR leader.nonce = $4 OR leader.holder = $5 RETURNING epoch"
);

/// Without a lock: a standby that reads the row must not wait for the leader, nor the leader for the standby.
const READ_LEADER_ROW: &str = concat!(
    "SELECT holder, expires_at, expires_at > ",
    now_ms_sql!(),
    " AND nonce <> $1 AND holder IS DISTINCT FROM $2 FROM leader WHERE id = 1"
);

/// Transactions that use the leader row hold one of these locks on its table until they end. A server that may take the
/// row may terminate them: their epoch is over.
const TERMINATE_FORMER_LEADER: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted AND pid <> pg_backend_pid() \
    AND locktype = 'relation' AND relation = 'leader'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock') \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A candidate that holds [`LEADER_LOCK_KEY`] and has sent nothing for `$2` milliseconds is frozen or disconnected. A
/// candidate that migrates is active and does not wait for its client; one that was cut off within a message does.
const TERMINATE_STUCK_CANDIDATE: &str = "SELECT pg_terminate_backend(activity.pid) FROM pg_locks AS held \
    JOIN pg_stat_activity AS activity ON activity.pid = held.pid \
    WHERE held.granted AND held.locktype = 'advisory' AND held.objsubid = 1 \
    AND (CAST(held.classid AS BIGINT) << 32) + CAST(held.objid AS BIGINT) = $1 \
    AND activity.datname = current_database() AND activity.pid <> pg_backend_pid() \
    AND (activity.state <> 'active' OR activity.wait_event_type = 'Client') \
    AND activity.state_change < clock_timestamp() - $2 * interval '1 millisecond'";

/// `FOR SHARE`: writers of one epoch do not wait for each other, but a new leader waits for them.
pub const CHECK_LEADER_ROW: &str =
    concat!("SELECT epoch, nonce, holder, expires_at - ", now_ms_sql!(), " FROM leader WHERE id = 1 FOR SHARE");

const RENEW_LEASE: &str = concat!(
    "UPDATE leader SET expires_at = ",
    now_ms_sql!(),
    " + $3 WHERE id = 1 AND epoch = $1 AND nonce = $2 AND expires_at > ",
    now_ms_sql!()
);

const EXTEND_LEASE: &str =
    concat!("UPDATE leader SET expires_at = ", now_ms_sql!(), " + $3 WHERE id = 1 AND epoch = $1 AND nonce = $2");

const EXPIRE_LEASE: &str = "UPDATE leader SET expires_at = 0 WHERE id = 1 AND epoch = $1 AND nonce = $2";

/// A server that tries to become the leader.
pub struct Candidate<'a> {
    pub holder: &'a str,
    pub lease_ms: i64,
    pub nonce: u64,
    pub previous_epoch: Option<LeaderEpoch>,
    /// Holder that is declared dead.
    pub dead_holder: Option<&'a str>,
}

impl Candidate<'_> {
    fn previous_nonce(&self) -> i64 {
        self.previous_epoch.map_or(-1, |leader_epoch| leader_epoch.nonce as i64)
    }
}

pub enum TakeoverResult {
    /// The row was taken, and [`LEADER_LOCK_KEY`] is held until [`start_lease`].
    Acquired(LeaderEpoch),
    HeldByOther {
        holder: String,
        until_ms: i64,
    },
}

/// Try to take the leader row. The tables may be older than this release until [`migrate`] has run.
pub async fn try_take_over(
    connection: &mut PostgresConnection,
    candidate: &Candidate<'_>,
) -> Result<TakeoverResult, StoreError> {
    let operation = "acquire leadership";
    if let Some(held) = current_leader(connection, candidate).await? {
        return Ok(held);
    }
    let locked = connection
        .client
        .query_one("SELECT pg_try_advisory_lock($1)", &[&LEADER_LOCK_KEY])
        .await
        .map_err(map_write_error(operation))?;
    if !locked.get::<_, bool>(0) {
        let silence_max_ms = connection.client_silence_max().as_millis() as f64;
        terminate_sessions(connection, TERMINATE_STUCK_CANDIDATE, &[&LEADER_LOCK_KEY, &silence_max_ms]).await?;
        return read_holder(connection).await;
    }
    // From here on an error closes the connection, which releases the lock.
    refuse_newer_schema(connection).await?;
    // Outside of the migrations, because only the holder of an epoch may migrate.
    if !table_exists(connection, "leader").await? {
        connection.client.batch_execute(CREATE_LEADER_TABLE).await.map_err(map_write_error(operation))?;
    }
    terminate_sessions(connection, TERMINATE_FORMER_LEADER, &[]).await?;
    if let Some(leader_epoch) = take_leader_row(connection, candidate).await? {
        return Ok(TakeoverResult::Acquired(leader_epoch));
    }
    release_leader_lock(connection).await?;
    read_holder(connection).await
}

/// Last step: start a full lease now, because the migration may have taken longer than a lease.
pub async fn start_lease(
    connection: &mut PostgresConnection,
    leader_epoch: LeaderEpoch,
    lease_ms: i64,
) -> Result<(), StoreError> {
    let (epoch, nonce) = (leader_epoch.epoch as i64, leader_epoch.nonce as i64);
    let extended = connection.client.execute(EXTEND_LEASE, &[&epoch, &nonce, &lease_ms]).await;
    extended.map_err(map_write_error("acquire leadership"))?;
    release_leader_lock(connection).await
}

async fn release_leader_lock(connection: &PostgresConnection) -> Result<(), StoreError> {
    let unlocked = connection.client.execute("SELECT pg_advisory_unlock($1)", &[&LEADER_LOCK_KEY]).await;
    unlocked.map(drop).map_err(map_write_error("acquire leadership"))
}

/// The leader, if it is another server whose lease has not expired.
async fn current_leader(
    connection: &PostgresConnection,
    candidate: &Candidate<'_>,
) -> Result<Option<TakeoverResult>, StoreError> {
    if !table_exists(connection, "leader").await? {
        return Ok(None);
    }
    let row =
        connection.client.query_opt(READ_LEADER_ROW, &[&candidate.previous_nonce(), &candidate.dead_holder]).await;
    let row = row.map_err(map_write_error("read the leader row"))?;
    let held = |row: &Row| TakeoverResult::HeldByOther { holder: row.get(0), until_ms: row.get(1) };
    Ok(row.as_ref().filter(|row| row.get(2)).map(held))
}

/// Terminate the sessions of a former leader or stuck candidate. Without the permission for that, their own timeouts
/// end them.
async fn terminate_sessions(
    connection: &PostgresConnection,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<(), StoreError> {
    match connection.client.query(sql, values).await {
        Ok(terminated) if terminated.is_empty() => Ok(()),
        Ok(terminated) => {
            tracing::warn!(sessions = terminated.len(), "terminated database sessions of the former leader");
            Ok(())
        }
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            tracing::warn!("not permitted to terminate sessions of the former leader; waiting for their timeouts");
            Ok(())
        }
        Err(error) => Err(map_write_error("terminate the sessions of the former leader")(error)),
    }
}

/// `None` if the row is not available: another server has taken it, or a transaction of the former leader still holds
/// it.
async fn take_leader_row(
    connection: &PostgresConnection,
    candidate: &Candidate<'_>,
) -> Result<Option<LeaderEpoch>, StoreError> {
    let operation = "acquire leadership";
    let (nonce, previous_nonce) = (candidate.nonce as i64, candidate.previous_nonce());
    connection.client.batch_execute(&connection.begin_takeover_sql()).await.map_err(map_write_error(operation))?;
    let taken = connection
        .client
        .query_opt(
            TAKE_LEADER_ROW,
            &[&nonce, &candidate.holder, &candidate.lease_ms, &previous_nonce, &candidate.dead_holder],
        )
        .await;
    let row = match taken {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => None,
        other => other.map_err(map_write_error(operation))?,
    };
    // After a failed statement this rolls back.
    connection.client.batch_execute("COMMIT").await.map_err(map_write_error(operation))?;
    Ok(row.map(|row| LeaderEpoch { epoch: row.get::<_, i64>(0) as u64, nonce: candidate.nonce }))
}

async fn read_holder(connection: &PostgresConnection) -> Result<TakeoverResult, StoreError> {
    let row = match table_exists(connection, "leader").await? {
        true => connection.client.query_opt("SELECT holder, expires_at FROM leader WHERE id = 1", &[]).await,
        false => Ok(None),
    };
    Ok(match row.map_err(map_write_error("read the leader row"))? {
        Some(row) => TakeoverResult::HeldByOther { holder: row.get(0), until_ms: row.get(1) },
        // Another server is creating the first tables.
        None => TakeoverResult::HeldByOther { holder: "another server".to_string(), until_ms: 0 },
    })
}

async fn refuse_newer_schema(connection: &PostgresConnection) -> Result<(), StoreError> {
    let found = schema_version(connection).await?;
    migrations::refuse_newer_schema(
        found,
        migrations::newest_known_version(&migrations::postgres::migrations::runner()),
    )
}

/// True if the schema is that of this release.
pub async fn is_schema_current(connection: &PostgresConnection) -> Result<bool, StoreError> {
    let known = migrations::newest_known_version(&migrations::postgres::migrations::runner());
    Ok(schema_version(connection).await? == Some(known))
}

/// Version of the newest migration that has run.
pub async fn schema_version(connection: &PostgresConnection) -> Result<Option<i64>, StoreError> {
    if !table_exists(connection, migrations::HISTORY_TABLE).await? {
        return Ok(None);
    }
    let newest = format!("SELECT CAST(max(version) AS BIGINT) FROM {}", migrations::HISTORY_TABLE);
    let row = connection.client.query_one(&newest, &[]).await.map_err(map_write_error("read the schema version"))?;
    Ok(row.get(0))
}

async fn table_exists(connection: &PostgresConnection, table: &str) -> Result<bool, StoreError> {
    let found = connection.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await;
    found.map(|row| row.get(0)).map_err(map_write_error("check whether a table exists"))
}

/// Migrate the schema to this release. Only the holder of the leader row may call this.
pub async fn migrate(connection: &mut PostgresConnection) -> Result<(), StoreError> {
    let runner = migrations::postgres::migrations::runner();
    let migrated = runner.run_async(&mut connection.client).await;
    migrated.map(drop).map_err(|error| match connection.client.is_closed() {
        true => StoreError::unavailable("migrate the schema", error),
        false => migrations::migration_error(error),
    })
}

/// Renew the lease, unless it has expired.
pub async fn renew_lease(
    connection: &mut PostgresConnection,
    leader_epoch: LeaderEpoch,
    lease_ms: i64,
) -> Result<(), StoreError> {
    let (epoch, nonce) = (leader_epoch.epoch as i64, leader_epoch.nonce as i64);
    let operation = "renew the lease";
    connection.prepare(RENEW_LEASE).await?;
    let (begin, statement) = (connection.begin_sql(), connection.prepared(RENEW_LEASE)?);
    let values: [&(dyn ToSql + Sync); 3] = [&epoch, &nonce, &lease_ms];
    // One round trip; if the statement fails, the commit rolls back.
    let (begun, renewed, ended) = tokio::join!(
        connection.client.batch_execute(&begin),
        connection.client.execute(statement, &values),
        connection.client.batch_execute("COMMIT"),
    );
    begun.map_err(map_write_error(operation))?;
    let renewed = renewed.map_err(map_write_error(operation))?;
    ended.map_err(map_write_error(operation))?;
    if renewed == 1 {
        return Ok(());
    }
    let row = connection.client.query_opt(CHECK_LEADER_ROW, &[]).await.map_err(map_write_error(operation))?;
    leader_epoch.check(row.as_ref().map(leader_row))?;
    Err(StoreError::NotLeader { why: "the lease was not renewed: the leader row has changed".to_string() })
}

/// Extend the lease, also if it has expired, unless another server has taken over.
pub async fn resume_lease(
    connection: &mut PostgresConnection,
    leader_epoch: LeaderEpoch,
    lease_ms: i64,
) -> Result<(), StoreError> {
    let (epoch, nonce) = (leader_epoch.epoch as i64, leader_epoch.nonce as i64);
    let operation = "resume the lease";
    let extended = connection.client.execute(EXTEND_LEASE, &[&epoch, &nonce, &lease_ms]).await;
    if extended.map_err(map_write_error(operation))? == 1 {
        return Ok(());
    }
    let row = connection.client.query_opt(CHECK_LEADER_ROW, &[]).await.map_err(map_write_error(operation))?;
    leader_epoch.check_not_replaced(row.as_ref().map(leader_row))?;
    Err(StoreError::NotLeader { why: "the lease was not resumed: the leader row has changed".to_string() })
}

pub async fn end_lease(connection: &mut PostgresConnection, leader_epoch: LeaderEpoch) -> Result<(), StoreError> {
    let (epoch, nonce) = (leader_epoch.epoch as i64, leader_epoch.nonce as i64);
    connection.client.execute(EXPIRE_LEASE, &[&epoch, &nonce]).await.map(drop).map_err(map_write_error("resign"))
}

/// A row of [`CHECK_LEADER_ROW`].
pub fn leader_row(row: &Row) -> LeaderRow {
    LeaderRow { epoch: row.get(0), nonce: row.get(1), holder: row.get(2), lease_left_ms: row.get(3) }
}

/// The cluster that the database holds; also before the first leader.
pub async fn cluster_identity(connection: &mut PostgresConnection) -> Result<ClusterIdentity, StoreError> {
    let map_error = map_write_error("read the cluster id");
    if table_exists(connection, "cluster").await? {
        let row = connection
            .client
            .query_opt("SELECT cluster_id FROM cluster WHERE id = 1", &[])
            .await
            .map_err(&map_error)?;
        if let Some(row) = row {
            return Ok(ClusterIdentity::Cluster(row.get(0)));
        }
    }
    if !table_exists(connection, "journal").await? {
        return Ok(ClusterIdentity::Empty);
    }
    let first = connection.client.query_opt("SELECT 1 FROM journal LIMIT 1", &[]).await.map_err(&map_error)?;
    Ok(if first.is_some() { ClusterIdentity::Unnamed } else { ClusterIdentity::Empty })
}

/// Set the id of the cluster, unless it has one.
pub async fn set_cluster_id(connection: &mut PostgresConnection, cluster: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO cluster (id, cluster_id) VALUES (1, $1) ON CONFLICT DO NOTHING";
    connection.client.execute(sql, &[&cluster]).await.map(drop).map_err(map_write_error("set the cluster id"))
}
