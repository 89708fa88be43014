//! Adapter (Journal): a SQLite file, for one server.
//!
//! A write-ahead log flushed at every commit: what was acknowledged survives the loss of power.

mod fault;
mod file;
mod identity;
mod leader;
mod lock;
mod reads;
mod savepoints;
mod snapshot;
mod turns;

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params_from_iter};

use self::fault::{commit_fault, fault, read_fault};
use self::file::{Place, count_this_write};
use self::lock::LockFile;
use self::reads::SqliteReads;
use self::savepoints::SqliteSavepoints;
use crate::Store;
use crate::chain::Link;
use crate::error::StoreError;
use crate::journal::{Identity, Journal, Leadership, Visit};
use crate::reader::Reader;
use crate::record::{Entry, Record, check_batch};
use crate::replay::{PAGE, replay};
use crate::tables::{Change, journal_row, project};
use crate::term::{Term, random_number};

/// Open the three handles to a file.
pub fn open(path: &Path) -> Result<Store, StoreError> {
    let place = Arc::new(Place::of(path)?);
    Ok(Store {
        tables: Arc::new(Reader(SqliteReads::new(place.clone()))),
        savepoints: Arc::new(SqliteSavepoints::new(place.clone())),
        journal: Box::new(SqliteJournal { connection: None, term: None, lock: None, place }),
    })
}

pub use self::snapshot::{Scratch, scratch, snapshot};

/// The journal in a file. The connection goes first when it is dropped, then the lock, then the place.
struct SqliteJournal {
    connection: Option<Connection>,
    term: Option<Term>,
    lock: Option<LockFile>,
    place: Arc<Place>,
}

impl Journal for SqliteJournal {
    fn lead(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        self.term = None;
        match &self.lock {
            Some(lock) => lock.sign(holder)?,
            None => match LockFile::take(&self.place.path, holder)? {
                Ok(lock) => self.lock = Some(lock),
                Err(other) => return Ok(self.standby(other)),
            },
        }
        let nonce = random_number()?;
        let connection = self.connection()?;
        let term = leader::take(connection, nonce, holder, lease_ms)?;
        leader::migrate(connection)?;
        // A migration may have taken longer than the lease.
        self.in_transaction("take the lead", |tx| leader::expire_in(tx, term, lease_ms))?;
        self.term = Some(term);
        Ok(Leadership::Leading { epoch: term.epoch, nonce: term.nonce })
    }

    fn renew(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let term = Term::held(self.term)?;
        self.in_transaction("extend the lease", |tx| {
            leader::check(tx, term)?;
            leader::expire_in(tx, term, lease_ms)
        })
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        if let Some(term) = self.term.take() {
            self.in_transaction("resign", |tx| leader::expire_now(tx, term))?;
            // Leaves one plain file behind. A reader may be in the way; then the log stays, which is fine too.
            let _ = self.connection()?.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        self.connection = None;
        self.lock = None;
        Ok(())
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let term = Term::held(self.term)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.in_transaction("append to the journal", |tx| {
            leader::check(tx, term)?;
            let (last, link) = last_record(tx)?;
            check_batch(batch, term.epoch, last)?;
            write_batch(tx, batch, link)
        })
    }

    fn identity(&mut self) -> Result<Identity, StoreError> {
        Ok(self.place.identity())
    }

    fn found(&mut self, cluster: &str) -> Result<(), StoreError> {
        let term = Term::held(self.term)?;
        self.in_transaction("give the cluster its id", |tx| {
            leader::check(tx, term)?;
            leader::found(tx, cluster)
        })
    }

    fn replay(&mut self, after: u64, visit: &mut Visit<'_>) -> Result<u64, StoreError> {
        let connection = self.connection()?;
        replay(after, &mut |from| records(connection, from), visit)
    }
}

impl SqliteJournal {
    fn connection(&mut self) -> Result<&mut Connection, StoreError> {
        match &mut self.connection {
            Some(connection) => Ok(connection),
            empty => Ok(empty.insert(self.place.writer_of_whole_file()?)),
        }
    }

