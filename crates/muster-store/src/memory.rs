//! Adapter (Journal, Savepoints): a database in memory that outlives the servers that use it and fails when it is told
//! to, for the simulator. Its clock is whatever it is told the time is.
//!
//! What it must share with the others is what they promise: a batch is there as a whole or not at all, whoever does not
//! lead writes nothing, and records are read back from what was written, checksum and all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::journal::{Journal, Leadership, Savepoint, Savepoints, Visit};
use crate::record::{Entry, Record, check_batch};
use crate::term::{LeaderRow, Term};

/// How many savepoints are kept.
const KEPT: usize = 2;

/// A database. Clones are the same one.
#[derive(Clone, Default)]
pub struct Memory {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    now_ms: i64,
    records: Vec<Record>,
    /// How many of the records belong to batches that are whole; those behind them were cut off by a crash.
    committed: usize,
    leader: Option<Leader>,
    savepoints: BTreeMap<u64, Saved>,
    nonces: u64,
}

struct Leader {
    term: Term,
    holder: String,
    until_ms: i64,
}

struct Saved {
    bytes: Vec<u8>,
    /// Checksum of all that was to be written.
    crc: u32,
}

/// What goes wrong at the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// It cannot be reached, now and until told otherwise.
    Away,
    /// The answer is lost: what was asked is done, and nobody knows.
    Silent,
    /// It breaks down in the middle of a write: some of it is on disk, and must not count.
    Torn,
}

impl Memory {
    /// Tell it the time, in Unix milliseconds.
    pub fn set_time(&self, now_ms: i64) {
        self.disk().now_ms = now_ms;
    }

    /// A connection of one server.
    pub fn connect(&self) -> Connection {
        Connection { memory: self.clone(), fault: Arc::default(), term: None }
    }

    /// Every entry that is durable, in order.
    pub fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let disk = self.disk();
        disk.records[..disk.committed].iter().map(Record::entry).collect()
    }

    /// How many entries are durable.
    pub fn len(&self) -> u64 {
        self.disk().committed as u64
    }

    /// Whether nothing was ever written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One server's way to a database.
#[derive(Clone)]
pub struct Connection {
    memory: Memory,
    fault: Arc<Mutex<Fault>>,
    term: Option<Term>,
}

impl Connection {
    /// Let something go wrong at the next call of anyone who uses this connection.
    pub fn fail(&self, fault: Fault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// What goes wrong now. All but being away pass with the call that met them.
    fn fault(&self) -> Fault {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match *fault {
            Fault::Away => Fault::Away,
            passing => {
                *fault = Fault::None;
                passing
            }
        }
    }

    fn begin(&self, doing: &str) -> Result<Fault, StoreError> {
        match self.fault() {
            Fault::Away => Err(StoreError::unavailable(doing, "the simulated database is away")),
            fault => Ok(fault),
        }
    }
}

fn answer(fault: Fault) -> Result<(), StoreError> {
    match fault {
        Fault::None | Fault::Away => Ok(()),
        Fault::Silent | Fault::Torn => {
            Err(StoreError::OutcomeUnknown { source: "the simulated answer is lost".into() })
        }
    }
}

impl Disk {
    /// What a crash cut off is dropped before anything else is written.
    fn recover(&mut self) {
        self.records.truncate(self.committed);
    }

    fn check(&self, term: Term) -> Result<(), StoreError> {
        term.check(self.leader.as_ref().map(|leader| LeaderRow {
            epoch: leader.term.epoch as i64,
            nonce: leader.term.nonce as i64,
            holder: leader.holder.clone(),
            left_ms: leader.until_ms - self.now_ms,
        }))
    }
}

impl Journal for Connection {
    fn lead(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        self.term = None;
        let fault = self.begin("take the lead")?;
        let memory = self.memory.clone();
        let mut disk = memory.disk();
        disk.recover();
        let now_ms = disk.now_ms;
        if let Some(leader) = &disk.leader
            && leader.holder != holder
            && leader.until_ms > now_ms
        {
            let (holder, until_ms) = (leader.holder.clone(), leader.until_ms);
            return Ok(Leadership::Standby { holder, until_ms });
        }
        disk.nonces += 1;
        let epoch = disk.leader.as_ref().map_or(1, |leader| leader.term.epoch + 1);
        let term = Term { epoch, nonce: disk.nonces };
        disk.leader = Some(Leader { term, holder: holder.to_string(), until_ms: now_ms + lease_ms });
        answer(fault)?;
        self.term = Some(term);
        Ok(Leadership::Leading { epoch: term.epoch, nonce: term.nonce })
    }

