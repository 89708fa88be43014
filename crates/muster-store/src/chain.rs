//! Each record of the journal is chained to the one before it, so that a record that was rewritten with a right
//! checksum, or that changed places with another, is noticed all the same.

use crate::record::Record;

/// What the next record is chained to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link(u32);

impl Link {
    /// In front of the first record.
    pub const START: Link = Link(0);

    /// The end of a chain as it was read. A record of an older release has no chain; its checksum takes the place.
    pub fn of(crc: u32, chain: Option<u32>) -> Link {
        Link(chain.unwrap_or(crc))
    }

    /// The chain value of a record with this checksum that follows.
    pub fn next(self, crc: u32) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.0.to_le_bytes());
        hasher.update(&crc.to_le_bytes());
        hasher.finalize()
    }
}

/// Whether a record follows the one before it, else what is wrong. Numbers are not looked at.
pub fn follows(previous: Option<&Record>, record: &Record) -> Result<(), String> {
    let link = previous.map_or(Link::START, |previous| Link::of(previous.crc, previous.chain));
    match (record.chain, previous.and_then(|previous| previous.chain)) {
        (Some(chain), _) if chain == link.next(record.crc) => Ok(()),
        (Some(_), _) => {
            let before = record.seq.saturating_sub(1);
            Err(format!("does not follow record {before}: one of the two was changed after it was written"))
        }
        (None, Some(_)) => Err("has lost its link to the record before it".to_string()),
        (None, None) => Ok(()),
    }
}
