//! Adapter (Machine): Linux. Attempt directories on disk, processes in `/proc`, shims as child processes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use muster_protocol::agent::SecretFile;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::process::Signal;

use super::attempt_events::AttemptEvents;
use super::{AttemptKey, EpilogStatus, Machine};
use crate::attempt_dir::{self, AttemptDir};
use crate::container_runtime::ContainerRuntime;
use crate::error::AgentError;
use crate::folder_lock::FolderLock;
use crate::isolation::Isolation;
use crate::launcher::{Launcher, LauncherConfig};
use crate::records::{
    EpilogRecord, ExitRecord, LaunchIntent, LaunchLock, SelfFence, ShimRecord, SignalRecord, StopRecord,
};
use crate::shim_socket::{ShimMessage, ShimSender};
use crate::site_program::AFTER_ATTEMPT_FLAG;
use crate::{attempt_processes, logs, proc, secret_files};

/// The label of a node whose file system cannot free the beginning of a file.
const LOG_LIMIT_LABEL: &str = "muster.io/log-limit";

/// The machine that the agent runs on.
#[derive(Debug)]
pub(crate) struct LinuxMachine {
    data_dir: PathBuf,
    launcher: Launcher,
    shim_command: Vec<OsString>,
    boot_id: String,
    /// The shims that this agent started and has not reaped.
    child_shims: BTreeMap<AttemptKey, Child>,
    /// The same for the processes that run the programs after an attempt.
    child_epilogs: BTreeMap<AttemptKey, Child>,
    /// Those whose attempt is cleaned up; reaped when they have ended.
    ending_epilogs: Vec<Child>,
    /// Held for as long as this agent lives.
    _lock: FolderLock,
    events: AttemptEvents,
    to_shims: ShimSender,
}

impl LinuxMachine {
    /// Creates the data directory if it is missing.
    pub fn open(
        node: &str,
        data_dir: &Path,
        shim_command: Vec<OsString>,
        launcher: LauncherConfig,
    ) -> Result<LinuxMachine, AgentError> {
        let unusable = |source| AgentError::Write { path: data_dir.to_path_buf(), source };
        logs::make_private_dir(&data_dir.join("attempts")).map_err(unusable)?;
        // A shim has another working directory, and the attempt directory in the environment of a task is compared as
        // text: the path must be absolute.
        let data_dir = data_dir.canonicalize().map_err(unusable)?;
        let lock = FolderLock::take(&data_dir)?;
        let launcher = Launcher::open(launcher, node, &data_dir)?;
        if launcher.jobs_use_host_paths() {
            // What is private in these directories is in files that only their owner reads.
            [data_dir.as_path(), &data_dir.join("attempts")]
                .into_iter()
                .try_for_each(attempt_dir::let_others_enter)
                .map_err(unusable)?;
        }
        let uncleaned = attempt_dir::uncleaned_attempts(&data_dir);
        launcher.remove_leftover_containers(&uncleaned);
        launcher.remove_leftovers(&uncleaned);
        Ok(LinuxMachine {
            data_dir,
            launcher,
            shim_command,
            boot_id: proc::boot_id()?,
            child_shims: BTreeMap::new(),
            child_epilogs: BTreeMap::new(),
            ending_epilogs: Vec::new(),
            _lock: lock,
            events: AttemptEvents::new().map_err(AgentError::Events)?,
            to_shims: ShimSender::new().map_err(AgentError::Events)?,
        })
    }