    fn renew(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let fault = self.begin("extend the lease")?;
        let term = Term::held(self.term)?;
        let mut disk = self.memory.disk();
        disk.check(term)?;
        let until_ms = disk.now_ms + lease_ms;
        if let Some(leader) = &mut disk.leader {
            leader.until_ms = until_ms;
        }
        answer(fault)
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        let fault = self.begin("resign")?;
        let Some(term) = self.term.take() else { return Ok(()) };
        let mut disk = self.memory.disk();
        let now_ms = disk.now_ms;
        if let Some(leader) = disk.leader.as_mut().filter(|leader| leader.term == term) {
            leader.until_ms = now_ms;
        }
        answer(fault)
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let fault = self.begin("append to the journal")?;
        let term = Term::held(self.term)?;
        let mut disk = self.memory.disk();
        disk.check(term)?;
        disk.recover();
        check_batch(batch, term.epoch, disk.committed as u64)?;
        let written = if fault == Fault::Torn { batch.len() / 2 } else { batch.len() };
        disk.records.extend(batch[..written].iter().map(Record::of));
        if fault != Fault::Torn {
            disk.committed = disk.records.len();
        }
        answer(fault)
    }

    fn replay(&mut self, after: u64, visit: &mut Visit<'_>) -> Result<u64, StoreError> {
        self.begin("read the journal")?;
        let disk = self.memory.disk();
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(disk.committed);
        for record in &disk.records[from..disk.committed] {
            visit(record.entry()?)?;
        }
        Ok(disk.committed as u64)
    }
}

impl Savepoints for Connection {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let fault = self.begin("write a savepoint")?;
        let mut disk = self.memory.disk();
        if seq > disk.committed as u64 {
            return Err(crate::savepoint::ahead_of_journal(seq));
        }
        let written = if fault == Fault::Torn { bytes.len() / 2 } else { bytes.len() };
        disk.savepoints.insert(seq, Saved { bytes: bytes[..written].to_vec(), crc: crc32fast::hash(bytes) });
        while disk.savepoints.len() > KEPT {
            disk.savepoints.pop_first();
        }
        answer(fault)
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        self.begin("read a savepoint")?;
        let disk = self.memory.disk();
        let older = disk.savepoints.range(..before.unwrap_or(u64::MAX)).rev();
        let mut whole = older.filter(|(_, saved)| crc32fast::hash(&saved.bytes) == saved.crc);
        Ok(whole.next().map(|(seq, saved)| Savepoint { seq: *seq, bytes: saved.bytes.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use muster_core::{Event, Timestamp};

    use super::*;

    fn batch(from: u64, count: u64, epoch: u64) -> Vec<Entry> {
        let entry = |seq| Entry {
            seq,
            epoch,
            at: Timestamp(7),
            event: Event::Forgotten { before: Timestamp(seq as i64), trimmed_before: None },
        };
        (from..from + count).map(entry).collect()
    }

    #[test]
    fn a_batch_is_whole_or_not_there() {
        let memory = Memory::default();
        let mut journal = memory.connect();
        journal.lead("a", 100).unwrap();
        journal.append(&batch(1, 3, 1)).unwrap();
        journal.fail(Fault::Torn);
        assert!(matches!(journal.append(&batch(4, 4, 1)), Err(StoreError::OutcomeUnknown { .. })));
        assert_eq!(memory.len(), 3);
        journal.fail(Fault::Silent);
        assert!(matches!(journal.append(&batch(4, 2, 1)), Err(StoreError::OutcomeUnknown { .. })));
        assert_eq!(memory.len(), 5);
        let mut seen = Vec::new();
        let mut note = |entry: Entry| {
            seen.push(entry.seq);
            Ok(())
        };
        journal.replay(3, &mut note).unwrap();
        assert_eq!(seen, [4, 5]);
    }

    #[test]
    fn whoever_does_not_lead_writes_nothing() {
        let memory = Memory::default();
        let (mut one, mut other) = (memory.connect(), memory.connect());
        one.lead("one", 100).unwrap();
        assert!(matches!(other.lead("other", 100), Ok(Leadership::Standby { .. })));
        memory.set_time(100);
        assert!(matches!(one.append(&batch(1, 1, 1)), Err(StoreError::Deposed { .. })));
        assert!(matches!(other.lead("other", 100), Ok(Leadership::Leading { epoch: 2, .. })));
        other.append(&batch(1, 1, 2)).unwrap();
        assert!(matches!(one.append(&batch(2, 1, 1)), Err(StoreError::Deposed { .. })));
    }

    #[test]
    fn a_torn_savepoint_is_passed_over() {
        let memory = Memory::default();
        let mut store = memory.connect();
        store.lead("a", 100).unwrap();
        store.append(&batch(1, 2, 1)).unwrap();
        store.save(1, b"first").unwrap();
        store.fail(Fault::Torn);
        assert!(store.save(2, b"second").is_err());
        assert_eq!(store.newest(None).unwrap().map(|found| found.seq), Some(1));
        assert!(matches!(store.save(3, b"ahead"), Err(StoreError::Broken { .. })));
    }
}
