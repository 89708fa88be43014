//! Journal records: encoding of entries, their checksums, and upcasting of old payload versions.

use muster_core::{Event, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;

/// An event with its sequence number, epoch and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Sequence number, from 1 without gaps.
    pub seq: u64,
    /// Epoch of the leader that decided it.
    pub epoch: u64,
    pub at: Timestamp,
    pub event: Event,
}

/// An entry as stored in the table `journal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub seq: u64,
    pub epoch: u64,
    /// Unix milliseconds.
    pub at_ms: i64,
    /// [`Event::kind`] of the payload.
    pub kind: String,
    /// Version of the payload's meaning; an added field does not change it.
    pub version: u32,
    /// The event as JSON.
    pub payload: String,
    /// CRC-32 of all fields above.
    pub crc: u32,
    /// CRC-32 of `crc` and the chain checksum of the previous record; `None` in records of older releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<u32>,
}

/// Payload version that this release writes, for all kinds of events.
pub const PAYLOAD_VERSION: u32 = 1;

impl Record {
    /// Encode an entry.
    pub fn from_entry(entry: &Entry) -> Record {
        let mut record = Record {
            seq: entry.seq,
            epoch: entry.epoch,
            at_ms: entry.at.0,
            kind: entry.event.kind().to_string(),
            version: PAYLOAD_VERSION,
            payload: muster_json::to_string(&entry.event),
            crc: 0,
            chain: None,
        };
        record.crc = record.checksum();
        record
    }

    /// Verify the checksum and decode the entry.
    pub fn decode(&self) -> Result<Entry, StoreError> {
        self.verify_checksum()?;
        let event = decode_payload(self.seq, &self.kind, self.version, &self.payload)?;
        Ok(Entry { seq: self.seq, epoch: self.epoch, at: Timestamp(self.at_ms), event })
    }

    pub(crate) fn verify_checksum(&self) -> Result<(), StoreError> {
        match self.crc == self.checksum() {
            true => Ok(()),
            false => Err(StoreError::unreadable_record(self.seq, "does not match its checksum")),
        }
    }

    /// Expected value of `crc`.
    pub fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.seq.to_le_bytes());
        hasher.update(&self.epoch.to_le_bytes());
        hasher.update(&self.at_ms.to_le_bytes());
        hasher.update(&self.version.to_le_bytes());
        hasher.update(self.kind.as_bytes());
        // Separator: a kind has no zero byte, so no byte can move between kind and payload unnoticed.
        hasher.update(&[0]);
        hasher.update(self.payload.as_bytes());
        hasher.finalize()
    }
}

/// Check that a batch continues the journal after entry `last` without a gap, in the current epoch.
pub(crate) fn check_batch(batch: &[Entry], epoch: u64, last: u64) -> Result<(), StoreError> {
    for (entry, seq) in batch.iter().zip(last + 1..) {
        if entry.seq != seq {
            return Err(StoreError::invariant_violated(format!(
                "entry {} is out of sequence: the next entry is {seq}",
                entry.seq
            )));
        }
        if entry.epoch != epoch {
            let why = format!("entry {seq} carries epoch {}, the current leader epoch is {epoch}", entry.epoch);
            return Err(StoreError::NotLeader { why });
        }
    }
    Ok(())
}

/// Decode a payload of any version that a release has written. A kind whose meaning changes gets its own match arm,
/// which converts the old payload into the new event.
///
/// All readers of events call this function: the parser of all kinds of events is large, and compiled once.
pub(crate) fn decode_payload(seq: u64, kind: &str, version: u32, payload: &str) -> Result<Event, StoreError> {
    let event: Event = match (kind, version) {
        (_, 1) => muster_json::from_str(payload)
            .map_err(|error| StoreError::unreadable_record(seq, format!("cannot be decoded as {kind}: {error}")))?,
        (kind, version) => {
            return Err(StoreError::UnreadableRecord {
                seq,
                problem: format!("has kind {kind} in version {version}, which this release does not know"),
                advice: "start the release that wrote it, or a newer one".to_string(),
            });
        }
    };
    match event.kind() == kind {
        true => Ok(event),
        false => {
            let problem = format!("has kind {kind} but its payload is {}", event.kind());
            Err(StoreError::unreadable_record(seq, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_record(seq: u64) -> Record {
        let event = Event::Forgotten { before: Timestamp(5), trimmed_before: None };
        Record::from_entry(&Entry { seq, epoch: 3, at: Timestamp(7), event })
    }

    #[test]
    fn a_record_reads_back_as_its_entry() {
        let entry = sample_record(9).decode().unwrap();
        assert_eq!((entry.seq, entry.epoch, entry.at), (9, 3, Timestamp(7)));
        assert_eq!(entry.event, Event::Forgotten { before: Timestamp(5), trimmed_before: None });
    }

    #[test]
    fn a_removed_time_limit_survives_the_journal() {
        use muster_core::facts::command::JobChange;
        for time_limit_ms in [None, Some(None), Some(Some(60_000))] {
            let change = JobChange { time_limit_ms, ..JobChange::default() };
            let event = Event::JobChanged { job: muster_core::JobId::single(7), change, at: Timestamp(5) };
            let entry = Entry { seq: 9, epoch: 3, at: Timestamp(7), event };
            assert_eq!(Record::from_entry(&entry).decode().unwrap(), entry);
        }
    }

    #[test]
    fn a_change_of_any_field_fails_the_checksum() {
        let changes: [fn(&mut Record); 6] = [
            |record| record.seq += 1,
            |record| record.epoch += 1,
            |record| record.at_ms += 1,
            |record| record.kind.push('x'),
            |record| record.version += 1,
            |record| record.payload.push(' '),
        ];
        for change in changes {
            let mut record = sample_record(9);
            change(&mut record);
            let message = record.decode().unwrap_err().to_string();
            assert!(message.contains("checksum") && message.contains(&record.seq.to_string()), "{message}");
        }
    }

    #[test]
    fn an_unknown_version_is_refused_as_newer() {
        let mut record = sample_record(9);
        record.version = 2;
        record.crc = record.checksum();
        let message = record.decode().unwrap_err().to_string();
        assert!(message.contains("version 2") && message.contains("newer"), "{message}");
    }

    #[test]
    fn a_record_whose_kind_differs_from_its_payload_is_refused() {
        let mut record = sample_record(9);
        record.kind = "JobWoken".to_string();
        record.crc = record.checksum();
        assert!(record.decode().unwrap_err().to_string().contains("has kind JobWoken"));
    }
}
