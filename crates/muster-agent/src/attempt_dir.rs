//! The attempt directory: the records of one attempt as files.
//!
//! `intent.json` is the launch intent, `pid.json` the launch lock, `stop.json` the stop record and `exit.json` the
//! exit record; `shim.sock` is the socket of the shim, `isolation.json` says how the shim isolates the tasks, and
//! `programs.json` which programs of the site run before and after them, with the record `epilog.json`. The
//! directory also contains the logs of the tasks, the script, the log of the shim, and `work`, the default working
//! directory of the job.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::isolation::Isolation;
use crate::logs;
use crate::private_mounts::PRIVATE_TMP_DIR;
use crate::records::{
    EpilogRecord, ExitRecord, LaunchIntent, LaunchLock, ShimRecord, SignalRecord, StopRecord, UnkillableRecord,
};
use crate::site_program::AttemptPrograms;

const LAUNCH_INTENT_FILE: &str = "intent.json";
const LAUNCH_LOCK_FILE: &str = "pid.json";
const STOP_RECORD_FILE: &str = "stop.json";
const EXIT_RECORD_FILE: &str = "exit.json";
const SHIM_LOG_FILE: &str = "shim.log";
const ISOLATION_FILE: &str = "isolation.json";
/// The environment of containers, the mount points of what the job mounts, and the output of the image pull.
const CONTAINER_DIR: &str = "container";
pub(crate) const CONTAINER_MOUNTS_DIR: &str = "mounts";
const EXEC_FILE: &str = "exec";
const PROGRAMS_FILE: &str = "programs.json";
const EPILOG_RECORD_FILE: &str = "epilog.json";
const SIGNAL_RECORD_FILE: &str = "signal.json";
const UNKILLABLE_RECORD_FILE: &str = "unkillable.json";
/// The host file of a gang, which its tasks read.
pub(crate) const HOST_FILE: &str = "hostfile";
pub(crate) const SHIM_SOCKET_FILE: &str = "shim.sock";
/// A job's user may enter its attempt directory and list nothing. The directories above let nobody pass but the agent; the
/// job reaches its own by a mount.
const ENTERABLE_BY_OTHERS: u32 = 0o011;
/// Removed when an attempt is over and reported. The launch intent is removed last, because an interrupted clean-up
/// is found again by it. The site programs are removed before the record of the epilog, which then is not owed any more.
/// The exit record stays with the logs, so that the attempt is never launched a second time.
const FILES_REMOVED_BY_CLEAN_UP: [&str; 12] = [
    "script",
    EXEC_FILE,
    PROGRAMS_FILE,
    EPILOG_RECORD_FILE,
    ISOLATION_FILE,
    SHIM_SOCKET_FILE,
    STOP_RECORD_FILE,
    SIGNAL_RECORD_FILE,
    UNKILLABLE_RECORD_FILE,
    LAUNCH_LOCK_FILE,
    SHIM_LOG_FILE,
    LAUNCH_INTENT_FILE,
];
/// The files that tell the agent about an attempt when they appear.
const NEWS: [&str; 4] = [LAUNCH_LOCK_FILE, EXIT_RECORD_FILE, EPILOG_RECORD_FILE, UNKILLABLE_RECORD_FILE];

