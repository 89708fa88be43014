//! Adapter (Machine): a simulated node.

use muster_protocol::agent::{AttemptOrder, SecretFile};

use super::{BOOT_ID, SimulatedMachine};
use crate::error::AgentError;
use crate::machine::{AttemptKey, EpilogStatus, Machine};
use crate::records::{ExitRecord, LaunchIntent, LaunchLock, SelfFence, ShimRecord, SignalRecord, StopRecord};

impl Machine for SimulatedMachine {
    fn boot_id(&self) -> &str {
        BOOT_ID
    }

    fn uncleaned_attempts(&mut self) -> Vec<AttemptKey> {
        self.attempts.keys().cloned().collect()
    }

    fn restore_attempt(&mut self, key: &AttemptKey, order: &AttemptOrder) {
        if !self.attempts.contains_key(key) {
            self.restore(key, order);
        }
    }

    fn runs_programs(&self) -> bool {
        false
    }

    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError> {
        Ok(self.records(key).and_then(|records| records.intent.clone()))
    }

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError> {
        Ok(self.records(key).and_then(|records| records.launch_lock.clone()))
    }

    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        Ok(self.records(key).and_then(|records| records.stop.clone()))
    }

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        Ok(self.records(key).and_then(|records| records.exit.clone()))
    }

    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool {
        self.live_shims.contains_key(&shim.pid)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let alive = self.attempts.get(key).filter(|attempt| attempt.shim.is_some());
        Ok(alive.and_then(|attempt| attempt.records.shim().cloned()))
    }

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError> {
        self.attempts.entry(key.clone()).or_default().records.intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey, _: &[SecretFile]) -> Result<(), AgentError> {
        self.spawn_shim(key);
        Ok(())
    }

    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool {
        self.attempts.get(key).is_some_and(|attempt| attempt.shim.is_some())
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        Ok(self.attempts.entry(key.clone()).or_default().records.abandon_launch())
    }

    fn take_changed_attempts(&mut self) -> Vec<AttemptKey> {
        std::mem::take(&mut self.changed_attempts)
    }

    /// The ends of all shims are reported anyway.
    fn watch_shim(&mut self, _: &AttemptKey, _: &ShimRecord) -> bool {
        false
    }

    fn renew_self_fence(&mut self, key: &AttemptKey, renewal: &SelfFence) {
        if let Some(shim) = self.attempts.get_mut(key).and_then(|attempt| attempt.shim.as_mut()) {
            shim.renew_self_fence(*renewal);
            self.reschedule(key);
        }
    }

    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.stop_shim(key, stop.clone(), self.now.monotonic_ms);
        Ok(())
    }

    /// Simulated tasks ignore it.
    fn deliver_signal(&mut self, _: &AttemptKey, _: &SignalRecord) -> Result<(), AgentError> {
        Ok(())
    }

    /// Simulated tasks obey SIGKILL.
    fn unkillable_processes(&mut self, _: &AttemptKey) -> Option<String> {
        None
    }

    fn describe_attempt_processes(&mut self, _: &AttemptKey, _: Option<&ShimRecord>) -> String {
        String::new()
    }

    /// Simulated nodes have no site programs.
    fn epilog_status(&mut self, _: &AttemptKey) -> Result<EpilogStatus, AgentError> {
        Ok(EpilogStatus::NotOwed)
    }

    fn start_epilog(&mut self, _: &AttemptKey) -> Result<(), AgentError> {
        Ok(())
    }

    fn kill_attempt_processes(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let Some(shim) = self.attempts.get_mut(key).and_then(|attempt| attempt.shim.as_mut()) else { return Ok(0) };
        let (killed, step) = (shim.running_tasks(), shim.kill());
        self.take_step(key, self.now.monotonic_ms, step);
        Ok(killed)
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        if let Some(key) = self.live_shims.get(&shim.pid).cloned() {
            self.remove_shim(&key);
            self.changed_attempts.push(key);
        }
    }

    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        self.attempts.entry(key.clone()).or_default().records.exit = Some(exit.clone());
        Ok(())
    }

    /// Nothing stays, not even the exit record: a machine without a disk must not grow with every job.
    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        self.remove_shim(key);
        self.attempts.remove(key);
        Ok(())
    }

    fn archive_attempt_dir(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        self.clean_up(key)
    }
}
