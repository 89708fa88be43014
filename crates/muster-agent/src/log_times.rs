//! When the output of a task was written: a sparse index beside each log, for `muster logs --since`.
//!
//! Tasks write their output themselves, so nobody sees the time of a line. The shim notes the size of a growing log about
//! once a second (`shim/output_keeper.rs`). An entry of the index says that all bytes before an offset were written before
//! a time of the node's wall clock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use rustix::fs::OFlags;

/// Bytes of an entry: the time and the offset, little-endian.
const ENTRY_BYTES: usize = 16;
/// Entries before every second one is dropped: an index has at most 1 MiB, however long the job runs.
const ENTRIES_MAX: usize = 65_536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TimeEntry {
    at_ms: i64,
    /// The size of the log at that time.
    size: u64,
}

impl TimeEntry {
    fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.at_ms.to_le_bytes());
        bytes[8..].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<TimeEntry> {
        let (at_ms, size) = bytes.split_first_chunk::<8>()?;
        Some(TimeEntry { at_ms: i64::from_le_bytes(*at_ms), size: u64::from_le_bytes(size.try_into().ok()?) })
    }
}

/// The path of the index of a log.
fn index_path(log: &Path) -> PathBuf {
    let mut path = log.as_os_str().to_os_string();
    path.push(".times");
    PathBuf::from(path)
}

/// Reads the entries. What a full disk cut off is no entry.
fn read_entries(path: &Path) -> io::Result<Vec<TimeEntry>> {
    let mut options = OpenOptions::new();
    let mut file = options.read(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&mut file, (ENTRIES_MAX * ENTRY_BYTES) as u64), &mut bytes)?;
    Ok(bytes.chunks_exact(ENTRY_BYTES).filter_map(TimeEntry::from_bytes).collect())
}

/// The offset of a log from which on all output since `since_ms` follows. At most the output of some two seconds before it
/// follows, too; without an index, all of it, unless the log has not changed since.
pub fn offset_since(log: &Path, since_ms: i64) -> io::Result<u64> {
    let metadata = match log.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        found => found?,
    };
    let changed_at = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    if i64::try_from(changed_at.as_millis()).unwrap_or(i64::MAX) < since_ms {
        return Ok(metadata.len());
    }
    let entries = read_entries(&index_path(log)).unwrap_or_default();
    // In the order of writing, also if the wall clock was set back: output is shown twice rather than left out.
    let later = entries.iter().position(|entry| entry.at_ms > since_ms).unwrap_or(entries.len());
    Ok(later.checked_sub(1).map_or(0, |last| entries[last].size.min(metadata.len())))
}

/// Writes the index of one log.
#[derive(Debug)]
pub(crate) struct TimeIndex {
    file: File,
    count: usize,
    last: Option<TimeEntry>,
}

impl TimeIndex {
    pub fn create(log: &Path) -> io::Result<TimeIndex> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).mode(0o600).open(index_path(log))?;
        Ok(TimeIndex { file, count: 0, last: None })
    }

    /// Notes the size of the log, unless the last note is younger than `interval_ms` and has another size, or has this
    /// size. After a log has shrunk, the index begins again.
    pub fn note(&mut self, at_ms: i64, size: u64, interval_ms: i64) -> io::Result<()> {
        match self.last {
            Some(last) if size == last.size => return Ok(()),
            Some(last) if size < last.size => (self.count, self.last) = (0, None),
            Some(last) if (last.at_ms..last.at_ms + interval_ms).contains(&at_ms) => return Ok(()),
            _ => {}
        }
        if self.count >= ENTRIES_MAX {
            self.drop_every_second()?;
        }
        let entry = TimeEntry { at_ms, size };
        self.write_at(self.count, entry)?;
        self.file.set_len(((self.count + 1) * ENTRY_BYTES) as u64)?;
        (self.count, self.last) = (self.count + 1, Some(entry));
        Ok(())
    }

    fn drop_every_second(&mut self) -> io::Result<()> {
        let mut bytes = [0; ENTRY_BYTES];
        let kept = self.count / 2;
        for index in 0..kept {
            self.file.read_exact_at(&mut bytes, ((2 * index + 1) * ENTRY_BYTES) as u64)?;
            self.file.write_all_at(&bytes, (index * ENTRY_BYTES) as u64)?;
        }
        self.count = kept;
        Ok(())
    }

    /// At its place and not at the end: a full disk may have left a part of an entry.
    fn write_at(&self, index: usize, entry: TimeEntry) -> io::Result<()> {
        self.file.write_all_at(&entry.to_bytes(), (index * ENTRY_BYTES) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    const SECOND: i64 = 1_000;

    fn log_of(dir: &TempDir, bytes: usize) -> PathBuf {
        let log = dir.join("rank-0.out");
        std::fs::write(&log, vec![b'x'; bytes]).unwrap();
        log
    }

    #[test]
    fn output_since_a_time_starts_at_the_last_entry_before_it() {
        let dir = TempDir::new();
        let log = log_of(&dir, 400);
        let mut index = TimeIndex::create(&log).unwrap();
        for (at_ms, size) in [(10_000, 100), (10_400, 150), (11_000, 200), (90_000, 400)] {
            index.note(at_ms, size, SECOND).unwrap();
        }
        let offset = |since_ms| offset_since(&log, since_ms).unwrap();
        assert_eq!([9_999, 10_000, 10_999, 11_000, 89_999, 90_000].map(offset), [0, 100, 100, 200, 200, 400]);
        assert_eq!(offset(i64::MAX), 400, "not changed since");
        std::fs::remove_file(index_path(&log)).unwrap();
        assert_eq!(offset(10_999), 0, "without an index everything is shown");
        assert_eq!(offset_since(&dir.join("none"), 5).unwrap(), 0);
    }

    #[test]
    fn a_log_that_shrinks_begins_a_new_index_and_a_torn_entry_is_overwritten() {
        let dir = TempDir::new();
        let log = log_of(&dir, 20);
        let mut index = TimeIndex::create(&log).unwrap();
        index.note(1_000, 500, SECOND).unwrap();
        index.file.write_all_at(b"torn", 16).unwrap();
        assert_eq!(read_entries(&index_path(&log)).unwrap().len(), 1);
        index.note(2_000, 600, SECOND).unwrap();
        assert_eq!(read_entries(&index_path(&log)).unwrap()[1], TimeEntry { at_ms: 2_000, size: 600 });
        index.note(2_100, 20, SECOND).unwrap();
        assert_eq!(read_entries(&index_path(&log)).unwrap(), [TimeEntry { at_ms: 2_100, size: 20 }]);
    }

    #[test]
    fn a_long_index_is_thinned() {
        let dir = TempDir::new();
        let log = log_of(&dir, 10);
        let mut index = TimeIndex::create(&log).unwrap();
        for second in 0..=ENTRIES_MAX as i64 {
            index.note(second * SECOND, 10 + second.unsigned_abs(), SECOND).unwrap();
        }
        let entries = read_entries(&index_path(&log)).unwrap();
        assert_eq!(entries.len(), ENTRIES_MAX / 2 + 1);
        assert!(entries.is_sorted_by(|one, two| one.at_ms < two.at_ms && one.size < two.size));
        assert_eq!(entries.last().unwrap().size, 10 + ENTRIES_MAX as u64);
    }
}
