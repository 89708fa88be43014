//! Adapter (Journal, Savepoints): in-memory database for the simulator, with injected faults and a simulated clock. It
//! outlives the simulated servers that use it.
//!
//! It keeps the guarantees of the other adapters: a batch is stored whole or not at all, only the leader writes, and
//! records are decoded from their stored form with their checksums.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::StoreError;
use crate::journal::{EntryVisitor, Journal, Leadership, Savepoint, Savepoints};
use crate::leader_epoch::{LeaderEpoch, LeaderRow};
use crate::record::{Entry, Record, check_batch};

const SAVEPOINTS_KEPT: usize = 2;

/// A database. Clones share one disk.
#[derive(Clone, Default)]
pub struct MemoryDatabase {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    now_ms: i64,
    records: Vec<Record>,
    /// Number of records in complete batches; the records after them are remains of a torn write.
    committed_records: usize,
    leader: Option<LeaderRecord>,
    savepoints: BTreeMap<u64, StoredSavepoint>,
    nonces_drawn: u64,
}

struct LeaderRecord {
    leader_epoch: LeaderEpoch,
    holder: String,
    until_ms: i64,
}

struct StoredSavepoint {
    bytes: Vec<u8>,
    /// Checksum of the complete savepoint, also if only a part of it was written.
    crc: u32,
}

/// Fault at the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SimulatedFault {
    #[default]
    None,
    /// The database is unreachable until another fault is set.
    Unreachable,
    /// The call is executed and its reply is lost.
    ReplyLost,
    /// The database crashes in the middle of a write: a part of it is on disk and must be ignored.
    TornWrite,
}

impl MemoryDatabase {
    /// Set the simulated clock, in Unix milliseconds.
    pub fn set_clock_ms(&self, now_ms: i64) {
        self.disk().now_ms = now_ms;
    }

    pub fn connect(&self) -> MemoryConnection {
        MemoryConnection { memory: self.clone(), fault: Arc::default(), leader_epoch: None }
    }

    /// All durable entries, in order.
    pub fn entries(&self) -> Result<Vec<Entry>, StoreError> {
        let disk = self.disk();
        disk.records[..disk.committed_records].iter().map(Record::decode).collect()
    }

    /// Number of durable entries.
    pub fn len(&self) -> u64 {
        self.disk().committed_records as u64
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connection of one server to the database.
#[derive(Clone)]
pub struct MemoryConnection {
    memory: MemoryDatabase,
    fault: Arc<Mutex<SimulatedFault>>,
    leader_epoch: Option<LeaderEpoch>,
}

impl MemoryConnection {
    /// Set the fault of the next call over this connection or a clone of it.
    pub fn inject_fault(&self, fault: SimulatedFault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = fault;
    }

    /// The fault of this call. Every fault but `Unreachable` is cleared by it.
    fn take_fault(&self) -> SimulatedFault {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match *fault {
            SimulatedFault::Unreachable => SimulatedFault::Unreachable,
            transient => {
                *fault = SimulatedFault::None;
                transient
            }
        }
    }

    fn begin_call(&self, operation: &str) -> Result<SimulatedFault, StoreError> {
        match self.take_fault() {
            SimulatedFault::Unreachable => {
                Err(StoreError::unavailable(operation, "the simulated database is unreachable"))
            }
            fault => Ok(fault),
        }
    }
}

fn reply_outcome(fault: SimulatedFault) -> Result<(), StoreError> {
    match fault {
        SimulatedFault::None | SimulatedFault::Unreachable => Ok(()),
        SimulatedFault::ReplyLost | SimulatedFault::TornWrite => {
            Err(StoreError::OutcomeUnknown { source: "the simulated reply is lost".into() })
        }
    }
}

impl Disk {
    /// Drop the remains of a torn write. Called before every write.
    fn discard_uncommitted(&mut self) {
        self.records.truncate(self.committed_records);
    }

    fn check_leader(&self, leader_epoch: LeaderEpoch) -> Result<(), StoreError> {
        leader_epoch.check(self.leader_row())
    }

    fn leader_row(&self) -> Option<LeaderRow> {
        self.leader.as_ref().map(|leader| LeaderRow {
            epoch: leader.leader_epoch.epoch as i64,
            nonce: leader.leader_epoch.nonce as i64,
            holder: leader.holder.clone(),
            lease_left_ms: leader.until_ms - self.now_ms,
        })
    }

    fn extend_lease(&mut self, lease_ms: i64) {
        let until_ms = self.now_ms + lease_ms;
        self.leader.iter_mut().for_each(|leader| leader.until_ms = until_ms);
    }
}

impl Journal for MemoryConnection {
    fn acquire_leadership(&mut self, holder: &str, lease_ms: i64) -> Result<Leadership, StoreError> {
        self.leader_epoch = None;
        let fault = self.begin_call("acquire leadership")?;
        let memory = self.memory.clone();
        let mut disk = memory.disk();
        disk.discard_uncommitted();
        let now_ms = disk.now_ms;
        if let Some(leader) = &disk.leader
            && leader.holder != holder
            && leader.until_ms > now_ms
        {
            let (holder, until_ms) = (leader.holder.clone(), leader.until_ms);
            return Ok(Leadership::Standby { holder, until_ms });
        }
        disk.nonces_drawn += 1;
        let epoch = disk.leader.as_ref().map_or(1, |leader| leader.leader_epoch.epoch + 1);
        let leader_epoch = LeaderEpoch { epoch, nonce: disk.nonces_drawn };
        disk.leader = Some(LeaderRecord { leader_epoch, holder: holder.to_string(), until_ms: now_ms + lease_ms });
        reply_outcome(fault)?;
        self.leader_epoch = Some(leader_epoch);
        Ok(Leadership::Leading { epoch: leader_epoch.epoch, nonce: leader_epoch.nonce })
    }

    fn renew_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let fault = self.begin_call("renew the lease")?;
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        let mut disk = self.memory.disk();
        disk.check_leader(leader_epoch)?;
        disk.extend_lease(lease_ms);
        reply_outcome(fault)
    }

    fn resume_lease(&mut self, lease_ms: i64) -> Result<(), StoreError> {
        let fault = self.begin_call("resume the lease")?;
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        let mut disk = self.memory.disk();
        leader_epoch.check_not_replaced(disk.leader_row())?;
        disk.extend_lease(lease_ms);
        reply_outcome(fault)
    }

    fn resign(&mut self) -> Result<(), StoreError> {
        let fault = self.begin_call("resign")?;
        let Some(leader_epoch) = self.leader_epoch.take() else { return Ok(()) };
        let mut disk = self.memory.disk();
        let now_ms = disk.now_ms;
        if let Some(leader) = disk.leader.as_mut().filter(|leader| leader.leader_epoch == leader_epoch) {
            leader.until_ms = now_ms;
        }
        reply_outcome(fault)
    }

    fn append(&mut self, batch: &[Entry]) -> Result<(), StoreError> {
        let fault = self.begin_call("append to the journal")?;
        let leader_epoch = LeaderEpoch::require(self.leader_epoch)?;
        let mut disk = self.memory.disk();
        disk.check_leader(leader_epoch)?;
        disk.discard_uncommitted();
        check_batch(batch, leader_epoch.epoch, disk.committed_records as u64)?;
        let written = if fault == SimulatedFault::TornWrite { batch.len() / 2 } else { batch.len() };
        disk.records.extend(batch[..written].iter().map(Record::from_entry));
        if fault != SimulatedFault::TornWrite {
            disk.committed_records = disk.records.len();
        }
        reply_outcome(fault)
    }

    fn replay(&mut self, after: u64, visit: &mut EntryVisitor<'_>) -> Result<u64, StoreError> {
        self.begin_call("read the journal")?;
        let disk = self.memory.disk();
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(disk.committed_records);
        for record in &disk.records[from..disk.committed_records] {
            visit(record.decode()?)?;
        }
        Ok(disk.committed_records as u64)
    }
}

impl Savepoints for MemoryConnection {
    fn save(&self, seq: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let fault = self.begin_call("write a savepoint")?;
        let mut disk = self.memory.disk();
        if seq > disk.committed_records as u64 {
            return Err(crate::savepoint::ahead_of_journal(seq));
        }
        let written = if fault == SimulatedFault::TornWrite { bytes.len() / 2 } else { bytes.len() };
        disk.savepoints.insert(seq, StoredSavepoint { bytes: bytes[..written].to_vec(), crc: crc32fast::hash(bytes) });
        while disk.savepoints.len() > SAVEPOINTS_KEPT {
            disk.savepoints.pop_first();
        }
        reply_outcome(fault)
    }