/// Whether a record must survive a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flush {
    Yes,
    /// The record describes processes, and no process survives a power cut. It survives the end of its writer.
    No,
}

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

    /// True for the files that tell the agent about an attempt when they appear.
    pub fn is_news(name: &[u8]) -> bool {
        NEWS.iter().any(|file| file.as_bytes() == name)
    }

    pub fn launch_intent(&self) -> Result<Option<LaunchIntent>, AgentError> {
        self.read_record(LAUNCH_INTENT_FILE)
    }

    /// Creates the directory and writes the launch intent, which then survives a power cut. The parents are flushed last:
    /// flushing the record has usually written them too, and then it costs nothing.
    pub fn write_launch_intent(&self, intent: &LaunchIntent) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        self.write_record(LAUNCH_INTENT_FILE, intent, Flush::Yes)?;
        for dir in self.path.ancestors().skip(1).take(2) {
            sync_dir(dir).map_err(|source| AgentError::Write { path: dir.to_path_buf(), source })?;
        }
        Ok(())
    }

    /// The isolation of an attempt that is about to start. It is written before the launch intent, so it is there.
    pub fn isolation_of_launch(&self) -> Result<Isolation, AgentError> {
        let missing = || AgentError::Read { path: self.file(ISOLATION_FILE), source: io::ErrorKind::NotFound.into() };
        self.read_record(ISOLATION_FILE)?.ok_or_else(missing)
    }

    /// An attempt of an older release has no such file, and no isolation.
    pub fn isolation(&self) -> Result<Isolation, AgentError> {
        Ok(self.read_record(ISOLATION_FILE)?.unwrap_or_else(Isolation::none))
    }

    /// Creates the directory and writes how the shim isolates the tasks. The launch intent follows, and no shim starts after
    /// a power cut on an intent from before it, so this file is not flushed.
    pub fn write_isolation(&self, isolation: &Isolation) -> Result<(), AgentError> {
        let path = self.file(ISOLATION_FILE);
        let written = logs::make_private_dir(&self.path).and_then(|()| {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            file.write_all(muster_json::to_string(isolation).as_bytes())
        });
        written.map_err(|source| AgentError::Write { path, source })
    }

    /// Lets the job's user pass through this directory to its working directory. `by_path` is for a host without mount
    /// namespaces, where the user must pass the directory of the job as well.
    pub fn let_others_enter(&self, by_path: bool) -> io::Result<()> {
        let dirs = self.path.ancestors().take(if by_path { 2 } else { 1 });
        dirs.into_iter().try_for_each(let_others_enter)
    }

    /// Makes the directory for the files of the containers, which only the agent reads.
    pub fn make_container_dir(&self) -> io::Result<PathBuf> {
        let path = self.file(CONTAINER_DIR);
        logs::make_private_dir(&path.join(CONTAINER_MOUNTS_DIR)).map(|()| path)
    }

    /// Best effort, as for the private `/tmp`. Only what the shim has made is removed: the mount points are empty.
    pub fn remove_container_dir(&self) {
        let path = self.file(CONTAINER_DIR);
        let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        for mount_point in entries(&path.join(CONTAINER_MOUNTS_DIR)) {
            let is_empty_file = mount_point.metadata().is_ok_and(|found| found.is_file() && found.len() == 0);
            let _ = if is_empty_file { fs::remove_file(&mount_point) } else { fs::remove_dir(&mount_point) };
        }
        let _ = fs::remove_dir(path.join(CONTAINER_MOUNTS_DIR));
        entries(&path).for_each(|file| drop(fs::remove_file(file)));
        let _ = fs::remove_dir(&path);
    }

    /// Removes what the job left in its private `/tmp`. That may be millions of files and any depth of directories, so a
    /// process of its own does it, and nothing that others wait for comes after it. Best effort: the files are in nobody's way.
    pub fn remove_private_tmp(&self) {
        let path = self.file(PRIVATE_TMP_DIR);
        if !path.exists() {
            return;
        }
        let removed = Command::new("rm").args(["-rf", "--"]).arg(&path).stdin(Stdio::null()).status();
        match removed {
            Ok(status) if status.success() => {}
            Ok(status) => eprintln!("`{}` cannot be removed: `rm` ended with {status}", path.display()),
            Err(error) => eprintln!("`{}` cannot be removed: `rm` does not start: {error}", path.display()),
        }
    }

    /// Notes that a program of a person runs in this attempt, which has no cgroup: the shim looks for such programs at the end.
    pub fn note_exec(&self) -> io::Result<()> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.file(EXEC_FILE)).map(drop)
    }

    pub fn has_noted_exec(&self) -> bool {
        self.file(EXEC_FILE).exists()
    }

    /// The data directory of the agent, which has this directory as `attempts/JOB/ATTEMPT`.
    pub fn data_dir(&self) -> &Path {
        self.path.ancestors().nth(3).unwrap_or(&self.path)
    }

    pub fn launch_lock(&self) -> Result<Option<LaunchLock>, AgentError> {
        self.read_record(LAUNCH_LOCK_FILE)
    }

    /// Takes the launch lock; false if it is already taken. Creating a hard link is atomic and fails if the name
    /// exists. The lock of a shim is not flushed: after a power cut the launch intent proves the launch, no shim is
    /// left to race with, and both records give the same exit.
    pub fn try_take_launch_lock(&self, lock: &LaunchLock) -> Result<bool, AgentError> {
        let flush = if *lock == LaunchLock::Abandoned { Flush::Yes } else { Flush::No };
        self.try_take_lock(LAUNCH_LOCK_FILE, lock, flush)
    }

    /// Gives back a launch lock that a shim took too late.
    pub fn release_launch_lock(&self) -> Result<(), AgentError> {
        self.remove_if_there(LAUNCH_LOCK_FILE)
    }

    fn try_take_lock<T: Serialize>(&self, name: &str, lock: &T, flush: Flush) -> Result<bool, AgentError> {
        let temporary = self.write_temporary(name, lock, flush)?;
        let linked = fs::hard_link(&temporary, self.file(name));
        fs::remove_file(&temporary).map_err(|source| self.write_error(name, source))?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => {
                linked.and_then(|()| self.sync(flush)).map_err(|source| self.write_error(name, source))?;
                Ok(true)
            }
        }
    }

    /// `None` without site programs.
    pub fn programs(&self) -> Result<Option<AttemptPrograms>, AgentError> {
        self.read_record(PROGRAMS_FILE)
    }

    /// Written before the launch intent, and flushed: an epilog is owed even after a power cut.
    pub fn write_programs(&self, programs: &AttemptPrograms) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        self.write_record(PROGRAMS_FILE, programs, Flush::Yes)
    }

    pub fn epilog_record(&self) -> Result<Option<EpilogRecord>, AgentError> {
        self.read_record(EPILOG_RECORD_FILE)
    }

    /// Takes the lock of the programs after the attempt; false if another process has it.
    pub fn try_take_epilog_lock(&self, record: &EpilogRecord) -> Result<bool, AgentError> {
        self.try_take_lock(EPILOG_RECORD_FILE, record, Flush::No)
    }

    /// Rewrites the record, with the result, by the process that holds the lock.
    pub fn write_epilog_record(&self, record: &EpilogRecord) -> Result<(), AgentError> {
        self.write_record(EPILOG_RECORD_FILE, record, Flush::Yes)
    }

    /// Removes the lock of a process that is gone.
    pub fn remove_epilog_record(&self) -> Result<(), AgentError> {
        self.remove_if_there(EPILOG_RECORD_FILE)
    }

    pub fn signal_record(&self) -> Result<Option<SignalRecord>, AgentError> {
        self.read_record(SIGNAL_RECORD_FILE)
    }

    pub fn write_signal_record(&self, signal: &SignalRecord) -> Result<(), AgentError> {
        self.write_record(SIGNAL_RECORD_FILE, signal, Flush::No)
    }

    pub fn unkillable_record(&self) -> Result<Option<UnkillableRecord>, AgentError> {
        self.read_record(UNKILLABLE_RECORD_FILE)
    }

    pub fn write_unkillable_record(&self, record: &UnkillableRecord) -> Result<(), AgentError> {
        self.write_record(UNKILLABLE_RECORD_FILE, record, Flush::No)
    }

    /// Rewrites a launch lock that the caller holds.
    pub fn update_launch_lock(&self, shim: &ShimRecord) -> Result<(), AgentError> {
        self.write_record(LAUNCH_LOCK_FILE, &LaunchLock::Shim(shim.clone()), Flush::No)
    }

    pub fn stop_record(&self) -> Result<Option<StopRecord>, AgentError> {
        self.read_record(STOP_RECORD_FILE)
    }

    /// Creates the directory if it was deleted under the attempt: the shim still looks for the record there.
    pub fn write_stop_record(&self, stop: &StopRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        self.write_record(STOP_RECORD_FILE, stop, Flush::Yes)
    }

    pub fn exit_record(&self) -> Result<Option<ExitRecord>, AgentError> {
        self.read_record(EXIT_RECORD_FILE)
    }

    pub fn write_exit_record(&self, exit: &ExitRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.write_error("", source))?;
        match self.write_record(EXIT_RECORD_FILE, exit, Flush::Yes) {
            // A job may leave a full disk behind. No process is left that needs this file: its block is for the record.
            Err(AgentError::Write { source, .. })
                if source.kind() == io::ErrorKind::StorageFull
                    && fs::remove_file(self.file(ISOLATION_FILE)).is_ok() =>
            {
                self.write_record(EXIT_RECORD_FILE, exit, Flush::Yes)
            }
            written => written,
        }
    }

    /// Removes the records that an ended attempt no longer needs. Logs, the exit record and the job's own files stay.
    pub fn clean_up(&self) -> Result<(), AgentError> {
        FILES_REMOVED_BY_CLEAN_UP.into_iter().try_for_each(|name| self.remove_if_there(name))
    }

    fn remove_if_there(&self, name: &str) -> Result<(), AgentError> {
        match fs::remove_file(self.file(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed.map_err(|source| self.write_error(name, source)),
        }
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

    /// Writes a temporary file, flushes it if asked, and renames it, so that a reader sees either the old record or the new
    /// one.
    fn write_record<T: Serialize>(&self, name: &str, record: &T, flush: Flush) -> Result<(), AgentError> {
        let temporary = self.write_temporary(name, record, flush)?;
        let placed = fs::rename(&temporary, self.file(name)).and_then(|()| self.sync(flush));
        placed.map_err(|source| self.write_error(name, source))
    }

    /// The file name contains the pid, so that agent and shim never write the same temporary file.
    fn write_temporary<T: Serialize>(&self, name: &str, record: &T, flush: Flush) -> Result<PathBuf, AgentError> {
        let temporary = self.file(&format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary)?;
            file.write_all(muster_json::to_string(record).as_bytes())?;
            if flush == Flush::Yes { file.sync_all() } else { Ok(()) }
        };
        write().map_err(|source| self.write_error(name, source))?;
        Ok(temporary)
    }

    fn sync(&self, flush: Flush) -> io::Result<()> {
        if flush == Flush::Yes { sync_dir(&self.path) } else { Ok(()) }
    }

    fn write_error(&self, name: &str, source: io::Error) -> AgentError {
        AgentError::Write { path: self.file(name), source }
    }
}

/// Lets every user pass through a directory, without seeing what is in it.
pub(crate) fn let_others_enter(dir: &Path) -> io::Result<()> {
    let mode = fs::metadata(dir)?.permissions().mode();
    fs::set_permissions(dir, Permissions::from_mode(mode | ENTERABLE_BY_OTHERS))
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
        let (placed_at_ms, ended_at_ms, prolog_failed) = (5, None, false);
        let record = ExitRecord { exit: Exit::Signal(15), stopped: true, placed_at_ms, ended_at_ms, prolog_failed };
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
        for name in
            ["script", "isolation.json", "stop.json", "pid.json", "shim.log", "intent.json", "exit.json", "rank-0.out"]
        {
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
