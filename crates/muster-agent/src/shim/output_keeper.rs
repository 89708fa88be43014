//! Keeps the output of tasks bounded, and notes when it was written.
//!
//! Tasks write their logs themselves, so that a shim that hangs never blocks a job. The shim looks at the sizes after the
//! kernel has reported a change (inotify), at growing intervals while a log grows, and never while no task writes. Where
//! a log exceeds its limit, the shim punches a hole at its head: offsets stay, and the disk space is free again.

use std::fs::File;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::io::Errno;

use crate::log_times::TimeIndex;
use crate::logs;

/// Pauses between two looks at logs that grow: short after much output, so that a flood stays near its limit.
const LOOK_PAUSE_MS_MIN: i64 = 50;
const LOOK_PAUSE_MS_MAX: i64 = 1_000;
/// Growth between two looks after which the next one comes soon, as a part of the limit.
const FAST_GROWTH_PARTS: u64 = 16;
const FAST_GROWTH_BYTES: u64 = 16 << 20;
/// Entries of the time index are at least this far apart.
const TIME_INDEX_INTERVAL_MS: i64 = 1_000;
/// A hole is made for at least this part of the limit, so that a flood does not make one for every block.
const HOLE_PARTS: u64 = 8;
const BLOCK_BYTES: u64 = 4_096;
const INOTIFY_BUFFER_BYTES: usize = 4_096;

#[derive(Debug)]
pub(super) struct OutputKeeper {
    logs: Vec<KeptLog>,
    limit_bytes: Option<u64>,
    /// `None` if the kernel gives no more instances to this user: then the logs are looked at every second.
    changes: Option<OwnedFd>,
    pause_ms: i64,
    /// `None` while nothing is written.
    look_at_boot_ms: Option<i64>,
}

/// One log. The file stays open: a job that runs as the user of the agent can remove the name and write on.
#[derive(Debug)]
struct KeptLog {
    path: PathBuf,
    file: File,
    times: Option<TimeIndex>,
    size: u64,
    /// All bytes before this offset were discarded.
    discarded: u64,
    can_discard: bool,
}

impl OutputKeeper {
    /// Keeps these logs. Nothing here is worth failing a job for: what does not work is left out.
    pub fn new(logs: Vec<(PathBuf, File)>, limit_bytes: Option<u64>) -> OutputKeeper {
        let changes = watch(logs.iter().map(|(path, _)| path.as_path()));
        let logs = logs.into_iter().map(|(path, file)| {
            let times = TimeIndex::create(&path).inspect_err(|error| eprintln!("no time index of a log: {error}")).ok();
            KeptLog { path, file, times, size: 0, discarded: 0, can_discard: true }
        });
        OutputKeeper {
            logs: logs.collect(),
            limit_bytes,
            changes,
            pause_ms: LOOK_PAUSE_MS_MIN,
            look_at_boot_ms: Some(i64::MIN),
        }
    }

    /// Readable when a log has changed; `None` while a look is due anyway, however often the tasks write until then.
    pub fn events(&self) -> Option<BorrowedFd<'_>> {
        self.changes.as_ref().filter(|_| self.look_at_boot_ms.is_none()).map(AsFd::as_fd)
    }

    /// When to look next, by the boot clock.
    pub fn next_due_ms(&self) -> i64 {
        self.look_at_boot_ms.unwrap_or(i64::MAX)
    }

    /// Looks at the logs if it is time to.
    pub fn look_if_due(&mut self, now_boot_ms: i64, now_wall_ms: i64) {
        if self.look_at_boot_ms.is_some_and(|due| now_boot_ms < due) {
            return;
        }
        // Before the sizes are read: what is written after that is a new event.
        self.drain_events();
        let grown = self.look(now_wall_ms, TIME_INDEX_INTERVAL_MS);
        if grown == 0 && self.changes.is_some() {
            self.note_sizes(now_wall_ms, 0);
            (self.pause_ms, self.look_at_boot_ms) = (LOOK_PAUSE_MS_MIN, None);
            return;
        }
        let fast =
            self.limit_bytes.map_or(FAST_GROWTH_BYTES, |limit| (limit / FAST_GROWTH_PARTS).min(FAST_GROWTH_BYTES));
        self.pause_ms = if grown > fast { LOOK_PAUSE_MS_MIN } else { (self.pause_ms * 2).min(LOOK_PAUSE_MS_MAX) };
        self.look_at_boot_ms = Some(now_boot_ms + self.pause_ms);
    }

    /// The last look, when no task writes any more.
    pub fn finish(&mut self, now_wall_ms: i64) {
        self.look(now_wall_ms, 0);
    }

    /// Notes the sizes and enforces the limit; returns the bytes written since the last look.
    fn look(&mut self, now_wall_ms: i64, index_interval_ms: i64) -> u64 {
        let mut grown = 0;
        for log in &mut self.logs {
            grown += log.measure();
            self.limit_bytes.into_iter().for_each(|limit| log.discard_beyond(limit));
        }
        self.note_sizes(now_wall_ms, index_interval_ms);
        grown
    }

    fn note_sizes(&mut self, now_wall_ms: i64, index_interval_ms: i64) {
        self.logs.iter_mut().for_each(|log| log.note_size(now_wall_ms, index_interval_ms));
    }

    fn drain_events(&self) {
        let Some(changes) = &self.changes else { return };
        let mut space = [MaybeUninit::uninit(); INOTIFY_BUFFER_BYTES];
        let mut events = inotify::Reader::new(changes, &mut space);
        while events.next().is_ok() {}
    }
}

