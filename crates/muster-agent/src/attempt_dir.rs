//! The attempt directory: the records of one attempt as files.
//!
//! `intent.json` is the launch intent, `pid.json` the launch lock, `stop.json` the stop record and `exit.json` the
//! exit record. The directory also contains the logs of the tasks, the script, the log of the shim, and `work`, the
//! default working directory of the job.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::logs;
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord, StopRecord};

const LAUNCH_INTENT_FILE: &str = "intent.json";
const LAUNCH_LOCK_FILE: &str = "pid.json";
const STOP_RECORD_FILE: &str = "stop.json";
const EXIT_RECORD_FILE: &str = "exit.json";
const SHIM_LOG_FILE: &str = "shim.log";
/// Removed when an attempt is over and reported. The launch intent is removed last, because an interrupted clean-up
/// is found again by it. The exit record stays with the logs, so that the attempt is never launched a second time.
const FILES_REMOVED_BY_CLEAN_UP: [&str; 5] =
    ["script", STOP_RECORD_FILE, LAUNCH_LOCK_FILE, SHIM_LOG_FILE, LAUNCH_INTENT_FILE];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttemptDir {
    path: PathBuf,
}

impl AttemptDir {
    pub fn for_attempt(data_dir: &Path, job: &str, attempt: u32) -> Result<AttemptDir, AgentError> {
        Ok(AttemptDir { path: logs::attempt_dir(data_dir, job, attempt)? })
    }

    pub fn at_path(path: PathBuf) -> AttemptDir {
        AttemptDir { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The log of the shim itself.
    pub fn shim_log_path(&self) -> PathBuf {
        self.file(SHIM_LOG_FILE)
    }

    pub fn launch_intent(&self) -> Result<Option<LaunchIntent>, AgentError> {
        self.read_record(LAUNCH_INTENT_FILE)
    }

    /// Creates the directory and writes the launch intent, which then survives a power cut.
    pub fn write_launch_intent(&self, intent: &LaunchIntent) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        for dir in self.path.ancestors().skip(1).take(2) {
            sync_dir(dir).map_err(|source| AgentError::Write { path: dir.to_path_buf(), source })?;
        }
        self.write_record(LAUNCH_INTENT_FILE, intent)
    }

    pub fn launch_lock(&self) -> Result<Option<LaunchLock>, AgentError> {
        self.read_record(LAUNCH_LOCK_FILE)
    }

    /// Takes the launch lock; false if it is already taken. Creating a hard link is atomic and fails if the name
    /// exists.
    pub fn try_take_launch_lock(&self, lock: &LaunchLock) -> Result<bool, AgentError> {
        let temporary = self.write_temporary(LAUNCH_LOCK_FILE, lock)?;
        let linked = fs::hard_link(&temporary, self.file(LAUNCH_LOCK_FILE));
        fs::remove_file(&temporary).map_err(|source| self.write_error(LAUNCH_LOCK_FILE, source))?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => {
                linked
                    .and_then(|()| sync_dir(&self.path))
                    .map_err(|source| self.write_error(LAUNCH_LOCK_FILE, source))?;
                Ok(true)
            }
        }
    }

    /// Rewrites a launch lock that the caller holds.
    pub fn update_launch_lock(&self, shim: &ShimRecord) -> Result<(), AgentError> {
        self.write_record(LAUNCH_LOCK_FILE, &LaunchLock::Shim(shim.clone()))
    }

    pub fn stop_record(&self) -> Result<Option<StopRecord>, AgentError> {
        self.read_record(STOP_RECORD_FILE)
    }

    /// Creates the directory if it was deleted under the attempt: the shim still looks for the record there.
    pub fn write_stop_record(&self, stop: &StopRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        self.write_record(STOP_RECORD_FILE, stop)
    }

    pub fn exit_record(&self) -> Result<Option<ExitRecord>, AgentError> {
        self.read_record(EXIT_RECORD_FILE)
    }

    pub fn write_exit_record(&self, exit: &ExitRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        self.write_record(EXIT_RECORD_FILE, exit)
    }

    /// Removes the records that an ended attempt no longer needs. Logs, the exit record and the job's own files stay.
    pub fn clean_up(&self) -> Result<(), AgentError> {
        for name in FILES_REMOVED_BY_CLEAN_UP {
            match fs::remove_file(self.file(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|source| self.write_error(name, source))?,
            }
        }
        Ok(())
    }

    /// Renames the directory, with its logs, to make room for another attempt of the same number.
    pub fn archive(&self, placed_at_ms: i64) -> Result<(), AgentError> {
        let archive_path = self.path.with_extension(format!("placed-{placed_at_ms}"));
        fs::rename(&self.path, &archive_path).map_err(|source| AgentError::Write { path: archive_path, source })
    }

