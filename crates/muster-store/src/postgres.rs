//! Adapter (Journal): a PostgreSQL server, for several servers of ours of which one leads.
//!
//! The calls are synchronous like the port; a small runtime of its own moves the bytes. A connection that was
//! lost is made anew by the next call.

mod batch;
pub mod config;
mod fault;
mod leader;
mod link;
mod reads;
mod savepoints;
mod values;

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use self::config::PostgresConfig;
use self::fault::{commit_fault, fault};
use self::leader::Candidate;
use self::link::{Line, Link};
use self::reads::PostgresReads;
use self::savepoints::PostgresSavepoints;
use crate::Store;
use crate::error::StoreError;
use crate::journal::{Journal, Leadership, Visit};
use crate::reader::Reader;
use crate::record::{Entry, Record, check_batch};
use crate::replay::{PAGE, replay};
use crate::term::{Term, random_number};

/// Open the three handles to a database.
pub fn open(config: &PostgresConfig) -> Result<Store, StoreError> {
    Ok(Store {
        journal: Box::new(PostgresJournal { line: Line::new(config, "muster journal")?, term: None }),
        tables: Arc::new(Reader(PostgresReads::new(config)?)),
        savepoints: Arc::new(PostgresSavepoints::new(config)?),
    })
}

/// The journal in a database.
struct PostgresJournal {
    line: Line,
    term: Option<Term>,
}

/// The new leader brings the tables up to date, which may mean to rewrite large ones.
const MIGRATION_MAX: Duration = Duration::from_secs(3600);

const LAST: &str = "SELECT COALESCE(max(seq), 0) FROM journal";

const RECORDS: &str = "SELECT seq, epoch, at_ms, kind, version, payload, crc FROM journal \
    WHERE seq >= $1 ORDER BY seq LIMIT $2";

impl Journal for PostgresJournal {
    fn lead(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        let candidate = Candidate { holder, lease_ms, nonce: random_number()?, former: self.term };
        let take = async |link: &mut Link| leader::take(link, &candidate).await;
        let leadership = self.line.call_within(MIGRATION_MAX, "take the lead", take)?;
        self.term = match &leadership {
            Leadership::Leading { epoch, nonce } => Some(Term { epoch: *epoch, nonce: *nonce }),
            Leadership::Standby { .. } => None,
        };
        Ok(leadership)
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
        let groups = batch::groups(batch);
        let mut committing = false;
        let appended = self.line.call("append to the journal", async |link| {
            begin(link, batch, term).await?;
            batch::write(link, &groups).await?;
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
        let mut fetch = |from: u64| line.call("read the journal", async |link| records(link, from).await);
        replay(after, &mut fetch, visit)
    }
}

/// Begin a transaction in which we lead and the batch fits the journal. A failed one ends with its connection.
async fn begin(link: &mut Link, batch: &[Entry], term: Term) -> Result<(), StoreError> {
    let doing = fault("begin to append");
    link.prepare(leader::CHECK).await?;
    link.prepare(LAST).await?;
    let (begun, leader, last) = tokio::join!(
        link.client.batch_execute("BEGIN"),
        link.client.query_opt(link.prepared(leader::CHECK)?, &[]),
        link.client.query_one(link.prepared(LAST)?, &[]),
    );
    begun.map_err(&doing)?;
    term.check(leader.map_err(&doing)?.as_ref().map(leader::leader_row))?;
    check_batch(batch, term.epoch, last.map_err(&doing)?.get::<_, i64>(0) as u64)
}

async fn records(link: &mut Link, from: u64) -> Result<Vec<Record>, StoreError> {
    let rows = link.query(RECORDS, &[&(from as i64), &i64::from(PAGE)]).await?;
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
    })
}
