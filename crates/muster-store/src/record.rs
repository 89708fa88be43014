//! One line of the journal: an event with its number, and a checksum over all of it.

use muster_core::{Event, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// An event with its place in history, as the engine knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number; the first is 1 and there are no gaps.
    pub seq: u64,
    /// Under which leadership it was decided.
    pub epoch: u64,
    /// When.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// An entry as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number.
    pub seq: u64,
    /// Under which leadership it was decided.
    pub epoch: u64,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// The kind of event.
    pub kind: String,
    /// Version of the payload's meaning; fields that were only added do not count.
    pub version: u32,
    /// The event as JSON.
    pub payload: String,
    /// CRC-32 over all of the above.
    pub crc: u32,
    /// CRC-32 over `crc` and the chain of the record before; `None` in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<u32>,
}

/// The version that this release writes, for every kind.
pub const VERSION: u32 = 1;

impl Record {
    /// Write an entry down.
    pub fn of(entry: &Entry) -> Record {
        let mut record = Record {
            seq: entry.seq,
            epoch: entry.epoch,
            at_ms: entry.at.0,
            kind: entry.event.kind().to_string(),
            version: VERSION,
            payload: muster_json::to_string(&entry.event),
            crc: 0,
            chain: None,
        };
        record.crc = record.checksum();
        record
    }

    /// Read an entry back, checked.
    pub fn entry(&self) -> Result<Entry, StoreError> {
        self.check()?;
        let event = upcast(self)?;
        if event.kind() != self.kind {
            let problem = format!("is filed as {} but holds {}", self.kind, event.kind());
            return Err(StoreError::unreadable(self.seq, problem));
        }
        Ok(Entry { seq: self.seq, epoch: self.epoch, at: Timestamp(self.at_ms), event })
    }

    /// Refuse a record that is not as it was written.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.crc == self.checksum() {
            true => Ok(()),
            false => Err(StoreError::unreadable(self.seq, "does not match its checksum")),
        }
    }

    /// What `crc` should be.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.seq.to_le_bytes());
        hasher.update(&self.epoch.to_le_bytes());
        hasher.update(&self.at_ms.to_le_bytes());
        hasher.update(&self.version.to_le_bytes());
        hasher.update(self.kind.as_bytes());
        // Kinds hold no zero byte, so kind and payload cannot trade letters.
        hasher.update(&[0]);
        hasher.update(self.payload.as_bytes());
        hasher.finalize()
    }
}

/// What must hold of a batch before it is written: it follows the last entry without a gap, under our epoch.
pub(crate) fn check_batch(batch: &[Entry], epoch: u64, last: u64) -> Result<(), StoreError> {
    for (entry, seq) in batch.iter().zip(last + 1..) {
        if entry.seq != seq {
            return Err(StoreError::broken(format!(
                "entry {} was to be written where {seq} belongs",
                entry.seq
            )));
        }
        if entry.epoch != epoch {
            let why = format!("entry {seq} was decided under epoch {}, we lead with {epoch}", entry.epoch);
            return Err(StoreError::Deposed { why });
        }
    }
    Ok(())
}

/// Read a payload of any version that was ever written. A kind whose meaning changes gets an arm of its own
/// here, which turns the old payload into the new event.
fn upcast(record: &Record) -> Result<Event, StoreError> {
    match (record.kind.as_str(), record.version) {
        (_, 1) => read_event(record),
        (kind, version) => Err(StoreError::Unreadable {
            seq: record.seq,
            problem: format!("is {kind} version {version}, which this release does not know"),
            advice: "start the release that wrote it, or a newer one".to_string(),
        }),
    }
}

fn read_event(record: &Record) -> Result<Event, StoreError> {
    muster_json::from_str(&record.payload).map_err(|error| {
        StoreError::unreadable(record.seq, format!("cannot be read as {}: {error}", record.kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forgotten(seq: u64) -> Record {
        let event = Event::Forgotten { before: Timestamp(5), trimmed_before: None };
        Record::of(&Entry { seq, epoch: 3, at: Timestamp(7), event })
    }

    #[test]
    fn a_record_reads_back_as_its_entry() {
        let entry = forgotten(9).entry().unwrap();
        assert_eq!((entry.seq, entry.epoch, entry.at), (9, 3, Timestamp(7)));
        assert_eq!(entry.event, Event::Forgotten { before: Timestamp(5), trimmed_before: None });
    }

    #[test]
    fn a_lifted_time_limit_stays_lifted() {
        use muster_core::command::JobChange;
        for time_limit_ms in [None, Some(None), Some(Some(60_000))] {
            let change = JobChange { time_limit_ms, ..JobChange::default() };
            let event = Event::JobChanged { job: muster_core::JobId::single(7), change, at: Timestamp(5) };
            let entry = Entry { seq: 9, epoch: 3, at: Timestamp(7), event };
            assert_eq!(Record::of(&entry).entry().unwrap(), entry);
        }
    }

    #[test]
    fn every_changed_field_is_noticed() {
        let spoil: [fn(&mut Record); 6] = [
            |record| record.seq += 1,
            |record| record.epoch += 1,
            |record| record.at_ms += 1,
            |record| record.kind.push('x'),
            |record| record.version += 1,
            |record| record.payload.push(' '),
        ];
        for change in spoil {
            let mut record = forgotten(9);
            change(&mut record);
            let said = record.entry().unwrap_err().to_string();
            assert!(said.contains("checksum") && said.contains(&record.seq.to_string()), "{said}");
        }
    }

    #[test]
    fn an_unknown_version_asks_for_a_newer_release() {
        let mut record = forgotten(9);
        record.version = 2;
        record.crc = record.checksum();
        let said = record.entry().unwrap_err().to_string();
        assert!(said.contains("version 2") && said.contains("newer"), "{said}");
    }

    #[test]
    fn a_record_filed_under_another_kind_is_refused() {
        let mut record = forgotten(9);
        record.kind = "JobWoken".to_string();
        record.crc = record.checksum();
        assert!(record.entry().unwrap_err().to_string().contains("filed as JobWoken"));
    }
}