    fn newest(&self, before: Option<u64>) -> Result<Option<Savepoint>, StoreError> {
        self.begin_call("read a savepoint")?;
        let disk = self.memory.disk();
        let older = disk.savepoints.range(..before.unwrap_or(u64::MAX)).rev();
        let mut complete = older.filter(|(_, saved)| crc32fast::hash(&saved.bytes) == saved.crc);
        Ok(complete.next().map(|(seq, saved)| Savepoint { seq: *seq, bytes: saved.bytes.clone() }))
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
    fn a_failed_append_stores_the_whole_batch_or_none_of_it() {
        let memory = MemoryDatabase::default();
        let mut journal = memory.connect();
        journal.acquire_leadership("a", 100).unwrap();
        journal.append(&batch(1, 3, 1)).unwrap();
        journal.inject_fault(SimulatedFault::TornWrite);
        assert!(matches!(journal.append(&batch(4, 4, 1)), Err(StoreError::OutcomeUnknown { .. })));
        assert_eq!(memory.len(), 3);
        journal.inject_fault(SimulatedFault::ReplyLost);
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
    fn a_server_without_the_lease_cannot_append() {
        let memory = MemoryDatabase::default();
        let (mut one, mut other) = (memory.connect(), memory.connect());
        one.acquire_leadership("one", 100).unwrap();
        assert!(matches!(other.acquire_leadership("other", 100), Ok(Leadership::Standby { .. })));
        memory.set_clock_ms(100);
        assert!(matches!(one.append(&batch(1, 1, 1)), Err(StoreError::NotLeader { .. })));
        assert!(matches!(other.acquire_leadership("other", 100), Ok(Leadership::Leading { epoch: 2, .. })));
        other.append(&batch(1, 1, 2)).unwrap();
        assert!(matches!(one.append(&batch(2, 1, 1)), Err(StoreError::NotLeader { .. })));
    }

    #[test]
    fn a_torn_savepoint_is_skipped() {
        let memory = MemoryDatabase::default();
        let mut store = memory.connect();
        store.acquire_leadership("a", 100).unwrap();
        store.append(&batch(1, 2, 1)).unwrap();
        store.save(1, b"first").unwrap();
        store.inject_fault(SimulatedFault::TornWrite);
        assert!(store.save(2, b"second").is_err());
        assert_eq!(store.newest(None).unwrap().map(|found| found.seq), Some(1));
        assert!(matches!(store.save(3, b"ahead"), Err(StoreError::InvariantViolated { .. })));
    }
}
