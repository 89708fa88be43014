//! The folder of one attempt, with its records as files: `intent.json`, `pid.json` for the claim,
//! `stop.json`, `exit.json`.
//!
//! Besides them lie the logs, the script, the shim's own log, and `work`, where the job runs by default.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::attempt_key::AttemptKey;
use crate::error::AgentError;
use crate::logs;
use crate::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};

const INTENT: &str = "intent.json";
const CLAIM: &str = "pid.json";
const STOP: &str = "stop.json";
const EXIT: &str = "exit.json";
const SHIM_LOG: &str = "shim.log";
/// What can go when an attempt is over and reported. The intent goes last: by it we find the others again.
/// The exit record stays with the logs, so that this attempt is never launched a second time.
const PASSING: [&str; 5] = ["script", STOP, CLAIM, SHIM_LOG, INTENT];

/// The folder itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn of(data_dir: &Path, job: &str, attempt: u32) -> Result<Folder, AgentError> {
        Ok(Folder { path: logs::attempt_dir(data_dir, job, attempt)? })
    }

    pub fn at(path: PathBuf) -> Folder {
        Folder { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What the shim says of its own accord.
    pub fn shim_log(&self) -> PathBuf {
        self.file(SHIM_LOG)
    }

    pub fn intent(&self) -> Result<Option<Intent>, AgentError> {
        self.read(INTENT)
    }

    /// Make the folder and say what will be launched. When this returns, it survives a power cut.
    pub fn begin(&self, intent: &Intent) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.unwritable("", source))?;
        for dir in self.path.ancestors().skip(1).take(2) {
            sync_dir(dir).map_err(|source| AgentError::Write { path: dir.to_path_buf(), source })?;
        }
        self.write(INTENT, intent)
    }

    pub fn claim(&self) -> Result<Option<Claim>, AgentError> {
        self.read(CLAIM)
    }

    /// Take the attempt, unless somebody has it: a hard link is made once or not at all.
    pub fn take(&self, claim: &Claim) -> Result<bool, AgentError> {
        let draft = self.draft(CLAIM, claim)?;
        let linked = fs::hard_link(&draft, self.file(CLAIM));
        fs::remove_file(&draft).map_err(|source| self.unwritable(CLAIM, source))?;
        match linked {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            linked => {
                linked
                    .and_then(|()| sync_dir(&self.path))
                    .map_err(|source| self.unwritable(CLAIM, source))?;
                Ok(true)
            }
        }
    }

    /// Say more about a claim that is ours.
    pub fn renew(&self, shim: &ShimRecord) -> Result<(), AgentError> {
        self.write(CLAIM, &Claim::Shim(shim.clone()))
    }

    pub fn stop(&self) -> Result<Option<StopRecord>, AgentError> {
        self.read(STOP)
    }

    /// The folder may have been deleted under the attempt; its shim looks for the record there all the same.
    pub fn ask_to_stop(&self, stop: &StopRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.unwritable("", source))?;
        self.write(STOP, stop)
    }

    pub fn exit(&self) -> Result<Option<ExitRecord>, AgentError> {
        self.read(EXIT)
    }

    pub fn end(&self, exit: &ExitRecord) -> Result<(), AgentError> {
        logs::make_private_dir(&self.path).map_err(|source| self.unwritable("", source))?;
        self.write(EXIT, exit)
    }

    /// Remove what nobody needs after the end. Logs, the exit record and the job's own files stay.
    pub fn tidy(&self) -> Result<(), AgentError> {
        for name in PASSING {
            match fs::remove_file(self.file(name)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                removed => removed.map_err(|source| self.unwritable(name, source))?,
            }
        }
        Ok(())
    }

    /// Make room for another attempt of the same number, and keep this one's logs.
    pub fn set_aside(&self, placed_at_ms: i64) -> Result<(), AgentError> {
        let aside = self.path.with_extension(format!("placed-{placed_at_ms}"));
        fs::rename(&self.path, &aside).map_err(|source| AgentError::Write { path: aside, source })
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, AgentError> {
        let path = self.file(name);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(AgentError::Read { path, source }),
            Ok(bytes) => bytes,
        };
        muster_json::from_slice(&bytes).map(Some).map_err(|source| AgentError::Damaged { path, source })
    }

    /// Written aside, flushed, and put in place at once: a reader sees the old record or the new one.
    fn write<T: Serialize>(&self, name: &str, record: &T) -> Result<(), AgentError> {
        let draft = self.draft(name, record)?;
        let placed = fs::rename(&draft, self.file(name)).and_then(|()| sync_dir(&self.path));
        placed.map_err(|source| self.unwritable(name, source))
    }

    /// The pid in the name keeps agent and shim apart.
    fn draft<T: Serialize>(&self, name: &str, record: &T) -> Result<PathBuf, AgentError> {
        let draft = self.file(&format!(".{name}.{}", std::process::id()));
        let write = || {
            let mut file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&draft)?;
            file.write_all(muster_json::to_string(record).as_bytes())?;
            file.sync_all()
        };
        write().map_err(|source| self.unwritable(name, source))?;
        Ok(draft)
    }

    fn unwritable(&self, name: &str, source: io::Error) -> AgentError {
        AgentError::Write { path: self.file(name), source }
    }
}

