//! The leader row of PostgreSQL, by the clock of the database.

use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;

use super::fault::fault;
use super::link::Link;
use crate::error::StoreError;
use crate::journal::Identity;
use crate::migrations;
use crate::term::{LeaderRow, Term};

/// Taken while a server becomes the leader, so that two cannot migrate at once: refinery takes no lock itself.
/// The number is `muster` in ASCII.
const LOCK: i64 = 0x6d75_7374_6572;

macro_rules! now {
    () => {
        "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
    };
}

const TABLE: &str = "CREATE TABLE IF NOT EXISTS leader (id BIGINT PRIMARY KEY CHECK (id = 1), \
    epoch BIGINT NOT NULL, nonce BIGINT NOT NULL, holder TEXT NOT NULL, expires_at BIGINT NOT NULL)";

// `$4` is the nonce of our own former term: whoever leads may begin a new epoch at any time. `$5` is a holder that
// is known to have ended.
const TAKE: &str = concat!(
    "INSERT INTO leader (id, epoch, nonce, holder, expires_at) VALUES (1, 1, $1, $2, ",
    now!(),
    " + $3) ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, nonce = excluded.nonce, \
      holder = excluded.holder, expires_at = excluded.expires_at WHERE leader.expires_at <= ",
    now!(),
    " OR leader.nonce = $4 OR leader.holder = $5 RETURNING epoch"
);

/// Read without a lock: a standby that only looks must not wait for the leader, nor the leader for it.
const LOOK: &str = concat!(
    "SELECT holder, expires_at, expires_at > ",
    now!(),
    " AND nonce <> $1 AND holder IS DISTINCT FROM $2 FROM leader WHERE id = 1"
);

/// Transactions that touch the leader row hold one of these locks on its table until they end. Whoever may take the
/// row may end them: their epoch is over.
const END_FORMER: &str = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE granted AND pid <> pg_backend_pid() \
    AND locktype = 'relation' AND relation = 'leader'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock') \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// A candidate that holds [`LOCK`] and has asked for nothing during `$2` milliseconds is frozen or cut off. One that
/// migrates is active and does not wait for its client; one that was cut off inside a message does.
const END_STUCK: &str = "SELECT pg_terminate_backend(activity.pid) FROM pg_locks AS held \
    JOIN pg_stat_activity AS activity ON activity.pid = held.pid \
    WHERE held.granted AND held.locktype = 'advisory' AND held.objsubid = 1 \
    AND (CAST(held.classid AS BIGINT) << 32) + CAST(held.objid AS BIGINT) = $1 \
    AND activity.datname = current_database() AND activity.pid <> pg_backend_pid() \
    AND (activity.state <> 'active' OR activity.wait_event_type = 'Client') \
    AND activity.state_change < clock_timestamp() - $2 * interval '1 millisecond'";

/// Locked in a way that writers of one epoch do not wait for each other, but a new leader waits for them.
pub const CHECK: &str =
    concat!("SELECT epoch, nonce, holder, expires_at - ", now!(), " FROM leader WHERE id = 1 FOR SHARE");

const RENEW: &str = concat!(
    "UPDATE leader SET expires_at = ",
    now!(),
    " + $3 WHERE id = 1 AND epoch = $1 AND nonce = $2 AND expires_at > ",
    now!()
);

const EXTEND: &str =
    concat!("UPDATE leader SET expires_at = ", now!(), " + $3 WHERE id = 1 AND epoch = $1 AND nonce = $2");

const RESIGN: &str = "UPDATE leader SET expires_at = 0 WHERE id = 1 AND epoch = $1 AND nonce = $2";

/// What a candidate brings.
pub struct Candidate<'a> {
    pub holder: &'a str,
    pub lease_ms: i64,
    pub nonce: u64,
    pub former: Option<Term>,
    /// A holder that is known to have ended.
    pub dead: Option<&'a str>,
}

impl Candidate<'_> {
    fn former_nonce(&self) -> i64 {
        self.former.map_or(-1, |term| term.nonce as i64)
    }
}

/// Whether the row was taken.
pub enum Taken {
    /// It was, and [`LOCK`] is held until [`enter`].
    Row(Term),
    /// Another server has it.
    Held { holder: String, until_ms: i64 },
}

