//! Checksum chain of the journal: each record depends on the previous one, so that a record that was rewritten with a
//! valid checksum of its own, or swapped with another record, is detected.

use crate::record::Record;

/// Chain checksum of the last record; input to the chain checksum of the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainChecksum(u32);

impl ChainChecksum {
    /// Predecessor of the first record.
    pub const START: ChainChecksum = ChainChecksum(0);

    /// Chain checksum of a stored record. A record of an older release has none; its own checksum is used instead.
    pub fn of_record(crc: u32, chain: Option<u32>) -> ChainChecksum {
        ChainChecksum(chain.unwrap_or(crc))
    }

    /// Chain checksum of the next record, whose own checksum is `crc`.
    pub fn next_checksum(self, crc: u32) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&crc.to_le_bytes());
        hasher.finalize()
    }
}

/// Check that a record is chained to the previous one; otherwise return the problem. Sequence numbers are not compared.
pub fn check_follows(previous: Option<&Record>, record: &Record) -> Result<(), String> {
    let previous_checksum =
        previous.map_or(ChainChecksum::START, |previous| ChainChecksum::of_record(previous.crc, previous.chain));
    match (record.chain, previous.and_then(|previous| previous.chain)) {
        (Some(chain), _) if chain == previous_checksum.next_checksum(record.crc) => Ok(()),
        (Some(_), _) => {
            let before = record.seq.saturating_sub(1);
            Err(format!("does not follow record {before}: one of the two was changed after it was written"))
        }
        (None, Some(_)) => Err("has no chain checksum although the record before it has one".to_string()),
        (None, None) => Ok(()),
    }
}
