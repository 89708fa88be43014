//! Adapter (Machine): a fake machine for unit tests. Its shims take the launch lock at once and end on command of
//! the test.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use muster_protocol::agent::SecretFile;

use crate::error::AgentError;
use crate::machine::{AttemptKey, EpilogStatus, InMemoryRecords, Machine};
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, SelfFence, ShimRecord, SignalRecord, StopRecord};

/// The machine, with a log of launches and kills.
#[derive(Debug, Default)]
pub struct FakeMachine {
    attempt_dirs: BTreeMap<AttemptKey, InMemoryRecords>,
    /// The attempt of each live shim, by pid.
    live_shims: BTreeMap<i32, AttemptKey>,
    /// Every shim start.
    pub launches: Vec<AttemptKey>,
    /// Every attempt of which processes were killed.
    pub killed: Vec<AttemptKey>,
    /// SIGKILL ends no process.
    pub is_unkillable: bool,
    /// What the shim could not kill.
    pub unkillable_by_shim: Option<String>,
    /// The programs after each attempt; `None` without any.
    pub epilog: Option<EpilogStatus>,
    /// Every start of them.
    pub epilogs: Vec<AttemptKey>,
    /// The early signals that were handed to shims.
    pub signals: Vec<i32>,
    /// Every write fails.
    pub is_disk_full: bool,
    pub fails_to_start_shims: bool,
    /// How often the status of an attempt was read.
    pub looks: usize,
    /// The attempts of which the test says that they may have changed.
    pub changed: Vec<AttemptKey>,
    /// The renewals that were sent to shims.
    pub renewals: Vec<SelfFence>,
    /// The names of records that cannot be parsed.
    pub corrupt_records: BTreeSet<&'static str>,
}

impl FakeMachine {
    /// The shim that took the launch lock of an attempt.
    pub fn shim(&self, key: &AttemptKey) -> Option<ShimRecord> {
        self.attempt_dirs.get(key)?.shim().cloned()
    }

    /// The tasks end, and the shim writes the exit record and exits.
    pub fn finish_attempt(&mut self, key: &AttemptKey, exit: ExitRecord) {
        self.finish_attempt_silently(key, exit);
        self.changed.push(key.clone());
    }

    /// The same, but the event is lost.
    pub fn finish_attempt_silently(&mut self, key: &AttemptKey, exit: ExitRecord) {
        self.attempt_dir(key).exit = Some(exit);
        self.live_shims.retain(|_, of| of != key);
    }

    /// The shim ends without an exit record.
    pub fn lose_shim(&mut self, key: &AttemptKey) {
        self.changed.push(key.clone());
        self.live_shims.retain(|_, of| of != key);
    }

    /// Deletes every attempt directory; processes keep running.
    pub fn lose_records(&mut self) {
        self.changed.extend(self.attempt_dirs.keys().cloned());
        self.attempt_dirs.clear();
    }

    fn shim_record(&self, pid: i32) -> ShimRecord {
        let boot_id = self.boot_id().to_string();
        ShimRecord { pid, start_time: 1, boot_id, session: pid, process_group: Some(pid) }
    }

    fn attempt_dir(&mut self, key: &AttemptKey) -> &mut InMemoryRecords {
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
        let launched = self.attempt_dirs.iter().filter(|(_, dir)| dir.is_launched());
        let launched: BTreeSet<&AttemptKey> = launched.map(|(key, _)| key).chain(self.live_shims.values()).collect();
        launched.into_iter().cloned().collect()
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        let found = self.attempt_dir(key).intent.clone();
        self.read_record("intent", found)
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        let found = self.attempt_dir(key).launch_lock.clone();
        self.read_record("launch_lock", found)
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        let found = self.attempt_dir(key).stop.clone();
        self.read_record("stop", found)
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        self.looks += 1;
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

    fn start_shim(&mut self, key: &AttemptKey, _: &[SecretFile]) -> Result<(), AgentError> {
        if self.fails_to_start_shims {
            return Err(AgentError::NoShimCommand);
        }
        self.launches.push(key.clone());
        let pid = 100 + i32::try_from(self.launches.len()).unwrap();
        self.live_shims.insert(pid, key.clone());
        let shim = self.shim_record(pid);
        self.attempt_dir(key).launch_lock = Some(LaunchLock::Shim(shim));
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        self.shim(key).is_some_and(|shim| self.live_shims.contains_key(&shim.pid))
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        Ok(self.attempt_dir(key).abandon_launch())
    }

    fn take_changed_attempts(&mut self) -> Vec<AttemptKey> {
        std::mem::take(&mut self.changed)
    }

    fn watch_shim(&mut self, _: &AttemptKey, _: &ShimRecord) -> bool {
        false
    }

    fn renew_self_fence(&mut self, _: &AttemptKey, renewal: &SelfFence) {
        self.renewals.push(*renewal);
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.check_disk_space("stop")?;
        self.attempt_dir(key).stop = Some(stop.clone());
        Ok(())
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let is_first = !self.killed.contains(key);
        if is_first {
            self.killed.push(key.clone());
        }
        Ok(usize::from(is_first || self.is_unkillable))
    }

    fn deliver_signal(&mut self, _: &AttemptKey, signal: &SignalRecord) -> Result<(), AgentError> {
        self.signals.push(signal.signal);
        Ok(())
    }

    fn unkillable_processes(&mut self, _: &AttemptKey) -> Option<String> {
        self.unkillable_by_shim.clone()
    }

    fn describe_attempt_processes(&mut self, _: &AttemptKey, _: Option<&ShimRecord>) -> String {
        "pid 7 (cp) in state D".to_string()
    }

    fn epilog_status(&mut self, _: &AttemptKey) -> Result<EpilogStatus, AgentError> {
        Ok(self.epilog.clone().unwrap_or(EpilogStatus::NotOwed))
    }

    fn start_epilog(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        self.epilogs.push(key.clone());
        self.epilog = Some(EpilogStatus::Running);
        Ok(())
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
        self.attempt_dir(key).clean_up();
        Ok(())
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        self.attempt_dirs.remove(key);
        Ok(())
    }
}
