//! Port: the machine under an agent: attempt directories, shims and processes.
//!
//! The reconciler (`reconciler.rs`) makes all decisions. The port has one method for each observation and each
//! effect, so that the real machine and a simulated one differ in nothing else. The port is therefore wide; fewer,
//! larger calls would move decisions into each machine.

mod attempt_events;
mod in_memory_records;
mod linux;

use muster_protocol::agent::{AttemptOrder, SecretFile};

use crate::error::AgentError;
use crate::records::{
    EpilogResult, ExitRecord, LaunchIntent, LaunchLock, SelfFence, ShimRecord, SignalRecord, StopRecord,
};

pub use crate::attempt_key::AttemptKey;
pub use in_memory_records::InMemoryRecords;
pub(crate) use linux::LinuxMachine;

/// The programs of the site after an attempt: its epilog, and the health program if it runs between jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EpilogStatus {
    /// The site has none, or nothing of the attempt was started.
    NotOwed,
    /// They have not run, or the process that ran them is gone without a result.
    Owed,
    Running,
    Ended(EpilogResult),
}

/// One machine. A method that fails may or may not have taken effect.
///
/// When [`write_launch_intent`](Machine::write_launch_intent), [`abandon_launch`](Machine::abandon_launch),
/// [`write_stop_record`](Machine::write_stop_record) or [`write_exit_record`](Machine::write_exit_record) has
/// returned, the record survives a power cut. Exception: the exit record of an attempt without a launch intent may
/// be lost. Records that were cleaned up or archived may be back after a power cut, until the next launch intent of
/// the attempt.
pub trait Machine {
    /// The id of the current boot. Pids of another boot mean nothing.
    fn boot_id(&self) -> &str;

    /// The attempts that were launched here and are not cleaned up, in any order, including those whose records are
    /// gone but whose shim is alive.
    fn uncleaned_attempts(&mut self) -> Vec<AttemptKey>;

    /// The server knows that the attempt has started here, and this agent does not track it yet. Called before its records
    /// are read. A machine whose records do not outlive the agent restores them from the order; any other has them, or has
    /// lost them.
    fn restore_attempt(&mut self, _key: &AttemptKey, _order: &AttemptOrder) {}

    /// False if programs are only simulated, so that a launch does not wait for the secrets of the job.
    fn runs_programs(&self) -> bool {
        true
    }

    /// `None` if there is no record. A record that cannot be parsed is [`AgentError::CorruptRecord`].
    fn launch_intent(&mut self, key: &AttemptKey) -> Result<Option<LaunchIntent>, AgentError>;

    fn launch_lock(&mut self, key: &AttemptKey) -> Result<Option<LaunchLock>, AgentError>;

    /// The last stop record that was written for the shim.
    fn stop_record(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError>;

    fn exit_record(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError>;

    /// True if this very process is alive. Called only for shims of the current boot.
    fn is_shim_alive(&mut self, shim: &ShimRecord) -> bool;

    /// Searches the processes for the live shim of an attempt. Records may be deleted under a running job, so missing
    /// records do not prove that the attempt is over.
    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError>;

    fn write_launch_intent(&mut self, key: &AttemptKey, intent: &LaunchIntent) -> Result<(), AgentError>;

    /// Starts the shim of an attempt whose launch intent is written, with the secrets of the job, which are written nowhere.
    /// The shim takes the launch lock later, or fails.
    fn start_shim(&mut self, key: &AttemptKey, secrets: &[SecretFile]) -> Result<(), AgentError>;

    /// True if this agent started the shim and has not reaped it yet. The agent is the parent of the shim: without
    /// this call an ended shim stays a zombie.
    fn is_child_shim_running(&mut self, key: &AttemptKey) -> bool;

    /// The first bytes of the shim's log; empty if the log cannot be read.
    fn shim_log(&mut self, key: &AttemptKey, bytes_max: usize) -> String;

    /// Takes the launch lock, so that no shim can. False if the lock is already taken.
    fn abandon_launch(&mut self, key: &AttemptKey) -> Result<bool, AgentError>;

    /// The attempts of which something may have changed since the last call: their records, or whether their shim is
    /// alive. An event may be lost, so each attempt is looked at from time to time anyway.
    fn take_changed_attempts(&mut self) -> Vec<AttemptKey>;

    /// Reports the end of a shim that another agent started, from now on. True if it was not watched before: the shim
    /// may have ended in between, so the caller looks again. A shim that this agent started is watched anyway.
    fn watch_shim(&mut self, key: &AttemptKey, shim: &ShimRecord) -> bool;

    /// Tells the shim that a leader acknowledged a heartbeat. Nothing is written, and the message may be lost.
    fn renew_self_fence(&mut self, key: &AttemptKey, renewal: &SelfFence);

    /// Writes the stop record for the shim, in place of an earlier one, and wakes the shim.
    fn write_stop_record(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError>;

    /// Writes the signal record for the shim, unless there is one, and wakes the shim.
    fn deliver_signal(&mut self, key: &AttemptKey, signal: &SignalRecord) -> Result<(), AgentError>;

    /// The processes that the shim of an attempt could not kill, for people; `None` if it has not given up on any.
    fn unkillable_processes(&mut self, key: &AttemptKey) -> Option<String>;

    /// The live processes of an attempt except its shim, for people.
    fn describe_attempt_processes(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> String;

    /// Called for an attempt with an exit record.
    fn epilog_status(&mut self, key: &AttemptKey) -> Result<EpilogStatus, AgentError>;

    /// Starts a process that runs the programs after an attempt, outlives the agent and records the result. Called while
    /// they are owed.
    fn start_epilog(&mut self, key: &AttemptKey) -> Result<(), AgentError>;

    /// Kills all processes of an attempt except its shim and returns how many it found. Zero means that none is
    /// left. A process that was just killed still counts, so the caller repeats the call.
    fn kill_attempt_processes(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> Result<usize, AgentError>;

    /// Kills the shim. If the signal fails, the caller finds the shim alive and repeats the call.
    fn kill_shim(&mut self, shim: &ShimRecord);

    /// Writes the exit record, in place of an earlier one.
    fn write_exit_record(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError>;

    /// Removes the records that an ended attempt no longer needs. Logs, the exit record and the job's own files stay.
    fn clean_up(&mut self, key: &AttemptKey) -> Result<(), AgentError>;

    /// Moves the attempt directory aside, with its logs, to make room for another attempt of the same number.
    fn archive_attempt_dir(&mut self, key: &AttemptKey, placed_at_ms: i64) -> Result<(), AgentError>;
}