    /// The labels that say how this machine isolates jobs.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.launcher.labels();
        if let Err(error) = logs::probe_hole_punching(&self.data_dir) {
            tracing::warn!(
                "output is not limited here (`agent.log_max_mib`): no hole can be punched into a file: {error}"
            );
            labels.insert(LOG_LIMIT_LABEL.to_string(), "none".to_string());
        }
        labels
    }

    /// The runtime whose images are limited, and the limit in MiB.
    pub fn image_cache(&self) -> Option<(ContainerRuntime, u64)> {
        self.launcher.image_cache()
    }

    /// How long processes may survive SIGKILL before the node is drained.
    pub fn unkillable_after_ms(&self) -> i64 {
        self.launcher.unkillable_after_ms()
    }

    /// True if something of an attempt may have run: a shim took the launch lock, or the power was cut before the lock was
    /// on disk.
    fn may_have_run(&self, attempt_dir: &AttemptDir) -> Result<bool, AgentError> {
        match attempt_dir.launch_lock() {
            Ok(Some(LaunchLock::Shim(_))) | Err(AgentError::CorruptRecord { .. }) => return Ok(true),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let intent = attempt_dir.launch_intent()?;
        Ok(intent.is_some_and(|intent| intent.boot_id != self.boot_id))
    }

    fn is_epilog_running(&mut self, key: &AttemptKey, runner: &ShimRecord) -> bool {
        let is_alive = runner.boot_id == self.boot_id && self.is_shim_alive(runner);
        if is_alive && let Ok(attempt_dir) = self.attempt_dir(key) {
            self.events.watch_shim(key, runner.pid);
            self.events.watch_records(key, &attempt_dir);
        }
        is_alive
    }

    /// Readable while [`take_changed_attempts`](Machine::take_changed_attempts) has something to return.
    pub fn events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    /// Best effort: a shim of an older release has no socket, and one that is suspended does not read.
    fn send_to_shim(&self, key: &AttemptKey, message: &ShimMessage) {
        let sent = self.attempt_dir(key).map(|attempt_dir| self.to_shims.send(&attempt_dir, message));
        if let Ok(Err(error)) = sent {
            tracing::debug!(job = key.job(), "the shim was not told {message:?}: {error}");
        }
    }

    /// Removes the containers of an attempt that has no processes any more. Returns how many may still run: those of a daemon
    /// that does not answer.
    fn remove_containers(&self, attempt_dir: &AttemptDir, isolation: &Isolation) -> Result<Option<usize>, AgentError> {
        let (Some(setup), Some(intent)) = (&isolation.container, attempt_dir.launch_intent()?) else { return Ok(None) };
        match isolation.remove_containers(&intent.order) {
            Ok(()) => Ok(None),
            Err(error) => {
                tracing::warn!(job = intent.order.job, "the containers are not removed: {error}");
                Ok(setup.runtime.kind.has_daemon().then(|| isolation.container_names(&intent.order).len()))
            }
        }
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
        let attempt_dir = self.attempt_dir(key)?;
        attempt_dir.write_isolation(&self.launcher.isolation(&intent.order))?;
        let programs = self.launcher.programs(&intent.order);
        if !programs.is_empty() {
            attempt_dir.write_programs(&programs)?;
        }
        attempt_dir.write_launch_intent(intent)
    }

    fn start_shim(&mut self, key: &AttemptKey, secrets: &[SecretFile]) -> Result<(), AgentError> {
        let attempt_dir = self.attempt_dir(key)?;
        self.events.watch_records(key, &attempt_dir);
        let input = match secrets {
            [] => Stdio::null(),
            secrets => Stdio::from(secret_files::to_memory(secrets).map_err(AgentError::Secrets)?),
        };
        let child = spawn_shim(&self.shim_command, None, &attempt_dir, input)?;
        self.events.watch_shim(key, child_pid(&child));
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

    fn take_changed_attempts(&mut self) -> Vec<AttemptKey> {
        self.events.take()
    }

    fn watch_shim(&mut self, key: &AttemptKey, shim: &ShimRecord) -> bool {
        if self.child_shims.contains_key(key) || !self.events.watch_shim(key, shim.pid) {
            return false;
        }
        if let Ok(attempt_dir) = self.attempt_dir(key) {
            self.events.watch_records(key, &attempt_dir);
        }
        true
    }

    fn renew_self_fence(&mut self, key: &AttemptKey, renewal: &SelfFence) {
        self.send_to_shim(key, &ShimMessage::RenewSelfFence(*renewal));
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.attempt_dir(key)?.write_stop_record(stop)?;
        self.send_to_shim(key, &ShimMessage::StopRecordWritten);
        Ok(())
    }

    fn deliver_signal(&mut self, key: &AttemptKey, signal: &SignalRecord) -> Result<(), AgentError> {
        let attempt_dir = self.attempt_dir(key)?;
        if attempt_dir.signal_record()?.is_none() {
            attempt_dir.write_signal_record(signal)?;
        }
        self.send_to_shim(key, &ShimMessage::SignalRecordWritten);
        Ok(())
    }

    fn unkillable_processes(&mut self, key: &AttemptKey) -> Option<String> {
        let record = self.attempt_dir(key).ok()?.unkillable_record().ok()??;
        Some(record.processes)
    }

    fn describe_attempt_processes(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> String {
        let found = self.attempt_dir(key).and_then(|dir| attempt_processes::find(shim, dir.path()));
        found.map(|found| proc::describe(&found)).unwrap_or_default()
    }

    fn epilog_status(&mut self, key: &AttemptKey) -> Result<EpilogStatus, AgentError> {
        let attempt_dir = self.attempt_dir(key)?;
        let has_programs = match attempt_dir.programs() {
            Ok(programs) => programs.is_some_and(|programs| programs.runs_after_the_attempt()),
            Err(AgentError::CorruptRecord { .. }) => false, // A power cut tore the record before the launch.
            Err(error) => return Err(error),
        };
        if !has_programs || !self.may_have_run(&attempt_dir)? {
            return Ok(EpilogStatus::NotOwed);
        }
        let is_child_running =
            self.child_epilogs.get_mut(key).is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        // Read after that: a process that has ended has written its result.
        match attempt_dir.epilog_record() {
            Ok(Some(EpilogRecord { result: Some(result), .. })) => return Ok(EpilogStatus::Ended(result)),
            Ok(Some(record)) if self.is_epilog_running(key, &record.runner) => return Ok(EpilogStatus::Running),
            Ok(_) | Err(AgentError::CorruptRecord { .. }) => {}
            Err(error) => return Err(error),
        }
        if is_child_running {
            return Ok(EpilogStatus::Running);
        }
        self.child_epilogs.remove(key);
        Ok(EpilogStatus::Owed)
    }

    fn start_epilog(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let attempt_dir = self.attempt_dir(key)?;
        match attempt_dir.epilog_record() {
            Ok(None) => {}
            // One that an earlier agent started has taken the lock since.
            Ok(Some(record)) if self.is_epilog_running(key, &record.runner) => return Ok(()),
            Ok(Some(_)) | Err(AgentError::CorruptRecord { .. }) => attempt_dir.remove_epilog_record()?,
            Err(error) => return Err(error),
        }
        self.events.watch_records(key, &attempt_dir);
        let child = spawn_shim(&self.shim_command, Some(AFTER_ATTEMPT_FLAG), &attempt_dir, Stdio::null())?;
        self.events.watch_shim(key, child_pid(&child));
        self.child_epilogs.insert(key.clone(), child);
        Ok(())
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let attempt_dir = self.attempt_dir(key)?;
        // The cgroup first: processes that fork faster than they are listed do not escape.
        // An unreadable record must not keep the attempt from ending: a power cut may have torn it.
        let isolation = attempt_dir.isolation().unwrap_or_else(|error| {
            tracing::warn!("the cgroup of {} is not searched: {error}", key.job());
            Isolation::none()
        });
        let in_cgroup = isolation.kill();
        let found = attempt_processes::kill_attempt_processes(shim, attempt_dir.path())?.max(in_cgroup);
        if found > 0 {
            return Ok(found);
        }
        if let Some(containers) = self.remove_containers(&attempt_dir, &isolation)? {
            return Ok(containers);
        }
        isolation.remove_cgroups();
        attempt_dir.remove_container_dir();
        isolation.remove_secrets(attempt_dir.path());
        remove_private_tmp_in_background(attempt_dir);
        Ok(0)
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
        self.events.unwatch_records(key);
        // It has written its result, so it need not be waited for.
        self.ending_epilogs.extend(self.child_epilogs.remove(key));
        self.ending_epilogs.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        self.attempt_dir(key)?.clean_up()
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, placed_at_ms: i64) -> Result<(), AgentError> {
        self.attempt_dir(key)?.archive(placed_at_ms)
    }
}

/// Removal may take minutes, and the thread of the agent sends the heartbeats.
fn remove_private_tmp_in_background(attempt_dir: AttemptDir) {
    let removal = std::thread::Builder::new().name("remove-tmp".to_string());
    if let Err(error) = removal.spawn(move || attempt_dir.remove_private_tmp()) {
        tracing::warn!("the private `/tmp` of an attempt stays on the disk: {error}");
    }
}

impl Drop for LinuxMachine {
    /// Attempts that are not cleaned up may still need the cgroup of this agent.
    fn drop(&mut self) {
        if attempt_dir::uncleaned_attempts(&self.data_dir).is_empty() {
            self.launcher.close();
        }
    }
}

/// The process of a shim. Pid and start time must match, because the kernel reuses pids.
fn process_of_shim(shim: &ShimRecord) -> Option<proc::Process> {
    proc::process(shim.pid).filter(|process| process.start_time == shim.start_time)
}

fn child_pid(child: &Child) -> i32 {
    rustix::process::Pid::from_child(child).as_raw_nonzero().get()
}

fn spawn_shim(
    shim_command: &[OsString],
    flag: Option<&str>,
    attempt_dir: &AttemptDir,
    input: Stdio,
) -> Result<Child, AgentError> {
    let Some((program, args)) = shim_command.split_first() else { return Err(AgentError::NoShimCommand) };
    let log_path = attempt_dir.shim_log_path();
    let log = logs::open_to_append(&log_path).map_err(|source| AgentError::Write { path: log_path, source })?;
    let mut command = Command::new(program);
    command.args(args).args(flag).arg(attempt_dir.path()).current_dir("/");
    command.stdin(input).stdout(Stdio::null()).stderr(log);
    command.spawn().map_err(|source| AgentError::ShimSpawn { program: program.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::TempDir;

    fn open_machine(dir: &Path, shim_command: Vec<OsString>) -> LinuxMachine {
        let launcher = LauncherConfig { use_cgroups: false, ..LauncherConfig::default() };
        LinuxMachine::open("n1", dir, shim_command, launcher).unwrap()
    }

    #[test]
    fn a_shim_is_recognised_by_its_arguments() {
        let dir = TempDir::new();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<OsString>>();
        let machine = open_machine(&dir, words(&["/old/muster", "shim"]));
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
        let mut machine = open_machine(&dir, Vec::new());
        let own = proc::process(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (pid, start_time, session) = (own.pid, own.start_time, own.session);
        let shim = ShimRecord { pid, start_time, boot_id: machine.boot_id.clone(), session, process_group: None };
        assert!(machine.is_shim_alive(&shim));
        assert!(!machine.is_shim_alive(&ShimRecord { start_time: start_time + 1, ..shim }));
    }
}
