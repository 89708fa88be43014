//! Adapter (Journal): a PostgreSQL server, for several servers of ours of which one leads.
//!
//! The calls are synchronous like the port; a small runtime of its own moves the bytes. A connection that was
//! lost is made anew by the next call.

mod batch;
pub mod config;
mod fault;
mod leader;
mod limits;
mod link;
mod reads;
mod savepoints;
mod snapshot;
mod tls;
mod values;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use self::config::PostgresConfig;
use self::fault::{commit_fault, fault};
use self::leader::{Candidate, Taken};
use self::limits::Limits;
use self::link::{CALL_TIMEOUT, Line, Link};
use self::reads::PostgresReads;
use self::savepoints::PostgresSavepoints;
use crate::Store;
use crate::chain;
use crate::deep::Snapshot;
use crate::error::StoreError;
use crate::journal::{Identity, Journal, Leadership, Visit};
use crate::reader::Reader;
use crate::record::{Entry, Record, check_batch};
use crate::replay::{PAGE, replay};
use crate::term::{Term, random_number};

/// Open the three handles to a database.
pub fn open(config: &PostgresConfig) -> Result<Store, StoreError> {
    Ok(Store {
        journal: Box::new(PostgresJournal {
            line: Line::new(config, "muster journal")?,
            term: None,
            dead: None,
        }),
        tables: Arc::new(Reader(PostgresReads::new(config)?)),
        savepoints: Arc::new(PostgresSavepoints::new(config)?),
    })
}

/// A consistent view of a database.
pub fn snapshot(config: &PostgresConfig) -> Result<Box<dyn Snapshot>, StoreError> {
    Ok(Box::new(snapshot::PostgresSnapshot::new(config)?))
}

/// The journal in a database.
struct PostgresJournal {
    line: Line,
    term: Option<Term>,
    /// A holder that is known to have ended.
    dead: Option<String>,
}

/// The new leader brings the tables up to date, which may mean to rewrite large ones.
const MIGRATION_MAX: Duration = Duration::from_secs(3600);

const LAST: &str = "SELECT seq, crc, chain FROM journal ORDER BY seq DESC LIMIT 1";

const RECORDS: &str = "SELECT seq, epoch, at_ms, kind, version, payload, crc, chain FROM journal \
    WHERE seq >= $1 ORDER BY seq LIMIT $2";

/// For a database of an older release that is only read.
const OLD_RECORDS: &str = "SELECT seq, epoch, at_ms, kind, version, payload, crc, CAST(NULL AS BIGINT) FROM journal \
    WHERE seq >= $1 ORDER BY seq LIMIT $2";

const HAS_CHAIN: &str =
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('journal') AND attname = 'chain'";

impl Journal for PostgresJournal {
    fn lead(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        let former = self.term;
        let dead = self.dead.as_deref();
        let candidate = Candidate { holder, lease_ms, nonce: random_number()?, former, dead };
        self.line.limit(Limits::of_lease(lease_ms));
        let term = match self.line.call("take the lead", async |link| leader::take(link, &candidate).await)? {
            Taken::Row(term) => term,
            Taken::Held { holder, until_ms } => {
                self.term = None;
                return Ok(Leadership::Standby { holder, until_ms });
            }
        };
        let migrate = async |link: &mut Link| leader::migrate(link).await;
        // Only where there is something to do; else a connection that is lost now is noticed as soon as any other.
        match self.line.call("read the version of the tables", async |link| leader::is_current(link).await)? {
            true => self.line.call("check the tables", migrate)?,
            false => self.line.call_within(MIGRATION_MAX, "bring the tables up to date", migrate)?,
        }
        self.line.call("take the lead", async |link| leader::enter(link, term, lease_ms).await)?;
        self.term = Some(term);
        Ok(Leadership::Leading { epoch: term.epoch, nonce: term.nonce })
    }