/// Try to take the leader row. The tables may be older than this release until [`migrate`] has run.
pub async fn take(link: &mut Link, candidate: &Candidate<'_>) -> Result<Taken, StoreError> {
    let doing = "take the lead";
    if let Some(held) = held(link, candidate).await? {
        return Ok(held);
    }
    let alone =
        link.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await.map_err(fault(doing))?;
    if !alone.get::<_, bool>(0) {
        let patience_ms = link.patience().as_millis() as f64;
        end_sessions(link, END_STUCK, &[&LOCK, &patience_ms]).await?;
        return held_by_someone(link).await;
    }
    // The lock ends with the connection if anything fails from here on.
    refuse_newer(link).await?;
    // Outside of the migrations, because only the holder of an epoch may migrate.
    if !is_there(link, "leader").await? {
        link.client.batch_execute(TABLE).await.map_err(fault(doing))?;
    }
    end_sessions(link, END_FORMER, &[]).await?;
    if let Some(term) = take_row(link, candidate).await? {
        return Ok(Taken::Row(term));
    }
    unlock(link).await?;
    held_by_someone(link).await
}

/// The last step: lead for a whole lease from now on, because a migration may have taken longer than one.
pub async fn enter(link: &mut Link, term: Term, lease_ms: i64) -> Result<(), StoreError> {
    let (epoch, nonce) = (term.epoch as i64, term.nonce as i64);
    let extended = link.client.execute(EXTEND, &[&epoch, &nonce, &lease_ms]).await;
    extended.map_err(fault("take the lead"))?;
    unlock(link).await
}

async fn unlock(link: &Link) -> Result<(), StoreError> {
    let unlocked = link.client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await;
    unlocked.map(drop).map_err(fault("take the lead"))
}

/// The leader, if it is another server whose lease holds.
async fn held(link: &Link, candidate: &Candidate<'_>) -> Result<Option<Taken>, StoreError> {
    if !is_there(link, "leader").await? {
        return Ok(None);
    }
    let row = link.client.query_opt(LOOK, &[&candidate.former_nonce(), &candidate.dead]).await;
    let row = row.map_err(fault("ask who leads"))?;
    let held = |row: &Row| Taken::Held { holder: row.get(0), until_ms: row.get(1) };
    Ok(row.as_ref().filter(|row| row.get(2)).map(held))
}

/// End the sessions that a dead leader left behind. Without the right to do so, their own time limits end them.
async fn end_sessions(link: &Link, sql: &str, values: &[&(dyn ToSql + Sync)]) -> Result<(), StoreError> {
    match link.client.query(sql, values).await {
        Ok(ended) if ended.is_empty() => Ok(()),
        Ok(ended) => {
            tracing::warn!(sessions = ended.len(), "ended database sessions of a leader whose lease is over");
            Ok(())
        }
        Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            tracing::warn!(
                "no right to end the sessions of the former leader; waiting for their time limits"
            );
            Ok(())
        }
        Err(error) => Err(fault("end the sessions of the former leader")(error)),
    }
}

/// `None` if the row is not free: another server has taken it, or a transaction of the former leader has not ended yet.
async fn take_row(link: &Link, candidate: &Candidate<'_>) -> Result<Option<Term>, StoreError> {
    let doing = "take the lead";
    let (nonce, former) = (candidate.nonce as i64, candidate.former_nonce());
    link.client.batch_execute(&link.begin_taking()).await.map_err(fault(doing))?;
    let taken = link
        .client
        .query_opt(TAKE, &[&nonce, &candidate.holder, &candidate.lease_ms, &former, &candidate.dead])
        .await;
    let row = match taken {
        Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => None,
        other => other.map_err(fault(doing))?,
    };
    // After a failed statement this rolls back.
    link.client.batch_execute("COMMIT").await.map_err(fault(doing))?;
    Ok(row.map(|row| Term { epoch: row.get::<_, i64>(0) as u64, nonce: candidate.nonce }))
}

async fn held_by_someone(link: &Link) -> Result<Taken, StoreError> {
    let row = match is_there(link, "leader").await? {
        true => link.client.query_opt("SELECT holder, expires_at FROM leader WHERE id = 1", &[]).await,
        false => Ok(None),
    };
    Ok(match row.map_err(fault("ask who leads"))? {
        Some(row) => Taken::Held { holder: row.get(0), until_ms: row.get(1) },
        // Another server makes the very first tables at this moment.
        None => Taken::Held { holder: "another server".to_string(), until_ms: 0 },
    })
}

