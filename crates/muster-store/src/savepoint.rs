//! What both databases share about savepoints: chunks with checksums, and which one is whole.

use crate::error::StoreError;
use crate::journal::Savepoint;

/// A chunk is one row and one transaction.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// How many whole savepoints are kept.
const KEPT: usize = 2;

/// The numbers of savepoints that may go: all but the newest whole ones, and torn ones that are older.
pub const OLD: &str = "SELECT seq FROM savepoints WHERE seq < \
    (SELECT min(seq) FROM (SELECT seq FROM savepoints WHERE complete ORDER BY seq DESC LIMIT 2) AS kept) ORDER BY seq";

/// One row of a savepoint.
pub struct Chunk<'a> {
    pub number: i64,
    pub crc: i64,
    pub bytes: &'a [u8],
}

/// A savepoint that says it is whole.
pub struct Whole {
    pub seq: i64,
    pub chunks: i64,
    pub bytes: i64,
}

/// Cut a state into rows.
pub fn chunks(bytes: &[u8]) -> Vec<Chunk<'_>> {
    let chunk = |(number, bytes)| Chunk { number, crc: i64::from(crc32fast::hash(bytes)), bytes };
    (0_i64..).zip(bytes.chunks(CHUNK_BYTES)).map(chunk).collect()
}

/// The first of these that can be read back whole. `read` gives the checksum and bytes of a chunk.
pub fn first_readable(
    wholes: &[Whole],
    mut read: impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Option<Savepoint>, StoreError> {
    for whole in wholes.iter().take(KEPT) {
        match put_together(whole, &mut read)? {
            Ok(bytes) => return Ok(Some(Savepoint { seq: whole.seq as u64, bytes })),
            Err(problem) => {
                tracing::warn!(seq = whole.seq, problem, "a savepoint is passed over");
            }
        }
    }
    Ok(None)
}

/// Those that cannot be read back, with what is wrong.
pub fn broken(
    wholes: &[Whole],
    mut read: impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Vec<(u64, String)>, StoreError> {
    let mut broken = Vec::new();
    for whole in wholes {
        if let Err(problem) = put_together(whole, &mut read)? {
            broken.push((whole.seq as u64, problem.to_string()));
        }
    }
    Ok(broken)
}

fn put_together(
    whole: &Whole,
    read: &mut impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Result<Vec<u8>, &'static str>, StoreError> {
    let mut all = Vec::with_capacity(whole.bytes as usize);
    for number in 0..whole.chunks {
        match read(whole.seq, number)? {
            None => return Ok(Err("a chunk is missing")),
            Some((crc, bytes)) if crc != i64::from(crc32fast::hash(&bytes)) => {
                return Ok(Err("a chunk does not match its checksum"));
            }
            Some((_, bytes)) => all.extend(bytes),
        }
    }
    Ok(if all.len() as i64 == whole.bytes { Ok(all) } else { Err("its length is wrong") })
}

/// A savepoint of events that are not in the journal would bring back what never happened.
pub fn ahead_of_journal(seq: u64) -> StoreError {
    StoreError::broken(format!(
        "a savepoint was to be taken after entry {seq}, which the journal does not hold"
    ))
}
