//! The status of an attempt, from its records and from whether its shim is alive.

use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{ExitRecord, LaunchLock, ShimRecord};

/// The status of an attempt on this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptStatus {
    /// No launch was tried here, or the records were deleted.
    NoRecords,
    /// There is a launch intent, and the launch lock is not taken.
    LaunchPending,
    /// The shim is alive. The tasks run if their process group is known.
    ShimAlive(ShimRecord),
    /// The shim is gone and there is no exit record. `shim` locates its tasks if the shim was of this boot.
    ShimLost { why: String, shim: Option<ShimRecord> },
    /// The attempt is over, and no process of it is left.
    Exited(ExitRecord),
}

/// Whether an attempt without records may have processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PossibleProcesses {
    /// The attempt was not launched, or its shim is known already.
    NotExpected,
    /// This agent has launched the attempt and the shim runs, but has not taken the launch lock, or its records are
    /// gone.
    ShimStarting,
    /// This agent or a previous one may have launched the attempt.
    Unknown,
}

/// Returns the status of an attempt. A corrupt record counts as a lost shim, so that the attempt cannot run
/// unobserved. A read error is returned and retried. If records are missing, `possible_processes` says whether to
/// search the processes.
pub(super) fn read_attempt_status(
    machine: &mut impl Machine,
    key: &AttemptKey,
    boot_id: &str,
    possible_processes: PossibleProcesses,
) -> Result<AttemptStatus, AgentError> {
    match status_from_records(machine, key, boot_id) {
        Ok(AttemptStatus::NoRecords) if possible_processes != PossibleProcesses::NotExpected => {
            status_from_processes(machine, key)
        }
        Ok(AttemptStatus::LaunchPending) if possible_processes == PossibleProcesses::Unknown => {
            status_from_processes(machine, key)
        }
        Err(corrupt @ AgentError::CorruptRecord { .. }) => {
            Ok(AttemptStatus::ShimLost { why: corrupt.to_string(), shim: None })
        }
        read => read,
    }
}

/// The placement time of the attempt whose records are here; `None` without records.
pub(super) fn recorded_placed_at_ms(machine: &mut impl Machine, key: &AttemptKey) -> Result<Option<i64>, AgentError> {
    if let Some(exit) = machine.exit_record(key)? {
        return Ok(Some(exit.placed_at_ms));
    }
    Ok(machine.launch_intent(key)?.map(|intent| intent.order.placed_at_ms))
}

/// The status of an attempt that has no launch lock and may have been launched.
fn status_from_processes(machine: &mut impl Machine, key: &AttemptKey) -> Result<AttemptStatus, AgentError> {
    let found = machine.find_shim(key)?;
    // The shim may have ended since the records were read; then its exit record is there now.
    if let Some(record) = machine.exit_record(key)? {
        return Ok(AttemptStatus::Exited(record));
    }
    Ok(match (machine.launch_intent(key)?, found) {
        // A shim without tasks has not taken the launch lock: the lock decides between shim and agent.
        (Some(_), Some(shim)) if shim.process_group.is_some() => AttemptStatus::ShimAlive(shim),
        (Some(_), _) => AttemptStatus::LaunchPending,
        (None, Some(shim)) => AttemptStatus::ShimAlive(shim),
        (None, None) => AttemptStatus::NoRecords,
    })
}

fn status_from_records(
    machine: &mut impl Machine,
    key: &AttemptKey,
    boot_id: &str,
) -> Result<AttemptStatus, AgentError> {
    let lock = machine.launch_lock(key);
    // First whether the shim is alive, then the exit record: a shim writes the record before it exits, so one of
    // the two is always seen.
    let is_alive =
        matches!(&lock, Ok(Some(LaunchLock::Shim(shim))) if shim.boot_id == boot_id && machine.is_shim_alive(shim));
    // Before a corrupt launch lock is an error: the lock stays corrupt, and must not hide the exit recorded because
    // of it.
    if let Some(record) = machine.exit_record(key)? {
        return Ok(AttemptStatus::Exited(record));
    }
    Ok(match lock? {
        Some(LaunchLock::Shim(shim)) if is_alive => AttemptStatus::ShimAlive(shim),
        Some(LaunchLock::Shim(shim)) if shim.boot_id == boot_id => {
            AttemptStatus::ShimLost { why: "shim lost".to_string(), shim: Some(shim) }
        }
        Some(LaunchLock::Shim(_)) => AttemptStatus::ShimLost { why: "the node was rebooted".to_string(), shim: None },
        Some(LaunchLock::Abandoned) => {
            AttemptStatus::ShimLost { why: "the launch was interrupted".to_string(), shim: None }
        }
        None if machine.launch_intent(key)?.is_some() => AttemptStatus::LaunchPending,
        None => AttemptStatus::NoRecords,
    })
}