    fn read_record<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, AgentError> {
        let path = self.file(name);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AgentError::Read { path, source }),
            Ok(bytes) => bytes,
        };
        muster_json::from_slice(&bytes).map(Some).map_err(|source| AgentError::CorruptRecord { path, source })
    }

    /// Writes a temporary file, flushes it and renames it, so that a reader sees either the old record or the new
    /// one.
    fn write_record<T: Serialize>(&self, name: &str, record: &T) -> Result<(), AgentError> {
        let temporary = self.write_temporary(name, record)?;
        let placed = fs::rename(&temporary, self.file(name)).and_then(|()| sync_dir(&self.path));
        placed.map_err(|source| self.write_error(name, source))
    }

    /// The file name contains the pid, so that agent and shim never write the same temporary file.
    fn write_temporary<T: Serialize>(&self, name: &str, record: &T) -> Result<PathBuf, AgentError> {
        let temporary = self.file(&format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
            file.write_all(muster_json::to_string(record).as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| self.write_error(name, source))?;
        Ok(temporary)
    }

    fn write_error(&self, name: &str, source: io::Error) -> AgentError {
        AgentError::Write { path: self.file(name), source }
    }
}

/// The attempt whose directory is at `path`; `None` if `path` is no attempt directory of `data_dir`.
pub(crate) fn attempt_key_at(data_dir: &Path, path: &Path) -> Option<AttemptKey> {
    let mut names = path.strip_prefix(data_dir.join("attempts")).ok()?.iter();
    let (job, attempt) = (names.next()?.to_str()?, names.next()?.to_str()?.parse().ok()?);
    let key = AttemptKey::new(job, attempt).ok()?;
    names.next().is_none().then_some(key)
}

/// The attempts in a data directory that were launched and are not cleaned up: those with a launch intent.
pub(crate) fn uncleaned_attempts(data_dir: &Path) -> Vec<AttemptKey> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let attempts_dir = data_dir.join("attempts");
    let mut found = Vec::new();
    for job in names(&attempts_dir) {
        let numbers = names(&attempts_dir.join(&job)).into_iter().filter_map(|name| name.parse().ok());
        found.extend(numbers.filter_map(|attempt| AttemptKey::new(&job, attempt).ok()));
    }
    found.retain(|key| {
        AttemptDir::for_attempt(data_dir, key.job(), key.attempt())
            .is_ok_and(|attempt_dir| attempt_dir.file(LAUNCH_INTENT_FILE).exists())
    });
    found
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;
    use muster_protocol::agent::Exit;

    fn attempt_dir(dir: &Path) -> AttemptDir {
        let attempt_dir = AttemptDir::for_attempt(dir, "job-1", 1).unwrap();
        logs::make_private_dir(attempt_dir.path()).unwrap();
        attempt_dir
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 7, start_time: 8, boot_id: "b".to_string(), session: 7, process_group: None }
    }

    #[test]
    fn the_launch_lock_is_taken_once() {
        let dir = TempDir::new();
        let attempt_dir = attempt_dir(&dir);
        assert!(attempt_dir.try_take_launch_lock(&LaunchLock::Abandoned).unwrap());
        assert!(!attempt_dir.try_take_launch_lock(&LaunchLock::Shim(shim())).unwrap());
        assert_eq!(attempt_dir.launch_lock().unwrap(), Some(LaunchLock::Abandoned));
        assert_eq!(fs::read_dir(attempt_dir.path()).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn records_round_trip_and_corruption_is_an_error() {
        let dir = TempDir::new();
        let attempt_dir = attempt_dir(&dir);
        assert_eq!(attempt_dir.exit_record().unwrap(), None);
        let record = ExitRecord { exit: Exit::Signal(15), stopped: true, placed_at_ms: 5, ended_at_ms: None };
        attempt_dir.write_exit_record(&record).unwrap();
        assert_eq!(attempt_dir.exit_record().unwrap(), Some(record));
        fs::write(attempt_dir.file(EXIT_RECORD_FILE), "{").unwrap();
        assert!(matches!(attempt_dir.exit_record(), Err(AgentError::CorruptRecord { .. })));
    }

    /// An upgraded agent reads the records of its predecessor.
    #[test]
    fn an_intent_of_an_older_release_is_readable() {
        let dir = TempDir::new();
        let attempt_dir = attempt_dir(&dir);
        let intent = r#"{"order":{"job":"job-1","attempt":1,"placed_at_ms":5,"started":false,
            "tasks":[{"rank":0,"gpus":[1],"cpus":1,"memory_mib":64}],"gang_size":1,"run":{"command":["train"]},
            "name":"demo","tenant":"default","user":"ann"},"boot_id":"b"}"#;
        fs::write(attempt_dir.file(LAUNCH_INTENT_FILE), intent).unwrap();
        let order = attempt_dir.launch_intent().unwrap().unwrap().order;
        assert_eq!((order.placed_at_ms, order.nodes, order.tasks[0].group.as_str()), (5, vec![], ""));
    }

    #[test]
    fn clean_up_keeps_logs_and_the_exit_record() {
        let dir = TempDir::new();
        let attempt_dir = attempt_dir(&dir);
        for name in ["script", "stop.json", "pid.json", "shim.log", "intent.json", "exit.json", "rank-0.out"] {
            fs::write(attempt_dir.file(name), "x").unwrap();
        }
        attempt_dir.clean_up().unwrap();
        attempt_dir.clean_up().unwrap();
        let mut left: Vec<_> =
            fs::read_dir(attempt_dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["exit.json", "rank-0.out"]);
    }
}
