//! Adapter (Machine): folders on disk, processes in `/proc`, shims as our children.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{AttemptKey, Machine};
use crate::error::AgentError;
use crate::folder::{self, Folder};
use crate::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};
use crate::{logs, members, proc};

/// The machine we run on.
#[derive(Debug)]
pub(crate) struct Linux {
    data_dir: PathBuf,
    shim_command: Vec<OsString>,
    boot_id: String,
    /// The shims whose parent we are, until they are seen to end.
    children: BTreeMap<AttemptKey, Child>,
}

impl Linux {
    /// Make the data folder where it is missing.
    pub fn open(data_dir: &Path, shim_command: Vec<OsString>) -> Result<Linux, AgentError> {
        let unusable = |source| AgentError::Write { path: data_dir.to_path_buf(), source };
        logs::make_private_dir(&data_dir.join("attempts")).map_err(unusable)?;
        Ok(Linux {
            // A shim has its own working directory, and marks are compared as text: the path must be absolute.
            data_dir: data_dir.canonicalize().map_err(unusable)?,
            shim_command,
            boot_id: proc::boot_id()?,
            children: BTreeMap::new(),
        })
    }

    fn folder(&self, key: &AttemptKey) -> Result<Folder, AgentError> {
        Folder::of(&self.data_dir, key.job(), key.attempt())
    }

    /// The living shims of this data folder, by the arguments they were started with: a shim lives as long as anything
    /// that descends from it.
    fn shims(&self) -> Result<Vec<(AttemptKey, ShimRecord)>, AgentError> {
        let table = proc::processes()?;
        let shim = |process: &proc::Process| {
            let key = self.shim_of(&proc::arguments(process.pid)?)?;
            let child = table.iter().find(|other| other.parent == process.pid && !other.is_dead);
            let record = ShimRecord {
                pid: process.pid,
                start_time: process.start_time,
                boot_id: self.boot_id.clone(),
                session: process.session,
                group: child.map(|child| child.group),
            };
            proc::is_of_our_user(process.pid).then_some((key, record))
        };
        Ok(table.iter().filter(|process| !process.is_dead).filter_map(shim).collect())
    }

    /// Which attempt a process holds that was started with these arguments. The program may be of another release.
    fn shim_of(&self, arguments: &[OsString]) -> Option<AttemptKey> {
        let (path, program) = arguments.split_last()?;
        if program.len() != self.shim_command.len() || program.get(1..) != self.shim_command.get(1..) {
            return None;
        }
        folder::attempt_at(&self.data_dir, Path::new(path))
    }
}

impl Machine for Linux {
    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn untidied(&mut self) -> Vec<AttemptKey> {
        let mut found: BTreeSet<AttemptKey> = folder::untidied(&self.data_dir).into_iter().collect();
        match self.shims() {
            Ok(shims) => found.extend(shims.into_iter().map(|(key, _)| key)),
            Err(error) => tracing::warn!("shims without records are not looked for: {error}"),
        }
        found.into_iter().collect()
    }

    fn intent(&mut self, key: &AttemptKey) -> Result<Option<Intent>, AgentError> {
        self.folder(key)?.intent()
    }

    fn claim(&mut self, key: &AttemptKey) -> Result<Option<Claim>, AgentError> {
        self.folder(key)?.claim()
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        self.folder(key)?.stop()
    }

    fn exit(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        self.folder(key)?.exit()
    }

    fn lives(&mut self, shim: &ShimRecord) -> bool {
        process_of(shim).is_some_and(|process| !process.is_dead)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let found = self.shims()?.into_iter().find(|(of, _)| of == key);
        Ok(found.map(|(_, shim)| shim))
    }

    fn begin(&mut self, key: &AttemptKey, intent: &Intent) -> Result<(), AgentError> {
        self.folder(key)?.begin(intent)
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let child = spawn_shim(&self.shim_command, &self.folder(key)?)?;
        self.children.insert(key.clone(), child);
        Ok(())
    }

    fn is_our_shim_up(&mut self, key: &AttemptKey) -> bool {
        let is_up = self.children.get_mut(key).is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !is_up {
            self.children.remove(key);
        }
        is_up
    }

    fn shim_log(&mut self, key: &AttemptKey, bytes_max: usize) -> String {
        let path = self.folder(key).map(|folder| folder.shim_log());
        let read = path.ok().and_then(|path| logs::read_from(&path, 0, bytes_max).ok());
        let (bytes, _) = read.unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn abandon(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        self.folder(key)?.take(&Claim::Abandoned)
    }

    fn ask_to_stop(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.folder(key)?.ask_to_stop(stop)
    }

    fn kill(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> Result<usize, AgentError> {
        members::kill(shim, self.folder(key)?.path())
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        let Some(process) = process_of(shim) else { return };
        if let Err(error) = proc::signal(&process, Signal::KILL) {
            tracing::warn!(pid = process.pid, "a hanging shim cannot be killed: {error}");
        }
    }

    fn end(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        self.folder(key)?.end(exit)
    }

    fn tidy(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        self.folder(key)?.tidy()
    }

    fn set_aside(&mut self, key: &AttemptKey, placed_at_ms: i64) -> Result<(), AgentError> {
        self.folder(key)?.set_aside(placed_at_ms)
    }
}

/// Pid and start time must agree; a pid alone may be someone else's by now.
fn process_of(shim: &ShimRecord) -> Option<proc::Process> {
    proc::process(shim.pid).filter(|process| process.start_time == shim.start_time)
}

fn spawn_shim(shim_command: &[OsString], folder: &Folder) -> Result<Child, AgentError> {
    let Some((program, args)) = shim_command.split_first() else { return Err(AgentError::NoShim) };
    let log_path = folder.shim_log();
    let log =
        logs::open_to_append(&log_path).map_err(|source| AgentError::Write { path: log_path, source })?;
    let mut command = Command::new(program);
    command.args(args).arg(folder.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|source| AgentError::Shim { program: program.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Scratch;

    #[test]
    fn a_shim_is_known_by_its_arguments() {
        let dir = Scratch::new();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<OsString>>();
        let machine = Linux::open(&dir, words(&["/old/muster", "shim"])).unwrap();
        let attempt = machine.data_dir.join("attempts/job-7/2");
        let attempt = attempt.to_str().unwrap();
        let key = AttemptKey::new("job-7", 2).unwrap();
        assert_eq!(machine.shim_of(&words(&["/new/muster", "shim", attempt])), Some(key));
        for others in [
            &["muster", "logs", attempt][..],
            &["muster", "shim", attempt, "x"],
            &["ls", attempt],
            &["muster", "shim", "/elsewhere/attempts/job-7/2"],
            &["muster", "shim"],
            &[],
        ] {
            assert_eq!(machine.shim_of(&words(others)), None, "{others:?}");
        }
    }

    #[test]
    fn a_pid_alone_proves_nothing() {
        let dir = Scratch::new();
        let mut machine = Linux::open(&dir, Vec::new()).unwrap();
        let own = proc::process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (pid, start_time, session) = (own.pid, own.start_time, own.session);
        let shim = ShimRecord { pid, start_time, boot_id: machine.boot_id.clone(), session, group: None };
        assert!(machine.lives(&shim));
        assert!(!machine.lives(&ShimRecord { start_time: start_time + 1, ..shim }));
    }
}
