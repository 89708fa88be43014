//! Adapter (Machine): a machine for unit tests, whose shims come at once and end when they are told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, ShimRecord, StopRecord};

/// What lies in the folder of one attempt.
#[derive(Debug, Default)]
struct FakeAttemptDir {
    intent: Option<LaunchIntent>,
    claim: Option<LaunchLock>,
    stop: Option<StopRecord>,
    exit: Option<ExitRecord>,
}

/// The machine, and what was done to it.
#[derive(Debug, Default)]
pub struct FakeMachine {
    attempt_dirs: BTreeMap<AttemptKey, FakeAttemptDir>,
    /// The shims that live, by pid.
    live_shims: BTreeMap<i32, AttemptKey>,
    /// Each shim that was started.
    pub launches: Vec<AttemptKey>,
    /// Each attempt of which something was killed.
    pub killed: Vec<AttemptKey>,
    /// Nothing can be written.
    pub is_disk_full: bool,
    /// No shim can be started.
    pub fails_to_start_shims: bool,
    /// Records that cannot be understood.
    pub corrupt_records: BTreeSet<&'static str>,
}

impl FakeMachine {
    /// The shim of an attempt, if it ever had one.
    pub fn shim(&self, key: &AttemptKey) -> Option<ShimRecord> {
        match self.attempt_dirs.get(key)?.claim.clone()? {
            LaunchLock::Shim(shim) => Some(shim),
            LaunchLock::Abandoned => None,
        }
    }

    /// The tasks end, and the shim with them, in good order.
    pub fn finish_attempt(&mut self, key: &AttemptKey, exit: ExitRecord) {
        self.attempt_dir(key).exit = Some(exit);
        self.lose_shim(key);
    }

    /// The shim ends without a word.
    pub fn lose_shim(&mut self, key: &AttemptKey) {
        self.live_shims.retain(|_, of| of != key);
    }

    /// Somebody deletes every folder; processes are not concerned.
    pub fn lose_records(&mut self) {
        self.attempt_dirs.clear();
    }

    fn shim_record(&self, pid: i32) -> ShimRecord {
        let boot_id = self.boot_id().to_string();
        ShimRecord { pid, start_time: 1, boot_id, session: pid, process_group: Some(pid) }
    }

    fn attempt_dir(&mut self, key: &AttemptKey) -> &mut FakeAttemptDir {
        self.attempt_dirs.entry(key.clone()).or_default()
    }

    fn read_record<T>(&self, name: &'static str, record: Option<T>) -> Result<Option<T>, AgentError> {
        if !self.corrupt_records.contains(name) {
            return Ok(record);
        }
        let source = muster_json::from_slice::<LaunchIntent>(b"{").unwrap_err();
        Err(AgentError::CorruptRecord { path: PathBuf::from(name), source })
    }

    fn check_disk_space(&self, name: &str) -> Result<(), AgentError> {
        let full = AgentError::Write { path: PathBuf::from(name), source: io::ErrorKind::StorageFull.into() };
        if self.is_disk_full { Err(full) } else { Ok(()) }
    }
}

impl Machine for FakeMachine {
    fn boot_id(&self) -> &str {
        "boot"
    }

    fn uncleaned_attempts(&mut self) -> Vec<AttemptKey> {
        let launched = self.attempt_dirs.iter().filter(|(_, dir)| dir.intent.is_some());
        let launched: BTreeSet<&AttemptKey> =
            launched.map(|(key, _)| key).chain(self.live_shims.values()).collect();
        launched.into_iter().cloned().collect()
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        let found = self.attempt_dir(key).intent.clone();
        self.read_record("intent", found)
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        let found = self.attempt_dir(key).claim.clone();
        self.read_record("claim", found)
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        let found = self.attempt_dir(key).stop.clone();
        self.read_record("stop", found)
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        let found = self.attempt_dir(key).exit.clone();
        self.read_record("exit", found)
    }

    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool {
        self.live_shims.contains_key(&shim.pid)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let found = self.live_shims.iter().find(|(_, of)| *of == key);
        Ok(found.map(|(pid, _)| self.shim_record(*pid)))
    }

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError> {
        self.check_disk_space("intent")?;
        self.attempt_dir(key).intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        if self.fails_to_start_shims {
            return Err(AgentError::NoShimCommand);
        }
        self.launches.push(key.clone());
        let pid = 100 + i32::try_from(self.launches.len()).unwrap();
        self.live_shims.insert(pid, key.clone());
        self.attempt_dir(key).claim = Some(LaunchLock::Shim(self.shim_record(pid)));
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        self.shim(key).is_some_and(|shim| self.live_shims.contains_key(&shim.pid))
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        let claim = &mut self.attempt_dir(key).claim;
        let is_free = claim.is_none();
        claim.get_or_insert(LaunchLock::Abandoned);
        Ok(is_free)
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.check_disk_space("stop")?;
        self.attempt_dir(key).stop = Some(stop.clone());
        Ok(())
    }

    fn kill_attempt_processes(
        &mut self,
        key: &AttemptKey,
        _: Option<&ShimRecord>,
    ) -> Result<usize, AgentError> {
        let is_first = !self.killed.contains(key);
        if is_first {
            self.killed.push(key.clone());
        }
        Ok(usize::from(is_first))
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        self.live_shims.remove(&shim.pid);
    }

    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        self.check_disk_space("exit")?;
        self.attempt_dir(key).exit = Some(exit.clone());
        Ok(())
    }

    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let exit = self.attempt_dir(key).exit.take();
        self.attempt_dirs.insert(key.clone(), FakeAttemptDir { exit, ..FakeAttemptDir::default() });
        Ok(())
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        self.attempt_dirs.remove(key);
        Ok(())
    }
}
