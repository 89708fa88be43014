//! How an attempt stands, from its records and from whether its shim lives.

use crate::error::AgentError;
use crate::machine::{AttemptKey, Machine};
use crate::records::{ExitRecord, LaunchLock, ShimRecord};

/// How an attempt stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AttemptStatus {
    /// Nothing was ever tried here.
    NoRecords,
    /// There is an intent, and no shim has taken the attempt.
    LaunchPending,
    /// Its shim lives. The tasks run as soon as their group is known.
    ShimAlive(ShimRecord),
    /// Its shim is gone without an exit record; where its tasks may be found, if it was of this boot.
    ShimLost { why: String, shim: Option<ShimRecord> },
    /// It is over, and nothing is left of it.
    Exited(ExitRecord),
}

/// Whether an attempt without records may have processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PossibleProcesses {
    /// Nobody has launched it, or it was found already.
    NotExpected,
    /// This agent has launched it, and the shim is up. It has not taken the attempt yet, or its records are gone.
    ShimStarting,
    /// It may have been launched, by this agent or one before.
    Unknown,
}

/// Look. A record that cannot be understood counts as a lost shim: it must not run on unseen. A folder that cannot
/// be read just now is a fault, and we look again. Records that are missing say nothing: `may_run` tells whether the
/// processes are looked for too.
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

/// When the attempt that left its traces here was placed, if there is one.
pub(super) fn recorded_placed_at_ms(
    machine: &mut impl Machine,
    key: &AttemptKey,
) -> Result<Option<i64>, AgentError> {
    if let Some(exit) = machine.exit_record(key)? {
        return Ok(Some(exit.placed_at_ms));
    }
    Ok(machine.launch_intent(key)?.map(|intent| intent.order.placed_at_ms))
}

/// Of an attempt without a claim that may have been launched.
fn status_from_processes(machine: &mut impl Machine, key: &AttemptKey) -> Result<AttemptStatus, AgentError> {
    let found = machine.find_shim(key)?;
    // A shim may have ended since we looked: then its last record is there now.
    if let Some(record) = machine.exit_record(key)? {
        return Ok(AttemptStatus::Exited(record));
    }
    Ok(match (machine.launch_intent(key)?, found) {
        // A shim without tasks has not taken the attempt: whoever takes it first has it.
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
    // First whether it lives, then the exit record: a shim writes it before it goes, so we cannot miss both.
    let is_alive = matches!(&lock, Ok(Some(LaunchLock::Shim(shim))) if shim.boot_id == boot_id && machine.is_shim_alive(shim));
    // Before the claim is judged: one that stays damaged must not hide the end that we wrote for its sake.
    if let Some(record) = machine.exit_record(key)? {
        return Ok(AttemptStatus::Exited(record));
    }
    Ok(match lock? {
        Some(LaunchLock::Shim(shim)) if is_alive => AttemptStatus::ShimAlive(shim),
        Some(LaunchLock::Shim(shim)) if shim.boot_id == boot_id => {
            AttemptStatus::ShimLost { why: "shim lost".to_string(), shim: Some(shim) }
        }
        Some(LaunchLock::Shim(_)) => {
            AttemptStatus::ShimLost { why: "the machine was restarted".to_string(), shim: None }
        }
        Some(LaunchLock::Abandoned) => {
            AttemptStatus::ShimLost { why: "the launch was interrupted".to_string(), shim: None }
        }
        None if machine.launch_intent(key)?.is_some() => AttemptStatus::LaunchPending,
        None => AttemptStatus::NoRecords,
    })
}
