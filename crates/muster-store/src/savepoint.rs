//! Savepoints, common to both databases: chunks with checksums, and the selection of a complete savepoint.

use crate::error::StoreError;
use crate::journal::Savepoint;

/// Size of a chunk, which is one row and one transaction.
pub const CHUNK_BYTES: usize = 1024 * 1024;

/// Also in [`SELECT_OBSOLETE_SAVEPOINTS`].
const SAVEPOINTS_KEPT: usize = 2;

/// Savepoints to delete: those older than the newest two complete ones, complete or torn.
pub const SELECT_OBSOLETE_SAVEPOINTS: &str = "SELECT seq FROM savepoints WHERE seq < \
    (SELECT min(seq) FROM (SELECT seq FROM savepoints WHERE complete ORDER BY seq DESC LIMIT 2) AS kept) ORDER BY seq";

/// One row of table `savepoint_chunks`.
pub struct Chunk<'a> {
    pub number: i64,
    pub crc: i64,
    pub bytes: &'a [u8],
}

/// A row of table `savepoints` that is marked as complete.
pub struct CompleteSavepoint {
    pub seq: i64,
    pub chunks: i64,
    pub bytes: i64,
}

pub fn split_into_chunks(bytes: &[u8]) -> Vec<Chunk<'_>> {
    let chunk = |(number, bytes)| Chunk { number, crc: i64::from(crc32fast::hash(bytes)), bytes };
    (0_i64..).zip(bytes.chunks(CHUNK_BYTES)).map(chunk).collect()
}

/// The first savepoint whose chunks are all readable. `read` returns checksum and bytes of a chunk.
pub fn first_readable(
    candidates: &[CompleteSavepoint],
    mut read: impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Option<Savepoint>, StoreError> {
    for candidate in candidates.iter().take(SAVEPOINTS_KEPT) {
        match assemble(candidate, &mut read)? {
            Ok(bytes) => return Ok(Some(Savepoint { seq: candidate.seq as u64, bytes })),
            Err(problem) => {
                tracing::warn!(seq = candidate.seq, problem, "skipping an unreadable savepoint");
            }
        }
    }
    Ok(None)
}

/// Savepoints that cannot be read back, each with its problem.
pub fn unreadable_savepoints(
    candidates: &[CompleteSavepoint],
    mut read: impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Vec<(u64, String)>, StoreError> {
    let mut unreadable = Vec::new();
    for candidate in candidates {
        if let Err(problem) = assemble(candidate, &mut read)? {
            unreadable.push((candidate.seq as u64, problem.to_string()));
        }
    }
    Ok(unreadable)
}

fn assemble(
    savepoint: &CompleteSavepoint,
    read: &mut impl FnMut(i64, i64) -> Result<Option<(i64, Vec<u8>)>, StoreError>,
) -> Result<Result<Vec<u8>, &'static str>, StoreError> {
    let mut all = Vec::with_capacity(savepoint.bytes as usize);
    for number in 0..savepoint.chunks {
        match read(savepoint.seq, number)? {
            None => return Ok(Err("a chunk is missing")),
            Some((crc, bytes)) if crc != i64::from(crc32fast::hash(&bytes)) => {
                return Ok(Err("a chunk does not match its checksum"));
            }
            Some((_, bytes)) => all.extend(bytes),
        }
    }
    Ok(if all.len() as i64 == savepoint.bytes { Ok(all) } else { Err("its length is wrong") })
}

/// Refused: a savepoint of events that are not in the journal would restore changes that never happened.
pub fn ahead_of_journal(seq: u64) -> StoreError {
    StoreError::invariant_violated(format!("savepoint at entry {seq} is ahead of the journal"))
}