/// The attempt whose folder would be at a path.
pub(crate) fn attempt_at(data_dir: &Path, path: &Path) -> Option<AttemptKey> {
    let mut names = path.strip_prefix(data_dir.join("attempts")).ok()?.iter();
    let (job, attempt) = (names.next()?.to_str()?, names.next()?.to_str()?.parse().ok()?);
    let key = AttemptKey::new(job, attempt).ok()?;
    names.next().is_none().then_some(key)
}

/// The attempts in a data folder that were launched and not yet tidied up.
pub(crate) fn untidied(data_dir: &Path) -> Vec<AttemptKey> {
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
        Folder::of(data_dir, key.job(), key.attempt()).is_ok_and(|folder| folder.file(INTENT).exists())
    });
    found
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Scratch;
    use muster_protocol::agent::Exit;

    fn folder(dir: &Path) -> Folder {
        let folder = Folder::of(dir, "job-1", 1).unwrap();
        logs::make_private_dir(folder.path()).unwrap();
        folder
    }

    fn shim() -> ShimRecord {
        ShimRecord { pid: 7, start_time: 8, boot_id: "b".to_string(), session: 7, group: None }
    }

    #[test]
    fn an_attempt_is_taken_once() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        assert!(folder.take(&Claim::Abandoned).unwrap());
        assert!(!folder.take(&Claim::Shim(shim())).unwrap());
        assert_eq!(folder.claim().unwrap(), Some(Claim::Abandoned));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no draft is left behind");
    }

    #[test]
    fn records_are_read_back_and_damage_is_said() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        assert_eq!(folder.exit().unwrap(), None);
        let record = ExitRecord { exit: Exit::Signal(15), stopped: true, placed_at_ms: 5, ended_at_ms: None };
        folder.end(&record).unwrap();
        assert_eq!(folder.exit().unwrap(), Some(record));
        fs::write(folder.file(EXIT), "{").unwrap();
        assert!(matches!(folder.exit(), Err(AgentError::Damaged { .. })));
    }

    /// An agent that was upgraded finds what its predecessor wrote.
    #[test]
    fn an_intent_of_an_older_release_is_readable() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        let intent = r#"{"order":{"job":"job-1","attempt":1,"placed_at_ms":5,"started":false,
            "tasks":[{"rank":0,"gpus":[1],"cpus":1,"memory_mib":64}],"gang_size":1,"run":{"command":["train"]},
            "name":"demo","tenant":"default","user":"ann"},"boot_id":"b"}"#;
        fs::write(folder.file(INTENT), intent).unwrap();
        let order = folder.intent().unwrap().unwrap().order;
        assert_eq!((order.placed_at_ms, order.nodes, order.tasks[0].group.as_str()), (5, vec![], ""));
    }

    #[test]
    fn tidying_keeps_logs_and_the_exit_record() {
        let dir = Scratch::new();
        let folder = folder(&dir);
        for name in ["script", "stop.json", "pid.json", "shim.log", "intent.json", "exit.json", "rank-0.out"]
        {
            fs::write(folder.file(name), "x").unwrap();
        }
        folder.tidy().unwrap();
        folder.tidy().unwrap();
        let mut left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["exit.json", "rank-0.out"]);
    }
}
