//! Events of attempts, for the agent's thread to sleep on: records that appear in attempt directories (inotify), and
//! shims that end (pidfd).
//!
//! An event only says that an attempt is worth a look. Where the kernel refuses a watch (its limits are per user), the
//! attempt is still looked at from time to time.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;

use rustix::event::{Timespec, epoll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, ReadFlags, WatchFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::attempt_dir::AttemptDir;
use crate::attempt_key::AttemptKey;

/// Marks the events of inotify; a pidfd is marked by its pid.
const INOTIFY_MARK: u64 = 0;
const EVENTS_PER_WAIT_MAX: usize = 64;
const INOTIFY_BUFFER_BYTES: usize = 4_096;

#[derive(Debug)]
pub(super) struct AttemptEvents {
    epoll: OwnedFd,
    /// `None` if the user of the agent has no inotify instance left.
    inotify: Option<OwnedFd>,
    attempt_of_watch: BTreeMap<i32, AttemptKey>,
    watch_of_attempt: BTreeMap<AttemptKey, i32>,
    /// By pid. A pidfd is closed when its event is taken, and with it its registration.
    shims: BTreeMap<u64, (AttemptKey, OwnedFd)>,
}

impl AttemptEvents {
    pub fn new() -> io::Result<AttemptEvents> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK);
        let inotify =
            inotify.inspect_err(|error| tracing::warn!("attempts are noticed late: no inotify instance: {error}")).ok();
        if let Some(inotify) = &inotify {
            epoll::add(&epoll, inotify, epoll::EventData::new_u64(INOTIFY_MARK), epoll::EventFlags::IN)?;
        }
        let (attempt_of_watch, watch_of_attempt, shims) = Default::default();
        Ok(AttemptEvents { epoll, inotify, attempt_of_watch, watch_of_attempt, shims })
    }

    /// Watches the records of an attempt. A replaced directory gets a new watch.
    pub fn watch_records(&mut self, key: &AttemptKey, attempt_dir: &AttemptDir) {
        let Some(inotify) = &self.inotify else { return };
        // A record appears by a rename, when it is complete.
        let events = WatchFlags::MOVED_TO | WatchFlags::DELETE_SELF | WatchFlags::ONLYDIR;
        match inotify::add_watch(inotify, attempt_dir.path(), events) {
            Ok(watch) => {
                self.attempt_of_watch.insert(watch, key.clone());
                self.watch_of_attempt.insert(key.clone(), watch);
            }
            Err(error) => tracing::debug!(job = key.job(), "the attempt is noticed late: inotify: {error}"),
        }
    }

    pub fn unwatch_records(&mut self, key: &AttemptKey) {
        let Some((inotify, watch)) = self.inotify.as_ref().zip(self.watch_of_attempt.remove(key)) else { return };
        self.attempt_of_watch.remove(&watch);
        // Fails if the directory is gone, and the watch with it.
        let _ = inotify::remove_watch(inotify, watch);
    }

    /// Watches a process. True if it was not watched before.
    pub fn watch_shim(&mut self, key: &AttemptKey, pid: i32) -> bool {
        let mark = u64::from(pid.unsigned_abs());
        if self.shims.contains_key(&mark) {
            return false;
        }
        match self.add_pidfd(pid, mark) {
            Ok(pidfd) => {
                self.shims.insert(mark, (key.clone(), pidfd));
                true
            }
            // Ended meanwhile.
            Err(Errno::SRCH) => true,
            Err(error) => {
                tracing::debug!(job = key.job(), pid, "the end of the shim is noticed late: {error}");
                false
            }
        }
    }

    fn add_pidfd(&self, pid: i32, mark: u64) -> rustix::io::Result<OwnedFd> {
        let pidfd = pidfd_open(Pid::from_raw(pid).ok_or(Errno::SRCH)?, PidfdFlags::empty())?;
        epoll::add(&self.epoll, &pidfd, epoll::EventData::new_u64(mark), epoll::EventFlags::IN)?;
        Ok(pidfd)
    }

    /// The attempts with events since the last call.
    pub fn take(&mut self) -> Vec<AttemptKey> {
        let mut changed = BTreeSet::new();
        let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut space = [MaybeUninit::<epoll::Event>::uninit(); EVENTS_PER_WAIT_MAX];
            let marks: Vec<u64> = match epoll::wait(&self.epoll, &mut space, Some(&no_wait)) {
                Ok((events, _)) => events.iter().map(|event| event.data.u64()).collect(),
                Err(Errno::INTR) => continue,
                Err(_) => Vec::new(),
            };
            if marks.is_empty() {
                return changed.into_iter().collect();
            }
            for mark in marks {
                match mark {
                    INOTIFY_MARK => self.take_record_events(&mut changed),
                    pid => changed.extend(self.shims.remove(&pid).map(|(key, _)| key)),
                }
            }
        }
    }

    fn take_record_events(&mut self, changed: &mut BTreeSet<AttemptKey>) {
        let Some(inotify) = &self.inotify else { return };
        let mut space = [MaybeUninit::uninit(); INOTIFY_BUFFER_BYTES];
        let mut events = inotify::Reader::new(inotify, &mut space);
        while let Ok(event) = events.next() {
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                changed.extend(self.watch_of_attempt.keys().cloned());
            }
            let is_news = event.file_name().is_none_or(|name| AttemptDir::is_news(name.to_bytes()));
            changed.extend(self.attempt_of_watch.get(&event.wd()).filter(|_| is_news).cloned());
        }
    }
}

