//! The leader row of PostgreSQL, by the clock of the database.

use tokio_postgres::Row;

use super::fault::fault;
use super::link::Link;
use crate::error::StoreError;
use crate::journal::Leadership;
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

// `$4` is the nonce of our own former term: whoever leads may begin a new epoch at any time. A holder of the
// same name is a former life of this server, which died: names are unique among the living (the server locks
// its data folder), and if that were ever wrong, the new epoch still shuts the other one out.
const TAKE: &str = concat!(
    "INSERT INTO leader (id, epoch, nonce, holder, expires_at) VALUES (1, 1, $1, $2, ",
    now!(),
    " + $3) ON CONFLICT (id) DO UPDATE SET epoch = leader.epoch + 1, nonce = excluded.nonce, \
      holder = excluded.holder, expires_at = excluded.expires_at WHERE leader.expires_at <= ",
    now!(),
    " OR leader.nonce = $4 OR leader.holder = excluded.holder RETURNING epoch"
);

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
}

/// Try to take the lead, and bring the tables up to date if that works out.
pub async fn take(link: &mut Link, candidate: &Candidate<'_>) -> Result<Leadership, StoreError> {
    let doing = "take the lead";
    let alone =
        link.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await.map_err(fault(doing))?;
    if !alone.get::<_, bool>(0) {
        return standby(link).await;
    }
    // The lock ends with the connection if anything fails from here on.
    refuse_newer(link).await?;
    let leadership = match take_row(link, candidate).await? {
        Some(term) => {
            migrate(link).await?;
            // A migration may have taken longer than the lease.
            let (epoch, nonce) = (term.epoch as i64, term.nonce as i64);
            link.client
                .execute(EXTEND, &[&epoch, &nonce, &candidate.lease_ms])
                .await
                .map_err(fault(doing))?;
            Leadership::Leading { epoch: term.epoch, nonce: term.nonce }
        }
        None => standby(link).await?,
    };
    link.client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(fault(doing))?;
    Ok(leadership)
}

async fn take_row(link: &Link, candidate: &Candidate<'_>) -> Result<Option<Term>, StoreError> {
    let doing = "take the lead";
    // Outside of the migrations, because only the holder of an epoch may migrate.
    if !is_there(link, "leader").await? {
        link.client.batch_execute(TABLE).await.map_err(fault(doing))?;
    }
    let former = candidate.former.map_or(-1, |term| term.nonce as i64);
    let taken = link
        .client
        .query_opt(TAKE, &[&(candidate.nonce as i64), &candidate.holder, &candidate.lease_ms, &former])
        .await
        .map_err(fault(doing))?;
    Ok(taken.map(|row| Term { epoch: row.get::<_, i64>(0) as u64, nonce: candidate.nonce }))
}

async fn standby(link: &Link) -> Result<Leadership, StoreError> {
    let row = match is_there(link, "leader").await? {
        true => link.client.query_opt("SELECT holder, expires_at FROM leader WHERE id = 1", &[]).await,
        false => Ok(None),
    };
    Ok(match row.map_err(fault("ask who leads"))? {
        Some(row) => Leadership::Standby { holder: row.get(0), until_ms: row.get(1) },
        // Another server makes the very first tables at this moment.
        None => Leadership::Standby { holder: "another server".to_string(), until_ms: 0 },
    })
}

async fn refuse_newer(link: &Link) -> Result<(), StoreError> {
    if !is_there(link, migrations::HISTORY).await? {
        return Ok(());
    }
    let newest = format!("SELECT CAST(max(version) AS BIGINT) FROM {}", migrations::HISTORY);
    let row = link.client.query_one(&newest, &[]).await.map_err(fault("read the version of the tables"))?;
    migrations::refuse_newer(row.get(0), migrations::known(&migrations::postgres::migrations::runner()))
}

async fn is_there(link: &Link, table: &str) -> Result<bool, StoreError> {
    let asked = link.client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&table]).await;
    asked.map(|row| row.get(0)).map_err(fault("look for a table"))
}

async fn migrate(link: &mut Link) -> Result<(), StoreError> {
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
    let renewed = link.client.execute(RENEW, &[&epoch, &nonce, &lease_ms]).await.map_err(fault(doing))?;
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