    /// Run a writing transaction; it is rolled back if the work fails. After a fault the file is opened anew, so
    /// that we see what is in it and not what we believe.
    fn in_transaction(
        &mut self,
        doing: &str,
        work: impl FnOnce(&Transaction<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let place = self.place.clone();
        let _turn = place.turns.take();
        let done = self.connection().and_then(|connection| {
            let immediate = TransactionBehavior::Immediate;
            let tx = connection.transaction_with_behavior(immediate).map_err(fault(doing))?;
            work(&tx)?;
            count_this_write(&tx).map_err(fault(doing))?;
            tx.commit().map_err(commit_fault)
        });
        if done.is_err() {
            self.connection = None;
        }
        done
    }

    fn standby(&self, holder: String) -> Leadership {
        let until = self.place.reader().ok().and_then(|connection| leader::lease_end(&connection));
        Leadership::Standby { holder, until_ms: until.unwrap_or(0) }
    }
}

/// Number and link of the last record.
fn last_record(connection: &Connection) -> Result<(u64, Link), StoreError> {
    let sql = "SELECT seq, crc, chain FROM journal ORDER BY seq DESC LIMIT 1";
    let last = connection
        .prepare_cached(sql)
        .and_then(|mut statement| {
            statement
                .query_row([], |row| Ok((row.get::<_, i64>(0)? as u64, Link::of(row.get(1)?, row.get(2)?))))
                .optional()
        })
        .map_err(fault("read the end of the journal"))?;
    Ok(last.unwrap_or((0, Link::START)))
}

/// Write entries behind the record with this link.
fn write_batch(connection: &Connection, batch: &[Entry], mut link: Link) -> Result<(), StoreError> {
    for entry in batch {
        execute(connection, &journal_row(entry, &mut link), entry.seq)?;
        for change in project(entry) {
            execute(connection, &change, entry.seq)?;
        }
    }
    Ok(())
}

fn execute(connection: &Connection, change: &Change, seq: u64) -> Result<(), StoreError> {
    let statement = change.statement;
    let doing = || format!("entry {seq}, {}", statement.name);
    let touched = connection
        .prepare_cached(statement.sql)
        .and_then(|mut prepared| prepared.execute(params_from_iter(&change.values)))
        .map_err(|error| fault(&doing())(error))?;
    match statement.rows.allow(touched as u64, 1) {
        true => Ok(()),
        false => Err(change.wrong_rows(&doing(), touched as u64)),
    }
}

fn records(connection: &Connection, from: u64) -> Result<Vec<Record>, StoreError> {
    // A database of an older release that is only read has no chain.
    let chain = match has_column(connection, "journal", "chain").map_err(read_fault("read the journal"))? {
        true => "chain",
        false => "NULL",
    };
    let sql = format!(
        "SELECT seq, epoch, at_ms, kind, version, payload, crc, {chain} FROM journal WHERE seq >= ?1 ORDER BY seq LIMIT ?2"
    );
    connection
        .prepare_cached(&sql)
        .and_then(|mut statement| statement.query_map((from as i64, PAGE), record)?.collect())
        .map_err(read_fault("read the journal"))
}

fn has_column(connection: &Connection, table: &str, column: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
    connection
        .prepare_cached(sql)?
        .query_row((table, column), |row| row.get::<_, i64>(0))
        .map(|count| count > 0)
}

fn record(row: &rusqlite::Row<'_>) -> rusqlite::Result<Record> {
    Ok(Record {
        seq: row.get::<_, i64>(0)? as u64,
        epoch: row.get::<_, i64>(1)? as u64,
        at_ms: row.get(2)?,
        kind: row.get(3)?,
        version: row.get(4)?,
        payload: row.get(5)?,
        crc: row.get(6)?,
        chain: row.get(7)?,
    })
}