impl AsFd for AttemptEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{ExitRecord, StopRecord};
    use crate::test_fixtures::TempDir;
    use muster_protocol::agent::Exit;

    fn key() -> AttemptKey {
        AttemptKey::new("job-1", 1).unwrap()
    }

    fn write_exit(attempt_dir: &AttemptDir) {
        let (placed_at_ms, ended_at_ms, prolog_failed) = (1, None, false);
        let exit = ExitRecord { exit: Exit::Code(0), stopped: false, placed_at_ms, ended_at_ms, prolog_failed };
        attempt_dir.write_exit_record(&exit).unwrap();
    }

    #[test]
    fn a_record_of_the_shim_is_an_event_and_one_of_the_agent_is_not() {
        let dir = TempDir::new();
        let attempt_dir = AttemptDir::at_path(dir.to_path_buf());
        let mut events = AttemptEvents::new().unwrap();
        events.watch_records(&key(), &attempt_dir);
        attempt_dir.write_stop_record(&StopRecord { grace_ms: 1, why: String::new() }).unwrap();
        assert_eq!(events.take(), []);
        write_exit(&attempt_dir);
        assert_eq!(events.take(), [key()]);
        assert_eq!(events.take(), [], "each event is taken once");
        events.unwatch_records(&key());
        write_exit(&attempt_dir);
        assert_eq!(events.take(), []);
    }

    #[test]
    fn a_deleted_directory_is_an_event_and_its_successor_can_be_watched() {
        let dir = TempDir::new();
        let attempt_dir = AttemptDir::at_path(dir.join("1"));
        let mut events = AttemptEvents::new().unwrap();
        std::fs::create_dir(attempt_dir.path()).unwrap();
        events.watch_records(&key(), &attempt_dir);
        std::fs::remove_dir(attempt_dir.path()).unwrap();
        assert_eq!(events.take(), [key()]);
        std::fs::create_dir(attempt_dir.path()).unwrap();
        events.watch_records(&key(), &attempt_dir);
        write_exit(&attempt_dir);
        assert_eq!(events.take(), [key()]);
    }

    #[test]
    fn the_end_of_a_shim_is_an_event_even_if_it_is_not_reaped() {
        let mut child = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let mut events = AttemptEvents::new().unwrap();
        assert!(events.watch_shim(&key(), pid));
        assert!(!events.watch_shim(&key(), pid), "watched already");
        assert_eq!(events.take(), []);
        drop(child.stdin.take());
        let mut fds = [rustix::event::PollFd::new(&events, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 30, tv_nsec: 0 })).unwrap();
        assert_eq!(events.take(), [key()]);
        child.wait().unwrap();
        assert!(events.watch_shim(&key(), pid), "gone already: the caller looks again");
    }
}