    fn succeed(&mut self, dead: &str) {
        self.dead = Some(dead.to_string());
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        self.line.call("ask which cluster it is", async |link| leader::identity(link).await)
    }

    fn found(&mut self, cluster: &str) -> Result<(), StoreError> {
        Term::held(self.term)?;
        self.line.call("give the cluster its id", async |link| leader::found(link, cluster).await)
    }

    fn renew(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let term = Term::held(self.term)?;
        self.line.call("extend the lease", async |link| leader::renew(link, term, lease_ms).await)
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        match self.term.take() {
            Some(term) => self.line.call("resign", async |link| leader::resign(link, term).await),
            None => Ok(()),
        }
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let term = Term::held(self.term)?;
        if batch.is_empty() {
            return Ok(());
        }
        let mut committing = false;
        let appended = self.line.call("append to the journal", async |link| {
            let last = begin(link, batch, term).await?;
            batch::write(link, &batch::groups(batch, last)).await?;
            committing = true;
            link.client.batch_execute("COMMIT").await.map_err(commit_fault)
        });
        match appended {
            // The time ran out after the commit was sent.
            Err(StoreError::Unavailable { source, .. }) if committing => {
                Err(StoreError::OutcomeUnknown { source })
            }
            other => other,
        }
    }

    fn replay(&mut self, after: u64, visit: &mut Visit<'_>) -> Result<u64, StoreError> {
        let line = &mut self.line;
        // Reading holds no lock that others wait for, so a slow disk may take its time.
        let mut fetch = |from: u64| {
            line.call_within(CALL_TIMEOUT, "read the journal", async |link| records(link, from).await)
        };
        replay(after, &mut fetch, visit)
    }
}

/// Begin a transaction in which we lead and the batch fits the journal; returns the end of its chain. A failed one ends
/// with its connection.
async fn begin(link: &mut Link, batch: &[Entry], term: Term) -> Result<chain::Link, StoreError> {
    let doing = fault("begin to append");
    link.prepare(leader::CHECK).await?;
    link.prepare(LAST).await?;
    let begin = link.begin();
    let (begun, leader, last) = tokio::join!(
        link.client.batch_execute(&begin),
        link.client.query_opt(link.prepared(leader::CHECK)?, &[]),
        link.client.query_opt(link.prepared(LAST)?, &[]),
    );
    begun.map_err(&doing)?;
    term.check(leader.map_err(&doing)?.as_ref().map(leader::leader_row))?;
    let last = last.map_err(&doing)?;
    let seq = last.as_ref().map_or(0, |row| row.get::<_, i64>(0) as u64);
    check_batch(batch, term.epoch, seq)?;
    // A number that is out of range is damage, which the chain then shows.
    let end = |row: &Row| {
        chain::Link::of(row.get::<_, i64>(1) as u32, row.get::<_, Option<i64>>(2).map(|n| n as u32))
    };
    Ok(last.as_ref().map_or(chain::Link::START, end))
}

async fn records(link: &mut Link, from: u64) -> Result<Vec<Record>, StoreError> {
    let sql = match link.query(HAS_CHAIN, &[]).await?.is_empty() {
        true => OLD_RECORDS,
        false => RECORDS,
    };
    let rows = link.query(sql, &[&(from as i64), &i64::from(PAGE)]).await?;
    rows.iter().map(record).collect()
}

fn record(row: &Row) -> Result<Record, StoreError> {
    let seq = row.get::<_, i64>(0) as u64;
    let odd = |_| StoreError::unreadable(seq, "holds a number that is out of range");
    Ok(Record {
        seq,
        epoch: row.get::<_, i64>(1) as u64,
        at_ms: row.get(2),
        kind: row.get(3),
        version: u32::try_from(row.get::<_, i64>(4)).map_err(odd)?,
        payload: row.get(5),
        crc: u32::try_from(row.get::<_, i64>(6)).map_err(odd)?,
        chain: row.get::<_, Option<i64>>(7).map(u32::try_from).transpose().map_err(odd)?,
    })
}
