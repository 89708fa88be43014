//! Adapter (Machine): Linux. Attempt directories on disk, processes in `/proc`, shims as child processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::{AttemptKey, Machine};
use crate::attempt_dir::{self, AttemptDir};
use crate::error::AgentError;
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord, StopRecord};
use crate::{attempt_processes, logs, proc};

/// The machine that the agent runs on.
#[derive(Debug)]
pub(crate) struct LinuxMachine {
    data_dir: PathBuf,
    shim_command: Vec<OsString>,
    boot_id: String,
    /// The shims that this agent started and has not reaped.
    child_shims: BTreeMap<AttemptKey, Child>,
}

impl LinuxMachine {
    /// Creates the data directory if it is missing.
    pub fn open(data_dir: &Path, shim_command: Vec<OsString>) -> Result<LinuxMachine, AgentError> {
        let unusable = |source| AgentError::Write { path: data_dir.to_path_buf(), source };
        logs::make_private_dir(&data_dir.join("attempts")).map_err(unusable)?;
        Ok(LinuxMachine {
            // A shim has another working directory, and the attempt directory in the environment of a task is
            // compared as text: the path must be absolute.
            data_dir: data_dir.canonicalize().map_err(unusable)?,
            shim_command,
            boot_id: proc::boot_id()?,
            child_shims: BTreeMap::new(),
        })
    }

    fn attempt_dir(&self, key: &AttemptKey) -> Result<AttemptDir, AgentError> {
        AttemptDir::for_attempt(&self.data_dir, key.job(), key.attempt())
    }

    /// The live shims of this data directory, found by their arguments. A shim lives as long as any of its
    /// descendants.
    fn live_shims(&self) -> Result<Vec<(AttemptKey, ShimRecord)>, AgentError> {
        let table = proc::processes()?;
        let shim = |process: &proc::Process| {
            let key = self.attempt_of_shim_arguments(&proc::arguments(process.pid)?)?;
            let child = table.iter().find(|other| other.parent == process.pid && !other.is_zombie);
            let record = ShimRecord {
                pid: process.pid,
                start_time: process.start_time,
                boot_id: self.boot_id.clone(),
                session: process.session,
                process_group: child.map(|child| child.group),
            };
            proc::is_owned_by_current_user(process.pid).then_some((key, record))
        };
        Ok(table.iter().filter(|process| !process.is_zombie).filter_map(shim).collect())
    }

    /// The attempt of a shim with these arguments; `None` if the process is no shim of this data directory. The
    /// path of the program is not compared: an older release may have started the shim.
    fn attempt_of_shim_arguments(&self, arguments: &[OsString]) -> Option<AttemptKey> {
        let (path, program) = arguments.split_last()?;
        if program.len() != self.shim_command.len() || program.get(1..) != self.shim_command.get(1..) {
            return None;
        }
        attempt_dir::attempt_key_at(&self.data_dir, Path::new(path))
    }
}

impl Machine for LinuxMachine {
    fn boot_id(&self) -> &str {
        &self.boot_id
    }

    fn uncleaned_attempts(&mut self) -> Vec<AttemptKey> {
        let mut found: BTreeSet<AttemptKey> = attempt_dir::uncleaned_attempts(&self.data_dir).into_iter().collect();
        match self.live_shims() {
            Ok(shims) => found.extend(shims.into_iter().map(|(key, _)| key)),
            Err(error) => tracing::warn!("cannot search /proc for shims without records: {error}"),
        }
        found.into_iter().collect()
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        self.attempt_dir(key)?.launch_intent()
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        self.attempt_dir(key)?.launch_lock()
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        self.attempt_dir(key)?.stop_record()
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        self.attempt_dir(key)?.exit_record()
    }

    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool {
        process_of_shim(shim).is_some_and(|process| !process.is_zombie)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let found = self.live_shims()?.into_iter().find(|(other, _)| other == key);
        Ok(found.map(|(_, shim)| shim))
    }

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError> {
        self.attempt_dir(key)?.write_launch_intent(intent)
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let child = spawn_shim(&self.shim_command, &self.attempt_dir(key)?)?;
        self.child_shims.insert(key.clone(), child);
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        let is_running = self.child_shims.get_mut(key).is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !is_running {
            self.child_shims.remove(key);
        }
        is_running
    }

    fn shim_log(&mut self, key: &AttemptKey, bytes_max: usize) -> String {
        let path = self.attempt_dir(key).map(|attempt_dir| attempt_dir.shim_log_path());
        let read = path.ok().and_then(|path| logs::read_from(&path, 0, bytes_max).ok());
        let (bytes, _) = read.unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        self.attempt_dir(key)?.try_take_launch_lock(&LaunchLock::Abandoned)
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.attempt_dir(key)?.write_stop_record(stop)
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> Result<usize, AgentError> {
        attempt_processes::kill_attempt_processes(shim, self.attempt_dir(key)?.path())
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        let Some(process) = process_of_shim(shim) else { return };
        if let Err(error) = proc::send_signal(&process, Signal::KILL) {
            tracing::warn!(pid = process.pid, "cannot kill a hung shim: {error}");
        }
    }

    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        self.attempt_dir(key)?.write_exit_record(exit)
    }

    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        self.attempt_dir(key)?.clean_up()
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, placed_at_ms: i64) -> Result<(), AgentError> {
        self.attempt_dir(key)?.archive(placed_at_ms)
    }
}

/// The process of a shim. Pid and start time must match, because the kernel reuses pids.
fn process_of_shim(shim: &ShimRecord) -> Option<proc::Process> {
    proc::process(shim.pid).filter(|process| process.start_time == shim.start_time)
}

fn spawn_shim(shim_command: &[OsString], attempt_dir: &AttemptDir) -> Result<Child, AgentError> {
    let Some((program, args)) = shim_command.split_first() else { return Err(AgentError::NoShimCommand) };
    let log_path = attempt_dir.shim_log_path();
    let log = logs::open_to_append(&log_path).map_err(|source| AgentError::Write { path: log_path, source })?;
    let mut command = Command::new(program);
    command.args(args).arg(attempt_dir.path()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|source| AgentError::ShimSpawn { program: program.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    #[test]
    fn a_shim_is_recognised_by_its_arguments() {
        let dir = TempDir::new();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<OsString>>();
        let machine = LinuxMachine::open(&dir, words(&["/old/muster", "shim"])).unwrap();
        let attempt = machine.data_dir.join("attempts/job-7/2");
        let attempt = attempt.to_str().unwrap();
        let key = AttemptKey::new("job-7", 2).unwrap();
        assert_eq!(machine.attempt_of_shim_arguments(&words(&["/new/muster", "shim", attempt])), Some(key));
        for others in [
            &["muster", "logs", attempt][..],
            &["muster", "shim", attempt, "x"],
            &["ls", attempt],
            &["muster", "shim", "/elsewhere/attempts/job-7/2"],
            &["muster", "shim"],
            &[],
        ] {
            assert_eq!(machine.attempt_of_shim_arguments(&words(others)), None, "{others:?}");
        }
    }

    #[test]
    fn a_shim_is_alive_only_if_pid_and_start_time_match() {
        let dir = TempDir::new();
        let mut machine = LinuxMachine::open(&dir, Vec::new()).unwrap();
        let own = proc::process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (pid, start_time, session) = (own.pid, own.start_time, own.session);
        let shim = ShimRecord { pid, start_time, boot_id: machine.boot_id.clone(), session, process_group: None };
        assert!(machine.is_shim_alive(&shim));
        assert!(!machine.is_shim_alive(&ShimRecord { start_time: start_time + 1, ..shim }));
    }
}
