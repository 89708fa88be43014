//! Port: the machine under an agent: folders of attempts, shims and processes.
//!
//! What to do when, and what follows from what is found, is the desk's (`desk.rs`). Here is one method for
//! each thing that can be looked at or done, so that the real machine and a simulated one differ in nothing
//! else. That makes the port wide; wider calls would move decisions into each machine.

mod linux;

use crate::error::AgentError;
use crate::records::{Claim, ExitRecord, Intent, ShimRecord, StopRecord};

pub use crate::attempt_key::AttemptKey;
pub(crate) use linux::Linux;

/// One machine. A method that fails may have done its work or not.
///
/// When [`begin`](Machine::begin), [`abandon`](Machine::abandon), [`ask_to_stop`](Machine::ask_to_stop) or
/// [`end`](Machine::end) has returned, what it wrote survives a power cut; but the end of what was never
/// begun may be lost. What was tidied up or set aside may be back after a power cut, until the next `begin`
/// of that attempt.
pub trait Machine {
    /// Different after each start of the machine: pids of another boot mean nothing.
    fn boot_id(&self) -> &str;

    /// The attempts that were launched here and not yet tidied up, in any order; with those whose shim lives although
    /// their records are gone.
    fn untidied(&mut self) -> Vec<AttemptKey>;

    /// What was to be launched. A record that is there and cannot be understood is [`AgentError::Damaged`].
    fn intent(&mut self, key: &AttemptKey) -> Result<Option<Intent>, AgentError>;

    /// Who has it.
    fn claim(&mut self, key: &AttemptKey) -> Result<Option<Claim>, AgentError>;

    /// What its shim was told last about its end.
    fn stop(&mut self, key: &AttemptKey) -> Result<Option<StopRecord>, AgentError>;

    /// How it ended.
    fn exit(&mut self, key: &AttemptKey) -> Result<Option<ExitRecord>, AgentError>;

    /// Whether this very process lives. Asked only for shims of this boot.
    fn lives(&mut self, shim: &ShimRecord) -> bool;

    /// The living shim of an attempt whose records do not name it, by what the kernel knows of its processes. Records may
    /// be deleted under a running job; that they are missing proves nothing.
    fn find_shim(&mut self, key: &AttemptKey) -> Result<Option<ShimRecord>, AgentError>;

    /// Say what will be launched.
    fn begin(&mut self, key: &AttemptKey, intent: &Intent) -> Result<(), AgentError>;

    /// Start the shim of an attempt that was begun. It takes the attempt in its own time, or fails.
    fn start_shim(&mut self, key: &AttemptKey) -> Result<(), AgentError>;

    /// Whether the shim that this agent started has not been seen to end. As its parent we must look at its
    /// end, or it stays as a zombie.
    fn is_our_shim_up(&mut self, key: &AttemptKey) -> bool;

    /// What a shim wrote before it failed, from the beginning; empty if it cannot be read.
    fn shim_log(&mut self, key: &AttemptKey, bytes_max: usize) -> String;

    /// Take the attempt, so that no shim can any more. False if somebody has it already.
    fn abandon(&mut self, key: &AttemptKey) -> Result<bool, AgentError>;

    /// Tell its shim that it must end, in place of what it was told before.
    fn ask_to_stop(&mut self, key: &AttemptKey, stop: &StopRecord) -> Result<(), AgentError>;

    /// Kill everything that belongs to an attempt except its shim, and say how many there were. Zero means
    /// that nothing is left; a process that was just killed still counts, so the caller comes again.
    fn kill(&mut self, key: &AttemptKey, shim: Option<&ShimRecord>) -> Result<usize, AgentError>;

    /// Kill the shim itself. If it cannot be done, the caller sees that the shim lives and comes again.
    fn kill_shim(&mut self, shim: &ShimRecord);

    /// Write down how it ended, in place of what was written before.
    fn end(&mut self, key: &AttemptKey, exit: &ExitRecord) -> Result<(), AgentError>;

    /// Remove what nobody needs after the end. Logs, the exit record and the job's own files stay.
    fn tidy(&mut self, key: &AttemptKey) -> Result<(), AgentError>;

    /// Make room for another attempt of the same number, and keep this one's logs.
    fn set_aside(&mut self, key: &AttemptKey, placed_at_ms: i64) -> Result<(), AgentError>;
}
