//! Adapter (Machine): a machine for unit tests, whose shims come at once and end when they are told to.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};

/// What lies in the folder of one attempt.
#[derive(Debug, Default)]
struct Traces {
    intent: Option<Intent>,
    claim: Option<Claim>,
    stop: Option<StopRecord>,
    exit: Option<ExitRecord>,
}

/// The machine, and what was done to it.
#[derive(Debug, Default)]
pub struct Memory {
    traces: BTreeMap<AttemptKey, Traces>,
    /// The shims that live, by pid.
    living: BTreeMap<i32, AttemptKey>,
    /// Each shim that was started.
    pub launches: Vec<AttemptKey>,
    /// Each attempt of which something was killed.
    pub killed: Vec<AttemptKey>,
    /// Nothing can be written.
    pub is_full: bool,
    /// No shim can be started.
    pub has_no_shim: bool,
    /// Records that cannot be understood.
    pub damaged: BTreeSet<&'static str>,
}

impl Memory {
    /// The shim of an attempt, if it ever had one.
    pub fn shim(&self, key: &AttemptKey) -> Option<ShimRecord> {
        match self.traces.get(key)?.claim.clone()? {
            Claim::Shim(shim) => Some(shim),
            Claim::Abandoned => None,
        }
    }

    /// The tasks end, and the shim with them, in good order.
    pub fn finish(&mut self, key: &AttemptKey, exit: ExitRecord) {
        self.traces(key).exit = Some(exit);
        self.lose_shim(key);
    }

    /// The shim ends without a word.
    pub fn lose_shim(&mut self, key: &AttemptKey) {
        self.living.retain(|_, of| of != key);
    }

    /// Somebody deletes every folder; processes are not concerned.
    pub fn lose_records(&mut self) {
        self.traces.clear();
    }

    fn record_of(&self, pid: i32) -> ShimRecord {
        let boot_id = self.boot_id().to_string();
        ShimRecord { pid, start_time: 1, boot_id, session: pid, group: Some(pid) }
    }

    fn traces(&mut self, key: &AttemptKey) -> &mut Traces {
        self.traces.entry(key.clone()).or_default()
    }

    fn read<T>(&self, name: &'static str, record: Option<T>) -> Result<Option<T>, AgentError> {
        if !self.damaged.contains(name) {
            return Ok(record);
        }
        let source = muster_json::from_slice::<Intent>(b"{").unwrap_err();
        Err(AgentError::Damaged { path: PathBuf::from(name), source })
    }

    fn check_room(&self, name: &str) -> Result<(), AgentError> {
        let full = AgentError::Write { path: PathBuf::from(name), source: io::ErrorKind::StorageFull.into() };
        if self.is_full { Err(full) } else { Ok(()) }
    }
}

impl Machine for Memory {
    fn boot_id(&self) -> &str {
        "boot"
    }

    fn untidied(&mut self) -> Vec<AttemptKey> {
        let launched = self.traces.iter().filter(|(_, traces)| traces.intent.is_some());
        let launched: BTreeSet<&AttemptKey> =
            launched.map(|(key, _)| key).chain(self.living.values()).collect();
        launched.into_iter().cloned().collect()
    }

    fn intent(&mut self, key: &AttemptKey) -> Result<Option<Intent>, AgentError> {
        let found = self.traces(key).intent.clone();
        self.read("intent", found)
    }

    fn claim(&mut self, key: &AttemptKey) -> Result<Option<Claim>, AgentError> {
        let found = self.traces(key).claim.clone();
        self.read("claim", found)
    }

    fn stop(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError> {
        let found = self.traces(key).stop.clone();
        self.read("stop", found)
    }

    fn exit(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError> {
        let found = self.traces(key).exit.clone();
        self.read("exit", found)
    }

    fn lives(&mut self, shim: &ShimRecord) -> bool {
        self.living.contains_key(&shim.pid)
    }

    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError> {
        let found = self.living.iter().find(|(_, of)| *of == key);
        Ok(found.map(|(pid, _)| self.record_of(*pid)))
    }

    fn begin(&mut self, key: &AttemptKey, intent: &Intent) -> Result<(), AgentError> {
        self.check_room("intent")?;
        self.traces(key).intent = Some(intent.clone());
        Ok(())
    }

    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        if self.has_no_shim {
            return Err(AgentError::NoShim);
        }
        self.launches.push(key.clone());
        let pid = 100 + i32::try_from(self.launches.len()).unwrap();
        self.living.insert(pid, key.clone());
        self.traces(key).claim = Some(Claim::Shim(self.record_of(pid)));
        Ok(())
    }

    fn is_our_shim_up(&mut self, key: &AttemptKey) -> bool {
        self.shim(key).is_some_and(|shim| self.living.contains_key(&shim.pid))
    }

    fn shim_log(&mut self, _: &AttemptKey, _: usize) -> String {
        String::new()
    }

    fn abandon(&mut self, key: &AttemptKey) -> Result<bool, AgentError> {
        let claim = &mut self.traces(key).claim;
        let is_free = claim.is_none();
        claim.get_or_insert(Claim::Abandoned);
        Ok(is_free)
    }

    fn ask_to_stop(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError> {
        self.check_room("stop")?;
        self.traces(key).stop = Some(stop.clone());
        Ok(())
    }

    fn kill(&mut self, key: &AttemptKey, _: Option<&ShimRecord>) -> Result<usize, AgentError> {
        let is_first = !self.killed.contains(key);
        if is_first {
            self.killed.push(key.clone());
        }
        Ok(usize::from(is_first))
    }

    fn kill_shim(&mut self, shim: &ShimRecord) {
        self.living.remove(&shim.pid);
    }

    fn end(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError> {
        self.check_room("exit")?;
        self.traces(key).exit = Some(exit.clone());
        Ok(())
    }

    fn tidy(&mut self, key: &AttemptKey) -> Result<(), AgentError> {
        let exit = self.traces(key).exit.take();
        self.traces.insert(key.clone(), Traces { exit, ..Traces::default() });
        Ok(())
    }

    fn set_aside(&mut self, key: &AttemptKey, _: i64) -> Result<(), AgentError> {
        self.traces.remove(key);
        Ok(())
    }
}