impl KeptLog {
    /// Reads the size; returns by how much the log has grown.
    fn measure(&mut self) -> u64 {
        let size = self.file.metadata().map_or(self.size, |metadata| metadata.len());
        if size < self.discarded {
            self.discarded = 0; // The job has truncated it.
        }
        let grown = size.saturating_sub(self.size);
        self.size = size;
        grown
    }

    fn discard_beyond(&mut self, limit: u64) {
        if !self.can_discard || self.size - self.discarded <= limit {
            return;
        }
        let kept = limit - limit / HOLE_PARTS;
        let end = (self.size - kept) / BLOCK_BYTES * BLOCK_BYTES;
        match logs::punch_hole(&self.file, self.discarded, end - self.discarded) {
            Ok(()) => self.discarded = end,
            Err(Errno::INTR) => {}
            Err(error) => {
                eprintln!(
                    "the output `{}` grows beyond its limit: no hole can be punched: {error}",
                    self.path.display()
                );
                self.can_discard = false;
            }
        }
    }

    /// Errors are left alone: the index is of less worth than the output on a full disk.
    fn note_size(&mut self, now_wall_ms: i64, interval_ms: i64) {
        if let Some(times) = &mut self.times {
            let _ = times.note(now_wall_ms, self.size, interval_ms);
        }
    }
}

/// Watches the logs for changes of their content.
fn watch<'a>(paths: impl Iterator<Item = &'a Path>) -> Option<OwnedFd> {
    let changes = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK).ok()?;
    for path in paths {
        inotify::add_watch(&changes, path, WatchFlags::MODIFY).ok()?;
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use super::*;
    use crate::test_fixtures::TempDir;

    fn kept(dir: &TempDir, limit_bytes: Option<u64>) -> (OutputKeeper, File, PathBuf) {
        let path = dir.join("rank-0.out");
        let file = logs::open_to_append(&path).unwrap();
        let keeper = OutputKeeper::new(vec![(path.clone(), file.try_clone().unwrap())], limit_bytes);
        (keeper, file, path)
    }

    fn is_readable(keeper: &OutputKeeper) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let Some(events) = keeper.events() else { return false };
        let mut fds = [PollFd::from_borrowed_fd(events, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
    }

    #[test]
    fn a_flood_keeps_its_offsets_and_a_bounded_part_of_the_disk() {
        let dir = TempDir::new();
        let limit = 1 << 20;
        let (mut keeper, mut file, path) = kept(&dir, Some(limit));
        let mut now = 0;
        for _ in 0..64 {
            file.write_all(&[b'y'; 256 << 10]).unwrap();
            now += LOOK_PAUSE_MS_MAX;
            keeper.look_if_due(now, now);
            let used = path.metadata().unwrap().blocks() * 512;
            assert!(used <= limit + (64 << 10), "{used} bytes of disk");
        }
        assert_eq!(path.metadata().unwrap().len(), 16 << 20);
        let part = logs::read_part(&path, 100, 8).unwrap();
        assert!(part.offset >= (15 << 20) && part.bytes == [b'y'; 8], "{part:?}");
    }

    #[test]
    fn without_a_limit_nothing_is_discarded() {
        let dir = TempDir::new();
        let (mut keeper, mut file, path) = kept(&dir, None);
        file.write_all(&[b'y'; 256 << 10]).unwrap();
        keeper.look_if_due(0, 0);
        keeper.finish(0);
        assert_eq!(logs::read_part(&path, 0, 1).unwrap().offset, 0);
    }

    #[test]
    fn a_quiet_log_is_not_looked_at_and_its_last_size_is_noted() {
        let dir = TempDir::new();
        let (mut keeper, mut file, path) = kept(&dir, None);
        keeper.look_if_due(0, 1_000_000);
        assert_eq!((keeper.next_due_ms(), is_readable(&keeper)), (i64::MAX, false));
        file.write_all(b"one\n").unwrap();
        assert!(is_readable(&keeper));
        keeper.look_if_due(10_000, 1_010_000);
        file.write_all(b"two\n").unwrap();
        assert!(keeper.next_due_ms() > 10_000 && keeper.events().is_none(), "a task that writes on wakes nobody");
        keeper.look_if_due(10_100, 1_010_100);
        keeper.look_if_due(10_400, 1_010_400);
        assert_eq!((keeper.next_due_ms(), is_readable(&keeper)), (i64::MAX, false));
        // The file is newer than these times, so the index decides.
        let since = |ms| crate::log_times::offset_since(&path, ms).unwrap();
        assert_eq!([since(1_000_500), since(1_010_000), since(1_010_399), since(1_010_400)], [0, 4, 4, 8]);
    }
}