async fn refuse_newer(link: &Link) -> Result<(), StoreError> {
    let found = version(link).await?;
    migrations::refuse_newer(found, migrations::known(&migrations::postgres::migrations::runner()))
}

/// Whether the tables are those of this release.
pub async fn is_current(link: &Link) -> Result<bool, StoreError> {
    let known = migrations::known(&migrations::postgres::migrations::runner());
    Ok(version(link).await? == Some(known))
}

/// The newest migration that the tables have had.
pub async fn version(link: &Link) -> Result<Option<i64>, StoreError> {
    if !is_there(link, migrations::HISTORY).await? {
        return Ok(None);
    }
    let newest = format!("SELECT CAST(max(version) AS BIGINT) FROM {}", migrations::HISTORY);
    let row = link.client.query_one(&newest, &[]).await.map_err(fault("read the version of the tables"))?;
    Ok(row.get(0))
}

async fn is_there(link: &Link, table: &str) -> Result<bool, StoreError> {
    let asked = link.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await;
    asked.map(|row| row.get(0)).map_err(fault("look for a table"))
}

/// Bring the tables up to this release. Only for the holder of the row.
pub async fn migrate(link: &mut Link) -> Result<(), StoreError> {
    let runner = migrations::postgres::migrations::runner();
    let migrated = runner.run_async(&mut link.client).await;
    migrated.map(drop).map_err(|error| match link.client.is_closed() {
        true => StoreError::unavailable("bring the tables up to date", error),
        false => migrations::failed(error),
    })
}

/// Extend the lease, unless it has run out.
pub async fn renew(link: &mut Link, term: Term, lease_ms: i64) -> Result<(), StoreError> {
    let (epoch, nonce) = (term.epoch as i64, term.nonce as i64);
    let doing = "extend the lease";
    link.prepare(RENEW).await?;
    let (begin, statement) = (link.begin(), link.prepared(RENEW)?);
    let values: [&(dyn ToSql + Sync); 3] = [&epoch, &nonce, &lease_ms];
    // One round trip; if the statement fails, the commit rolls back.
    let (begun, renewed, ended) = tokio::join!(
        link.client.batch_execute(&begin),
        link.client.execute(statement, &values),
        link.client.batch_execute("COMMIT"),
    );
    begun.map_err(fault(doing))?;
    let renewed = renewed.map_err(fault(doing))?;
    ended.map_err(fault(doing))?;
    if renewed == 1 {
        return Ok(());
    }
    let row = link.client.query_opt(CHECK, &[]).await.map_err(fault(doing))?;
    term.check(row.as_ref().map(leader_row))?;
    Err(StoreError::Deposed { why: "the lease could not be extended".to_string() })
}

/// End the lease.
pub async fn resign(link: &mut Link, term: Term) -> Result<(), StoreError> {
    let (epoch, nonce) = (term.epoch as i64, term.nonce as i64);
    link.client.execute(RESIGN, &[&epoch, &nonce]).await.map(drop).map_err(fault("resign"))
}

/// A row of [`CHECK`].
pub fn leader_row(row: &Row) -> LeaderRow {
    LeaderRow { epoch: row.get(0), nonce: row.get(1), holder: row.get(2), left_ms: row.get(3) }
}

/// Which cluster the database holds, also before anyone has led.
pub async fn identity(link: &mut Link) -> Result<Identity, StoreError> {
    let doing = fault("ask which cluster it is");
    if is_there(link, "cluster").await? {
        let row = link
            .client
            .query_opt("SELECT cluster_id FROM cluster WHERE id = 1", &[])
            .await
            .map_err(&doing)?;
        if let Some(row) = row {
            return Ok(Identity::Cluster(row.get(0)));
        }
    }
    if !is_there(link, "journal").await? {
        return Ok(Identity::Empty);
    }
    let first = link.client.query_opt("SELECT 1 FROM journal LIMIT 1", &[]).await.map_err(&doing)?;
    Ok(if first.is_some() { Identity::Unnamed } else { Identity::Empty })
}

/// Give the cluster its id, unless it has one.
pub async fn found(link: &mut Link, cluster: &str) -> Result<(), StoreError> {
    let sql = "INSERT INTO cluster (id, cluster_id) VALUES (1, $1) ON CONFLICT DO NOTHING";
    link.client.execute(sql, &[&cluster]).await.map(drop).map_err(fault("give the cluster its id"))
}
